// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 of any size, a constant of the compiler: small, or that of 124 million numbers, whose blocks are computed again
// in backward. It begins from weights of the package transformers, learns a text, writes, and saves weights for it.
//
//   tools/run 21_gpt2                                             sentences made in code, characters as tokens
//   tools/run 21_gpt2 --size 124m --weights model.safetensors --tokenizer tokenizer.json --prompt "The sea" --steps 0
//   tools/run 21_gpt2 --size 124m .. --data FILE --rate 3e-5 --steps 200 --save new.safetensors
//
// Expect a line for each of ten parts of the run, whose losses fall, then the loss of text it has not seen, and a text.
// The second and the third need the files of gpt2 as it was published; a replica of them takes 2.3 GB.
#include <chorale/chorale.hpp>
#include <chorale/data/text/bpe.hpp>
#include <chorale/data/text/tokenizer.hpp>

#include "support/gpt2.hpp"
#include "support/text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

using namespace chorale;

constexpr int text_length = 64;  // at most the context of the network
constexpr auto small      = example::Gpt2Size{.words = 512, .context = 64, .width = 64, .heads = 4, .blocks = 2};

struct Text : Field<int, text_length> {};  // (B, T) tokens
struct Next : Field<int, text_length> {};  // (B, T) the one after each

using Large = nn::Recompute<example::Gpt2Block<example::gpt2_124m>>;
struct Gpt2Small : example::Gpt2<small, Text, Next> {};
struct Gpt2Large : example::Gpt2<example::gpt2_124m, Text, Next, Large> {};

using Tokens = std::variant<data::CharacterTokenizer, data::BpeTokenizer>;

/// Learns and writes a text of `words` tokens; returns the exit code.
template <class Net>
int run(example::Gpt2Options const& o, Tokens const& tokens, std::vector<int> const& whole, int words) {
  auto const used = std::visit([](auto const& all) { return all.size(); }, tokens);
  if (used > static_cast<std::size_t>(words))
    throw BadArgument{"the text has " + std::to_string(used) + " different tokens, but GPT-2 of this size has " +
                          std::to_string(words) + ".",
                      "--size 124m, or another tokenizer."};
  auto const rate  = optim::warm_up(o.steps / 20 + 1, o.rate).then(optim::cosine(o.steps + 1, o.rate, o.rate / 10));
  auto const rule  = optim::AdamW{.learning_rate = rate, .weight_decay = 0.1F, .beta_2 = 0.95F, .global_clipnorm = 1};
  auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const model = nn::compile<Net>(loss::SparseCrossEntropy{},
                                      optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}});
  auto trainer     = Trainer{model, MirroredStrategy{Cpu::split(o.replicas)}, RingAllReduce{}, LocalTransport{}, 1};
  if (!o.weights.empty()) trainer.load(o.weights, example::names_of_gpt2_in(o.weights));

  constexpr std::size_t rows = 12, parts = 10;  // of a batch; lines of progress
  auto fell = true;
  if (o.steps > 0) {
    auto const split   = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * 9 / 10);
    auto const train   = data::windows<Text, Next>({whole.begin(), split}, 1);
    auto const part    = (static_cast<std::size_t>(o.steps) + parts - 1) / parts;
    auto const history = trainer.fit(train.shuffle(100'000).repeat(part * rows / *train.size() + 1).batch(rows),
                                     {.epochs = parts, .steps_per_epoch = part});
    auto const unseen  = data::windows<Text, Next>({split, whole.end()}, text_length);
    std::printf("loss of text that it has not seen: %.4f\n", trainer.evaluate(unseen.batch(rows)).loss());
    fell = history.back().scores.loss() < 0.8 * history.front().scores.loss();
  }
  auto text        = o.prompt.empty() ? std::vector<int>(whole.begin(), whole.begin() + text_length)
                                      : std::visit([&](auto const& all) { return all.encode(o.prompt); }, tokens);
  auto const begin = text.size();
  for (int i = 0; i < o.characters; ++i) {  // what is behind a token does not change it
    auto const n = std::min<std::size_t>(text.size(), text_length);
    auto last    = std::vector<int>(text.end() - static_cast<std::ptrdiff_t>(n), text.end());
    last.resize(text_length);
    auto const y    = trainer.predict(data::from_fields<Text>(last).batch(1)).values;  // (1, T · words)
    auto const from = y.begin() + static_cast<std::ptrdiff_t>((n - 1) * static_cast<std::size_t>(words));
    text.push_back(example::draw({from, from + static_cast<std::ptrdiff_t>(used)}, Random{Seed{7}, 1}.uniform(i)));
  }
  auto const made = Span<int const>{text}.subspan(begin);
  std::printf("%s\n", std::visit([&](auto const& all) { return all.decode(made); }, tokens).c_str());
  if (!o.save.empty()) trainer.save(o.save, example::names_of_gpt2());
  return fell || !o.weights.empty() ? 0 : 1;  // from learned weights it may not fall
}

int main(int argc, char** argv) try {
  auto const o    = example::parse_gpt2_options(argc, argv);
  auto const text = o.data.empty() ? example::as_string(example::sentences(40'000)) : data::read_text(o.data);
  auto const tokens =
      o.tokenizer.empty() ? Tokens{data::CharacterTokenizer::of(text)} : Tokens{data::BpeTokenizer::read(o.tokenizer)};
  auto const whole = std::visit([&](auto const& all) { return all.encode(text); }, tokens);
  if (whole.size() < 20 * text_length)
    throw BadArgument{"the text has " + std::to_string(whole.size()) + " tokens, of which a tenth is the test.",
                      "a text of at least " + std::to_string(20 * text_length) + " tokens."};
  if (o.size == "small") return run<Gpt2Small>(o, tokens, whole, small.words);
  return run<Gpt2Large>(o, tokens, whole, example::gpt2_124m.words);
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
