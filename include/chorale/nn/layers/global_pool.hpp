// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

namespace detail {

/// What reductions of sequences to one vector for each row have in common.
template <class X> inline constexpr bool is_sequence = std::is_same_v<typename X::type, float> && X::rank == 2;

}  // namespace detail

/// The mean over the positions of each row; zeros of a row without positions.
///
/// x         (B, T, C), T may be ragged
/// y         (B, C)
/// source    tf.keras.layers.GlobalAveragePooling1D, with its mask where T is ragged
struct GlobalAveragePool1D : Layer<GlobalAveragePool1D> {
  static constexpr std::string_view name = "global_average_pooling1d";
  static constexpr bool keeps_x = false, reads_lengths = true;

  template <class X> static constexpr void check() {
    static_assert(detail::is_sequence<X>, "chorale: GlobalAveragePool1D takes sequences (B, T, C) of numbers");
  }
  template <int T, int C> static constexpr auto output(Of<float, T, C>) { return Of<float, C>{}; }

  static void forward(auto& at) {
    auto const c = at.position_size();
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      auto const y = at.y().subspan(r * c, c);
      std::fill(y.begin(), y.end(), 0.0F);
      for (std::size_t i = 0; i < n * c; ++i) y[i % c] += at.x()[first * c + i];
      for (std::size_t k = 0; k < c && n > 0; ++k) y[k] /= static_cast<float>(n);
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    auto const c = at.position_size();
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      for (std::size_t i = 0; i < n * c; ++i) at.dx()[first * c + i] += at.dy()[r * c + i % c] / static_cast<float>(n);
    });
  }
};

/// The largest number of each channel over the positions of each row; zeros of a row without positions.
///
/// x         (B, T, C), T may be ragged
/// y         (B, C); the gradient goes to the first position that has the largest number
/// source    tf.keras.layers.GlobalMaxPooling1D, which has no mask
struct GlobalMaxPool1D : Layer<GlobalMaxPool1D> {
  static constexpr std::string_view name = "global_max_pooling1d";
  static constexpr bool reads_lengths    = true;

  template <class X> static constexpr void check() {
    static_assert(detail::is_sequence<X>, "chorale: GlobalMaxPool1D takes sequences (B, T, C) of numbers");
  }
  template <int T, int C> static constexpr auto output(Of<float, T, C>) { return Of<float, C>{}; }

  static void forward(auto& at) {
    each_channel(
        at, at.position_size(), [&](std::size_t y, std::size_t largest) { at.y()[y] = at.x()[largest]; },
        [&](std::size_t y) { at.y()[y] = 0; });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each_channel(
        at, at.position_size(), [&](std::size_t y, std::size_t largest) { at.dx()[largest] += at.dy()[y]; },
        [](std::size_t) {});
  }

 private:
  /// Calls found(number of y, number of x that is the largest) or, for a row without positions, none(number of y).
  static void each_channel(auto& at, std::size_t c, auto&& found, auto&& none) {
    at.each_row([&](std::size_t r, std::size_t first, std::size_t n) {
      for (std::size_t k = 0; k < c; ++k) {
        auto largest = first * c + k;
        for (std::size_t i = first + 1; i < first + n; ++i)
          if (at.x()[i * c + k] > at.x()[largest]) largest = i * c + k;
        if (n > 0) found(r * c + k, largest);
        else none(r * c + k);
      }
    });
  }
};

}  // namespace chorale::nn
