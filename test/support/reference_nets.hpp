// SPDX-License-Identifier: Apache-2.0
//
// The models that people know, each as small as its parts allow, with data for them.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/multi_head_attention.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::test::reference_nets {

struct Image : Field<float, 8, 8, 1> {};
struct Kind : Field<int, 1> {};
struct Text : Field<int, 6> {};
struct Next : Field<int, 6> {};
struct Body : Field<int, 9> {};
struct Tags : Field<float, 4> {};
struct Priority : Field<float, 1> {};
struct Numbers : Field<float, 5> {};
struct Users : Field<int, 3> {};
struct Words : Field<int, 4> {};
struct Noise : Field<float, 6> {};
struct Picture : Field<float, 16> {};

/// The CNN of the examples.
struct LeNet : nn::Graph<Image> {
  nn::Conv2D<4, 3> conv;
  nn::Dense<16> hidden;
  nn::Dense<3> kind;
  constexpr auto operator()(auto image) const {
    auto const x = nn::MaxPool2D<2>{}(nn::relu(conv(image)));
    return nn::outputs<Kind>(kind(nn::relu(hidden(nn::Flatten{}(x)))));
  }
};

/// A residual network with batch normalization.
template <template <class...> class Norm> struct Residual : nn::Graph<Image> {
  nn::Conv2D<8, 3, nn::Same, nn::NoBias> first, a, b, shortcut;
  Norm<> norm, norm_a, norm_b;
  nn::Dense<3> kind;
  constexpr auto operator()(auto image) const {
    auto const x = nn::relu(norm(first(image)));
    auto const y = norm_b(b(nn::relu(norm_a(a(x)))));
    return nn::outputs<Kind>(kind(nn::GlobalAveragePool2D{}(nn::relu(y + shortcut(x)))));
  }
};

struct GptBlock {
  nn::LayerNorm norm, norm_2;
  nn::Dense<24> queries_keys_values;
  nn::Dense<8> mixed, narrow;
  nn::Dense<32> wide;
  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<2>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};
/// A GPT over characters, its head tied to their table.
struct CharacterGpt : nn::Graph<Text> {
  nn::Embedding<12, 8> characters;
  nn::Positions<6, 8> places;
  std::array<GptBlock, 2> blocks;
  nn::LayerNorm last;
  constexpr auto operator()(auto text) const {
    auto x = places(characters(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(characters.logits(last(x)));
  }
};

/// Keras' functional model: two texts and numbers come in, a number and a class come out.
struct Tickets : nn::Graph<Text, Body, Tags> {
  nn::Embedding<12, 5> title_words{"title_words"}, body_words{"body_words"};
  nn::LSTM<6> title_reader;
  nn::LSTM<4> body_reader;
  nn::Dense<1> priority{"priority"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto title, auto body, auto tags) const {
    auto const x = nn::concatenate(title_reader(title_words(title)), body_reader(body_words(body)), tags);
    return nn::outputs<Priority, Kind>(priority(x), kind(x));
  }
};

/// Recommendations: bags of ids, numbers, and the products of all pairs.
struct Dlrm : nn::Graph<Numbers, Users, Words> {
  nn::EmbeddingBag<40, 8> users;
  nn::EmbeddingBag<12, 8> words;
  nn::Dense<8> bottom;
  nn::Dense<6> top;
  nn::Dense<1> click;
  constexpr auto operator()(auto numbers, auto user, auto word) const {
    auto const x     = nn::relu(bottom(numbers));
    auto const pairs = nn::interaction(x, users(user), words(word));
    return nn::outputs<Priority>(click(nn::relu(top(nn::concatenate(x, pairs)))));
  }
};

/// Attention between all steps of a text, as encoders have it.
struct Encoder : nn::Graph<Text> {
  nn::Embedding<12, 8> words;
  nn::Positions<6, 8> places;
  nn::MultiHeadAttention<2, 4> attention;
  nn::LayerNorm norm, norm_2;
  nn::Dense<16> wide;
  nn::Dense<8> narrow;
  nn::Dense<3> kind;
  constexpr auto operator()(auto text) const {
    auto const x = places(words(text));
    auto const y = norm(x + attention(x));
    auto const z = norm_2(y + narrow(nn::gelu(wide(y))));
    return nn::outputs<Kind>(kind(nn::GlobalAveragePool1D{}(z)));
  }
};

/// The two networks of a GAN.
struct Generator : nn::Graph<Noise> {
  nn::Block<nn::Dense<8>, nn::LeakyReLU<20>, nn::Dense<16>, nn::Tanh> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Picture>(layers(noise)); }
};
struct Critic : nn::Graph<nn::Differentiable<Picture>> {
  nn::Block<nn::Dense<8>, nn::LeakyReLU<20>, nn::Dense<1>> layers;
  constexpr auto operator()(auto picture) const { return nn::outputs<Priority>(layers(picture)); }
};

/// The loss that a network of these learns by.
template <class Net> constexpr auto loss_of() {
  if constexpr (std::is_same_v<Net, Tickets>)
    return nn::of<Priority>(loss::MeanSquaredError{}) + 0.2F * nn::of<Kind>(loss::SparseCrossEntropy{});
  else if constexpr (std::is_same_v<Net, Dlrm> || std::is_same_v<Net, Critic>) return loss::BinaryCrossEntropy{};
  else if constexpr (std::is_same_v<Net, Generator>) return loss::Given{};
  else return loss::SparseCrossEntropy{};
}

template <class Net, class Optimizer> auto model_of(Optimizer optimizer) {
  return nn::compile<Net>(loss_of<Net>(), optimizer);
}

/// All fields of row n, drawn by its number; what should come out follows from what goes in.
inline constexpr auto write = [](auto const& row, auto& to) {
  auto const n       = static_cast<std::uint64_t>(row.x[0]);
  auto const draw    = Random{Seed{5}, n};
  auto drawn         = std::uint64_t{0};
  auto const numbers = [&](std::vector<float>& all, std::size_t count) {
    all.resize(count);
    for (auto& x : all) x = draw.uniform(drawn++, -1, 1);
  };
  auto const ids = [&](std::vector<int>& all, std::size_t count, std::uint32_t below) {
    all.resize(count);
    for (auto& x : all) x = static_cast<int>(draw.below(drawn++, below));
  };
  numbers(to[Image{}], 64), numbers(to[Tags{}], 4), numbers(to[Numbers{}], 5), numbers(to[Noise{}], 6);
  numbers(to[Picture{}], 16);
  ids(to[Text{}], 6, 12), ids(to[Body{}], 9, 12), ids(to[Users{}], 3, 40), ids(to[Words{}], 4, 12);
  to[Next{}].assign(to[Text{}].rbegin(), to[Text{}].rend());
  to[Kind{}].assign(1, to[Text{}][0] % 3);
  to[Priority{}].assign(1, to[Words{}][0] % 2 == 0 ? 1.0F : 0.0F);
};

/// Rows of all fields, in batches of 16, the last of which is smaller.
inline auto batches(std::size_t rows) {
  auto x = std::vector<float>(rows);
  for (std::size_t r = 0; r < rows; ++r) x[r] = static_cast<float>(r);
  return data::from_tensors(x, x, 1)
      .map<Image, Kind, Text, Next, Body, Tags, Priority, Numbers, Users, Words, Noise, Picture>(write)
      .batch(16);
}

}  // namespace chorale::test::reference_nets
