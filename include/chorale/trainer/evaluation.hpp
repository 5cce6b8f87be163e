// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/strategy/live.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/model_replicas.hpp>
#include <chorale/trainer/options.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

namespace chorale::detail {

/// Loss and metrics of all rows of the data, computed by all replicas. See Trainer::evaluate().
template <class M, class S, class R, class T, Dataset Data>
Scores evaluate_all(ModelReplicas<M, S, R, T>& replicas, Data const& data) {
  using Replicas  = ModelReplicas<M, S, R, T>;
  using instance  = typename Replicas::instance;
  using Batch     = BatchOf<M, typename Data::element>;
  auto& live      = replicas.live();
  auto& copies    = replicas.copies();
  auto const mine = live.hold();
  if (replicas.only_serves()) return Scores{M::metric_names};
  auto all    = PerReplica<Totals>(copies.size());  // separate from the totals of a running epoch
  auto shares = live.distribute(data);
  replicas.states().forget(metric::Over::evaluation);
  while (auto* share = shares.next()) {
    live.run(
        []([[maybe_unused]] auto& replica, instance& copy, Batch& batch, Totals& totals) {
          if constexpr (shards_gradients<S>) replica.connect(copy);
          auto sums = std::array<float, plan::header>{};
          copy.evaluate(batch, sums);
          totals += sums;
        },
        copies, *share, all);
  }
  if constexpr (StrategyTraits<S>::deals_shares)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!live.counts_rows(live.local_replica(i).id())) all[i] = {};
  auto scores = Scores{M::metric_names, live.reduce(all)};
  replicas.states().score_all(live, metric::Over::evaluation, scores);
  return scores;
}

/// The number of outputs of a share. If its rows have different numbers of them, notes where each row ends.
template <class M> std::size_t predicted(auto const& share, Predictions& out) {
  if constexpr (requires { requires M::has_ragged_outputs; }) {
    auto sum = std::size_t{0};
    for (std::size_t r = 0; r < share.rows; ++r) {
      auto const n = M::outputs_of_row(share, r);
      sum += n;
      out.ends.push_back((out.ends.empty() ? 0 : out.ends.back()) + n);
    }
    return sum;
  } else {
    return share.rows * M::output_width;
  }
}

/// Outputs of all rows of the data, in order. See Trainer::predict().
template <class M, class S, class R, class T, Dataset Data>
Predictions predict_all(ModelReplicas<M, S, R, T>& replicas, Data const& data) {
  using Replicas       = ModelReplicas<M, S, R, T>;
  using instance       = typename Replicas::instance;
  using Batch          = BatchOf<M, typename Data::element>;
  constexpr auto width = M::output_width;
  auto& live           = replicas.live();
  auto& copies         = replicas.copies();
  auto const mine      = live.hold();
  auto out             = Predictions{.values = {}, .width = width};
  if (replicas.only_serves()) return out;
  auto const alone = HasServers<S> || live.is_all_local();  // the replicas here get all rows
  auto shares      = [&] {
    if constexpr (HasServers<S>) return live.distribute_here(data);
    else return live.distribute(data);
  }();
  auto counts  = std::vector<std::size_t>(alone ? copies.size() : static_cast<std::size_t>(live.num_ranks()));
  auto ranks   = PerReplica<std::size_t>(copies.size());  // in this process
  auto counted = std::vector<bool>(counts.size(), true);  // false: another replica has the same rows
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
  if constexpr (StrategyTraits<S>::deals_shares)
    for (std::size_t rank = 0; rank < counted.size(); ++rank) counted[rank] = live.counts_rows(static_cast<Rank>(rank));
  while (auto* share = shares.next()) {
    auto const before = out.values.size();
    auto sum          = std::size_t{0};
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      auto const share_of = HasServers<S> ? static_cast<Rank>(rank) : live.share_of(static_cast<Rank>(rank));
      sum += counts[rank] = counted[rank] ? predicted<M>(shares.share_of(share_of), out) : 0;
    }
    out.values.resize(before + sum);
    auto const all = Span<float>{out.values}.subspan(before);  // (rows of the batch, Output)
    live.run(
        [&](auto& replica, instance& copy, Batch& batch, std::size_t local) {
          if constexpr (shards_gradients<S>) replica.connect(copy);
          auto y          = copy.predict(batch);  // (rows of the share, Output)
          auto const rank = alone ? local : static_cast<std::size_t>(replica.id());
          if (!counted[rank]) y = {};
          auto const first = counts.begin() + static_cast<std::ptrdiff_t>(rank);
          std::copy(y.begin(), y.end(), all.begin() + std::accumulate(counts.begin(), first, std::ptrdiff_t{0}));
          if constexpr (!HasServers<S>) {
            if (alone) return;
            auto others = std::vector<float>(local == 0 ? 0 : all.size());  // only the first replica here fills `all`
            replica.all_gather(y, local == 0 ? all : Span<float>{others}, Span<std::size_t const>{counts});
          }
        },
        copies, *share, ranks);
  }
  return out;
}

}  // namespace chorale::detail
