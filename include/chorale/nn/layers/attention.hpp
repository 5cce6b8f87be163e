// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

namespace detail {

/// What both kinds of heads compute: a query sees all keys of its row or, if Causal, those up to its own step.
template <class L, int Heads, bool Causal> struct SelfAttention : Layer<L> {
  static constexpr bool reads_lengths = true;

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank == 2 && Heads > 0 &&
                               X::back % (3 * Heads) == 0;

  template <int T, int C3> requires fits<Of<float, T, C3>> static constexpr auto output(Of<float, T, C3>) {
    return Of<float, T, C3 / 3>{};
  }

  /// Probabilities of each head, or log Σ exp of each query; then scratch; only the first row's scratch is used.
  template <int T, int C3> static constexpr std::size_t kept(Of<float, T, C3>) {
    return kept_of_head(T) * Heads + scratch(T);
  }
  static std::size_t kept_for(auto const& at) {
    auto sum = std::size_t{0}, most = sum;
    at.each_row([&](std::size_t, std::size_t, std::size_t t) {
      sum += Heads * kept_of_head(t), most = std::max(most, scratch(t));
    });
    return sum + most;
  }
  template <class X> static constexpr std::size_t products(X x) {
    return (x.vectors + 1) * (x.size / 3);
  }  // T (T + 1) / 2 pairs, twice

  static void forward(auto& at) {
    each_head(at, [&]<std::size_t C, std::size_t W>(std::size_t T, auto q, auto y, float* kept, float* own) {
      auto const* const x = at.x().data() + q;
      for (std::size_t first = 0; first < T; first += block) {
        auto const n = std::min(block, T - first), keys = keys_of(first + n, T);
        auto* const p = keeps_all(T) ? kept + first * T : own;
        scores<C, W>(T, x, first, n, keys, p);
        for (std::size_t t = 0; t < n; ++t) {
          auto const log_z = softmax(p + t * T, keys_of(first + t + 1, T), keys);
          if (!keeps_all(T)) kept[first + t] = log_z;
        }
        cpu::matmul(n, W, keys, {p, T}, {x + 2 * C, 3 * C}, {at.y().data() + y + first * C, C});
      }
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each_head(at, [&]<std::size_t C, std::size_t W>(std::size_t T, auto q, auto y, float* kept, float* own) {
      auto const* const x = at.x().data() + q;
      auto* const dx      = at.dx().data() + q;
      auto* const ds      = keeps_all(T) ? own : own + block * T;
      auto const scale    = 1 / std::sqrt(static_cast<float>(W));
      for (std::size_t first = 0; first < T; first += block) {
        auto const n = std::min(block, T - first), keys = keys_of(first + n, T);
        auto const* const dy = at.dy().data() + y + first * C;
        auto* const p        = keeps_all(T) ? kept + first * T : own;
        if (!keeps_all(T)) {
          scores<C, W>(T, x, first, n, keys, p);
          for (std::size_t t = 0; t < n; ++t) {
            auto const seen = keys_of(first + t + 1, T);
            for (std::size_t u = 0; u < seen; ++u) p[t * T + u] = cpu::exp(p[t * T + u] - kept[first + t]);
            std::fill(p + t * T + seen, p + t * T + keys, 0.0F);
          }
        }
        cpu::matmul(keys, W, n, {p, T, true}, {dy, C}, {dx + 2 * C, 3 * C, 1, 1});
        cpu::matmul(n, keys, W, {dy, C}, {x + 2 * C, 3 * C, true}, {ds, T});
        for (std::size_t t = 0; t < n; ++t) {
          auto const* const of = p + t * T;  // zeros where a query does not see
          auto* const d        = ds + t * T;
          auto const mean      = cpu::sum_of(keys, [=](std::size_t u) { return of[u] * d[u]; });
          for (std::size_t u = 0; u < keys; ++u) d[u] = of[u] * (d[u] - mean);
        }
        cpu::matmul(n, W, keys, {ds, T}, {x + C, 3 * C}, {dx + first * 3 * C, 3 * C, scale, 1});
        cpu::matmul(keys, W, n, {ds, T, true}, {x + first * 3 * C, 3 * C}, {dx + C, 3 * C, scale, 1});
      }
    });
  }

  template <int T, int C3> static constexpr std::size_t kept_queued(Of<float, T, C3>) { return 2 * T * T * Heads; }
  template <class D> static void queue_forward(auto& at) {
    Kernels<D>::attend(attention<D>(at), at.x().data(), at.kept.data(), at.y().data());
  }
  template <class D> static void queue_backward(auto& at) {
    if (!at.dx().empty())
      Kernels<D>::attend_back(attention<D>(at), at.x().data(), at.kept.data(), at.dy().data(), at.dx().data());
  }

 private:
  static constexpr std::size_t block = 64;  // queries

  /// Keys that the queries before step `end` see, of T.
  static constexpr std::size_t keys_of(std::size_t end, std::size_t T) { return Causal ? end : T; }

  template <class D> static auto attention(auto const& at) {
    using X = typename std::remove_cvref_t<decltype(at)>::X;
    return typename Kernels<D>::Attention{
        .rows = at.rows, .steps = X::vectors, .heads = Heads, .width = X::back / 3, .causal = Causal};
  }

  static constexpr bool keeps_all(std::size_t T) { return T <= 128; }
  static constexpr std::size_t kept_of_head(std::size_t T) { return keeps_all(T) ? T * T : T; }
  static constexpr std::size_t scratch(std::size_t T) { return (keeps_all(T) ? 1 : 2) * block * T; }

  /// Calls f.operator()<C, W>(T, first of q in x, first in y, what is kept of the head, scratch) for each row and head.
  template <int T, int C3, class Out, class F> static void each_head(Place<L, List<Of<float, T, C3>>, Out>& at, F&& f) {
    constexpr std::size_t c = C3 / 3, w = c / Heads;
    auto* kept      = at.kept.data();
    auto* const own = kept + behind_kept(at);
    at.each_row([&](std::size_t, std::size_t first, std::size_t t) {
      for (std::size_t h = 0; h < Heads && t > 0; ++h, kept += kept_of_head(t))
        f.template operator()<c, w>(t, first * 3 * c + h * w, first * c + h * w, kept, own);
    });
  }
  /// How many numbers are kept of all rows; the scratch begins after them.
  static std::size_t behind_kept(auto const& at) {
    auto sum = std::size_t{0};
    at.each_row([&](std::size_t, std::size_t, std::size_t t) { sum += Heads * kept_of_head(t); });
    return sum;
  }
  /// q kᵀ / sqrt(W) for n queries.
  template <std::size_t C, std::size_t W>
  static void scores(std::size_t T, float const* x, std::size_t first, std::size_t n, std::size_t keys, float* p) {
    cpu::matmul(n, keys, W, {x + first * 3 * C, 3 * C}, {x + C, 3 * C, true},
                {p, T, 1 / std::sqrt(static_cast<float>(W))});
  }
  /// The softmax of the first n numbers; the others, up to all, become zeros. Returns log Σ exp.
  static float softmax(float* p, std::size_t n, std::size_t all) {
    auto const whole = std::min(all, (n + 15) / 16 * 16);  // no numbers are left over from vectors
    std::fill(p + n, p + whole, -std::numeric_limits<float>::infinity());
    std::fill(p + whole, p + all, 0.0F);
    return cpu::softmax(whole, p, p);
  }
};

}  // namespace detail

/// Self-attention: for each head y = softmax(q kᵀ / sqrt(W)) v, where a step attends to all steps of its row. It has no
/// variables: put nn::Dense<3 * C> before it, and nn::Dense<C> after it.
///
/// x         (B, T, 3 C): q, k and v side by side, each with the vectors of its heads, of W = C / Number numbers; T may
///           be ragged, and then needs no mask
/// y         (B, T, C)
/// cost      up to 128 steps, T · T numbers for each head and row are kept for backward; of longer sequences T numbers,
///           and backward computes the probabilities of a block of 64 queries again
/// source    Vaswani et al., "Attention Is All You Need", NeurIPS 2017; for long ones Dao et al., "FlashAttention",
///           NeurIPS 2022. Devlin et al., "BERT", NAACL 2019, has encoders of such heads
template <int Number> struct Heads : detail::SelfAttention<Heads<Number>, Number, false> {
  static constexpr std::string_view name = "heads";

  template <class X> static constexpr void check() {
    static_assert(Heads::template fits<X>,
                  "chorale: Heads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads");
  }
};

/// Causal self-attention: nn::Heads in which a step attends to itself and to the steps before it.
///
///              keys, up to the last query of the block
///   queries  | p p p . . . . . |
///   in       | p p p p . . . . |    products leave out what no query of a block sees
///   blocks   | p p p p p p . . |
///
/// x, y      (B, T, 3 C), (B, T, C); T may be ragged
template <int Number> struct CausalHeads : detail::SelfAttention<CausalHeads<Number>, Number, true> {
  static constexpr std::string_view name = "causal_heads";

  template <class X> static constexpr void check() {
    static_assert(CausalHeads::template fits<X>,
                  "chorale: CausalHeads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads");
  }
};

}  // namespace chorale::nn
