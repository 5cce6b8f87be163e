// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace chorale::nn {

/// Attention of a query to a value, in heads: each head computes softmax(q kᵀ / sqrt(KeyDim)) v, where q = x Wq + bq, and
/// k and v are such products of the value; y are the heads side by side, times Wo, plus bo.
///
///   y = attention(x)                 self-attention: query and value are x
///   y = attention(query, value)      as Keras' layer with two inputs: the key is the value
///
/// Options                  Causal
/// query, value             (B, T, C), (B, S, D)
/// y                        (B, T, C)
/// query/kernel, bias       (C, Heads, KeyDim), (Heads, KeyDim): uniform as Glorot & Bengio choose it, zeros
/// key/.., value/..         (D, Heads, KeyDim), (Heads, KeyDim)
/// attention_output/..      (Heads, KeyDim, C), (C)
/// cost                     q, k, v, what they give and its gradients are kept for backward, and Heads T numbers, but
///                          not (T, S) probabilities: these are computed `tile` steps at a time, and again in backward
/// source                   Vaswani et al., NeurIPS 2017; tf.keras.layers.MultiHeadAttention, with value_dim=KeyDim,
///                          without dropout. Computing again: Dao et al., "FlashAttention", NeurIPS 2022
template <int Heads, int KeyDim, class... Options>
struct MultiHeadAttention : Layer<MultiHeadAttention<Heads, KeyDim, Options...>> {
  using Layer<MultiHeadAttention>::Layer;
  static constexpr std::string_view name = "multi_head_attention";
  static constexpr bool causal           = (std::is_same_v<Options, Causal> || ...);
  static constexpr std::size_t tile      = 32;  // steps of the query

  template <class X> static constexpr bool sequence = std::is_same_v<typename X::type, float> && X::rank == 2;
  template <class... X>
  static constexpr bool fits = Heads > 0 && KeyDim > 0 && (sizeof...(X) == 1 || sizeof...(X) == 2) &&
                               (sequence<X> && ...);

  template <class... X> static constexpr void check() {
    static_assert((std::is_same_v<Options, Causal> && ...),
                  "chorale: MultiHeadAttention takes heads, their width, and one option, nn::Causal");
    static_assert(fits<X...>,
                  "chorale: MultiHeadAttention<heads, width> takes one or two sequences of numbers (B, T, C), a query "
                  "and a value");
  }
  template <class Query, class... Value> requires fits<Query, Value...>
  static constexpr auto output(Query query, Value...) {
    return query;
  }

  template <class Query, class... Value> static constexpr auto variables(Query, Value...) {
    using Source = std::tuple_element_t<sizeof...(Value), std::tuple<Query, Value...>>;
    return std::array{kernel("query/kernel", Query::back),
                      zeros("query/bias", Heads, KeyDim),
                      kernel("key/kernel", Source::back),
                      zeros("key/bias", Heads, KeyDim),
                      kernel("value/kernel", Source::back),
                      zeros("value/bias", Heads, KeyDim),
                      detail::spec_of("attention_output/kernel", Init::glorot_uniform, KeyDim * Heads,
                                      Query::back * Heads, Heads, KeyDim, Query::back),
                      zeros("attention_output/bias", Query::back)};
  }
  template <class Query, class... Value> static constexpr std::size_t kept(Query, Value...) {
    using Size = Sizes<Query, Value...>;
    return 3 * Size::t * inner + 4 * Size::s * inner + heads * Size::t + 2 * tile * Size::s;
  }
  template <class Query, class... Value> static constexpr std::size_t products(Query, Value...) {
    using Size = Sizes<Query, Value...>;
    return inner * (Size::t * Size::c + 2 * Size::s * Size::d) + inner_products(Query{}, Value{}...);
  }
  template <class Query, class... Value>
  static constexpr std::size_t inner_products(Query, Value...) {  // of probabilities, and of Wo
    using Size           = Sizes<Query, Value...>;
    constexpr auto pairs = causal ? Size::t * (Size::t + 1) / 2 : Size::t * Size::s;
    return inner * (Size::t * Size::c + 2 * pairs);
  }

  template <class L, class Query, class... Value, class Out>
  static void forward(Place<L, detail::List<Query, Value...>, Out>& at) {
    using Size = Sizes<Query, Value...>;
    auto kept  = Kept<Size>{at.kept, at.rows};
    for (std::size_t r = 0; r < at.rows; ++r, kept.next()) {
      auto const* const x      = std::get<0>(at.in).data() + r * Size::t * Size::c;
      auto const* const source = std::get<sizeof...(Value)>(at.in).data() + r * Size::s * Size::d;
      affine(Size::t, inner, Size::c, x, at.v[0], at.v[1], kept.q);
      affine(Size::s, inner, Size::d, source, at.v[2], at.v[3], kept.k);
      affine(Size::s, inner, Size::d, source, at.v[4], at.v[5], kept.v);
      for (std::size_t h = 0; h < heads; ++h) attend(kept, h);
      affine(Size::t, Size::c, inner, kept.o, at.v[6], at.v[7], at.y().data() + r * Size::t * Size::c);
    }
  }

  template <class L, class Query, class... Value, class Out>
  static void backward(Place<L, detail::List<Query, Value...>, Out>& at) {
    using Size     = Sizes<Query, Value...>;
    auto kept      = Kept<Size>{at.kept, at.rows};
    auto const all = kept;  // of the first row; the other rows follow it
    auto const n = at.rows * Size::t, m = at.rows * Size::s;
    auto const of_v = sizeof...(Value);
    for (std::size_t r = 0; r < at.rows; ++r, kept.next()) {
      cpu::matmul(Size::t, inner, Size::c, {at.dy().data() + r * Size::t * Size::c, Size::c},
                  {at.v[6].data(), Size::c, true}, {kept.d_o, inner});
      std::fill_n(kept.d_k, Size::s * inner, 0.0F);
      std::fill_n(kept.d_v, Size::s * inner, 0.0F);
      for (std::size_t h = 0; h < heads; ++h) attend_back(kept, h);
      affine_back(Size::t, inner, Size::c, kept.q, at.v[0], at.d_in[0], r);
      affine_back(Size::s, inner, Size::d, kept.d_k, at.v[2], at.d_in[of_v], r);
      affine_back(Size::s, inner, Size::d, kept.d_v, at.v[4], at.d_in[of_v], r);
    }
    auto const* const x      = std::get<0>(at.in).data();
    auto const* const source = std::get<of_v>(at.in).data();
    variables_back(n, inner, Size::c, x, all.q, at.dv[0], at.dv[1]);
    variables_back(m, inner, Size::d, source, all.d_k, at.dv[2], at.dv[3]);
    variables_back(m, inner, Size::d, source, all.d_v, at.dv[4], at.dv[5]);
    variables_back(n, Size::c, inner, all.o, at.dy().data(), at.dv[6], at.dv[7]);
  }

 private:
  static constexpr std::size_t heads = Heads, width = KeyDim, inner = heads * width;

  template <class Query, class... Value> struct Sizes {
    using Source                   = std::tuple_element_t<sizeof...(Value), std::tuple<Query, Value...>>;
    static constexpr std::size_t t = Query::vectors, c = Query::back, s = Source::vectors, d = Source::back;
  };

  static constexpr VariableSpec kernel(std::string_view of, int in) {  // its fans as Keras counts them
    return detail::spec_of(of, Init::glorot_uniform, Heads * in, KeyDim * in, in, Heads, KeyDim);
  }
  static float scale() { return 1 / std::sqrt(static_cast<float>(width)); }

  /// What forward leaves for backward of one row.
  template <class Size> struct Kept {
    Kept(Span<float> all, std::size_t rows)
        : q{all.data()}, o{q + rows * Size::t * inner}, d_o{o + rows * Size::t * inner},
          k{d_o + rows * Size::t * inner}, v{k + rows * Size::s * inner}, d_k{v + rows * Size::s * inner},
          d_v{d_k + rows * Size::s * inner}, log_sum{d_v + rows * Size::s * inner}, p{log_sum + rows * heads * Size::t},
          d_p{p + tile * Size::s} {}

    void next() {
      for (auto* const of_t : {&q, &o, &d_o}) *of_t += Size::t * inner;
      for (auto* const of_s : {&k, &v, &d_k, &d_v}) *of_s += Size::s * inner;
      log_sum += heads * Size::t;
    }

    float *q, *o, *d_o;        // (T, inner); q becomes the gradient by it
    float *k, *v, *d_k, *d_v;  // (S, inner)
    float* log_sum;            // (Heads, T): log Σ exp of each step
    float *p, *d_p;            // (tile, S) of all rows: scratch
  };

  /// Calls f(first step, steps, steps of the value that they attend to) for each tile of a query.
  template <class Size, class F> static void each_tile(F&& f) {
    for (std::size_t from = 0; from < Size::t; from += tile) {
      auto const count = std::min(tile, Size::t - from);
      f(from, count, causal ? std::min(from + count, Size::s) : Size::s);
    }
  }
  /// Steps of the value, of `seen`, that step t of the query attends to.
  static constexpr std::size_t seen_by(std::size_t t, std::size_t seen) {
    return causal ? std::min(t + 1, seen) : seen;
  }

  /// o of one head of a row.
  template <class Size> static void attend(Kept<Size> const& kept, std::size_t h) {
    auto const at = h * width;  // first number of the head in a vector
    each_tile<Size>([&](std::size_t from, std::size_t count, std::size_t seen) {
      cpu::matmul(count, seen, width, {kept.q + from * inner + at, inner}, {kept.k + at, inner, true},
                  {kept.p, Size::s, scale()});
      for (std::size_t i = 0; i < count; ++i) {
        auto* const p   = kept.p + i * Size::s;
        auto const n    = seen_by(from + i, seen);
        auto const most = *std::max_element(p, p + n);
        auto sum        = 0.0F;
        for (std::size_t j = 0; j < n; ++j) sum += p[j] = std::exp(p[j] - most);
        for (std::size_t j = 0; j < n; ++j) p[j] /= sum;
        std::fill(p + n, p + seen, 0.0F);
        kept.log_sum[h * Size::t + from + i] = most + std::log(sum);
      }
      cpu::matmul(count, width, seen, {kept.p, Size::s}, {kept.v + at, inner}, {kept.o + from * inner + at, inner});
    });
  }

  /// Adds to d_k and d_v of one head of a row; q becomes the gradient by it.
  template <class Size> static void attend_back(Kept<Size> const& kept, std::size_t h) {
    auto const at = h * width;
    each_tile<Size>([&](std::size_t from, std::size_t count, std::size_t seen) {
      auto* const q         = kept.q + from * inner + at;
      auto const* const d_o = kept.d_o + from * inner + at;
      auto const* const o   = kept.o + from * inner + at;
      cpu::matmul(count, seen, width, {q, inner}, {kept.k + at, inner, true}, {kept.p, Size::s, scale()});
      cpu::matmul(count, seen, width, {d_o, inner}, {kept.v + at, inner, true}, {kept.d_p, Size::s});
      for (std::size_t i = 0; i < count; ++i) {
        auto* const p      = kept.p + i * Size::s;
        auto* const d      = kept.d_p + i * Size::s;
        auto const n       = seen_by(from + i, seen);
        auto const log_sum = kept.log_sum[h * Size::t + from + i];
        auto mean          = 0.0F;  // of d, with p as weights
        for (std::size_t w = 0; w < width; ++w) mean += o[i * inner + w] * d_o[i * inner + w];
        for (std::size_t j = 0; j < n; ++j) p[j] = std::exp(p[j] - log_sum);
        for (std::size_t j = 0; j < n; ++j) d[j] = p[j] * (d[j] - mean);
        std::fill(p + n, p + seen, 0.0F);
        std::fill(d + n, d + seen, 0.0F);
      }
      cpu::matmul(seen, width, count, {kept.p, Size::s, true}, {d_o, inner},
                  {.data = kept.d_v + at, .stride = inner, .beta = 1});
      cpu::matmul(seen, width, count, {kept.d_p, Size::s, true}, {q, inner},
                  {.data = kept.d_k + at, .stride = inner, .alpha = scale(), .beta = 1});
      cpu::matmul(count, width, seen, {kept.d_p, Size::s}, {kept.k + at, inner},
                  {.data = q, .stride = inner, .alpha = scale()});
    });
  }

  /// y = x W + b: (n, in), (in, out), (out), (n, out)
  static void affine(std::size_t n, std::size_t out, std::size_t in, float const* x, Span<float const> w,
                     Span<float const> b, float* y) {
    for (std::size_t i = 0; i < n; ++i) std::copy(b.begin(), b.end(), y + i * out);
    cpu::matmul(n, out, in, {x, in}, {w.data(), out}, {.data = y, .stride = out, .beta = 1});
  }
  /// Adds the gradient by x of row r, if anybody needs it.
  static void affine_back(std::size_t n, std::size_t out, std::size_t in, float const* dy, Span<float const> w,
                          Span<float> dx, std::size_t r) {
    if (dx.empty()) return;
    cpu::matmul(n, in, out, {dy, out}, {w.data(), out, true},
                {.data = dx.data() + r * n * in, .stride = in, .beta = 1});
  }
  /// Adds the gradients by W and b, of all rows.
  static void variables_back(std::size_t n, std::size_t out, std::size_t in, float const* x, float const* dy,
                             Span<float> dw, Span<float> db) {
    cpu::matmul(in, out, n, {x, in, true}, {dy, out}, {.data = dw.data(), .stride = out, .beta = 1});
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < out; ++c) db[c] += dy[i * out + c];
  }
};

}  // namespace chorale::nn
