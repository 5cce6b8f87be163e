// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Option of LSTM: y has the state after each step, (B, T, Units), and not the last one alone. Another LSTM takes it.
struct Sequences {};

/// Long short-term memory: reads a sequence step by step, and gives its state after the last one.
///
///   z = x W + h U + b;   i, f, o = sigmoid of parts 0, 1, 3 of z, g = tanh of part 2
///   c = f c + i g;   h = o tanh(c)                                        c and h begin with zeros
///
/// Options            Sequences
/// x                  (B, T, C)
/// y                  (B, Units): h after step T; with Sequences (B, T, Units)
/// kernel             (C, 4 Units), uniform as Glorot & Bengio choose it: the gates i, f, c, o side by side
/// recurrent_kernel   (Units, 4 Units), orthogonal
/// bias               (4 Units), zeros, and ones for the gate f
/// cost               6 T + 2 numbers for each unit and row, kept for backward; x W of all steps is one product
/// source             Hochreiter & Schmidhuber, Neural Computation 1997; tf.keras.layers.LSTM, whose defaults it has
template <int Units, class... Options>
struct LSTM : Layer<LSTM<Units, Options...>> {
  using Layer<LSTM>::Layer;
  static constexpr std::string_view name = "lstm";
  static constexpr bool sequences        = (std::is_same_v<Options, Sequences> || ...);

  template <class X>
  static constexpr bool numbers = std::is_same_v<typename X::type, float>;

  template <class X>
  static constexpr void check() {
    static_assert(Units > 0, "chorale: LSTM<units> needs at least 1");
    static_assert((std::is_same_v<Options, Sequences> && ...), "chorale: LSTM takes one option, nn::Sequences");
    static_assert(numbers<X>, "chorale: LSTM takes sequences (B, T, C) of numbers, but what comes in are ids; put "
                              "nn::Embedding<rows, width> before it");
    static_assert(!numbers<X> || X::rank == 2,
                  "chorale: LSTM takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
  }
  template <int T, int C>
  static constexpr auto output(Of<float, T, C>) {
    if constexpr (sequences) return Of<float, T, Units>{};
    else return Of<float, Units>{};
  }
  static constexpr auto variables(auto x) {
    return std::array{glorot_uniform("kernel", x.back, 4 * Units), orthogonal("recurrent_kernel", Units, 4 * Units),
                      unit_forget("bias", 4 * Units)};
  }
  static constexpr std::size_t kept(auto x) { return x.vectors * (gates + 2 * units) + 2 * units; }
  static constexpr std::size_t products(auto x) { return (x.size + x.vectors * units) * gates; }

  template <class L, int T, int C, class Out>
  static void forward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept = Kept{at.kept, at.rows, steps};
    cpu::matmul(at.rows * steps, gates, C, {at.x().data(), C}, {at.v[0].data(), gates}, {kept.gate, gates});
    for (std::size_t t = 0; t < steps; ++t) {
      if (t > 0)
        cpu::matmul(at.rows, gates, units, {kept.before + t * units, steps * units}, {at.v[1].data(), gates},
                    {.data = kept.gate + t * gates, .stride = steps * gates, .beta = 1});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i       = r * steps + t;
        auto* const state  = t + 1 < steps ? kept.before + (i + 1) * units : at.y().data() + last(i, r) * units;
        auto* const before = kept.before + i * units;
        if (t == 0) std::fill_n(before, units, 0.0F);
        step(at.v[2].data(), kept.gate + i * gates, t == 0 ? before : kept.cell + (i - 1) * units,
             kept.cell + i * units, state);
        if (sequences && t + 1 < steps) std::copy_n(state, units, at.y().data() + i * units);
      }
    }
  }

  template <class L, int T, int C, class Out>
  static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept = Kept{at.kept, at.rows, steps};
    auto const all  = at.rows * steps;
    std::fill_n(kept.d_state, 2 * at.rows * units, 0.0F);                  // and d_cell, which lies behind it
    for (std::size_t t = steps; t-- > 0;) {
      if (t + 1 < steps)
        cpu::matmul(at.rows, units, gates, {kept.gate + (t + 1) * gates, steps * gates}, {at.v[1].data(), gates, true},
                    {kept.d_state, units});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i        = r * steps + t;
        auto* const d_state = kept.d_state + r * units;
        if (sequences || t + 1 == steps)
          for (std::size_t u = 0; u < units; ++u) d_state[u] += at.dy()[last(i, r) * units + u];
        step_back(kept.gate + i * gates, t == 0 ? kept.before + i * units : kept.cell + (i - 1) * units,
                  kept.cell + i * units, d_state, kept.d_cell + r * units);
      }
    }
    auto const* const dz = kept.gate;                                      // gradients by z, where the gates were
    cpu::matmul(C, gates, all, {at.x().data(), C, true}, {dz, gates},
                {.data = at.dv[0].data(), .stride = gates, .beta = 1});
    cpu::matmul(units, gates, all, {kept.before, units, true}, {dz, gates},
                {.data = at.dv[1].data(), .stride = gates, .beta = 1});
    for (std::size_t i = 0; i < all; ++i)
      for (std::size_t g = 0; g < gates; ++g) at.dv[2][g] += dz[i * gates + g];
    if (!at.dx().empty())
      cpu::matmul(all, C, gates, {dz, gates}, {at.v[0].data(), gates, true},
                  {.data = at.dx().data(), .stride = C, .beta = 1});
  }

 private:
  static constexpr std::size_t units = Units, gates = 4 * units;

  /// What forward leaves for backward: row after row, and in a row step after step.
  struct Kept {
    Kept(Span<float> all, std::size_t rows, std::size_t steps)
        : gate{all.data()}, cell{gate + rows * steps * gates}, before{cell + rows * steps * units},
          d_state{before + rows * steps * units}, d_cell{d_state + rows * units} {}

    float* gate;                                                           // (B, T, 4 Units): z, then the gates
    float* cell;                                                           // (B, T, Units): c after each step
    float* before;                                                         // (B, T, Units): h before each step
    float* d_state;                                                        // (B, Units) of one step of backward
    float* d_cell;
  };

  /// The vector of y that holds the state of row r at vector i of the sequence.
  static constexpr std::size_t last(std::size_t i, std::size_t r) { return sequences ? i : r; }

  /// One step of one row.
  ///
  /// z        becomes the gates
  /// before   c before this step; cell, state: c and h after it
  static void step(float const* bias, float* z, float const* before, float* cell, float* state) {
    for (std::size_t u = 0; u < units; ++u) {
      auto const g     = 2 * units + u;
      z[u]             = cpu::sigmoid(z[u] + bias[u]);
      z[units + u]     = cpu::sigmoid(z[units + u] + bias[units + u]);
      z[g]             = cpu::tanh(z[g] + bias[g]);
      z[3 * units + u] = cpu::sigmoid(z[3 * units + u] + bias[3 * units + u]);
    }
    for (std::size_t u = 0; u < units; ++u) cell[u] = z[units + u] * before[u] + z[u] * z[2 * units + u];
    for (std::size_t u = 0; u < units; ++u) state[u] = z[3 * units + u] * cpu::tanh(cell[u]);
  }

  /// The step back from h and c after a step.
  ///
  /// z         the gates; becomes the gradient by z
  /// d_cell    by c after this step; becomes that by c before it
  static void step_back(float* z, float const* before, float const* cell, float const* d_state, float* d_cell) {
    for (std::size_t u = 0; u < units; ++u) {
      auto const i = z[u], f = z[units + u], g = z[2 * units + u], o = z[3 * units + u];
      auto const y = cpu::tanh(cell[u]);
      auto const d = d_cell[u] + d_state[u] * o * (1 - y * y);
      z[u]             = d * g * i * (1 - i);
      z[units + u]     = d * before[u] * f * (1 - f);
      z[2 * units + u] = d * i * (1 - g * g);
      z[3 * units + u] = d_state[u] * y * o * (1 - o);
      d_cell[u]        = d * f;
    }
  }
};

}  // namespace chorale::nn
