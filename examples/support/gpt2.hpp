// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 of any size, and where the package transformers has its weights.
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/data/field.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/networks/graph.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>

namespace example {

/// words     of the table, which is also the last layer
/// context   the most ids that a text may have
struct Gpt2Size {
  int words, context, width, heads, blocks;
};
inline constexpr auto gpt2_124m = Gpt2Size{50'257, 1'024, 768, 12, 12};
inline constexpr auto gpt2_355m = Gpt2Size{50'257, 1'024, 1'024, 16, 24};

template <Gpt2Size Size> struct Gpt2Block {
  chorale::nn::LayerNorm ln_1, ln_2;
  chorale::nn::Dense<3 * Size.width> queries_keys_values;
  chorale::nn::Dense<Size.width> mixed, narrow;
  chorale::nn::Dense<4 * Size.width> wide;

  constexpr auto operator()(auto x) const {  // (B, T, width)
    auto const y = x + mixed(chorale::nn::CausalHeads<Size.heads>{}(queries_keys_values(ln_1(x))));
    return y + narrow(chorale::nn::gelu_tanh(wide(ln_2(y))));
  }
};

/// Block     Gpt2Block<Size>, or nn::Recompute of it
/// Text      a field of up to Size.context ids, and Next, that of the id after each
template <Gpt2Size Size, class Text, class Next, class Block = Gpt2Block<Size>> struct Gpt2 : chorale::nn::Graph<Text> {
  chorale::nn::Embedding<Size.words, Size.width> wte{"wte"};
  chorale::nn::Positions<Size.context, Size.width> wpe{"wpe"};
  std::array<Block, static_cast<std::size_t>(Size.blocks)> blocks;
  chorale::nn::LayerNorm ln_f{"ln_f"};

  constexpr auto operator()(auto text) const {
    auto x = wpe(wte(text));  // (B, T, width)
    for (auto const& block : blocks) x = block(x);
    return chorale::nn::outputs<Next>(wte.logits(ln_f(x)));  // (B, T, words)
  }
};

/// Names of GPT2LMHeadModel in the package transformers, whose kernels are (in, out), as ours.
///
/// prefix    "transformer.", or "" in files of GPT2Model, as the published ones are
inline chorale::WeightMap names_of_gpt2(std::string const& prefix = "transformer.") {
  auto const in_block = [&](char const* name) { return prefix + "h.{i}." + name; };
  return {{prefix + "wte.weight", "wte/embeddings"},
          {prefix + "wpe.weight", "wpe/places"},
          {in_block("ln_1.weight"), "layer_normalization{_2i}/gamma"},
          {in_block("ln_1.bias"), "layer_normalization{_2i}/beta"},
          {in_block("attn.c_attn.weight"), "dense{_4i}/kernel"},
          {in_block("attn.c_attn.bias"), "dense{_4i}/bias"},
          {in_block("attn.c_proj.weight"), "dense{_4i+1}/kernel"},
          {in_block("attn.c_proj.bias"), "dense{_4i+1}/bias"},
          {in_block("ln_2.weight"), "layer_normalization{_2i+1}/gamma"},
          {in_block("ln_2.bias"), "layer_normalization{_2i+1}/beta"},
          {in_block("mlp.c_fc.weight"), "dense{_4i+2}/kernel"},
          {in_block("mlp.c_fc.bias"), "dense{_4i+2}/bias"},
          {in_block("mlp.c_proj.weight"), "dense{_4i+3}/kernel"},
          {in_block("mlp.c_proj.bias"), "dense{_4i+3}/bias"},
          {prefix + "ln_f.weight", "ln_f/gamma"},
          {prefix + "ln_f.bias", "ln_f/beta"},
          chorale::weights::ignored({"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"})};
}
/// The names that a file has.
///
/// throws    BadFile when it is no safetensors file
inline chorale::WeightMap names_of_gpt2_in(std::filesystem::path const& file) {
  auto const stored = chorale::SafetensorsFile::read(file);
  return names_of_gpt2(stored.find("wte.weight") != nullptr ? "" : "transformer.");
}

}  // namespace example
