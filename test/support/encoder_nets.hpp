// SPDX-License-Identifier: Apache-2.0
//
// Encoders that several tests use: a vision transformer, and the encoder of sentences of the examples.
#pragma once

#include "examples/support/sentence_encoder.hpp"

#include <chorale/chorale.hpp>

#include <array>
#include <cstddef>

namespace chorale::test::encoder_nets {

using example::names_of_bert;
using example::SentenceEncoder;

/// A block of a vision transformer, with normalization before each half.
template <int Width, int Heads, int Wider> struct VisionBlock {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * Width> queries_keys_values;
  nn::Dense<Wider> wide;
  nn::Dense<Width> mixed, narrow;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::Heads<Heads>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

/// Tells the class of an image of Patches squares of Size x Size pixels.
template <class ImageOf, class ClassOf, int Size, int Patches, std::size_t Blocks, int Width, int Heads, int Wider,
          int Classes>
struct VisionTransformer : nn::Graph<ImageOf> {
  nn::Conv2D<Width, Size, nn::Stride<Size>> patches;
  nn::ClassToken token;
  nn::Positions<Patches + 1, Width> positions;
  std::array<VisionBlock<Width, Heads, Wider>, Blocks> blocks;
  nn::LayerNorm last;
  nn::Dense<Classes> digit;

  constexpr auto operator()(auto image) const {
    auto x = positions(token(nn::reshape<Patches, Width>(patches(image))));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<ClassOf>(digit(nn::reshape<Width>(nn::slice<0, 1, 0>(last(x)))));
  }
};

}  // namespace chorale::test::encoder_nets
