// SPDX-License-Identifier: Apache-2.0
//
// Layers of products and the shapes around them, in operations.
#pragma once

#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/lowering/call.hpp>

namespace chorale::nn::stablehlo {

// x W + b over the last dimension; of images, over the whole row.
template <int Units, class... Options> struct Lowering<Dense<Units, Options...>> {
  static Value write(Call& at) {
    auto const y = matmul(at.x(), at.variables[0]);
    return y + along_last(at.variables[1], y);
  }
};

// (B, ..) to (B, N).
template <> struct Lowering<Flatten> {
  static Value write(Call& at) { return reshape(at.x(), {at.rows(), count(at.x().dims()) / at.rows()}); }
};

}  // namespace chorale::nn::stablehlo
