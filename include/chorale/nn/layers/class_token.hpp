// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// A trained vector before the first step of each sequence. After layers in which steps attend to one another, what
/// became of it stands for the whole row: nn::slice<0, 1, 0>(y).
///
/// x         (B, T, C)
/// token     (1, C), uniform between -0.05 and 0.05
/// y         (B, T + 1, C)
/// source    Devlin et al., "BERT", NAACL 2019; Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021
struct ClassToken : Layer<ClassToken> {
  using Layer<ClassToken>::Layer;
  static constexpr std::string_view name = "class_token";
  static constexpr bool keeps_x          = false;

  template <class X> static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank == 2;

  template <class X> static constexpr void check() {
    static_assert(fits<X>,
                  "chorale: ClassToken takes sequences of numbers (B, T, C); put nn::reshape<T, C>(...) before "
                  "it");
  }
  template <int T, int C> requires fits<Of<float, T, C>> static constexpr auto output(Of<float, T, C>) {
    return Of<float, T + 1, C>{};
  }
  static constexpr auto variables(auto x) { return std::array{table("token", 1, x.back)}; }

  static void forward(auto& at) {
    each(at, [&](std::size_t x, std::size_t y, std::size_t n, std::size_t c) {
      std::copy_n(at.v[0].data(), c, at.y().data() + y);
      std::copy_n(at.x().data() + x, n, at.y().data() + y + c);
    });
  }
  static void backward(auto& at) {
    each(at, [&](std::size_t x, std::size_t y, std::size_t n, std::size_t c) {
      auto const* const dy = at.dy().data() + y;
      for (std::size_t i = 0; i < c; ++i) at.dv[0][i] += dy[i];
      for (std::size_t i = 0; i < n && !at.dx().empty(); ++i) at.dx()[x + i] += dy[c + i];
    });
  }

 private:
  /// Calls f(first in x, first in y, numbers of x, numbers of a vector) for each row.
  static void each(auto const& at, auto&& f) {
    constexpr auto n = std::remove_cvref_t<decltype(at)>::X::size;
    auto const c     = at.v[0].size();
    for (std::size_t r = 0; r < at.rows; ++r) f(r * n, r * (n + c), n, c);
  }
};

}  // namespace chorale::nn
