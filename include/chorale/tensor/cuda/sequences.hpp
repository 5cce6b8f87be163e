// SPDX-License-Identifier: Apache-2.0
//
// What layers of sequences compute on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>

#include <cstddef>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale::cuda {

/// Kernels of layers of sequences, in the queue of the calling thread. All memory is of the device.
///
/// cost    each returns at once
struct Sequences {
  using Matrix    = launch::Matrix;
  using Attention = launch::Attention;

  /// x = 0, n numbers
  static void zero(std::size_t n, float* x) { expect(launch::zero(n, x, queue()), "zero"); }

  /// c (m, n) = a (m, k) b (k, n); add_product: c += a b
  static void product(std::size_t m, std::size_t n, std::size_t k, Matrix a, Matrix b, float* c) {
    expect(launch::product(m, n, k, a, b, c, 0, queue()), "product");
  }
  static void add_product(std::size_t m, std::size_t n, std::size_t k, Matrix a, Matrix b, float* c) {
    expect(launch::product(m, n, k, a, b, c, 1, queue()), "product");
  }

  /// y = rows of a table; and their gradients, added to the table's. See launch::gather.
  template <class Id>
  static void gather(std::size_t n, std::size_t rows, std::size_t width, float const* table, Id const* ids, float* y) {
    expect(launch::gather(n, rows, width, table, {ids, sizeof(Id)}, y, queue()), "gather");
  }
  template <class Id>
  static void gather_back(std::size_t n, std::size_t rows, std::size_t width, Id const* ids, float const* dy,
                          float* d_table) {
    expect(launch::gather_back(n, rows, width, {ids, sizeof(Id)}, dy, d_table, queue()), "gather_back");
  }

  /// y = x + vector, in each row
  static void add_to_rows(std::size_t rows, std::size_t width, float const* x, float const* vector, float* y) {
    expect(launch::add_to_rows(rows, width, x, vector, y, queue()), "add_to_rows");
  }
  static void add_to_rows_back(std::size_t rows, std::size_t width, float const* dy, float* d_vector, float* dx) {
    expect(launch::add_to_rows_back(rows, width, dy, d_vector, dx, queue()), "add_to_rows_back");
  }

  static void layer_norm(std::size_t vectors, std::size_t width, float const* x, float const* gamma, float const* beta,
                         float epsilon, float* moments, float* y) {
    expect(launch::layer_norm(vectors, width, x, gamma, beta, epsilon, moments, y, queue()), "layer_norm");
  }
  static void layer_norm_back(std::size_t vectors, std::size_t width, float const* x, float const* gamma,
                              float const* moments, float const* dy, float* d_gamma, float* d_beta, float* dx) {
    expect(launch::layer_norm_back(vectors, width, x, gamma, moments, dy, d_gamma, d_beta, dx, queue()),
           "layer_norm_back");
  }

  static void attend(Attention of, float const* x, float* kept, float* y) {
    expect(launch::attend(of, x, kept, y, queue()), "attend");
  }
  static void attend_back(Attention of, float const* x, float* kept, float const* dy, float* dx) {
    expect(launch::attend_back(of, x, kept, dy, dx, queue()), "attend_back");
  }
};

}  // namespace chorale::cuda

#endif
