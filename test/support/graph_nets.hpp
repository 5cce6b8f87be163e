// SPDX-License-Identifier: Apache-2.0
//
// Networks that several tests of nn::Graph use.
#pragma once

#include <chorale/chorale.hpp>

#include <array>
#include <cstddef>

namespace chorale::test::graph_nets {

struct Tokens : Field<int, 5> {};
struct Next : Field<int, 5> {};

template <int Width, int Heads> struct Attention {
  nn::Dense<3 * Width> qkv;
  nn::Dense<Width> out;

  constexpr auto operator()(auto x) const { return out(nn::CausalHeads<Heads>{}(qkv(x))); }
};

template <int Width, int Heads> struct TransformerBlock {
  nn::LayerNorm before_attention, before_mlp;
  Attention<Width, Heads> attention;
  nn::Dense<4 * Width> widen;
  nn::Dense<Width> narrow;

  constexpr auto operator()(auto x) const {
    auto const y = x + attention(before_attention(x));
    return y + narrow(nn::gelu(widen(before_mlp(y))));
  }
};

/// GPT-2 with its head tied to the table of words.
template <class TokensOf, class NextOf, std::size_t Blocks, int Width, int Heads, int Words, int Steps>
struct Gpt2 : nn::Graph<TokensOf> {
  nn::Embedding<Words, Width> words{"wte"};
  nn::Positions<Steps, Width> places{"wpe"};
  std::array<TransformerBlock<Width, Heads>, Blocks> blocks;
  nn::LayerNorm last{"ln_f"};

  constexpr auto operator()(auto tokens) const {
    auto x = places(words(tokens));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<NextOf>(words.logits(last(x)));
  }
};

}  // namespace chorale::test::graph_nets
