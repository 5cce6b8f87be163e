// SPDX-License-Identifier: Apache-2.0
//
// One step of an LSTM, and the LSTM over rows of different lengths.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale::nn::detail {

/// One step of one row of an LSTM, and the step back.
template <std::size_t units> struct LstmCell {
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
      auto const y     = cpu::tanh(cell[u]);
      auto const d     = d_cell[u] + d_state[u] * o * (1 - y * y);
      z[u]             = d * g * i * (1 - i);
      z[units + u]     = d * before[u] * f * (1 - f);
      z[2 * units + u] = d * i * (1 - g * g);
      z[3 * units + u] = d_state[u] * y * o * (1 - o);
      d_cell[u]        = d * f;
    }
  }
};

/// An LSTM over rows of different lengths, which lie one after another. Rows that have a step are computed together:
/// the longest rows come first, so that they are the first ones in each step. What comes of a row does not depend on
/// others.
///
/// cost      6 numbers for each unit and position and 10 for each unit and row, kept for backward
template <std::size_t units> class RaggedLstm {
  static constexpr std::size_t gates = 4 * units, few = 16;      // rows of a recurrent product
  static constexpr std::size_t many = graph::RaggedRows::block;  // positions of the product with x
  using cell                        = LstmCell<units>;

 public:
  static std::size_t kept(std::size_t, graph::RaggedRows const& rows) {
    return up(rows.positions, many) * (gates + 2 * units) + up(rows.lengths.size(), few) * (gates + 2 * units) + units;
  }

  RaggedLstm(auto& at, std::size_t inputs, bool sequences)
      : rows_{*at.ragged[0]}, n_{rows_.lengths.size()}, inputs_{inputs}, sequences_{sequences}, x_{at.x().data()},
        y_{at.y().data()}, dx_{at.dx().data()}, dy_{at.dy().data()}, kernel_{at.v[0].data()},
        recurrent_{at.v[1].data()}, bias_{at.v[2].data()}, d_kernel_{at.dv[0].data()}, d_recurrent_{at.dv[1].data()},
        d_bias_{at.dv[2].data()} {
    auto* next      = at.kept.data();
    auto const take = [&](std::size_t size) {
      next += size;
      return next - size;
    };
    auto const positions = up(rows_.positions, many), rows = up(n_, few);
    gate_ = take(positions * gates), cell_ = take(positions * units), before_ = take(positions * units);
    z_ = take(rows * gates), state_ = take(rows * units), d_cell_ = take(rows * units);
    zeros_ = take(units);
  }

  void forward() {
    cpu::matmul_in_blocks<many>(rows_.positions, gates, inputs_, {x_, inputs_}, {kernel_, gates}, {gate_, gates});
    std::fill_n(zeros_, units, 0.0F);
    if (!sequences_)
      for (std::size_t r = 0; r < n_; ++r)
        if (rows_.lengths[r] == 0) std::fill_n(y_ + r * units, units, 0.0F);
    std::fill_n(state_, up(n_, few) * units, 0.0F);
    for (std::size_t t = 0, active = with_step(0, n_); active > 0; active = with_step(++t, active)) {
      if (t > 0) cpu::matmul_in_blocks<few>(active, gates, units, {state_, units}, {recurrent_, gates}, {z_, gates});
      for (std::size_t k = 0; k < active; ++k) {
        auto const r = rows_.by_length[k], i = rows_.starts[r] + t;
        auto* const z = gate_ + i * gates;
        for (std::size_t g = 0; g < gates && t > 0; ++g) z[g] += z_[k * gates + g];
        std::copy_n(state_ + k * units, units, before_ + i * units);
        cell::step(bias_, z, t == 0 ? zeros_ : cell_ + (i - 1) * units, cell_ + i * units, state_ + k * units);
        if (sequences_ || is_last(r, t)) std::copy_n(state_ + k * units, units, y_ + (sequences_ ? i : r) * units);
      }
    }
  }

  void backward() {
    if (rows_.positions == 0) return;
    auto* const d_state = state_;
    auto later          = std::size_t{0};  // rows that have step t + 1
    for (auto t = static_cast<std::size_t>(rows_.lengths[rows_.by_length[0]]); t-- > 0;) {
      auto const active = with_step(t, n_);
      if (later > 0)
        cpu::matmul_in_blocks<few>(later, units, gates, {z_, gates}, {recurrent_, gates, true}, {d_state, units});
      for (std::size_t k = 0; k < active; ++k) {
        auto const r = rows_.by_length[k], i = rows_.starts[r] + t;
        if (k >= later) std::fill_n(d_state + k * units, units, 0.0F), std::fill_n(d_cell_ + k * units, units, 0.0F);
        if (sequences_ || is_last(r, t))
          for (std::size_t u = 0; u < units; ++u) d_state[k * units + u] += dy_[(sequences_ ? i : r) * units + u];
        cell::step_back(gate_ + i * gates, t == 0 ? zeros_ : cell_ + (i - 1) * units, cell_ + i * units,
                        d_state + k * units, d_cell_ + k * units);
        std::copy_n(gate_ + i * gates, gates, z_ + k * gates);
      }
      later = active;
    }
    auto const all = rows_.positions;
    cpu::matmul(inputs_, gates, all, {x_, inputs_, true}, {gate_, gates}, {d_kernel_, gates, 1, 1});
    cpu::matmul(units, gates, all, {before_, units, true}, {gate_, gates}, {d_recurrent_, gates, 1, 1});
    for (std::size_t i = 0; i < all; ++i)
      for (std::size_t g = 0; g < gates; ++g) d_bias_[g] += gate_[i * gates + g];
    if (dx_ != nullptr)
      cpu::matmul_in_blocks<many>(all, inputs_, gates, {gate_, gates}, {kernel_, gates, true}, {dx_, inputs_});
  }

 private:
  static constexpr std::size_t up(std::size_t n, std::size_t block) { return (n + block - 1) / block * block; }

  /// Rows that have step t, given that at most `most` have it.
  std::size_t with_step(std::size_t t, std::size_t most) const {
    while (most > 0 && static_cast<std::size_t>(rows_.lengths[rows_.by_length[most - 1]]) <= t) --most;
    return most;
  }
  bool is_last(std::size_t r, std::size_t t) const { return static_cast<std::size_t>(rows_.lengths[r]) == t + 1; }

  graph::RaggedRows const& rows_;
  std::size_t n_, inputs_;
  bool sequences_;
  float const* x_;
  float* y_;
  float* dx_;
  float const* dy_;
  float const *kernel_, *recurrent_, *bias_;
  float *d_kernel_, *d_recurrent_, *d_bias_;
  float *gate_, *cell_, *before_;  // of a position: gates, c after, h before it
  float *z_, *state_, *d_cell_;    // of a row, the longest first
  float* zeros_;
};

}  // namespace chorale::nn::detail
