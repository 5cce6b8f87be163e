// SPDX-License-Identifier: Apache-2.0
//
// What a lossy reduce does to the gradients of all replicas, written down a second time and simply, and what training
// with it comes to. A Trainer under that reduce has the same bits.
#pragma once

#include "test/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tiny {

/// The gradients of one bucket: [replica][element].
using OfReplicas = std::vector<std::vector<float>>;

template <class R> class ExactModel;

/// Element i is added up by the replica whose share it is: its own gradient as it is, then those of the ranks below it,
/// downwards and around, each rounded to W. The sum is rounded to W.
template <class W> class ExactModel<Compressed<W>> {
 public:
  std::vector<float> sum(OfReplicas const& of) {
    auto const replicas = static_cast<int>(of.size());
    auto const n        = of[0].size();
    auto const rounded  = [](float value) { return static_cast<float>(static_cast<W>(value)); };
    auto sums           = std::vector<float>(n);
    for (int owner = 0; owner < replicas; ++owner) {
      auto const mine = share(n, owner, replicas);
      for (auto i = mine.begin; i < mine.end; ++i) {
        sums[i] = of[static_cast<std::size_t>(owner)][i];
        for (int k = 1; k < replicas; ++k)
          sums[i] += rounded(of[static_cast<std::size_t>((owner + replicas - k) % replicas)][i]);
        sums[i] = rounded(sums[i]);
      }
    }
    return sums;
  }
};

/// Each replica adds its gradient to what it has not sent so far, sends the PerMille / 1000 largest elements by size,
/// the earlier one first where two are equal, and keeps the others.
template <int PerMille> class ExactModel<TopK<PerMille>> {
 public:
  std::vector<float> sum(OfReplicas const& of) {
    auto const n = of[0].size();
    auto const k = (n * PerMille + 999) / 1000;
    kept_.resize(of.size(), std::vector<float>(n));
    auto sums = std::vector<float>(n);
    for (std::size_t replica = 0; replica < of.size(); ++replica) {
      auto& kept = kept_[replica];
      for (std::size_t i = 0; i < n; ++i) kept[i] += of[replica][i];
      auto order = std::vector<std::size_t>(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::stable_sort(order, [&](auto a, auto b) { return std::abs(kept[a]) > std::abs(kept[b]); });
      for (std::size_t j = 0; j < k; ++j) {
        sums[order[j]] += kept[order[j]];
        kept[order[j]] = 0;
      }
    }
    return sums;
  }

 private:
  OfReplicas kept_;
};

/// The values of all variables after one pass over `data` on these devices, where the sums of gradients in each step
/// are those of ExactModel<R>. Nothing is sent.
template <class R> std::vector<float> values_by_model(std::vector<Cpu> const& devices, Batches<int> const& data) {
  static_assert(Small::plan.buckets == 1, "the models above are of one bucket");
  auto live   = Live{MirroredStrategy{devices}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(learner(), 7);
  auto model  = ExactModel<R>{};
  for (auto& batch : live.distribute(data)) {
    live.run([](auto& replica, auto& copy, Batch& part) { replica.value_and_gradient(copy, part); }, copies, batch);
    auto of   = OfReplicas{};
    auto rows = 0.0F;
    for (auto& copy : copies) {
      auto const body = copy.gradients().body();
      of.emplace_back(body.begin(), body.end());
      rows += copy.gradients().rows();
    }
    auto const sums = of.size() == 1 ? of[0] : model.sum(of);  // alone, nothing travels
    for (auto& copy : copies) {
      auto gradients = copy.gradients();
      std::ranges::copy(sums, gradients.body().begin());
      gradients.header().rows() = rows;
    }
    live.run([](auto&, auto& copy) { copy.optimizer.apply(copy.net.variables(), copy.gradients()); }, copies);
  }
  auto const body = copies[0].net.variables().body();
  return {body.begin(), body.end()};
}

}  // namespace tiny
