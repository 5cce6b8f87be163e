// SPDX-License-Identifier: Apache-2.0
//
// Encoders that several tests use: a vision transformer, and BERT as an encoder of sentences.
#pragma once

#include <chorale/chorale.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::test::encoder_nets {

/// A block of a vision transformer, with normalization before each half.
template <int Width, int Heads, int Wider>
struct VisionBlock {
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

/// The segment of each word of a text that has one: zeros.
struct FirstSegment : nn::Layer<FirstSegment> {
  static constexpr std::string_view name = "first_segment";
  static constexpr bool each_position = true, keeps_x = false;
  static constexpr auto output(auto ids) { return ids; }
  static void forward(auto& at) { std::ranges::fill(at.y(), 0); }
  static void backward(auto&) {}
};

using BertNorm = nn::LayerNormWith<nn::EpsilonPower<12>>;

/// A block of BERT, with normalization after each half.
template <int Width, int Heads, int Wider>
struct BertBlock {
  nn::Dense<3 * Width> queries_keys_values;
  nn::Dense<Width> mixed, narrow;
  nn::Dense<Wider> wide;
  BertNorm norm, norm_2;

  constexpr auto operator()(auto x) const {
    auto const y = norm(x + mixed(nn::Heads<Heads>{}(queries_keys_values(x))));
    return norm_2(y + narrow(nn::gelu(wide(y))));
  }
};

/// A vector of length 1 for each text, a ragged field of ids: the mean over what BERT makes of its words.
/// SentenceEncoder<Ids, Vector, 6, 384, 12, 1536, 30522, 512> is all-MiniLM-L6-v2.
template <class IdsOf, class VectorOf, std::size_t Blocks, int Width, int Heads, int Wider, int Words, int Longest>
struct SentenceEncoder : nn::Graph<IdsOf> {
  nn::Embedding<Words, Width> words{"words"};
  nn::Embedding<2, Width> segments{"segments"};
  nn::Positions<Longest, Width> positions;
  BertNorm norm{"norm"};
  std::array<BertBlock<Width, Heads, Wider>, Blocks> blocks;

  constexpr auto operator()(auto ids) const {
    auto x = norm(positions(words(ids) + segments(FirstSegment{}(ids))));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<VectorOf>(nn::UnitNorm{}(nn::GlobalAveragePool1D{}(x)));
  }
};

/// Where the package transformers has the weights of a SentenceEncoder.
inline WeightMap names_of_bert() {
  auto const turned = weights::transposed();
  return {{"embeddings.word_embeddings.weight", "words/embeddings"},
          {"embeddings.token_type_embeddings.weight", "segments/embeddings"},
          {"embeddings.position_embeddings.weight", "positions/places"},
          {"embeddings.LayerNorm.weight", "norm/gamma"},
          {"embeddings.LayerNorm.bias", "norm/beta"},
          {{"encoder.layer.{i}.attention.self.query.weight", "encoder.layer.{i}.attention.self.key.weight",
            "encoder.layer.{i}.attention.self.value.weight"}, "dense{_4i}/kernel", turned},
          {{"encoder.layer.{i}.attention.self.query.bias", "encoder.layer.{i}.attention.self.key.bias",
            "encoder.layer.{i}.attention.self.value.bias"}, "dense{_4i}/bias"},
          {"encoder.layer.{i}.attention.output.dense.weight", "dense{_4i+1}/kernel", turned},
          {"encoder.layer.{i}.attention.output.dense.bias", "dense{_4i+1}/bias"},
          {"encoder.layer.{i}.attention.output.LayerNorm.weight", "layer_normalization{_2i}/gamma"},
          {"encoder.layer.{i}.attention.output.LayerNorm.bias", "layer_normalization{_2i}/beta"},
          {"encoder.layer.{i}.intermediate.dense.weight", "dense{_4i+2}/kernel", turned},
          {"encoder.layer.{i}.intermediate.dense.bias", "dense{_4i+2}/bias"},
          {"encoder.layer.{i}.output.dense.weight", "dense{_4i+3}/kernel", turned},
          {"encoder.layer.{i}.output.dense.bias", "dense{_4i+3}/bias"},
          {"encoder.layer.{i}.output.LayerNorm.weight", "layer_normalization{_2i+1}/gamma"},
          {"encoder.layer.{i}.output.LayerNorm.bias", "layer_normalization{_2i+1}/beta"},
          weights::ignored({"pooler.*", "embeddings.position_ids"})};
}

}  // namespace chorale::test::encoder_nets
