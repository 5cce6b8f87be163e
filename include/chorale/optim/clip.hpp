// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cmath>

namespace chorale::optim {

/// The factor that brings gradients · scale to a global norm of at most `limit`; 1 when they are below it.
///
/// squared_norm    of the gradients of all variables together
/// source          Pascanu et al., ICML 2013; tf.clip_by_global_norm
inline float clip_factor(double squared_norm, float scale, float limit) {
  auto const norm = std::sqrt(squared_norm) * static_cast<double>(scale);
  return norm > static_cast<double>(limit) ? static_cast<float>(static_cast<double>(limit) / norm) : 1.0F;
}

/// The clipping factor for the reduced gradients of all variables together: the same on every replica.
template <class D> float clip_factor(Span<float const> gradients, float scale, float limit) {
  return clip_factor(Kernels<D>::squared_norm(gradients), scale, limit);
}

}  // namespace chorale::optim
