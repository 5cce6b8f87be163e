// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/ops.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace chorale::cuda::launch::detail {

/// f(a number of the type that the elements have): a kernel for each. They compute in float and store what they have.
template <class F>
cudaError_t typed(Elements of, F f) {
  switch (of) {
    case Elements::f32:  return f(float{});
    case Elements::bf16: return f(__nv_bfloat16{});
    case Elements::fp16: return f(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace chorale::cuda::launch::detail
