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
  std::size_t stride;       // elements between rows in memory
  bool transposed = false;  // true if memory holds the transpose
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

/// Multiplies m rows with a matrix, `Block` rows at a time: oneDNN takes other instructions for few rows than for many,
/// so that the bits of a row would depend on how many there are.
///
/// a, c      (m, K), (m, N), in memory for m rounded up to Block: results in the rows after m are undefined
template <std::size_t Block>
void matmul_in_blocks(std::size_t m, std::size_t n, std::size_t k, Factor a, Factor b, Product c) {
  for (std::size_t r = 0; r < m; r += Block, a.data += Block * a.stride, c.data += Block * c.stride)
    matmul(Block, n, k, a, b, c);
}

}  // namespace chorale::cpu
