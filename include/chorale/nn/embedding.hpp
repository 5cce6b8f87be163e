// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/tensor.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

namespace detail {

/// y = x Wᵀ, with the table W of an Embedding.
template <int Rows, int Width>
struct Logits : Layer<Logits<Rows, Width>> {
  static constexpr std::string_view name = "embedding";

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank > 0 && X::back == Width;

  template <class X>
  static constexpr void check() {
    static_assert(fits<X>, "chorale: logits(x) of an Embedding takes vectors (B, .., width) as wide as its own");
  }
  template <class X>
    requires fits<X>
  static constexpr auto output(X) { return WithBack<X, Rows>{}; }
  static constexpr auto variables(auto) { return std::array{table("embeddings", Rows, Width)}; }
  static constexpr std::size_t products(auto x) { return x.size * Rows; }

  static void forward(auto& at) {
    cpu::matmul(at.x().size() / Width, Rows, Width, {at.x().data(), Width}, {at.v[0].data(), Width, true},
                {at.y().data(), Rows});
  }
  static void backward(auto& at) {
    auto const n = at.x().size() / Width;
    cpu::matmul(Rows, Width, n, {at.dy().data(), Rows, true}, {at.x().data(), Width},
                {.data = at.dv[0].data(), .stride = Width, .beta = 1});
    if (!at.dx().empty())
      cpu::matmul(n, Width, Rows, {at.dy().data(), Rows}, {at.v[0].data(), Width},
                  {.data = at.dx().data(), .stride = Width, .beta = 1});
  }
};

/// Reports an id that is in no row of a table.
[[noreturn]] inline void throw_unknown_id(int id, int rows, std::size_t row, std::size_t position,
                                          std::string (*field)()) {
  throw BadArgument{"row " + std::to_string(row) + " of the batch has id " + std::to_string(id) + " at position " +
                        std::to_string(position) + (field == nullptr ? "" : " of field " + field()) +
                        ", but the nn::Embedding that takes it has " + std::to_string(rows) + " rows, 0 to " +
                        std::to_string(rows - 1) + ".",
                    "an Embedding with more rows, or ids below " + std::to_string(rows) + "."};
}

}  // namespace detail

/// Replaces each id by a row of a trained table.
///
/// x         (B, ..) ids, each in [0, Rows)
/// table     (Rows, Width), uniform between -0.05 and 0.05
/// y         (B, .., Width)
/// throws    BadArgument when an id is in no row of the table, before anything was computed from it
/// source    tf.keras.layers.Embedding
template <int Rows, int Width>
struct Embedding : Layer<Embedding<Rows, Width>> {
  using Layer<Embedding>::Layer;
  static constexpr std::string_view name = "embedding";
  static constexpr bool keeps_x          = true;

  template <class X>
  static constexpr void check() {
    static_assert(Rows > 0 && Width > 0, "chorale: Embedding<rows, width> needs both to be at least 1");
    static_assert(std::is_same_v<typename X::type, int>,
                  "chorale: Embedding takes ids, a field of int, but what comes in are numbers");
  }
  template <int... D>
  static constexpr auto output(Of<int, D...>) { return Of<float, D..., Width>{}; }
  static constexpr auto variables(auto) { return std::array{table("embeddings", Rows, Width)}; }

  /// The products of x with each row of the table: a last layer whose weights are those of this one.
  ///
  /// x         (B, .., Width)
  /// returns   (B, .., Rows)
  /// source    Press & Wolf, "Using the Output Embedding to Improve Language Models", EACL 2017
  template <class D, class O>
  constexpr auto logits(Tensor<D, O> x) const {
    return graph::call<D, detail::Logits<Rows, Width>>(this->id(), this->name_, x);
  }

  static void forward(auto& at) {
    auto const per_row = at.x().size() / at.rows;
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      auto const id = at.x()[i];
      if (id < 0 || id >= Rows) detail::throw_unknown_id(id, Rows, i / per_row, i % per_row, at.fields[0]);
      std::copy_n(&at.v[0][static_cast<std::size_t>(id) * Width], Width, &at.y()[i * Width]);
    }
  }
  static void backward(auto& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      auto* const row      = &at.dv[0][static_cast<std::size_t>(at.x()[i]) * Width];
      auto const* const dy = &at.dy()[i * Width];
      for (std::size_t c = 0; c < Width; ++c) row[c] += dy[c];
    }
  }
};

/// y = x + a trained vector for each step of a sequence.
///
/// x, y      (B, T, Width), T at most Steps
/// places    (Steps, Width), uniform between -0.05 and 0.05
/// source    Gehring et al., "Convolutional Sequence to Sequence Learning", ICML 2017; GPT-2
template <int Steps, int Width>
struct Positions : Layer<Positions<Steps, Width>> {
  using Layer<Positions>::Layer;
  static constexpr std::string_view name = "positions";
  static constexpr bool keeps_x          = false;

  template <class X>
  static constexpr void check() {
    static_assert(std::is_same_v<typename X::type, float> && X::rank == 2 && X::back == Width && X::vectors <= Steps,
                  "chorale: Positions<steps, width> takes sequences (B, T, width) of at most that many steps");
  }
  template <int T>
    requires(T <= Steps)
  static constexpr auto output(Of<float, T, Width> x) { return x; }
  static constexpr auto variables(auto) { return std::array{table("places", Steps, Width)}; }

  static void forward(auto& at) {
    auto const n = at.x().size() / at.rows;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 0; i < n; ++i) at.y()[r * n + i] = at.x()[r * n + i] + at.v[0][i];
  }
  static void backward(auto& at) {
    auto const n = at.x().size() / at.rows;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 0; i < n; ++i) at.dv[0][i] += at.dy()[r * n + i];
    for (std::size_t i = 0; i < at.dx().size(); ++i) at.dx()[i] += at.dy()[i];
  }
};

}  // namespace chorale::nn
