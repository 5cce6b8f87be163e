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

}  // namespace detail

}  // namespace chorale::cuda::launch
