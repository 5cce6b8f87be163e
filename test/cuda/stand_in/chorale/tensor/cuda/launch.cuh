// SPDX-License-Identifier: Apache-2.0
//
// In place of <chorale/tensor/cuda/launch.cuh>, for a compiler that is not nvcc: what a kernel does to each element, in a
// loop on the CPU.
#pragma once

#include "test/cuda/stand_in/queue.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#undef __device__
#define __device__
#include <chorale/tensor/cuda/map.cuh>

namespace chorale::cuda::launch {

using std::isfinite, std::max, std::min;

inline void atomicMin(unsigned long long* at, unsigned long long x) { *at = min(*at, x); }

namespace detail {

inline float normcdff(float x) { return 0.5F * std::erfc(-x * 0.70710678F); }

template <class F> cudaError_t each(std::size_t n, cudaStream_t queue, F f) {
  stand_in::put(queue, [=] {
    for (std::size_t i = 0; i < n; ++i) f(i);
  });
  return cudaSuccess;
}

template <class F, class... A>
cudaError_t map_rows(std::size_t n, std::size_t columns, cudaStream_t queue, F f, A... arrays) {
  constexpr auto wide     = widest<A...>();
  auto const all          = std::max(columns, std::size_t{7});  // threads, each of which has several packs
  auto const side_by_side = columns % wide == 0 && (lies_for<wide>(arrays) && ...);
  stand_in::put(queue, [=] {
    for (std::size_t me = 0; me < all; ++me) {
      if (side_by_side) map_part<wide>(me, all, n, columns, f, arrays...);
      else map_part<1>(me, all, n, columns, f, arrays...);
    }
  });
  return cudaSuccess;
}
template <class F, class... A> cudaError_t map(std::size_t n, cudaStream_t queue, F f, A... arrays) {
  return map_rows(n, 0, queue, f, arrays...);
}

template <class Sum, class F> cudaError_t sum_each(unsigned parts, std::size_t n, Sum* sums, cudaStream_t queue, F f) {
  stand_in::put(queue, [=] {
    for (unsigned part = 0; part < parts; ++part) {
      auto sum = 0.0;
      for (std::size_t i = part; i < n; i += parts) sum += f(i);
      sums[part] = static_cast<Sum>(sum);
    }
  });
  return cudaSuccess;
}

template <class From, class To>
cudaError_t turn(std::size_t rows, std::size_t columns, cudaStream_t queue, From from, To to) {
  stand_in::put(queue, [=] {
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c) to(c * rows + r, from(r * columns + c));
  });
  return cudaSuccess;
}

template <int N, class F, class G>
cudaError_t add_columns(std::size_t rows, std::size_t columns, std::size_t parts, cudaStream_t queue, F f, G g) {
  stand_in::put(queue, [=] {
    auto const per = (rows + parts - 1) / parts;
    for (std::size_t part = 0; part < parts; ++part)
      for (std::size_t column = 0; column < columns; ++column) {
        double sums[N]{};
        for (auto row = part * per; row < min(rows, (part + 1) * per); ++row) f(row, column, sums);
        g(part, column, sums);
      }
  });
  return cudaSuccess;
}

}  // namespace detail

}  // namespace chorale::cuda::launch
