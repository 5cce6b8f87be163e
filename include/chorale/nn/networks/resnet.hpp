// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it.
#pragma once

#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/networks/sequential.hpp>

namespace chorale::nn::resnet {

using Norm = BatchNorm<Momentum<90>, Epsilon<10>>;

/// A convolution of `Size` by `Size` pixels and its normalization. Height and width are divided by `Step`.
template <int Filters, int Size, int Step = 1, class Normalization = Norm>
using Conv = Block<Conv2D<Filters, Size, Stride<Step>, Pad<Size / 2>, NoBias, HeNormal>, Normalization>;

/// Two convolutions with a residual connection. x (B, H, W, C), y (B, H / Step, W / Step, Width); without a Shortcut,
/// C = Width and Step = 1.
template <class Normalization, int Width, int Step = 1, class... Around>
using Basic =
    Block<Residual<Conv<Width, 3, Step, Normalization>, ReLU, Conv<Width, 3, 1, Normalization>, Around...>, ReLU>;

/// Three basic blocks; the first one halves height and width.
template <class Normalization, int Width>
using BasicStage = Block<Basic<Normalization, Width, 2, Shortcut<Conv<Width, 1, 2, Normalization>>>,
                         Repeat<2, Basic<Normalization, Width>>>;

/// ResNet-20, from normalized pictures of 32 by 32 pixels to logits: 272 474 parameters for 10 classes.
///
/// source  He et al., CVPR 2016, section 4.2, with projections (option B) where shapes change
template <int Classes = 10, int Width = 16, class Normalization = Norm>
struct ResNet20
    : Sequential<Input<32, 32, 3>,                                                              // (B, 32, 32, 3)
                 Conv<Width, 3, 1, Normalization>, ReLU,                                        // (B, 32, 32, 16)
                 Repeat<3, Basic<Normalization, Width>>, BasicStage<Normalization, 2 * Width>,  // (B, 16, 16, 32)
                 BasicStage<Normalization, 4 * Width>,                                          // (B, 8, 8, 64)
                 AveragePool2D<8>, Flatten, Dense<Classes>> {};

/// Three convolutions with a residual connection. x (B, H, W, C), y (B, H / Step, W / Step, 4 Width); without a
/// Shortcut, C = 4 Width and Step = 1.
template <int Width, int Step = 1, class... Around>
using Bottleneck =
    Block<Residual<Conv<Width, 1>, ReLU, Conv<Width, 3, Step>, ReLU, Conv<4 * Width, 1>, Around...>, ReLU>;

/// `Blocks` bottlenecks; the first one changes the shape.
template <int Width, int Blocks, int Step>
using Stage = Block<Bottleneck<Width, Step, Shortcut<Conv<4 * Width, 1, Step>>>, Repeat<Blocks - 1, Bottleneck<Width>>>;

/// ResNet-50, from normalized images of 224 by 224 pixels to logits: 25 557 032 parameters for 1000 classes.
///
/// source  He et al., CVPR 2016; the 3 by 3 convolution has the stride, as in torchvision's and MLPerf's ResNet-50 v1.5
template <int Classes = 1000>
struct ResNet50 : Sequential<Input<224, 224, 3>,               // (B, 224, 224, 3)
                             Conv<64, 7, 2>, ReLU,             // (B, 112, 112, 64)
                             MaxPool2D<3, Stride<2>, Pad<1>>,  // (B, 56, 56, 64)
                             Stage<64, 3, 1>,                  // (B, 56, 56, 256)
                             Stage<128, 4, 2>,                 // (B, 28, 28, 512)
                             Stage<256, 6, 2>,                 // (B, 14, 14, 1024)
                             Stage<512, 3, 2>,                 // (B, 7, 7, 2048)
                             AveragePool2D<7>, Flatten, Dense<Classes>> {};

}  // namespace chorale::nn::resnet
