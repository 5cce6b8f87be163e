// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/placement/layout.hpp>
#include <chorale/placement/partitioned.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace chorale::test {

using placement::VariableShape;

inline constexpr auto gibi = std::size_t{1} << 30;
inline constexpr auto huge = VariableShape{"table", {1'000'000'000'000'000, 10}};  // 40 PB: planned, never allocated

/// 1 to 12 variables of 0 to 4 dimensions, sometimes with none in one of them; the first has 4 dimensions.
inline std::vector<VariableShape> random_shapes(std::uint64_t which) {
  auto const random = Random{11, which};
  auto index        = std::uint64_t{0};
  auto const below  = [&](std::uint64_t n) { return random.below(index++, n); };
  auto shapes       = std::vector<VariableShape>(1 + below(12));
  for (std::size_t v = 0; v < shapes.size(); ++v) {
    shapes[v]      = VariableShape{"v" + std::to_string(v), {}, std::size_t{1} << below(4)};
    shapes[v].rank = v == 0 ? 4 : static_cast<int>(below(5));
    for (int axis = 0; axis < shapes[v].rank; ++axis)
      shapes[v].dims[static_cast<std::size_t>(axis)] = below(40) == 0 ? 0 : 1 + below(9);
  }
  return shapes;
}

/// BERT-base: 12 layers of width 768, 109,482,240 parameters.
constexpr std::array<VariableShape, 5 + 12 * 16 + 2> bert_base() {
  auto shapes    = std::array<VariableShape, 5 + 12 * 16 + 2>{};
  auto n         = std::size_t{0};
  auto const add = [&](std::string_view name, std::initializer_list<std::size_t> dims) { shapes[n++] = {name, dims}; };
  constexpr auto width = std::size_t{768}, inside = 4 * width;
  add("embeddings/word", {30'522, width});
  add("embeddings/position", {512, width});
  add("embeddings/type", {2, width});
  add("embeddings/norm/gamma", {width});
  add("embeddings/norm/beta", {width});
  for (int layer = 0; layer < 12; ++layer) {
    for (auto const part : {"query", "key", "value", "output"}) {
      add(std::string_view{part}, {width, width});
      add("bias", {width});
    }
    add("attention/gamma", {width});
    add("attention/beta", {width});
    add("up/kernel", {width, inside});
    add("up/bias", {inside});
    add("down/kernel", {inside, width});
    add("down/bias", {width});
    add("norm/gamma", {width});
    add("norm/beta", {width});
  }
  add("pooler/kernel", {width, width});
  add("pooler/bias", {width});
  return shapes;
}
inline constexpr auto bert = bert_base();

/// A decoder as large as Turing-NLG: 78 layers of width 4256, 17 billion parameters.
inline std::vector<VariableShape> turing() {
  constexpr auto width = std::size_t{4'256};
  auto shapes          = std::vector<VariableShape>{{"word", {50'257, width}}, {"position", {1'024, width}}};
  for (int layer = 0; layer < 78; ++layer) {
    auto const in = "layer_" + std::to_string(layer) + '/';
    for (auto const part : {"query", "key", "value", "output"}) {
      shapes.emplace_back(in + part + "/kernel", std::initializer_list<std::size_t>{width, width});
      shapes.emplace_back(in + part + "/bias", std::initializer_list<std::size_t>{width});
    }
    shapes.emplace_back(in + "up/kernel", std::initializer_list<std::size_t>{width, 4 * width});
    shapes.emplace_back(in + "up/bias", std::initializer_list<std::size_t>{4 * width});
    shapes.emplace_back(in + "down/kernel", std::initializer_list<std::size_t>{4 * width, width});
    shapes.emplace_back(in + "down/bias", std::initializer_list<std::size_t>{width});
    for (auto const part : {"norm_1/gamma", "norm_1/beta", "norm_2/gamma", "norm_2/beta"})
      shapes.emplace_back(in + part, std::initializer_list<std::size_t>{width});
  }
  return shapes;
}

template <class Shapes> constexpr std::size_t parameters_of(Shapes const& shapes) {
  return std::accumulate(shapes.begin(), shapes.end(), std::size_t{0},
                         [](std::size_t sum, VariableShape const& shape) { return sum + shape.elements(); });
}

/// Calls f with every policy of this folder, and its index.
template <class F> void each_sharding(F&& f) {
  using namespace placement;
  f(RoundRobin{}, 0);
  f(GreedyByBytes{}, 1);
  f(Partitioned<FixedShards<1>>{}, 2);
  f(Partitioned<FixedShards<3>>{}, 3);
  f(Partitioned<FixedShards<3>, GreedyByBytes>{}, 4);
  f(Partitioned<FixedShards<7>, GreedyByBytes>{}, 5);
  f(Partitioned<MinSize<64, 5>>{}, 6);
  f(Partitioned<MaxSize<40>, GreedyByBytes>{}, 7);
  f(Partitioned<FixedShards<3, 1>>{}, 8);
  f(Partitioned<FixedShards<5, 1>, GreedyByBytes>{}, 9);
  f(Partitioned<MaxSize<100, 2>>{}, 10);
  f(Partitioned<MinSize<10, 4, 3>, GreedyByBytes>{}, 11);
}

}  // namespace chorale::test
