// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cuda/block_kernels.cuh>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

/// How our own CUDA kernels are launched, all of them.
namespace chorale::cuda::launch::detail {

inline constexpr unsigned most_blocks = 4096, most_blocks_of_map = 1024;

/// f(i) for all i below n, each in a thread.
template <class F>
cudaError_t each(std::size_t n, cudaStream_t queue, F f) {
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

/// f(an element of each array), for all n of them; side by side where all arrays lie for it.
///
/// columns   of a row, where an array has one number for each: n is a multiple. Else 0
template <class F, class... A>
cudaError_t map_rows(std::size_t n, std::size_t columns, cudaStream_t queue, F f, A... arrays) {
  constexpr auto wide = widest<A...>();
  if (n == 0) return cudaSuccess;
  if (columns % wide == 0 && (lies_for<wide>(arrays) && ...)) return map_by<wide>(n, columns, queue, f, arrays...);
  return map_by<1>(n, columns, queue, f, arrays...);
}
template <class F, class... A>
cudaError_t map(std::size_t n, cudaStream_t queue, F f, A... arrays) {
  return map_rows(n, 0, queue, f, arrays...);
}

/// sums (parts): the f(i) of all i below n, added up in so many parts, in double.
template <class Sum, class F>
cudaError_t sum_each(unsigned parts, std::size_t n, Sum* sums, cudaStream_t queue, F f) {
  run_sum<<<parts, threads, 0, queue>>>(n, sums, f);
  return cudaGetLastError();
}

/// to(place, value) of a matrix that has rows for columns, of value = from(place) of (rows, columns).
template <class From, class To>
cudaError_t turn(std::size_t rows, std::size_t columns, cudaStream_t queue, From from, To to) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  auto const tiles = [](std::size_t n) { return static_cast<unsigned>((n + side_of_tile - 1) / side_of_tile); };
  run_turn<<<dim3{tiles(columns), tiles(rows)}, threads, 0, queue>>>(rows, columns, from, to);
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
