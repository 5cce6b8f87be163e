// SPDX-License-Identifier: Apache-2.0
//
// The networks of bench/models, with their batches and what their steps must compute and move.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace bench::models {

/// Multiplications of products in a step, each counted once and not as two operations, and bytes that a step must read
/// and write in memory: variables, gradients and slots, of tables the rows that came.
struct Work {
  double products, bytes;
};

/// n numbers by f(i), for the columns of a batch.
template <class T, class F> std::vector<T> column(std::size_t n, F&& f) {
  auto all = std::vector<T>(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<T>(f(i));
  return all;
}
inline auto ids(std::size_t n, int below, std::uint64_t stream) {
  return column<int>(n, [=](auto i) { return chorale::Random{7, stream}.below(i, static_cast<std::uint32_t>(below)); });
}
inline auto uniform(std::size_t n, std::uint64_t stream) {
  return column<float>(n, [=](auto i) { return chorale::Random{7, stream}.uniform(i); });
}
/// Adam reads a variable, its gradient and two slots, and writes three of them; backward wrote the gradient.
inline constexpr double adam_bytes = 32;

using namespace chorale;

/// The CNN of the examples.
struct LeNet : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<64>, nn::ReLU, nn::Dense<10>> {
  static constexpr std::size_t batch = 64;
  static constexpr Work work{batch * (676. * 9 * 32 * 2 + 5408. * 64 * 3 + 640. * 3), 347'146 * adam_bytes};

  static auto model() { return nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}); }

  std::vector<float> x = uniform(batch * 784, 0);
  std::vector<int> y   = ids(batch, 10, 1);
  Batch part(int i, int n) const { return Batch{.x = x, .y = y, .rows = batch}.part(i, n); }
};

/// ResNet-50 with SGD and momentum; Small: ResNet-20, to see that the program runs.
template <bool Small> struct ResNet : std::conditional_t<Small, nn::resnet::ResNet20<10>, nn::resnet::ResNet50<>> {
  using Net                 = std::conditional_t<Small, nn::resnet::ResNet20<10>, nn::resnet::ResNet50<>>;
  static constexpr int side = Small ? 32 : 224, first_kernel = Small ? 3 : 7, first_filters = Small ? 16 : 64;
  static constexpr int first_side     = Small ? 32 : 112;
  static constexpr std::size_t batch  = 8;
  // No gradient by the pictures; SGD reads a variable, its gradient and a slot, and writes two of them.
  static constexpr double no_gradient = first_side * first_side * 3. * first_kernel * first_kernel * first_filters;
  static constexpr Work work{batch * (3. * Net::plan.products_per_row - no_gradient), Net::plan.parameters * 24.};

  static auto model() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.momentum = 0.9F}); }

  std::vector<float> x = uniform(batch * side * side * 3, 0);
  std::vector<int> y   = ids(batch, Small ? 10 : 1000, 1);
  Batch part(int i, int n) const { return Batch{.x = x, .y = y, .rows = batch}.part(i, n); }
};

struct Text : Field<int, 64> {};
struct Next : Field<int, 64> {};

struct GptBlock {
  nn::LayerNorm norm, norm_2;
  nn::Dense<384> queries_keys_values;
  nn::Dense<128> mixed, narrow;
  nn::Dense<512> wide;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<4>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

/// nanoGPT's smallest: 4 blocks, 4 heads, 128 wide, 64 characters, AdamW that shrinks matrices alone.
struct CharacterGpt : nn::Graph<Text> {
  nn::Embedding<65, 128> characters;
  nn::Positions<64, 128> places;
  std::array<GptBlock, 4> blocks;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = places(characters(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(characters.logits(last(x)));
  }

  static constexpr std::size_t batch = 12;
  static constexpr double matrices = 4 * 12 * 128. * 128, attention = 4 * 64. * 128;  // of a character
  static constexpr Work work{batch * 64 * 3 * (matrices + attention + 65. * 128), 810'112 * adam_bytes};

  static auto model() {
    auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
    return nn::compile<CharacterGpt>(loss::SparseCrossEntropy{},
                                     optim::Grouped{optim::AdamW{.weight_decay = 0.1F, .global_clipnorm = 1},
                                                    {plain("*bias"), plain("*gamma"), plain("*beta")}});
  }
};

struct Gpt2Block {
  nn::LayerNorm norm, norm_2;
  nn::Dense<2304> queries_keys_values;
  nn::Dense<768> mixed, narrow;
  nn::Dense<3072> wide;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<12>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu_tanh(wide(norm_2(y))));
  }
};

/// GPT-2 of 124 million numbers. B is Gpt2Block, or Recompute of it.
template <class B> struct Gpt2 : nn::Graph<Text> {
  nn::Embedding<50'257, 768> words;
  nn::Positions<1'024, 768> places;
  std::array<B, 12> blocks;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = places(words(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(words.logits(last(x)));
  }

  static constexpr std::size_t batch = 4;
  static constexpr double matrices = 12 * 12 * 768. * 768, attention = 12 * 64. * 768;  // of a word
  static constexpr Work work{batch * 64 * 3 * (matrices + attention + 50'257. * 768), 124'439'808 * adam_bytes};

  static auto model() {
    return nn::compile<Gpt2>(loss::SparseCrossEntropy{},
                             optim::AdamW{.learning_rate = 1e-4F, .weight_decay = 0.01F, .epsilon = 1e-8F});
  }
};

struct Title : Field<int, 40> {};
struct Body : Field<int, 200> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};
struct Department : Field<int, 1> {};

/// Keras' functional model of tickets, with long texts.
struct Tickets : nn::Graph<Title, Body, Tags> {
  nn::Embedding<10'000, 64> title_words{"title_words"}, body_words{"body_words"};
  nn::LSTM<128> title_reader;
  nn::LSTM<32> body_reader;
  nn::Dense<1> priority{"priority"};
  nn::Dense<4> department{"department"};

  constexpr auto operator()(auto title, auto body, auto tags) const {
    auto const features = nn::concatenate(title_reader(title_words(title)), body_reader(body_words(body)), tags);
    return nn::outputs<Priority, Department>(priority(features), department(features));
  }

  static constexpr std::size_t batch = 64;
  static constexpr Work work{batch * 3 * (40 * (64. + 128) * 512 + 200 * (64. + 32) * 128),
                             111'969 * adam_bytes + batch * 240. * 64 * 4 * 9};

  static auto model() {
    return nn::compile<Tickets>(
        nn::of<Priority>(loss::BinaryCrossEntropy{}) + 0.2F * nn::of<Department>(loss::SparseCrossEntropy{}),
        optim::Adam{});
  }
};

template <int... Widths> using Network = nn::Block<nn::Block<nn::Dense<Widths>, nn::ReLU>...>;

template <int I> struct Bag : Field<int, 10> {};
struct Numbers : Field<float, 13> {};
struct Clicked : Field<float, 1> {};

/// DLRM with six tables, the largest of a million rows divided by Smaller, ids by a power law.
template <int Smaller> struct Dlrm : nn::Graph<Numbers, Bag<0>, Bag<1>, Bag<2>, Bag<3>, Bag<4>, Bag<5>> {
  static constexpr std::array<int, 6> tables{1'000'000 / Smaller, 500'000 / Smaller, 100'000 / Smaller,
                                             10'000 / Smaller,    1'000 / Smaller,   100};
  nn::EmbeddingBag<tables[0], 64> bag_0;
  nn::EmbeddingBag<tables[1], 64> bag_1;
  nn::EmbeddingBag<tables[2], 64> bag_2;
  nn::EmbeddingBag<tables[3], 64> bag_3;
  nn::EmbeddingBag<tables[4], 64> bag_4;
  nn::EmbeddingBag<tables[5], 64> bag_5;
  Network<512, 256, 64> bottom;
  Network<512, 256> top;
  nn::Dense<1> click;

  constexpr auto operator()(auto numbers, auto a, auto b, auto c, auto d, auto e, auto f) const {
    auto const x     = bottom(numbers);
    auto const pairs = nn::interaction(x, bag_0(a), bag_1(b), bag_2(c), bag_3(d), bag_4(e), bag_5(f));
    return nn::outputs<Clicked>(click(top(nn::concatenate(x, pairs))));
  }

  static constexpr std::size_t batch = 2'048 / (Smaller > 1 ? 16 : 1);
  static constexpr double below      = 13. * 512 * 2 + (512. * 256 + 256. * 64) * 3;
  static constexpr double above      = (85. * 512 + 512. * 256 + 256) * 3;
  static constexpr Work work{batch * (below + above), 332'545 * 16. + batch * 60. * 64 * 4 * 3};

  static auto model() { return nn::compile<Dlrm>(loss::BinaryCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}); }

  static auto bag(std::size_t table) {
    return column<int>(batch * 10, [=](auto i) {
      auto const u = Random{7, table}.uniform(i);
      return u * u * u * u * static_cast<float>(tables[table]);
    });
  }
};

struct Noise : Field<float, 100> {};
struct Picture : Field<float, 784> {};
struct IsReal : Field<float, 1> {};

/// A GAN of two networks over pictures of 28 by 28 pixels.
struct Generator : nn::Graph<Noise> {
  nn::Block<nn::Dense<256>, nn::LeakyReLU<20>, nn::Dense<512>, nn::LeakyReLU<20>, nn::Dense<784>, nn::Tanh> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Picture>(layers(noise)); }
};
struct Critic : nn::Graph<nn::Differentiable<Picture, nn::OnRequest>> {
  nn::Block<nn::Dense<512>, nn::LeakyReLU<20>, nn::Dense<256>, nn::LeakyReLU<20>, nn::Dense<1>> layers;
  constexpr auto operator()(auto picture) const { return nn::outputs<IsReal>(layers(picture)); }
};
struct Gan {
  static constexpr std::size_t batch = 64;
  static constexpr double g = 100. * 256 + 256. * 512 + 512. * 784, d = 784. * 512 + 512. * 256 + 256;
  static constexpr Work work{batch * (2 * (3 * d - 784. * 512) + 2 * d + 3 * g - 100. * 256),
                             (559'632. + 533'505.) * adam_bytes};
};

}  // namespace bench::models
