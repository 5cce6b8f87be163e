// SPDX-License-Identifier: Apache-2.0
//
// BERT as an encoder of sentences, such as all-MiniLM-L6-v2, and where the package transformers has its weights.
#pragma once

#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/global_pool.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/layers/unit_norm.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/host_layer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace example {

/// The segment of each word of a text that has one: zeros.
struct FirstSegment : chorale::nn::Layer<FirstSegment> {
  static constexpr std::string_view name = "first_segment";
  static constexpr bool each_position = true, keeps_x = false;
  static constexpr auto output(auto ids) { return ids; }
  static void forward(auto& at) { std::ranges::fill(at.y(), 0); }
  static void backward(auto&) {}
};

using BertNorm = chorale::nn::LayerNormWith<chorale::nn::EpsilonPower<12>>;

/// A block of BERT, with normalization after each half.
template <int Width, int Heads, int Wider> struct BertBlock {
  chorale::nn::Dense<3 * Width> queries_keys_values;
  chorale::nn::Dense<Width> mixed, narrow;
  chorale::nn::Dense<Wider> wide;
  BertNorm norm, norm_2;

  constexpr auto operator()(auto x) const {
    auto const y = norm(x + mixed(chorale::nn::Heads<Heads>{}(queries_keys_values(x))));
    return norm_2(y + narrow(chorale::nn::gelu(wide(y))));
  }
};

/// A vector of length 1 for each text, of ragged ids: the mean over what BERT makes of its words.
template <std::size_t Blocks, int Width, int Heads, int Wider, int Words, int Longest> struct SentenceLayers {
  chorale::nn::Embedding<Words, Width> words{"words"};
  chorale::nn::Embedding<2, Width> segments{"segments"};
  chorale::nn::Positions<Longest, Width> positions;
  BertNorm norm{"norm"};
  std::array<BertBlock<Width, Heads, Wider>, Blocks> blocks;

  constexpr auto operator()(auto ids) const {
    auto x = norm(positions(words(ids) + segments(FirstSegment{}(ids))));
    for (auto const& block : blocks) x = block(x);
    return chorale::nn::UnitNorm{}(chorale::nn::GlobalAveragePool1D{}(x));
  }
};

/// SentenceEncoder<Ids, Vector, 6, 384, 12, 1536, 30522, 512> is all-MiniLM-L6-v2.
template <class IdsOf, class VectorOf, std::size_t Blocks, int Width, int Heads, int Wider, int Words, int Longest>
struct SentenceEncoder : chorale::nn::Graph<IdsOf> {
  SentenceLayers<Blocks, Width, Heads, Wider, Words, Longest> layers;

  constexpr auto operator()(auto ids) const { return chorale::nn::outputs<VectorOf>(layers(ids)); }
};

/// Where the package transformers has the weights of a SentenceEncoder.
inline chorale::WeightMap names_of_bert() {
  auto const turned = chorale::weights::transposed();
  return {{"embeddings.word_embeddings.weight", "words/embeddings"},
          {"embeddings.token_type_embeddings.weight", "segments/embeddings"},
          {"embeddings.position_embeddings.weight", "positions/places"},
          {"embeddings.LayerNorm.weight", "norm/gamma"},
          {"embeddings.LayerNorm.bias", "norm/beta"},
          {{"encoder.layer.{i}.attention.self.query.weight", "encoder.layer.{i}.attention.self.key.weight",
            "encoder.layer.{i}.attention.self.value.weight"},
           "dense{_4i}/kernel",
           turned},
          {{"encoder.layer.{i}.attention.self.query.bias", "encoder.layer.{i}.attention.self.key.bias",
            "encoder.layer.{i}.attention.self.value.bias"},
           "dense{_4i}/bias"},
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
          chorale::weights::ignored({"pooler.*", "embeddings.position_ids"})};
}

}  // namespace example
