// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cuda/block_kernels.cuh>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

/// Launches of all our own CUDA kernels.
namespace chorale::cuda::launch::detail {

inline constexpr unsigned most_blocks = 4096, most_blocks_of_map = 1024;

/// Calls f(i) for all i below n, spread over the threads of a grid.
template <class F> cudaError_t each(std::size_t n, cudaStream_t queue, F f) {
  if (n == 0) return cudaSuccess;
  auto const blocks = (n + threads - 1) / threads;
  run_each<<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks), threads, 0, queue>>>(n, f);
  return cudaGetLastError();
}

template <unsigned N, class F, class... A>
cudaError_t map_by(std::size_t n, std::size_t columns, cudaStream_t queue, F f, A... arrays) {
  auto const blocks_for = [](std::size_t packs) { return static_cast<unsigned>((packs + threads - 1) / threads); };
  auto const blocks     = std::min(blocks_for((n + N - 1) / N), most_blocks_of_map);
  run_map<N><<<std::max(blocks, blocks_for(columns / N)), threads, 0, queue>>>(n, columns, f, arrays...);
  return cudaGetLastError();
}

/// Calls f(an element of each array) for all n elements, several side by side where all arrays are aligned for it.
///
/// columns   of a row, where an array has one number for each column; n is a multiple of it. Else 0
template <class F, class... A>
cudaError_t map_rows(std::size_t n, std::size_t columns, cudaStream_t queue, F f, A... arrays) {
  constexpr auto wide = widest<A...>();
  if (n == 0) return cudaSuccess;
  if (columns % wide == 0 && (lies_for<wide>(arrays) && ...)) return map_by<wide>(n, columns, queue, f, arrays...);
  return map_by<1>(n, columns, queue, f, arrays...);
}
template <class F, class... A> cudaError_t map(std::size_t n, cudaStream_t queue, F f, A... arrays) {
  return map_rows(n, 0, queue, f, arrays...);
}

/// Adds up f(i) of all i below n, in double, into the given number of parts: sums (parts).
template <class Sum, class F> cudaError_t sum_each(unsigned parts, std::size_t n, Sum* sums, cudaStream_t queue, F f) {
  run_sum<<<parts, threads, 0, queue>>>(n, sums, f);
  return cudaGetLastError();
}

/// Transposes a matrix: to(place in (columns, rows), value) with value = from(place in (rows, columns)).
template <class From, class To>
cudaError_t turn(std::size_t rows, std::size_t columns, cudaStream_t queue, From from, To to) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  auto const tiles = [](std::size_t n) { return static_cast<unsigned>((n + side_of_tile - 1) / side_of_tile); };
  run_turn<<<dim3{tiles(columns), tiles(rows)}, threads, 0, queue>>>(rows, columns, from, to);
  return cudaGetLastError();
}

/// Adds up columns, with the rows in `parts` parts: f(row, column, sums) adds to N sums, in double; g(part, column,
/// sums) receives them.
template <int N, class F, class G>
cudaError_t add_columns(std::size_t rows, std::size_t columns, std::size_t parts, cudaStream_t queue, F f, G g) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  auto const blocks =
      dim3{static_cast<unsigned>((columns + columns_of_block - 1) / columns_of_block), static_cast<unsigned>(parts)};
  run_columns<N><<<blocks, threads, 0, queue>>>(rows, columns, (rows + parts - 1) / parts, f, g);
  return cudaGetLastError();
}

}  // namespace chorale::cuda::launch::detail
