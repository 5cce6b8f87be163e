// SPDX-License-Identifier: Apache-2.0
//
// The model of 25_surrogate: the temperature of a cell ten time steps later.
#pragma once

#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/adam.hpp>

namespace surrogate {

using namespace chorale;

struct Net : nn::Sequential<nn::Input<6>,  // (B,  6): five cells, and the heat that comes to the one in the middle
                            nn::Dense<32>, nn::Tanh,  // (B, 32)
                            nn::Dense<1>> {};         // (B,  1): the temperature of the one in the middle

inline auto model() { return nn::compile<Net>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 5e-3F}); }

}  // namespace surrogate
