// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>

namespace chorale::cuda::launch::detail {

/// Writes softmax(x) of one row to p, and returns the log of the sum of exp(x).
template <class T> __device__ inline float softmax_of(std::size_t classes, T const* x, T* p) {
  auto top = -FLT_MAX, z = 0.0F;
  for (std::size_t c = 0; c < classes; ++c) top = fmaxf(top, static_cast<float>(x[c]));
  for (std::size_t c = 0; c < classes; ++c) z += expf(static_cast<float>(x[c]) - top);
  for (std::size_t c = 0; c < classes; ++c) p[c] = static_cast<T>(expf(static_cast<float>(x[c]) - top) / z);
  return top + logf(z);
}

}  // namespace chorale::cuda::launch::detail
