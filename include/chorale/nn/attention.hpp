// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/tensor.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Causal self-attention: for each head y = softmax(q kᵀ / sqrt(W)) v, where a step attends to itself and to the steps
/// before it. It has no variables: put nn::Dense<3 * C> before it, and nn::Dense<C> after it.
///
/// x         (B, T, 3 C): q, k and v side by side, each with the vectors of its heads, of W = C / Heads numbers; T may
///           be ragged
/// y         (B, T, C)
/// cost      T · T numbers for each head and row, kept for backward
/// source    Vaswani et al., "Attention Is All You Need", NeurIPS 2017
template <int Heads>
struct CausalHeads : Layer<CausalHeads<Heads>> {
  static constexpr std::string_view name = "causal_heads";
  static constexpr bool reads_lengths    = true;

  template <class X>
  static constexpr bool fits =
      std::is_same_v<typename X::type, float> && X::rank == 2 && Heads > 0 && X::back % (3 * Heads) == 0;

  template <class X>
  static constexpr void check() {
    static_assert(fits<X>, "chorale: CausalHeads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads");
  }
  template <int T, int C3>
    requires fits<Of<float, T, C3>>
  static constexpr auto output(Of<float, T, C3>) { return Of<float, T, C3 / 3>{}; }

  /// Probabilities of all heads, and scratch of one head.
  template <int T, int C3>
  static constexpr std::size_t kept(Of<float, T, C3>) { return (std::size_t{Heads} + 1) * T * T; }
  static std::size_t kept_for(auto const& at) {
    auto sum = std::size_t{0}, most = sum;
    at.each_row([&](std::size_t, std::size_t, std::size_t t) { sum += Heads * t * t, most = std::max(most, t * t); });
    return sum + most;
  }
  template <class X>
  static constexpr std::size_t products(X x) { return 2 * x.vectors * x.size / 3; }

  static void forward(auto& at) {
    each_head(at, [&]<std::size_t C, std::size_t W>(std::size_t T, auto q, std::size_t y_at, float* p, float*) {
      auto const* const x = at.x().data() + q;
      cpu::matmul(T, T, W, {x, 3 * C}, {x + C, 3 * C, true}, {p, T, 1 / std::sqrt(static_cast<float>(W))});
      for (std::size_t t = 0; t < T; ++t) softmax(p + t * T, t + 1, T);
      cpu::matmul(T, W, T, {p, T}, {x + 2 * C, 3 * C}, {at.y().data() + y_at, C});
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each_head(at, [&]<std::size_t C, std::size_t W>(std::size_t T, auto q, std::size_t y_at, float* p, float* ds) {
      auto const* const x  = at.x().data() + q;
      auto* const dx       = at.dx().data() + q;
      auto const* const dy = at.dy().data() + y_at;
      cpu::matmul(T, W, T, {p, T, true}, {dy, C}, {dx + 2 * C, 3 * C, 1, 1});
      cpu::matmul(T, T, W, {dy, C}, {x + 2 * C, 3 * C, true}, {ds, T});
      for (std::size_t t = 0; t < T; ++t) {
        auto* const row = ds + t * T;
        auto mean       = 0.0F;
        for (std::size_t u = 0; u <= t; ++u) mean += p[t * T + u] * row[u];
        for (std::size_t u = 0; u < T; ++u) row[u] = u <= t ? p[t * T + u] * (row[u] - mean) : 0.0F;
      }
      auto const scale = 1 / std::sqrt(static_cast<float>(W));
      cpu::matmul(T, W, T, {ds, T}, {x + C, 3 * C}, {dx, 3 * C, scale, 1});
      cpu::matmul(T, W, T, {ds, T, true}, {x, 3 * C}, {dx + C, 3 * C, scale, 1});
    });
  }

 private:
  /// Calls f.operator()<C, W>(T, first of q in x, first in y, probabilities, scratch) for each row and head.
  template <class L, int T, int C3, class Out, class F>
  static void each_head(Place<L, detail::List<Of<float, T, C3>>, Out>& at, F&& f) {
    constexpr std::size_t c = C3 / 3, w = c / Heads;
    auto* p                 = at.kept.data();
    at.each_row([&](std::size_t, std::size_t first, std::size_t t) {
      auto* const scratch = at.kept.data() + at.kept.size() - t * t;       // behind the probabilities of all rows
      for (std::size_t h = 0; h < Heads && t > 0; ++h, p += t * t)
        f.template operator()<c, w>(t, first * 3 * c + h * w, first * c + h * w, p, scratch);
    });
  }
  /// The softmax of the first n numbers; the others, up to all, become zeros.
  static void softmax(float* p, std::size_t n, std::size_t all) {
    auto const most = *std::max_element(p, p + n);
    auto sum        = 0.0F;
    for (std::size_t i = 0; i < n; ++i) sum += p[i] = std::exp(p[i] - most);
    for (std::size_t i = 0; i < n; ++i) p[i] /= sum;
    std::fill(p + n, p + all, 0.0F);
  }
};

}  // namespace chorale::nn
