// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/ragged_lstm.hpp>
#include <chorale/nn/layers/recurrent.hpp>

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
/// x                  (B, T, C); T may be ragged: then each row ends after its own steps, and Reverse is refused
/// y                  (B, Units): h after the last step, zeros of a row without steps; with Sequences (B, T, Units)
/// kernel             (C, 4 Units), uniform as Glorot & Bengio choose it: the gates i, f, c, o side by side
/// recurrent_kernel   (Units, 4 Units), orthogonal
/// bias               (4 Units), zeros, and ones for the gate f
/// cost               6 T + 2 numbers for each unit and row, kept for backward; x W of all steps is one product
/// source             Hochreiter & Schmidhuber, Neural Computation 1997; tf.keras.layers.LSTM, whose defaults it has
template <int Units, class... Options>
struct LSTM : Layer<LSTM<Units, Options...>>, detail::Recurrent<Units, Options...> {
  using Layer<LSTM>::Layer;
  using Base = detail::Recurrent<Units, Options...>;
  using Base::sequences, Base::units;
  static constexpr std::string_view name = "lstm";
  static constexpr bool reads_lengths    = true;

  static constexpr void check_size() { static_assert(Base::is_sized, "chorale: LSTM<units> needs at least 1"); }
  template <class X> static constexpr void check() {
    static_assert(Base::options_fit, "chorale: LSTM takes the options nn::Sequences and nn::Reverse");
    static_assert(Base::template numbers<X>,
                  "chorale: LSTM takes sequences (B, T, C) of numbers, but what comes in are ids; put "
                  "nn::Embedding<rows, width> before it");
    static_assert(!Base::template numbers<X> || X::rank == 2,
                  "chorale: LSTM takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
    static_assert(!X::is_ragged || !Base::reverse,
                  "chorale: LSTM with nn::Reverse takes sequences of one length; leave nn::Reverse out, or use a field "
                  "whose rows have one length");
  }
  template <int T, int C> requires(T > 0 || !detail::Recurrent<Units, Options...>::reverse)
  static constexpr auto output(Of<float, T, C> x) {
    return Base::output(x);
  }
  static constexpr auto variables(auto x) {
    return std::array{glorot_uniform("kernel", x.back, 4 * Units), orthogonal("recurrent_kernel", Units, 4 * Units),
                      unit_forget("bias", 4 * Units)};
  }
  static constexpr std::size_t kept(auto x) { return x.vectors * (gates + 2 * units) + 2 * units; }
  static std::size_t kept_for(auto const& at) { return detail::RaggedLstm<units>::kept(at.x().size(), *at.ragged[0]); }
  static constexpr std::size_t products(auto x) { return (x.size + x.vectors * units) * gates; }
  static constexpr std::size_t inner_products(auto x) { return x.vectors * units * gates; }

  template <class L, int T, int C, class Out> requires(T < 0)
  static void forward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    detail::RaggedLstm<units>{at, C, sequences}.forward();
  }
  template <class L, int T, int C, class Out> requires(T > 0)
  static void forward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept             = Kept{at.kept, at.rows, steps};
    Base::project(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), kept.gate);
    for (std::size_t k = 0; k < steps; ++k) {
      auto const t = Base::nth(k, steps);
      if (k > 0)
        Base::add_product(at.rows, gates, units, {kept.before + t * units, steps * units}, {at.v[1].data(), gates},
                          {kept.gate + t * gates, steps * gates});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i       = r * steps + t;
        auto* const state  = k + 1 < steps ? kept.before + (r * steps + Base::nth(k + 1, steps)) * units
                                           : at.y().data() + Base::last(i, r) * units;
        auto* const before = kept.before + i * units;
        if (k == 0) std::fill_n(before, units, 0.0F);
        cell::step(at.v[2].data(), kept.gate + i * gates, cell_before(kept, r, k, steps), kept.cell + i * units, state);
        if (sequences && k + 1 < steps) std::copy_n(state, units, at.y().data() + i * units);
      }
    }
  }

  template <class L, int T, int C, class Out> requires(T < 0)
  static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    detail::RaggedLstm<units>{at, C, sequences}.backward();
  }
  template <class L, int T, int C, class Out> requires(T > 0)
  static void backward(Place<L, detail::List<Of<float, T, C>>, Out>& at) {
    constexpr std::size_t steps = T;
    auto const kept             = Kept{at.kept, at.rows, steps};
    auto const all              = at.rows * steps;
    std::fill_n(kept.d_cell, at.rows * units, 0.0F);
    for (std::size_t k = steps; k-- > 0;) {
      auto const t = Base::nth(k, steps);
      std::fill_n(kept.d_state, at.rows * units, 0.0F);
      if (k + 1 < steps)
        Base::add_product(at.rows, units, gates, {kept.gate + Base::nth(k + 1, steps) * gates, steps * gates},
                          {at.v[1].data(), gates, true}, {kept.d_state, units});
      for (std::size_t r = 0; r < at.rows; ++r) {
        auto const i        = r * steps + t;
        auto* const d_state = kept.d_state + r * units;
        if (sequences || k + 1 == steps)
          for (std::size_t u = 0; u < units; ++u) d_state[u] += at.dy()[Base::last(i, r) * units + u];
        cell::step_back(kept.gate + i * gates, cell_before(kept, r, k, steps), kept.cell + i * units, d_state,
                        kept.d_cell + r * units);
      }
    }
    auto const* const dz = kept.gate;  // gradients by z, where the gates were
    Base::project_back(at.rows, steps, C, gates, at.x().data(), at.v[0].data(), dz, at.dv[0], at.dx());
    cpu::matmul(units, gates, all, {kept.before, units, true}, {dz, gates},
                {.data = at.dv[1].data(), .stride = gates, .beta = 1});
    Base::add_vectors(all, gates, dz, at.dv[2].data());
  }

 private:
  static constexpr std::size_t gates = 4 * units;
  using cell                         = detail::LstmCell<units>;

  /// What forward leaves for backward: row after row, and in a row step after step.
  struct Kept {
    Kept(Span<float> all, std::size_t rows, std::size_t steps)
        : gate{all.data()}, cell{gate + rows * steps * gates}, before{cell + rows * steps * units},
          d_state{before + rows * steps * units}, d_cell{d_state + rows * units} {}

    float* gate;     // (B, T, 4 Units): z, then the gates
    float* cell;     // (B, T, Units): c after each step
    float* before;   // (B, T, Units): h before each step
    float* d_state;  // (B, Units) of one step of backward
    float* d_cell;
  };

  /// c of row r before the k-th step that is read: zeros before the first one, which `before` holds there.
  static float const* cell_before(Kept const& kept, std::size_t r, std::size_t k, std::size_t steps) {
    if (k == 0) return kept.before + (r * steps + Base::nth(0, steps)) * units;
    return kept.cell + (r * steps + Base::nth(k - 1, steps)) * units;
  }
};

}  // namespace chorale::nn
