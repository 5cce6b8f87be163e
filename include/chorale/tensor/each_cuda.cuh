// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/blocks_cuda.cuh>

#include <cuda_runtime.h>

#include <cstddef>

/// How our own CUDA kernels are launched, all of them.
namespace chorale::cuda::launch::detail {

inline constexpr unsigned most_blocks = 4096;

/// f(i) for all i below n, each in a thread.
template <class F>
cudaError_t each(std::size_t n, cudaStream_t queue, F f) {
  if (n == 0) return cudaSuccess;
  auto const blocks = (n + threads - 1) / threads;
  run_each<<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks), threads, 0, queue>>>(n, f);
  return cudaGetLastError();
}

/// sums (parts): the f(i) of all i below n, added up in so many parts, in double.
template <class Sum, class F>
cudaError_t sum_each(unsigned parts, std::size_t n, Sum* sums, cudaStream_t queue, F f) {
  run_sum<<<parts, threads, 0, queue>>>(n, sums, f);
  return cudaGetLastError();
}

/// Adds up columns, in `parts` of so many rows each: f(row, column, sums) adds to N sums, in double; g(part, column,
/// sums) takes them.
template <int N, class F, class G>
cudaError_t add_columns(std::size_t rows, std::size_t columns, std::size_t parts, cudaStream_t queue, F f, G g) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  auto const blocks = dim3{static_cast<unsigned>((columns + columns_of_block - 1) / columns_of_block),
                           static_cast<unsigned>(parts)};
  run_columns<N><<<blocks, threads, 0, queue>>>(rows, columns, (rows + parts - 1) / parts, f, g);
  return cudaGetLastError();
}

}  // namespace chorale::cuda::launch::detail
