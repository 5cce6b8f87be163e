// SPDX-License-Identifier: Apache-2.0
//
// Attention in operations. The probabilities of all pairs are values, which a compiler may compute in tiles.
#pragma once

#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/multi_head_attention.hpp>
#include <chorale/nn/lowering/activation.hpp>
#include <chorale/nn/lowering/call.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace chorale::nn::stablehlo {

namespace detail {

/// softmax(q kᵀ / sqrt(W)) v of each head.
///
/// q, k, v   (B, T, Heads, W), (B, S, Heads, W), (B, S, Heads, W)
/// causal    step t sees the steps up to t
/// returns   (B, Heads, T, W)
inline Value attended(Value q, Value k, Value v, bool causal) {
  auto scores = dot(q, k, {3}, {3}, {0, 2}, {0, 2}) * static_cast<double>(1 / std::sqrt(static_cast<float>(q.dim(3))));
  if (causal) {
    auto const step = [&](std::int64_t along) { return q.program->iota(Element::i32, scores.dims(), along); };
    scores          = select(compare(step(3), "LE", step(2)), scores, -HUGE_VAL);
  }
  return dot(softmax(scores), v, {3}, {1}, {0, 1}, {0, 2});
}

/// Heads and CausalHeads: x (B, T, 3 C), y (B, T, C).
template <int Heads, bool Causal> struct HeadsAsText {
  static Value write(Call& at) {
    auto const steps = at.x().dim(1), width = at.x().dim(2) / 3;
    auto const part = [&](std::int64_t i) {
      return reshape(slice_of(at.x(), 2, i * width, (i + 1) * width), {at.rows(), steps, Heads, width / Heads});
    };
    auto const y = attended(part(0), part(1), part(2), Causal);
    return reshape(transpose(y, {0, 2, 1, 3}), {at.rows(), steps, width});
  }
};

}  // namespace detail

template <int Number> struct Lowering<Heads<Number>> : detail::HeadsAsText<Number, false> {};
template <int Number> struct Lowering<CausalHeads<Number>> : detail::HeadsAsText<Number, true> {};

// Products of query and value, attention, and a product of all heads.
template <int Heads, int KeyDim, class... Options> struct Lowering<MultiHeadAttention<Heads, KeyDim, Options...>> {
  static Value write(Call& at) {
    auto const product = [&](Value x, std::size_t of) {  // (B, T, Heads, KeyDim)
      auto const y = dot(x, at.variables[of], {2}, {0});
      return y + along_last(at.variables[of + 1], y);
    };
    auto const source = at.in.back();
    auto const o      = detail::attended(product(at.x(), 0), product(source, 2), product(source, 4),
                                         MultiHeadAttention<Heads, KeyDim, Options...>::causal);
    auto const y      = dot(o, at.variables[6], {1, 3}, {0, 1});
    return y + along_last(at.variables[7], y);
  }
};

}  // namespace chorale::nn::stablehlo
