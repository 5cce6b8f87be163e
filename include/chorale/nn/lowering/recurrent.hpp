// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers in operations, step after step: a program has as many of them as the sequence has steps.
#pragma once

#include <chorale/nn/layers/gru.hpp>
#include <chorale/nn/layers/lstm.hpp>
#include <chorale/nn/layers/simple_rnn.hpp>
#include <chorale/nn/lowering/call.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::nn::stablehlo {

namespace detail {

/// Part i of values (B, n Units) that lie side by side.
template <class L> Value gate(Value z, std::int64_t i) {
  constexpr auto units = static_cast<std::int64_t>(L::units);
  return slice_of(z, 1, i * units, (i + 1) * units);
}

/// What recurrent layers share: the order of steps, and what they give.
///
/// L      the layer
/// step   step(a, h) gives h after a step from its part of x W + b and h before it, which the first step has not
template <class L, class Step> Value over_steps(Call& at, Value projected, Step&& step) {
  auto const steps = projected.dim(1);
  auto states      = std::vector<Value>(static_cast<std::size_t>(steps));
  auto h           = Value{};
  for (std::int64_t k = 0; k < steps; ++k) {
    auto const t = L::reverse ? steps - 1 - k : k;
    h            = step(reshape(slice_of(projected, 1, t, t + 1), {at.rows(), projected.dim(2)}), h);
    states[static_cast<std::size_t>(t)] = reshape(h, {at.rows(), 1, h.dim(1)});
  }
  return L::sequences ? concatenate(states, 1) : h;
}

}  // namespace detail

// tanh(x W + h U + b)
template <int Units, class... Options> struct Lowering<SimpleRNN<Units, Options...>> {
  using L = SimpleRNN<Units, Options...>;

  static Value write(Call& at) {
    auto const z = matmul(at.x(), at.variables[0]);
    return detail::over_steps<L>(at, z + along_last(at.variables[2], z),
                                 [&](Value a, Value h) { return tanh(h ? a + matmul(h, at.variables[1]) : a); });
  }
};

// The gates i, f, c, o side by side; without a state before it, f has nothing to keep.
template <int Units, class... Options> struct Lowering<LSTM<Units, Options...>> {
  using L = LSTM<Units, Options...>;

  static Value write(Call& at) {
    auto const z = matmul(at.x(), at.variables[0]);
    auto cell    = Value{};
    return detail::over_steps<L>(at, z + along_last(at.variables[2], z), [&](Value a, Value h) {
      auto const all     = h ? a + matmul(h, at.variables[1]) : a;
      auto const written = logistic(detail::gate<L>(all, 0)) * tanh(detail::gate<L>(all, 2));
      cell               = h ? logistic(detail::gate<L>(all, 1)) * cell + written : written;
      return logistic(detail::gate<L>(all, 3)) * tanh(cell);
    });
  }
};

// The gates z, r, g side by side; b[1] is inside of the product with r.
template <int Units, class... Options> struct Lowering<GRU<Units, Options...>> {
  using L = GRU<Units, Options...>;

  static Value write(Call& at) {
    auto const bias = [&](std::int64_t i) { return reshape(slice_of(at.variables[2], 0, i, i + 1), {3 * Units}); };
    auto const z    = matmul(at.x(), at.variables[0]);
    return detail::over_steps<L>(at, z + along_last(bias(0), z), [&](Value a, Value h) {
      auto const inner = broadcast(bias(1), a.dims(), {1});
      auto const s     = h ? matmul(h, at.variables[1]) + inner : inner;
      auto const kept  = logistic(detail::gate<L>(a, 0) + detail::gate<L>(s, 0));
      auto const reset = logistic(detail::gate<L>(a, 1) + detail::gate<L>(s, 1));
      auto const next  = tanh(detail::gate<L>(a, 2) + reset * detail::gate<L>(s, 2));
      return h ? kept * h + (1.0 - kept) * next : (1.0 - kept) * next;
    });
  }
};

}  // namespace chorale::nn::stablehlo
