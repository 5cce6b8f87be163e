// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/recurrent.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::nn {

/// Gated recurrent unit, in the form in which the gate r is applied after the product with U, as Keras' default
/// reset_after=True and cuDNN have it.
///
///   a = x W + b[0];   s = h U + b[1];   z, r = sigmoid of parts 0, 1 of a + s
///   g = tanh(part 2 of a + r · part 2 of s);   h = z h + (1 - z) g              h begins with zeros
///
/// Options            Sequences, Reverse
/// x                  (B, T, C)
/// y                  (B, Units): h after the last step; with Sequences (B, T, Units)
/// kernel             (C, 3 Units), uniform as Glorot & Bengio choose it: the gates z, r, g side by side
/// recurrent_kernel   (Units, 3 Units), orthogonal
/// bias               (2, 3 Units), zeros: b[0], then b[1]
/// cost               7 T + 1 numbers for each unit and row, kept for backward
/// source             Cho et al., EMNLP 2014; tf.keras.layers.GRU, whose defaults it has
template <int Units, class... Options>
struct GRU : Layer<GRU<Units, Options...>>, detail::Recurrent<Units, Options...> {
  using Layer<GRU>::Layer;
  using Base = detail::Recurrent<Units, Options...>;
  using Base::units;
  static constexpr std::string_view name = "gru";

  static constexpr void check_size() { static_assert(Base::is_sized, "chorale: GRU<units> needs at least 1"); }
  template <class X> static constexpr void check() {
    static_assert(Base::options_fit, "chorale: GRU takes the options nn::Sequences and nn::Reverse");
    static_assert(Base::template numbers<X>,
                  "chorale: GRU takes sequences (B, T, C) of numbers, but what comes in are ids; put "
                  "nn::Embedding<rows, width> before it");
    static_assert(!Base::template numbers<X> || X::rank == 2,
                  "chorale: GRU takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
  }
  static constexpr auto variables(auto x) {
    return std::array{glorot_uniform("kernel", x.back, 3 * Units), orthogonal("recurrent_kernel", Units, 3 * Units),
                      zeros("bias", 2, 3 * Units)};
  }
  static constexpr std::size_t kept(auto x) { return x.vectors * (2 * gates + units) + units; }
  static constexpr std::size_t products(auto x) { return (x.size + x.vectors * units) * gates; }
  static constexpr std::size_t inner_products(auto x) { return x.vectors * units * gates; }

  template <class L, int T, int C, class Out> static void forward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept             = Kept{at.kept, at.rows, steps};
    Base::project(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), kept.gate);
    for (std::size_t k = 0; k < steps; ++k) {
      auto const t = Base::nth(k, steps);
      for (std::size_t r = 0; r < at.rows; ++r)
        std::copy_n(at.v[2].data() + gates, gates, kept.inner + (r * steps + t) * gates);
      if (k > 0)
        Base::add_product(at.rows, gates, units, {kept.before + t * units, steps * units}, {at.v[1].data(), gates},
                          {kept.inner + t * gates, steps * gates});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i       = r * steps + t;
        auto* const before = kept.before + i * units;
        if (k == 0) std::fill_n(before, units, 0.0F);
        auto* const state = k + 1 < steps ? kept.before + (r * steps + Base::nth(k + 1, steps)) * units
                                          : &at.y()[Base::last(i, r) * units];
        step(at.v[2].data(), kept.gate + i * gates, kept.inner + i * gates, before, state);
        if (Base::sequences && k + 1 < steps) std::copy_n(state, units, &at.y()[i * units]);
      }
    }
  }

  template <class L, int T, int C, class Out> static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept             = Kept{at.kept, at.rows, steps};
    auto const all              = at.rows * steps;
    std::fill_n(kept.d_state, at.rows * units, 0.0F);
    for (std::size_t k = steps; k-- > 0;) {
      auto const t = Base::nth(k, steps);
      if (k + 1 < steps)
        Base::add_product(at.rows, units, gates, {kept.inner + Base::nth(k + 1, steps) * gates, steps * gates},
                          {at.v[1].data(), gates, true}, {kept.d_state, units});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i        = r * steps + t;
        auto* const d_state = kept.d_state + r * units;
        if (Base::sequences || k + 1 == steps)
          for (std::size_t u = 0; u < units; ++u) d_state[u] += at.dy()[Base::last(i, r) * units + u];
        step_back(kept.gate + i * gates, kept.inner + i * gates, kept.before + i * units, d_state);
      }
    }
    Base::project_back(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), kept.gate, at.dv[0], at.dx());
    cpu::matmul(units, gates, all, {kept.before, units, true}, {kept.inner, gates},
                {.data = at.dv[1].data(), .stride = gates, .beta = 1});
    Base::add_vectors(all, gates, kept.gate, at.dv[2].data());
    Base::add_vectors(all, gates, kept.inner, at.dv[2].data() + gates);
  }

 private:
  static constexpr std::size_t gates = 3 * units;

  /// What forward leaves for backward: row after row, and in a row step after step.
  struct Kept {
    Kept(Span<float> all, std::size_t rows, std::size_t steps)
        : gate{all.data()}, inner{gate + rows * steps * gates}, before{inner + rows * steps * gates},
          d_state{before + rows * steps * units} {}

    float* gate;     // (B, T, 3 Units): x W, then the gates
    float* inner;    // (B, T, 3 Units): h U + b[1]
    float* before;   // (B, T, Units): h before each step
    float* d_state;  // (B, Units) of one step of backward
  };

  /// One step of one row.
  ///
  /// a              x W; becomes the gates
  /// before, state  h before and after this step
  static void step(float const* bias, float* a, float const* s, float const* before, float* state) {
    for (std::size_t u = 0; u < units; ++u) {
      auto& z  = a[u];
      auto& r  = a[units + u];
      auto& g  = a[2 * units + u];
      z        = Base::sigmoid(z + bias[u] + s[u]);
      r        = Base::sigmoid(r + bias[units + u] + s[units + u]);
      g        = Base::tanh(g + bias[2 * units + u] + r * s[2 * units + u]);
      state[u] = z * before[u] + (1 - z) * g;
    }
  }

  /// The step back from h after a step.
  ///
  /// a         the gates; becomes the gradient by x W
  /// s         becomes the gradient by h U
  /// d_state   by h after this step; becomes that by h before it, without what goes through U
  static void step_back(float* a, float* s, float const* before, float* d_state) {
    for (std::size_t u = 0; u < units; ++u) {
      auto const z = a[u], r = a[units + u], g = a[2 * units + u], d = d_state[u];
      auto const dg = d * (1 - z) * (1 - g * g);
      auto const dz = d * (before[u] - g) * z * (1 - z);
      auto const dr = dg * s[2 * units + u] * r * (1 - r);
      a[u] = s[u]  = dz;
      a[units + u] = s[units + u] = dr;
      a[2 * units + u]            = dg;
      s[2 * units + u]            = dg * r;
      d_state[u]                  = d * z;
    }
  }
};

}  // namespace chorale::nn
