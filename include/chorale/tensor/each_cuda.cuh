// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

/// How our own CUDA kernels are launched, all of them.
namespace chorale::cuda::launch {

namespace detail {

inline constexpr unsigned threads = 256, most_blocks = 4096;

template <class F>
__global__ void run_each(std::size_t n, F f) {
  auto const step = std::size_t{gridDim.x} * blockDim.x;
  for (auto i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

/// f(i) for all i below n, each in a thread.
template <class F>
cudaError_t each(std::size_t n, cudaStream_t queue, F f) {
  if (n == 0) return cudaSuccess;
  auto const blocks = (n + threads - 1) / threads;
  run_each<<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks), threads, 0, queue>>>(n, f);
  return cudaGetLastError();
}

/// The sum of what all threads of a block have, in thread 0; as a tree, so that its order does not change.
template <class T>
__device__ T sum_of_block(T mine) {
  __shared__ T lanes[threads];
  lanes[threadIdx.x] = mine;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  return lanes[0];
}

template <class Sum, class F>
__global__ void run_sum(std::size_t n, Sum* sums, F f) {
  auto mine       = 0.0;
  auto const step = std::size_t{gridDim.x} * threads;
  for (auto i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < n; i += step) mine += f(i);
  auto const sum = sum_of_block(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<Sum>(sum);
}

/// sums (parts): the f(i) of all i below n, added up in so many parts, in double.
template <class Sum, class F>
cudaError_t sum_each(unsigned parts, std::size_t n, Sum* sums, cudaStream_t queue, F f) {
  run_sum<<<parts, threads, 0, queue>>>(n, sums, f);
  return cudaGetLastError();
}

inline constexpr unsigned columns_of_block = 32, rows_of_block = threads / columns_of_block;

template <int N, class F, class G>
__global__ void run_columns(std::size_t rows, std::size_t columns, std::size_t per, F f, G g) {
  auto const lane = threadIdx.x % columns_of_block, row_lane = threadIdx.x / columns_of_block;
  auto const column = std::size_t{blockIdx.x} * columns_of_block + lane;
  auto const first = std::size_t{blockIdx.y} * per, end = first + per < rows ? first + per : rows;
  double mine[N]{};
  if (column < columns)
    for (auto row = first + row_lane; row < end; row += rows_of_block) f(row, column, mine);
  __shared__ double lanes[N][threads];
  for (int n = 0; n < N; ++n) lanes[n][threadIdx.x] = mine[n];
  __syncthreads();
  if (row_lane != 0 || column >= columns) return;
  for (unsigned other = 1; other < rows_of_block; ++other)
    for (int n = 0; n < N; ++n) mine[n] += lanes[n][other * columns_of_block + lane];
  g(std::size_t{blockIdx.y}, column, mine);
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

}  // namespace detail

}  // namespace chorale::cuda::launch
