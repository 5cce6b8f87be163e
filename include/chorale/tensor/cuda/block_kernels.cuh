// SPDX-License-Identifier: Apache-2.0
//
// Kernels, and the shared work of a block's threads. No CUDA header is included: a test compiles this file for the CPU.
#pragma once

#include <chorale/tensor/cuda/map.cuh>

#include <cstddef>

namespace chorale::cuda::launch::detail {

inline constexpr unsigned threads = 256;

template <class F> __global__ void run_each(std::size_t n, F f) {
  auto const step = std::size_t{gridDim.x} * blockDim.x;
  for (auto i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

template <unsigned N, class F, class... A>
__global__ void run_map(std::size_t n, std::size_t columns, F f, A... arrays) {
  auto const all = std::size_t{gridDim.x} * blockDim.x;
  map_part<N>(std::size_t{blockIdx.x} * blockDim.x + threadIdx.x, all, n, columns, f, arrays...);
}

/// The sum of `mine` over all threads of a block, in thread 0; as a tree, so that its order does not change.
template <class T> __device__ T sum_of_block(T mine) {
  __shared__ T lanes[threads];
  lanes[threadIdx.x] = mine;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  return lanes[0];
}

template <class Sum, class F> __global__ void run_sum(std::size_t n, Sum* sums, F f) {
  auto mine       = 0.0;
  auto const step = std::size_t{gridDim.x} * threads;
  for (auto i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < n; i += step) mine += f(i);
  auto const sum = sum_of_block(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<Sum>(sum);
}

inline constexpr unsigned side_of_tile = 32;

/// Transposes: to(place in (columns, rows), from(place in (rows, columns))). A block transposes a tile, so that
/// neighbouring threads read and write neighbouring elements.
template <class From, class To> __global__ void run_turn(std::size_t rows, std::size_t columns, From from, To to) {
  constexpr auto side = side_of_tile;
  __shared__ float tile[side][side + 1];  // a column is spread over all banks
  auto const lane = threadIdx.x % side, first = threadIdx.x / side;
  auto const row = std::size_t{blockIdx.y} * side, column = std::size_t{blockIdx.x} * side;
  for (auto r = first; r < side; r += threads / side)
    if (row + r < rows && column + lane < columns) tile[r][lane] = from((row + r) * columns + column + lane);
  __syncthreads();
  for (auto c = first; c < side; c += threads / side)
    if (row + lane < rows && column + c < columns) to((column + c) * rows + row + lane, tile[lane][c]);
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

}  // namespace chorale::cuda::launch::detail
