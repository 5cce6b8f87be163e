// SPDX-License-Identifier: Apache-2.0
//
// A small GPT that learns to write, one character after another: 4 blocks of causal attention with 4 heads, 128 wide,
// over 64 characters. The table of characters is also the last layer; AdamW shrinks matrices alone; the rate warms up,
// then falls along a cosine. On one replica per core.
//
//   tools/run 15_character_gpt                                    sentences made in code
//   tools/run 15_character_gpt --data FILE --steps 2000           any text in ASCII, such as all of Shakespeare
//
// Expect a line for each of ten parts of the run, whose losses fall, then the loss of text it has not seen, and a text.
#include <chorale/chorale.hpp>

#include "support/text.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

using namespace chorale;

constexpr int text_length = 64, vector_size = 128, num_heads = 4;

struct Text : Field<int, text_length> {};  // (B, T) characters
struct Next : Field<int, text_length> {};  // (B, T) the one after each

struct Layer {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * vector_size> queries_keys_values;
  nn::Dense<4 * vector_size> wide;
  nn::Dense<vector_size> mixed, narrow;

  constexpr auto operator()(auto x) const {  // (B, T, 128)
    auto const y = x + mixed(nn::CausalHeads<num_heads>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

struct Gpt : nn::Graph<Text> {
  nn::Embedding<example::characters, vector_size> table;
  nn::Positions<text_length, vector_size> positions;
  std::array<Layer, 4> layers;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = positions(table(text));  // (B, T, 128)
    for (auto const& layer : layers) x = layer(x);
    return nn::outputs<Next>(table.logits(last(x)));  // (B, T, characters)
  }
};

/// Rows of 64 characters from random places of a text, and those that follow.
auto windows(std::vector<int> const& text, std::size_t rows) {
  return data::from_tensors(example::count_to(rows), example::count_to(rows), 1)
      .map<Text, Next>([&text](auto const& row, auto& to) {
        auto const places = static_cast<std::uint32_t>(text.size() - text_length);
        auto const from   = text.begin() + Random{Seed{5}, 0}.below(static_cast<std::uint64_t>(row.x[0]), places);
        to[Text{}].assign(from, from + text_length);
        to[Next{}].assign(from + 1, from + 1 + text_length);
      });
}

int main(int argc, char** argv) try {
  auto const o     = example::parse_text_options(argc, argv);
  auto const whole = o.data.empty() ? example::sentences(40'000) : example::read_text(o.data);
  auto const split = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * 9 / 10);
  auto const train = std::vector<int>(whole.begin(), split), unseen = std::vector<int>(split, whole.end());

  auto const rate  = optim::warm_up(o.steps / 20, 1e-3F).then(optim::cosine(o.steps, 1e-3F, 1e-4F));
  auto const rule  = optim::AdamW{.learning_rate = rate, .weight_decay = 0.1F, .beta_2 = 0.99F, .global_clipnorm = 1};
  auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const model = nn::compile<Gpt>(loss::SparseCrossEntropy{},
                                      optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(Cpu{}.threads())}, RingAllReduce{}, LocalTransport{}, 1};

  constexpr std::size_t rows = 12, parts = 10;  // of a batch; lines of progress
  auto const part = (static_cast<std::size_t>(o.steps) + parts - 1) / parts;
  auto const history =
      trainer.fit(windows(train, part * parts * rows).batch(rows), {.epochs = parts, .steps_per_epoch = part});
  auto const test = trainer.evaluate(windows(unseen, part * rows).batch(rows));
  std::printf("loss of text that it has not seen: %.4f\n", test.loss());

  auto text = std::vector<int>(whole.begin(), whole.begin() + text_length);  // goes on from the beginning
  auto const last =
      data::from_tensors(example::count_to(1), example::count_to(1), 1).map<Text>([&text](auto const&, auto& to) {
        to[Text{}].assign(text.end() - text_length, text.end());
      });
  for (int i = 0; i < o.characters; ++i) {
    auto const y = trainer.predict(last.batch(1)).values;  // (1, T · characters)
    text.push_back(example::draw({y.end() - example::characters, y.end()}, Random{Seed{7}, 1}.uniform(i)));
  }
  std::printf("%s\n", example::as_string({text.begin() + text_length, text.end()}).c_str());
  return history.back().scores.loss() < 0.8 * history.front().scores.loss() ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
