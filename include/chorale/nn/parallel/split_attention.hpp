// SPDX-License-Identifier: Apache-2.0
//
// Attention over the ranks of an axis: its heads split, or its positions.
#pragma once

#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/parallel/split.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

template <class... Options> inline constexpr bool is_causal = (std::is_same_v<Options, Causal> || ...);

}  // namespace detail

/// nn::Heads, or with the option Causal nn::CausalHeads, whose heads are split over the ranks along A. Nothing is sent.
/// Put nn::ColumnDense<A, 3 * C, nn::Blocks<3>> before it, and nn::RowDense<A, C> after it.
///
/// x         (B, T, 3 C / ranks): q, k and v of this rank's heads
/// y         (B, T, C / ranks)
/// options   Causal
/// source    Shoeybi et al., "Megatron-LM", 2019
template <class A, int Number, class... Options>
struct ColumnHeads : detail::SelfAttention<ColumnHeads<A, Number, Options...>, std::max(Number / A::size, 1),
                                           detail::is_causal<Options...>> {
  using axis                             = A;
  static constexpr std::string_view name = detail::is_causal<Options...> ? "causal_heads" : "heads";
  static constexpr bool reads_lengths    = false;

  template <class X> static constexpr void check() {
    static_assert((std::is_same_v<Options, Causal> && ...), "chorale: ColumnHeads takes an axis, heads, and Causal");
    static_assert(Number > 0 && Number % A::size == 0,
                  "chorale: the heads of a ColumnHeads do not divide by the ranks of its axis. Use a number of heads "
                  "that is a multiple of the ranks");
    static_assert(Number % A::size != 0 || ColumnHeads::template fits<X>,
                  "chorale: ColumnHeads<axis, heads> takes sequences (B, T, 3 C / ranks), as "
                  "nn::ColumnDense<axis, 3 * C, nn::Blocks<3>> gives them, with C a multiple of the heads");
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x.kind == Distribution::Kind::sharded ? std::optional{sharded<-1>} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    if (x.columns != A::name) return graph::Mistake::no_part_of_vectors;
    return x.positions.empty() ? graph::Mistake::none : graph::Mistake::part_of_positions;
  }
  static constexpr graph::Held gives(graph::Held x) { return x; }
};

/// Self-attention over sequences whose positions are split over the ranks along A: keys and values shift around the
/// ring of ranks, and each query adds what it sees to a running softmax.
///
///   rank 0   q0  meets k0 v0, then k3 v3, k2 v2, k1 v1        in each step all ranks send on what they have
///   rank 1   q1  meets k1 v1, then k0 v0, k3 v3, k2 v2        backward: dk and dv travel with k and v, and home
///
/// x         (B, T / ranks, 3 C): q, k and v of this rank's positions, as nn::Heads takes them
/// y         (B, T / ranks, C)
/// options   Causal: a position attends to itself and to those before it; Parts<N>
/// order     positions are N parts, and each query meets them in one order, its own first: the same bits for 1 to N ranks
/// cost      forward sends (ranks - 1) / ranks of k and v, backward as much, and all of their gradients. Four times k
///           and v of this rank's positions are scratch; probabilities are computed again, for 64 queries at a time. With
///           Causal the last rank computes most
/// source    Liu et al., "Ring Attention with Blockwise Transformers", 2023
template <class A, int Number, class... Options> struct RingHeads : Layer<RingHeads<A, Number, Options...>> {
  using axis                             = A;
  static constexpr std::string_view name = "ring_heads";
  static constexpr bool keeps_y          = true;
  static constexpr bool causal           = detail::is_causal<Options...>;

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank == 2 && !X::is_ragged && Number > 0 &&
                               X::back % (3 * Number) == 0;
  template <class X>
  static constexpr int positions = [] {
    if constexpr (fits<X>) return X::dims[0] * A::size;
    else return 1;
  }();
  template <class X> static constexpr int parts    = detail::parts_of<Options...>(positions<X>, A::size);
  template <class X> static constexpr bool divides = fits<X> && positions<X> % parts<X> == 0 && parts<X> % A::size == 0;

  template <class X> static constexpr void check() {
    static_assert(((std::is_same_v<Options, Causal> || detail::parts_option<Options>) && ...),
                  "chorale: RingHeads takes an axis, heads, and of options Causal and Parts<N>");
    static_assert(fits<X>,
                  "chorale: RingHeads<axis, heads> takes sequences (B, T / ranks, 3 C), with C a multiple of "
                  "the heads");
    static_assert(
        !fits<X> || divides<X>,
        "chorale: the positions of a sequence are a multiple of the parts of a RingHeads, which are a multiple "
        "of the ranks of its axis. Write nn::Parts<N>");
  }
  static constexpr auto spreads_as = SpreadsAs{distribution::Operation::nonlinear, 0};
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == sharded<0> ? std::optional{x} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    return x.positions == A::name ? graph::Mistake::none : graph::Mistake::no_part_of_positions;
  }
  static constexpr graph::Held gives(graph::Held x) { return x; }

  template <class X> requires divides<X> static constexpr auto output(X) {
    return Of<float, X::dims[0], X::back / 3>{};
  }
  template <class X> static constexpr std::size_t products(X x) {
    return (x.vectors * static_cast<std::size_t>(A::size) + 1) * (x.size / 3);
  }

  /// Two numbers of each query and head; k and v that travel, in two places, and their gradients; then scratch,
  /// allocated for each row and used once.
  template <class X> static constexpr std::size_t kept(X) {
    return Sizes<X>::numbers + 4 * Sizes<X>::travels + 2 * Sizes<X>::block * Sizes<X>::part;
  }

  template <class X, class Out> static void forward(Place<RingHeads, detail::List<X>, Out>& at) {
    auto ring = Ring<X, Place<RingHeads, detail::List<X>, Out>>{at};
    std::fill(at.y().begin(), at.y().end(), 0.0F);
    std::fill_n(ring.top, ring.numbers(), -std::numeric_limits<float>::infinity());
    std::fill_n(ring.sum, ring.numbers(), 0.0F);
    ring.each_pair([&](auto const& pair) { ring.meet(pair); }, [] {});
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t t = 0; t < S<X>::steps; ++t)
        for (std::size_t h = 0; h < S<X>::heads; ++h) {
          auto const k     = ring.number(r, h, t);
          auto const share = 1 / ring.sum[k];
          for (std::size_t c = 0; c < S<X>::w; ++c) at.y()[(r * S<X>::steps + t) * S<X>::c + h * S<X>::w + c] *= share;
          ring.top[k] += std::log(ring.sum[k]);  // log Σ exp, for backward
        }
  }
  template <class X, class Out> static void backward(Place<RingHeads, detail::List<X>, Out>& at) {
    if (at.dx().empty()) return;
    auto ring = Ring<X, Place<RingHeads, detail::List<X>, Out>>{at};
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t t = 0; t < S<X>::steps; ++t)
        for (std::size_t h = 0; h < S<X>::heads; ++h) {
          auto const from                = (r * S<X>::steps + t) * S<X>::c + h * S<X>::w;
          auto const* const y            = at.y().data() + from;
          auto const* const dy           = at.dy().data() + from;
          ring.sum[ring.number(r, h, t)] = cpu::sum_of(S<X>::w, [=](std::size_t c) { return y[c] * dy[c]; });
        }
    std::fill_n(ring.d_kv, ring.travels(), 0.0F);
    ring.each_pair([&](auto const& pair) { ring.meet_back(pair); }, [&] { ring.shift(ring.d_kv, ring.next_d_kv); });
    for (std::size_t i = 0; i < at.rows * S<X>::steps; ++i)
      for (std::size_t c = 0; c < 2 * S<X>::c; ++c)
        at.dx()[i * 3 * S<X>::c + S<X>::c + c] += ring.d_kv[i * 2 * S<X>::c + c];
  }

 private:
  /// Sizes of this rank's part.
  template <class X> struct Sizes {
    static constexpr std::size_t steps = static_cast<std::size_t>(X::dims[0]), heads = Number,
                                 c = static_cast<std::size_t>(X::back / 3), w = c / heads,
                                 here = static_cast<std::size_t>(parts<X> / A::size),
                                 part = steps / here,                     // positions
        block                         = std::min<std::size_t>(part, 64),  // queries that are computed at once
        numbers = 2 * heads * steps, travels = 2 * c * steps;
  };
  template <class X> using S = Sizes<X>;

  /// Queries of this rank's part i that meet keys of a part j of rank `of`.
  struct Pair {
    std::size_t i, j;
    float const* kv;     // k, v of all positions that have come
    std::size_t stride;  // between positions
    bool diagonal;       // the same part: with Causal, not all is seen
  };

  template <class X, class At> struct Ring {
    At& at;
    AxisGroup group  = group_along<A>(at.axes);
    float* top       = at.kept.data();   // largest score of each query and head; at the
    float* sum       = top + numbers();  // end log Σ exp. Σ exp; in backward y · dy
    float* kv        = sum + numbers();
    float* next_kv   = kv + travels();
    float* d_kv      = next_kv + travels();
    float* next_d_kv = d_kv + travels();
    float* scratch   = next_d_kv + travels();

    std::size_t numbers() const { return at.rows * S<X>::numbers / 2; }
    std::size_t travels() const { return at.rows * S<X>::travels; }
    std::size_t number(std::size_t r, std::size_t h, std::size_t t) const {
      return (r * S<X>::heads + h) * S<X>::steps + t;
    }

    /// Sends what has come to the next rank, and receives from the rank before.
    void shift(float*& mine, float*& next) const {
      along::shift(group, 1, Span<float const>{mine, travels()}, Span<float>{next, travels()});
      std::swap(mine, next);
    }

    /// Calls f for each pair, in the order of the ring of parts: a query meets its own part first, then the one before it,
    /// and, without Causal, last the one after it. moved() is called after each shift of k and v, and once more at
    /// the end, and brings home what travels with them.
    template <class F, class Moved> void each_pair(F const& f, Moved const& moved) {
      auto const* const own = at.x().data() + S<X>::c;
      for (std::size_t i = 0; i < S<X>::here; ++i)
        for (std::size_t j = i + 1; j-- > 0;) f(Pair{i, j, own, 3 * S<X>::c, i == j});
      if constexpr (A::size > 1) {
        for (std::size_t k = 0; k < at.rows * S<X>::steps; ++k)
          std::copy_n(own + k * 3 * S<X>::c, 2 * S<X>::c, kv + k * 2 * S<X>::c);
        for (int far = 1; far < A::size; ++far) {
          shift(kv, next_kv);
          moved();
          if (causal && group.rank < far) continue;  // of a rank after this one
          for (std::size_t i = 0; i < S<X>::here; ++i)
            for (std::size_t j = S<X>::here; j-- > 0;) f(Pair{i, j, kv, 2 * S<X>::c, false});
        }
        moved();
      }
      for (std::size_t i = 0; i < S<X>::here && !causal; ++i)
        for (std::size_t j = S<X>::here; --j > i;) f(Pair{i, j, own, 3 * S<X>::c, false});
    }

    /// Calls f(row, head, first query, queries, scores) for blocks of the queries of a pair, with their scores.
    template <class F> void each_block(Pair const& pair, F const& f) const {
      for (std::size_t r = 0; r < at.rows; ++r)
        for (std::size_t h = 0; h < S<X>::heads; ++h)
          for (std::size_t first = 0; first < S<X>::part; first += S<X>::block) {
            auto const n = std::min(S<X>::block, S<X>::part - first), t = pair.i * S<X>::part + first;
            cpu::matmul(n, S<X>::part, S<X>::w, {query(at.x().data(), r, h, t), 3 * S<X>::c},
                        {key(pair, r, h), pair.stride, true}, {scratch, S<X>::part, scale});
            f(r, h, t, first, n);
          }
    }

    void meet(Pair const& pair) const {
      each_block(pair, [&](std::size_t r, std::size_t h, std::size_t t, std::size_t first, std::size_t n) {
        auto* const y = at.y().data() + (r * S<X>::steps + t) * S<X>::c + h * S<X>::w;
        for (std::size_t q = 0; q < n; ++q) {
          auto* const p   = scratch + q * S<X>::part;
          auto const k    = number(r, h, t + q);
          auto const seen = seen_by(pair, first + q);
          auto const most = std::max(top[k], cpu::largest(seen, p));
          auto const keep = cpu::exp(top[k] - most);
          for (std::size_t u = 0; u < seen; ++u) p[u] = cpu::exp(p[u] - most);
          std::fill(p + seen, p + S<X>::part, 0.0F);
          sum[k] = sum[k] * keep + cpu::sum_of(S<X>::part, [p](std::size_t u) { return p[u]; });
          top[k] = most;
          for (std::size_t c = 0; c < S<X>::w; ++c) y[q * S<X>::c + c] *= keep;
        }
        cpu::matmul(n, S<X>::w, S<X>::part, {scratch, S<X>::part}, {key(pair, r, h) + S<X>::c, pair.stride},
                    {y, S<X>::c, 1, 1});
      });
    }
    void meet_back(Pair const& pair) const {
      each_block(pair, [&](std::size_t r, std::size_t h, std::size_t t, std::size_t first, std::size_t n) {
        auto* const ds       = scratch + S<X>::block * S<X>::part;
        auto* const dk       = d_kv + (r * S<X>::steps + pair.j * S<X>::part) * 2 * S<X>::c + h * S<X>::w;
        auto const* const dy = at.dy().data() + (r * S<X>::steps + t) * S<X>::c + h * S<X>::w;
        for (std::size_t q = 0; q < n; ++q) {
          auto* const p   = scratch + q * S<X>::part;
          auto const seen = seen_by(pair, first + q);
          auto const z    = top[number(r, h, t + q)];
          for (std::size_t u = 0; u < seen; ++u) p[u] = cpu::exp(p[u] - z);
          std::fill(p + seen, p + S<X>::part, 0.0F);
        }
        cpu::matmul(S<X>::part, S<X>::w, n, {scratch, S<X>::part, true}, {dy, S<X>::c},
                    {dk + S<X>::c, 2 * S<X>::c, 1, 1});
        cpu::matmul(n, S<X>::part, S<X>::w, {dy, S<X>::c}, {key(pair, r, h) + S<X>::c, pair.stride, true},
                    {ds, S<X>::part});
        for (std::size_t q = 0; q < n; ++q) {
          auto const* const p = scratch + q * S<X>::part;
          auto* const d       = ds + q * S<X>::part;
          auto const mean     = sum[number(r, h, t + q)];
          for (std::size_t u = 0; u < S<X>::part; ++u) d[u] = p[u] * (d[u] - mean);
        }
        cpu::matmul(n, S<X>::w, S<X>::part, {ds, S<X>::part}, {key(pair, r, h), pair.stride},
                    {const_cast<float*>(query(at.dx().data(), r, h, t)), 3 * S<X>::c, scale, 1});
        cpu::matmul(S<X>::part, S<X>::w, n, {ds, S<X>::part, true}, {query(at.x().data(), r, h, t), 3 * S<X>::c},
                    {dk, 2 * S<X>::c, scale, 1});
      });
    }

   private:
    inline static float const scale = 1 / std::sqrt(static_cast<float>(S<X>::w));

    static float const* query(float const* x, std::size_t r, std::size_t h, std::size_t t) {
      return x + (r * S<X>::steps + t) * 3 * S<X>::c + h * S<X>::w;
    }
    static float const* key(Pair const& pair, std::size_t r, std::size_t h) {
      return pair.kv + (r * S<X>::steps + pair.j * S<X>::part) * pair.stride + h * S<X>::w;
    }
    /// Keys of the pair's part that query number q of its part sees.
    static std::size_t seen_by(Pair const& pair, std::size_t q) { return causal && pair.diagonal ? q + 1 : S<X>::part; }
  };
};

}  // namespace chorale::nn
