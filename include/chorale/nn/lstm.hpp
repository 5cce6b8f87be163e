// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/recurrent.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::nn {

/// Long short-term memory: reads a sequence step by step, and gives its state after the last one.
///
///   z = x W + h U + b;   i, f, o = sigmoid of parts 0, 1, 3 of z, g = tanh of part 2
///   c = f c + i g;   h = o tanh(c)                                        c and h begin with zeros
///
/// Options            Sequences, Reverse
/// x                  (B, T, C)
/// y                  (B, Units): h after the last step; with Sequences (B, T, Units)
/// kernel             (C, 4 Units), uniform as Glorot & Bengio choose it: the gates i, f, c, o side by side
/// recurrent_kernel   (Units, 4 Units), orthogonal
/// bias               (4 Units), zeros, and ones for the gate f
/// cost               6 T + 2 numbers for each unit and row, kept for backward; x W of all steps of a row is one product
/// source             Hochreiter & Schmidhuber, Neural Computation 1997; tf.keras.layers.LSTM, whose defaults it has
template <int Units, class... Options>
struct LSTM : Layer<LSTM<Units, Options...>>, detail::Recurrent<Units, Options...> {
  using Layer<LSTM>::Layer;
  using Base = detail::Recurrent<Units, Options...>;
  using Base::sequences, Base::units;
  static constexpr std::string_view name = "lstm";

  template <class X>
  static constexpr void check() {
    static_assert(Units > 0, "chorale: LSTM<units> needs at least 1");
    static_assert(Base::options_fit, "chorale: LSTM takes the options nn::Sequences and nn::Reverse");
    static_assert(Base::template numbers<X>,
                  "chorale: LSTM takes sequences (B, T, C) of numbers, but what comes in are ids; put "
                  "nn::Embedding<rows, width> before it");
    static_assert(!Base::template numbers<X> || X::rank == 2,
                  "chorale: LSTM takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
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
    Base::project(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), kept.gate);
    for (std::size_t k = 0; k < steps; ++k) {
      auto const t = Base::nth(k, steps);
      if (k > 0)
        cpu::add_row_product(at.rows, gates, units, {kept.before + t * units, steps * units}, {at.v[1].data(), gates},
                             {kept.gate + t * gates, steps * gates});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i       = r * steps + t;
        auto* const state  = k + 1 < steps ? kept.before + (r * steps + Base::nth(k + 1, steps)) * units
                                           : at.y().data() + Base::last(i, r) * units;
        auto* const before = kept.before + i * units;
        if (k == 0) std::fill_n(before, units, 0.0F);
        step(at.v[2].data(), kept.gate + i * gates, cell_before(kept, r, k, steps), kept.cell + i * units, state);
        if (sequences && k + 1 < steps) std::copy_n(state, units, at.y().data() + i * units);
      }
    }
  }

  template <class L, int T, int C, class Out>
  static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept = Kept{at.kept, at.rows, steps};
    auto const all  = at.rows * steps;
    std::fill_n(kept.d_cell, at.rows * units, 0.0F);
    for (std::size_t k = steps; k-- > 0;) {
      auto const t = Base::nth(k, steps);
      std::fill_n(kept.d_state, at.rows * units, 0.0F);
      if (k + 1 < steps)
        cpu::add_row_product(at.rows, units, gates, {kept.gate + Base::nth(k + 1, steps) * gates, steps * gates},
                             {at.v[1].data(), gates, true}, {kept.d_state, units});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i        = r * steps + t;
        auto* const d_state = kept.d_state + r * units;
        if (sequences || k + 1 == steps)
          for (std::size_t u = 0; u < units; ++u) d_state[u] += at.dy()[Base::last(i, r) * units + u];
        step_back(kept.gate + i * gates, cell_before(kept, r, k, steps), kept.cell + i * units, d_state,
                  kept.d_cell + r * units);
      }
    }
    auto const* const dz = kept.gate;                                      // gradients by z, where the gates were
    Base::project_back(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), dz, at.dv[0], at.dx());
    cpu::matmul(units, gates, all, {kept.before, units, true}, {dz, gates},
                {.data = at.dv[1].data(), .stride = gates, .beta = 1});
    Base::add_vectors(all, gates, dz, at.dv[2].data());
  }

 private:
  static constexpr std::size_t gates = 4 * units;

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

  /// c of row r before the k-th step that is read: zeros before the first one, which `before` holds there.
  static float const* cell_before(Kept const& kept, std::size_t r, std::size_t k, std::size_t steps) {
    if (k == 0) return kept.before + (r * steps + Base::nth(0, steps)) * units;
    return kept.cell + (r * steps + Base::nth(k - 1, steps)) * units;
  }

  /// One step of one row.
  ///
  /// z        becomes the gates
  /// before   c before this step; cell, state: c and h after it
  static void step(float const* bias, float* z, float const* before, float* cell, float* state) {
    for (std::size_t u = 0; u < units; ++u) {
      auto& i = z[u];
      auto& f = z[units + u];
      auto& g = z[2 * units + u];
      auto& o = z[3 * units + u];
      i        = Base::sigmoid(i + bias[u]);
      f        = Base::sigmoid(f + bias[units + u]);
      g        = Base::tanh(g + bias[2 * units + u]);
      o        = Base::sigmoid(o + bias[3 * units + u]);
      cell[u]  = f * before[u] + i * g;
      state[u] = o * Base::tanh(cell[u]);
    }
  }

  /// The step back from h and c after a step.
  ///
  /// z         the gates; becomes the gradient by z
  /// d_cell    by c after this step; becomes that by c before it
  static void step_back(float* z, float const* before, float const* cell, float const* d_state, float* d_cell) {
    for (std::size_t u = 0; u < units; ++u) {
      auto const i = z[u], f = z[units + u], g = z[2 * units + u], o = z[3 * units + u];
      auto const y = Base::tanh(cell[u]);
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
