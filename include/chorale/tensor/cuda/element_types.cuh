// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>

namespace chorale::cuda::launch::detail {

/// i / by and i % by; in 32 bits, which is several times as fast, where they fit.
struct Divided {
  std::size_t quotient, rest;

  __device__ Divided(std::size_t i, std::size_t by) {
    if (((i | by) >> 32) == 0) {
      auto const a = static_cast<unsigned>(i), b = static_cast<unsigned>(by);
      quotient = a / b, rest = a % b;
    } else {
      quotient = i / by, rest = i % by;
    }
  }
};

/// Calls f with a number of the element type: a kernel for each type. Kernels compute in float and store that type.
template <class F> cudaError_t typed(Elements of, F f) {
  switch (of) {
    case Elements::f32: return f(float{});
    case Elements::bf16: return f(__nv_bfloat16{});
    case Elements::fp16: return f(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace chorale::cuda::launch::detail
