// SPDX-License-Identifier: Apache-2.0
//
// Networks that have every kernel of Cuda between them.
#pragma once

#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/networks/sequential.hpp>

namespace chorale::test::nets {

struct Plain : nn::Sequential<nn::Input<20>, nn::Dense<16>, nn::ReLU, nn::Dense<33>, nn::Tanh, nn::Dense<3>> {};
struct Curves : nn::Sequential<nn::Input<20>, nn::GELU, nn::Dense<8>, nn::SiLU, nn::Dense<8>, nn::ELU, nn::Dense<8>,
                               nn::LeakyReLU<>, nn::Dense<8>, nn::Softplus, nn::Dense<8>, nn::Sigmoid, nn::Dropout<40>,
                               nn::Dense<3>, nn::Softmax, nn::Dense<3>> {};
struct Even : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                             nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Uneven : nn::Sequential<nn::Input<9, 7, 3>, nn::Conv2D<4, 3, nn::Same>, nn::ReLU,
                               nn::Conv2D<5, 2, nn::Same, nn::Stride<2>>, nn::ELU, nn::Conv2D<6, 4, nn::Same>,
                               nn::MaxPool2D<3, nn::Same, nn::Stride<2>>, nn::AveragePool2D<2, nn::Same, nn::Stride<1>>,
                               nn::Flatten, nn::Dense<3>> {};

/// Begin as pictures of one channel do, and are computed in one pass: padded, with rows and columns that no window has,
/// more filters than a warp, and a pool of its own behind; or padded to its last pixel, without bias and ReLU; or not in
/// one, because of a second channel or a gradient that is asked for.
struct OnePass
    : nn::Sequential<nn::Input<11, 9, 1>, nn::Conv2D<33, 3, nn::Same>, nn::ReLU, nn::MaxPool2D<2>, nn::Conv2D<4, 3>,
                     nn::ReLU, nn::MaxPool2D<2, nn::Stride<1>>, nn::Flatten, nn::Dense<3>> {};
struct OnePassBare : nn::Sequential<nn::Input<8, 10, 1>, nn::Conv2D<5, 3, nn::Same, nn::NoBias>, nn::MaxPool2D<2>,
                                    nn::Tanh, nn::Flatten, nn::Dense<3>> {};
struct TwoPasses
    : nn::Sequential<nn::Input<8, 8, 2>, nn::Conv2D<5, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten, nn::Dense<3>> {};

/// Kernels of one pixel: with bias and ReLU, as the first layer; of an odd number without bias; and odd with it.
struct Pixelwise : nn::Sequential<nn::Input<5, 6, 3>, nn::Conv2D<4, 1>, nn::ReLU, nn::Conv2D<7, 1, nn::NoBias>,
                                  nn::ReLU, nn::Residual<nn::Conv2D<7, 1, nn::Same>>, nn::Conv2D<4, 1, nn::Stride<2>>,
                                  nn::Flatten, nn::Dense<3>> {};

struct Branched
    : nn::Sequential<nn::Input<9, 9, 3>, nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>, nn::ReLU,
                     nn::Residual<nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>, nn::ReLU,
                                  nn::Conv2D<4, 3, nn::Pad<1>, nn::NoBias>, nn::BatchNorm<>>,
                     nn::ReLU,
                     nn::Residual<nn::Conv2D<6, 3, nn::Stride<2>, nn::Pad<1>>, nn::Residual<nn::Tanh>,
                                  nn::Shortcut<nn::Conv2D<6, 1, nn::Stride<2>, nn::NoBias>, nn::BatchNorm<>>>,
                     nn::ReLU, nn::MaxPool2D<3, nn::Stride<2>, nn::Pad<1>>, nn::Flatten, nn::Residual<nn::Dense<54>>,
                     nn::Dense<3>> {};

}  // namespace chorale::test::nets
