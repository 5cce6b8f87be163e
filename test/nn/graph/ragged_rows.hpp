// SPDX-License-Identifier: Apache-2.0
//
// Networks of rows of different lengths, and rows for them.
#pragma once

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::test::ragged_rows {

struct Words : Field<int, ragged> {};
struct Letters : Field<std::uint8_t, ragged> {};
struct Vectors : Field<float, ragged, 6> {};
struct Label : Field<int, 1> {};
struct Wanted : Field<float, 2> {};
struct Tags : Field<int, ragged> {};
struct Weight : Field<float, 1> {};
struct States : Field<float, ragged, 9> {};
struct Ends : Field<float, 21> {};

/// Everything that takes ragged values, for rows of vectors.
struct Body {
  nn::LSTM<6, nn::Sequences> reader;
  nn::Positions<40, 6> places;
  nn::LayerNorm norm;
  nn::Dense<18> qkv;

  constexpr auto operator()(auto x) const {
    auto const z = qkv(norm(x));
    auto const y = places(reader(x)) * x + nn::CausalHeads<2>{}(z) + nn::UnitNorm{}(nn::Heads<2>{}(z));
    return nn::Dropout<20>{}(nn::concatenate(nn::slice<1, 4>(y), nn::gelu(y) - nn::reshape<6>(x)));
  }
};
/// What makes one vector of each row.
struct Reduced {
  nn::LSTM<3> last;
  constexpr auto operator()(auto x) const {
    return nn::concatenate(last(x), nn::GlobalAveragePool1D{}(x), nn::GlobalMaxPool1D{}(x));
  }
};

struct Everything : nn::Graph<nn::Differentiable<Vectors>> {
  Body body;
  Reduced reduced;
  nn::Dense<2> head;
  constexpr auto operator()(auto x) const { return nn::outputs<Wanted>(head(reduced(body(x)))); }
};

/// Rows of 0 to 12 positions: the label says whether word 1 or word 2 came first, tags which of three groups words are
/// in.
inline constexpr auto write = [](auto const& row, auto& to) {
  auto const n    = static_cast<std::uint64_t>(row.x[0]);
  auto const draw = Random{Seed{9}, n};
  auto const size = n % 9 == 4 ? 0 : draw.below(0, 12) + 1;
  to[Words{}].clear(), to[Letters{}].clear(), to[Tags{}].clear(), to[Vectors{}].clear(), to[Label{}].assign(1, 0);
  to[States{}].clear(), to[Ends{}].clear();
  for (std::uint64_t i = 0; i < 21; ++i) to[Ends{}].push_back(draw.uniform(600 + i, -1, 1));
  to[Weight{}].assign(1, draw.uniform(500)), to[Wanted{}].assign(2, draw.uniform(501));
  for (std::uint64_t i = 1; i <= size; ++i) {
    auto const word = static_cast<int>(draw.below(i, 30));
    to[Words{}].push_back(i == 1 ? 1 + static_cast<int>(n % 2) : word == 1 || word == 2 ? 3 : word);
    to[Letters{}].push_back(static_cast<std::uint8_t>('a' + word % 26));
    to[Tags{}].push_back(to[Words{}].back() % 3);
    for (std::uint64_t c = 0; c < 9; ++c) to[States{}].push_back(draw.uniform(700 + 9 * i + c, -1, 1));
    for (std::uint64_t c = 0; c < 6; ++c) to[Vectors{}].push_back(draw.uniform(20 + 6 * i + c, -1, 1));
  }
  to[Label{}][0] = size == 0 ? 0 : to[Words{}][0] - 1;
};

inline auto rows(std::size_t n) {
  auto x = std::vector<float>(n);
  for (std::size_t r = 0; r < n; ++r) x[r] = static_cast<float>(r);
  return data::from_tensors(x, x, 1)
      .map<Words, Letters, Vectors, Label, Wanted, Tags, Weight, States, Ends>(write)
      .cache();
}

/// Calls f(batch) for the first batch.
template <class Batches> void first(Batches const& batches, auto&& f) {
  auto stream = batches.stream(0);
  auto batch  = typename Batches::element{};
  REQUIRE(stream.next(batch));
  f(batch);
}

inline std::vector<float> kept(Span<float const> values) { return {values.begin(), values.end()}; }

inline auto everything() {
  return nn::compile<Everything>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F});
}

}  // namespace chorale::test::ragged_rows
