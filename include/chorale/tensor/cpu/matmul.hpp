// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>

#include <dnnl.h>

#include <cstddef>
#include <string>

namespace chorale::cpu {

/// One factor of a matrix product, in row-major memory.
struct Factor {
  float const* data;
  std::size_t stride;                                                      // elements between rows in memory
  bool transposed = false;                                                 // true if memory holds the transpose
};

/// Where a matrix product goes: c = alpha a b + beta c.
struct Product {
  float* data;
  std::size_t stride;
  float alpha = 1, beta = 0;
};

/// Multiplies two matrices of host memory.
///
/// a, b, c   (M, K), (K, N), (M, N)
/// source    oneDNN's sgemm
inline void matmul(std::size_t m, std::size_t n, std::size_t k, Factor a, Factor b, Product c) {
  auto const dim    = [](std::size_t d) { return static_cast<dnnl_dim_t>(d); };
  auto const order  = [](Factor f) { return f.transposed ? 'T' : 'N'; };
  auto const status = dnnl_sgemm(order(a), order(b), dim(m), dim(n), dim(k), c.alpha, a.data, dim(a.stride), b.data,
                                 dim(b.stride), c.beta, c.data, dim(c.stride));
  CHORALE_ENSURES(status == dnnl_success, "oneDNN's sgemm returned status " + std::to_string(status));
}

}  // namespace chorale::cpu
