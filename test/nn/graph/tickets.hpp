// SPDX-License-Identifier: Apache-2.0
//
// A network with three inputs and two outputs, and tickets for it: Keras' functional example in small.
#pragma once

#include <chorale/chorale.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test::tickets {

struct Title : Field<int, 6> {};
struct Body : Field<int, 9> {};
struct Tags : Field<float, 4> {};
struct Priority : Field<float, 1> {};
struct Department : Field<int, 1> {};
struct Importance : Field<float, 1> {};

template <class... Options> struct NetworkWith : nn::Graph<Title, Body, Tags> {
  nn::Embedding<50, 5, Options...> words;  // of titles and of bodies
  nn::Dense<7> title_reader, body_reader;
  nn::LayerNorm norm;
  nn::Dense<1> priority{"priority"};
  nn::Dense<3> department{"department"};

  constexpr auto operator()(auto title, auto body, auto tags) const {
    auto const a = nn::relu(title_reader(nn::reshape<30>(words(title))));        // (B, 7)
    auto const b = nn::Tanh{}(body_reader(nn::reshape<45>(words(body))));        // (B, 7)
    auto const x = nn::Dropout<10>{}(norm(nn::concatenate(a, b, a * b, tags)));  // (B, 25)
    return nn::outputs<Priority, Department>(priority(x), department(x));
  }
};

using Network = NetworkWith<>;  // the gradient of its table is rows
using Dense   = NetworkWith<nn::DenseGradient>;

inline auto losses() {
  return nn::of<Priority>(loss::MeanSquaredError{}) + 0.2F * nn::of<Department>(loss::SparseCrossEntropy{});
}
template <class Net = Network, class Optimizer = optim::Adam>
auto model(Optimizer optimizer = {.learning_rate = 1e-2F}) {
  return nn::compile<Net>(losses(), optimizer, nn::of<Department>(metric::Accuracy{}));
}

/// The fields of ticket n, whose priority and department follow from its words and tags.
inline constexpr auto write = [](auto const& row, auto& to) {
  auto const n    = static_cast<std::uint64_t>(row.x[0]);
  auto const draw = Random{Seed{5}, n};
  auto const word = [&](std::uint64_t i) { return static_cast<int>(draw.uniform(i, 0, 49.99F)); };
  to[Title{}].resize(6), to[Body{}].resize(9), to[Tags{}].resize(4), to[Priority{}].resize(1);
  to[Department{}].resize(1), to[Importance{}].resize(1);
  for (std::size_t i = 0; i < 6; ++i) to[Title{}][i] = word(i);
  for (std::size_t i = 0; i < 9; ++i) to[Body{}][i] = word(6 + i);
  for (std::size_t i = 0; i < 4; ++i) to[Tags{}][i] = draw.uniform(20 + i, -1, 1);
  to[Priority{}][0]   = 0.02F * static_cast<float>(to[Title{}][0]) + to[Tags{}][1];
  to[Department{}][0] = to[Body{}][0] / 17;
  to[Importance{}][0] = n % 2 == 0 ? 1.0F : 0.0F;
};

/// 101 tickets in batches of 16: no number of replicas divides all of them.
inline auto batches(std::size_t rows = 101) {
  auto x = std::vector<float>(rows);
  for (std::size_t r = 0; r < rows; ++r) x[r] = static_cast<float>(r);
  return data::from_tensors(x, x, 1)
      .map<Tags, Title, Body, Importance, Department, Priority>(write)  // another order than that of the network
      .shuffle(rows)
      .batch(16);
}

/// What a trainer of a model has after two epochs.
struct Trained {
  std::vector<float> values;
  std::vector<std::uint64_t> hashes;
  double loss;
};

template <class M, class S, class R = RingAllReduce, class T = LocalTransport>
Trained trained(M const& model, S strategy, R reduce = {}, T transport = {}, int accumulate = 1) {
  auto trainer       = Trainer{model, std::move(strategy), std::move(reduce), std::move(transport), 3};
  auto const history = trainer.fit(batches(), {.epochs = 2, .show = Show::nothing, .accumulate = accumulate});
  auto all           = std::vector<float>{};  // in the plan's order, whatever the layout
  for (std::size_t i = 0; i < trainer.variables().size(); ++i)
    all.insert(all.end(), trainer.variables()[i].value.begin(), trainer.variables()[i].value.end());
  return {std::move(all), trainer.hashes(), history.back().scores.loss()};
}

inline double difference(Trained const& a, Trained const& b) {
  auto largest = 0.0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
  return largest;
}

}  // namespace chorale::test::tickets
