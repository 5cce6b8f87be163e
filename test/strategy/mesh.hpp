// SPDX-License-Identifier: Apache-2.0
//
// What a split network learns under a strategy, and what the whole one learns on one device.
#pragma once

#include "test/strategy/split_columns.hpp"
#include "test/support/folder.hpp"

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

namespace mesh_test {

using One                 = Axis<"tensor", 1>;
inline auto const quietly = FitOptions{.epochs = 2, .show = Show::nothing};

/// What training ends with: variables, and the loss of the last epoch; then the loss and the outputs of all rows.
struct Learned {
  std::vector<float> values{};
  double loss = 0, evaluated = 0;
  std::vector<float> outputs{};
  std::vector<double> counts{};  // a metric, and its outputs

  /// True if all bits of training are equal.
  friend bool operator==(Learned const& a, Learned const& b) { return a.values == b.values && a.loss == b.loss; }
};

/// All numbers of a file of weights.
inline std::vector<float> numbers_in(std::filesystem::path const& path) {
  auto const file = SafetensorsFile::read(path);
  auto all        = std::vector<float>{};
  for (auto const& tensor : file.tensors()) {
    auto const* const x = reinterpret_cast<float const*>(tensor.bytes.data());
    all.insert(all.end(), x, x + tensor.bytes.size() / sizeof(float));
  }
  return all;
}

/// The whole network on one device.
template <class Optimizer> auto on_one_device(Optimizer const& rule) {
  return Trainer{surface<One>(rule), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
}

/// Where the variables of the whole network are put before training, and after it.
struct Weights {
  chorale::test::Folder folder{};

  Weights() {
    auto const rule = optim::Adam{};
    on_one_device(rule).save(first());
  }
  std::filesystem::path first() const { return folder / "first"; }
  std::filesystem::path last() const { return folder / "last"; }
};

/// Trains from the weights of `begin`, and reads what is learned from a file as one network.
template <class Trainer> Learned learned(Trainer& trainer, Weights const& begin) {
  trainer.load(begin.first());
  auto const history = trainer.fit(points(), quietly);
  auto const scores  = trainer.evaluate(points());
  trainer.save(begin.last());
  CHECK(scores.rows() == 48);
  auto all = Learned{.values = numbers_in(begin.last()), .loss = history[1].scores.loss(), .evaluated = scores.loss()};
  for (auto const& of : {history[1].scores, scores})
    all.counts.insert(all.counts.end(), {of.metric(0), of.counts("root_mean_squared_error").back()});
  auto const predictions = trainer.predict(points());
  all.outputs.assign(predictions.values.begin(), predictions.values.end());
  return all;
}
template <class Optimizer> Learned learned_on_one(Optimizer const& rule, Weights const& begin) {
  auto one = on_one_device(rule);
  return learned(one, begin);
}
template <class A, class B = A, class S, class Optimizer, class R, class T>
Learned learned(S strategy, Optimizer const& rule, Weights const& begin, R reduce, T transport) {
  auto many = Trainer{surface<A, B>(rule), strategy, reduce, transport, 7};
  return learned(many, begin);
}

/// The largest difference of any two values.
inline double apart(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
  return worst;
}

}  // namespace mesh_test
