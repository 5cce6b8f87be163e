// SPDX-License-Identifier: Apache-2.0
//
// What layers that read a sequence step by step share: their options, what they take, and products with their states.
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <cstddef>
#include <type_traits>

namespace chorale::nn {

// Options of LSTM, GRU and SimpleRNN.

/// Option of recurrent layers: y has the state after each step, (B, T, Units), and not the last one alone. Another such
/// layer takes it.
struct Sequences {};

/// Keras' word for Sequences.
using ReturnSequences = Sequences;

/// Option of recurrent layers: the sequence is read from its last step to its first. Keras: go_backwards=True.
///
/// keeps   with Sequences, vector t of y is the state after step t was read, so that it fits vector t of a layer
///         which reads forward; Keras gives the states in the order in which they were computed, the last step first
struct Reverse {};

namespace detail {

/// Base of the recurrent layers.
template <int Units, class... Options> struct Recurrent {
  static constexpr bool sequences    = (std::is_same_v<Options, Sequences> || ...);
  static constexpr bool reverse      = (std::is_same_v<Options, Reverse> || ...);
  static constexpr std::size_t units = Units;
  static constexpr bool is_sized     = Units > 0;

  static constexpr bool options_fit = ((std::is_same_v<Options, Sequences> || std::is_same_v<Options, Reverse>) && ...);

  template <class X> static constexpr bool numbers = std::is_same_v<typename X::type, float>;

  template <int T, int C> static constexpr auto output(Of<float, T, C>) {
    if constexpr (sequences) return Of<float, T, Units>{};
    else return Of<float, Units>{};
  }

 protected:
  /// The position of the k-th step that is read, of `steps`.
  static constexpr std::size_t nth(std::size_t k, std::size_t steps) { return reverse ? steps - 1 - k : k; }
  /// The vector of y that holds the state of row r at vector i of the sequence.
  static constexpr std::size_t last(std::size_t i, std::size_t r) { return sequences ? i : r; }

  static float sigmoid(float x) { return cpu::sigmoid(x); }
  static float tanh(float x) { return cpu::tanh(x); }

  /// c += a b
  static void add_product(std::size_t m, std::size_t n, std::size_t k, cpu::Factor a, cpu::Factor b, cpu::Product c) {
    c.beta = 1;
    cpu::matmul(m, n, k, a, b, c);
  }
  /// z = x W for all steps.
  ///
  /// x, kernel, z    (B, T, C), (C, N), (B, T, N)
  static void project(std::size_t rows, std::size_t steps, std::size_t c, std::size_t n, float const* x,
                      float const* kernel, float* z) {
    cpu::matmul(rows * steps, n, c, {x, c}, {kernel, n}, {z, n});
  }
  /// Adds the gradients of project() by W and by x.
  ///
  /// dx    empty where nobody needs it
  static void project_back(std::size_t rows, std::size_t steps, std::size_t c, std::size_t n, float const* x,
                           float const* kernel, float const* dz, Span<float> d_kernel, Span<float> dx) {
    cpu::matmul(c, n, rows * steps, {x, c, true}, {dz, n}, {.data = d_kernel.data(), .stride = n, .beta = 1});
    if (!dx.empty())
      cpu::matmul(rows * steps, c, n, {dz, n}, {kernel, n, true}, {.data = dx.data(), .stride = c, .beta = 1});
  }
  /// sum += the vectors of (n, width).
  static void add_vectors(std::size_t n, std::size_t width, float const* vectors, float* sum) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t g = 0; g < width; ++g) sum[g] += vectors[i * width + g];
  }
};

}  // namespace detail
}  // namespace chorale::nn
