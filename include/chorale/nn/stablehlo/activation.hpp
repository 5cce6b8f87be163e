// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/activation.hpp>
#include <chorale/nn/stablehlo/call.hpp>

namespace chorale::nn::stablehlo {

template <>
struct Lowering<ReLU> {
  static Value write(Call& at) { return maximum(at.x(), 0); }
};

}  // namespace chorale::nn::stablehlo
