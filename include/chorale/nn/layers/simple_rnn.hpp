// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/recurrent.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::nn {

/// The plain recurrent layer: h = tanh(x W + h U + b), with h zeros before the first step.
///
/// Options            Sequences, Reverse
/// x                  (B, T, C)
/// y                  (B, Units): h after the last step; with Sequences (B, T, Units)
/// kernel             (C, Units), uniform as Glorot & Bengio choose it
/// recurrent_kernel   (Units, Units), orthogonal
/// bias               (Units), zeros
/// cost               2 T + 1 numbers for each unit and row, kept for backward
/// source             Elman, Cognitive Science 1990; tf.keras.layers.SimpleRNN, whose defaults it has
template <int Units, class... Options>
struct SimpleRNN : Layer<SimpleRNN<Units, Options...>>, detail::Recurrent<Units, Options...> {
  using Layer<SimpleRNN>::Layer;
  using Base = detail::Recurrent<Units, Options...>;
  using Base::units;
  static constexpr std::string_view name = "simple_rnn";

  static constexpr void check_size() { static_assert(Base::is_sized, "chorale: SimpleRNN<units> needs at least 1"); }
  template <class X> static constexpr void check() {
    static_assert(Base::options_fit, "chorale: SimpleRNN takes the options nn::Sequences and nn::Reverse");
    static_assert(Base::template numbers<X>,
                  "chorale: SimpleRNN takes sequences (B, T, C) of numbers, but what comes in are ids; put "
                  "nn::Embedding<rows, width> before it");
    static_assert(!Base::template numbers<X> || X::rank == 2,
                  "chorale: SimpleRNN takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
  }
  static constexpr auto variables(auto x) {
    return std::array{glorot_uniform("kernel", x.back, Units), orthogonal("recurrent_kernel", Units, Units),
                      zeros("bias", Units)};
  }
  static constexpr std::size_t kept(auto x) { return (2 * x.vectors + 1) * units; }
  static constexpr std::size_t products(auto x) { return (x.size + x.vectors * units) * units; }
  static constexpr std::size_t inner_products(auto x) { return x.vectors * units * units; }

  template <class L, int T, int C, class Out> static void forward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T, all = steps * units;
    auto const kept = Kept{at.kept, at.rows, steps};
    Base::project(at.rows, steps, C, units, at.x().data(), at.v[0].data(), kept.state);
    for (std::size_t k = 0; k < steps; ++k) {
      auto const t = Base::nth(k, steps);
      if (k > 0)
        Base::add_product(at.rows, units, units, {kept.before + t * units, all}, {at.v[1].data(), units},
                          {kept.state + t * units, all});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i      = r * steps + t;
        auto* const state = kept.state + i * units;
        for (std::size_t u = 0; u < units; ++u) state[u] = Base::tanh(state[u] + at.v[2][u]);
        if (k == 0) std::fill_n(kept.before + i * units, units, 0.0F);
        if (k + 1 < steps) std::copy_n(state, units, kept.before + (r * steps + Base::nth(k + 1, steps)) * units);
        if (Base::sequences || k + 1 == steps) std::copy_n(state, units, &at.y()[Base::last(i, r) * units]);
      }
    }
  }

  template <class L, int T, int C, class Out> static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T, all = steps * units;
    auto const kept = Kept{at.kept, at.rows, steps};
    for (std::size_t k = steps; k-- > 0;) {
      auto const t = Base::nth(k, steps);
      std::fill_n(kept.d_state, at.rows * units, 0.0F);
      if (k + 1 < steps)
        Base::add_product(at.rows, units, units, {kept.state + Base::nth(k + 1, steps) * units, all},
                          {at.v[1].data(), units, true}, {kept.d_state, units});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i        = r * steps + t;
        auto* const state   = kept.state + i * units;  // becomes the gradient by z
        auto* const d_state = kept.d_state + r * units;
        if (Base::sequences || k + 1 == steps)
          for (std::size_t u = 0; u < units; ++u) d_state[u] += at.dy()[Base::last(i, r) * units + u];
        for (std::size_t u = 0; u < units; ++u) state[u] = d_state[u] * (1 - state[u] * state[u]);
      }
    }
    Base::project_back(at.rows, steps, C, units, at.x().data(), at.v[0].data(), kept.state, at.dv[0], at.dx());
    cpu::matmul(units, units, at.rows * steps, {kept.before, units, true}, {kept.state, units},
                {.data = at.dv[1].data(), .stride = units, .beta = 1});
    Base::add_vectors(at.rows * steps, units, kept.state, at.dv[2].data());
  }

 private:
  /// What forward leaves for backward: row after row, and in a row step after step.
  struct Kept {
    Kept(Span<float> all, std::size_t rows, std::size_t steps)
        : state{all.data()}, before{state + rows * steps * units}, d_state{before + rows * steps * units} {}

    float* state;    // (B, T, Units): h after each step
    float* before;   // (B, T, Units): h before each step
    float* d_state;  // (B, Units) of one step of backward
  };
};

}  // namespace chorale::nn
