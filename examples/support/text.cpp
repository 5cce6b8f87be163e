// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/device/cpu.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string_view>

namespace example {

namespace {

/// Who does something, then what is done.
constexpr auto topics = std::array<std::array<std::string_view, 8>, 3>{
    {{"sailor", "captain", "pirate", "whale", "sees", "follows", "steers", "rows"},
     {"baker", "cook", "waiter", "guest", "bakes", "eats", "serves", "tastes"},
     {"violinist", "singer", "drummer", "conductor", "hears", "plays", "tunes", "sings"}}};

int number_of(char c) { return c == '\n' ? 0 : c >= ' ' && c <= '~' ? c - ' ' + 1 : '?' - ' ' + 1; }

std::vector<int> numbers_of(std::string_view text) {
  auto all = std::vector<int>(text.size());
  std::transform(text.begin(), text.end(), all.begin(), number_of);
  return all;
}

void add_text_options(CLI::App& flags, TextOptions& o, int fewest_steps) {
  flags.add_option("--data", o.data, "a file of text; without it sentences are made");
  flags.add_option("--steps", o.steps, "updates, each of 12 rows")
      ->check(CLI::Range(fewest_steps, 1'000'000))
      ->capture_default_str();
}

void parse_flags(CLI::App& flags, int argc, char** argv) {
  try {
    flags.parse(argc, argv);
  } catch (CLI::Success const& asked) {  // --help
    std::exit(flags.exit(asked));
  } catch (CLI::ParseError const& error) { throw chorale::BadArgument{error.what(), "--help"}; }
}

}  // namespace

TextOptions parse_text_options(int argc, char** argv) {
  auto o     = TextOptions{};
  auto flags = CLI::App{"Trains a GPT of characters; what is special about it stands at the top of its file."};
  add_text_options(flags, o, 10);
  flags.add_option("--characters", o.characters, "to write in the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  parse_flags(flags, argc, argv);
  return o;
}

Gpt2Options parse_gpt2_options(int argc, char** argv) {
  auto o     = Gpt2Options{};
  o.replicas = chorale::Cpu{}.threads();
  auto flags = CLI::App{"Trains GPT-2; what is special about it stands at the top of its file."};
  add_text_options(flags, o, 0);
  flags.add_option("--size", o.size, "of the network: small, 124m")
      ->check(CLI::IsMember({"small", "124m"}))
      ->capture_default_str();
  flags.add_option("--weights", o.weights, "a model.safetensors of the package transformers, of that size");
  flags.add_option("--tokenizer", o.tokenizer, "a tokenizer.json of byte pairs; without it tokens are characters");
  flags.add_option("--save", o.save, "a file for the weights, which the package transformers reads");
  flags.add_option("--prompt", o.prompt, "the text that goes on in the end; default: the beginning of the data");
  flags.add_option("--tokens", o.characters, "to write in the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  flags.add_option("--rate", o.rate, "learning rate after its warm-up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--replicas", o.replicas, "each has all variables, and 12 bytes more for each of their numbers")
      ->check(CLI::Range(1, 1'024))
      ->capture_default_str();
  parse_flags(flags, argc, argv);
  return o;
}

SentenceOptions parse_sentence_options(int argc, char** argv) {
  auto o     = SentenceOptions{};
  auto flags = CLI::App{"Compares sentences; what is special about it stands at the top of its file."};
  flags.add_option("--data", o.data, "a file with a sentence in each line");
  flags.add_option("--weights", o.weights,
                   "a folder with model.safetensors, and vocab.txt or tokenizer.json, of "
                   "all-MiniLM-L6-v2; without it a small encoder is trained");
  flags.add_option("--epochs", o.epochs, "passes over pairs of the small one")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  parse_flags(flags, argc, argv);
  return o;
}

std::vector<std::string> lines_of(std::string const& text) {
  auto lines = std::vector<std::string>{};
  for (std::size_t begin = 0; begin < text.size();) {
    auto const end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<int> read_text(std::string const& file) {
  constexpr std::size_t least = 10'000;
  auto in                     = std::ifstream{file, std::ios::binary};
  auto const text             = std::string{std::istreambuf_iterator<char>{in}, {}};
  if (!in) throw chorale::BadFile{file + " cannot be read.", "--data with the name of a file of text."};
  if (text.size() < least)
    throw chorale::BadFile{file + " has " + std::to_string(text.size()) + " characters, of which a tenth is the test.",
                           "a text of at least " + std::to_string(least) + " characters."};
  return numbers_of(text);
}

std::vector<int> sentences(std::size_t n) {
  constexpr auto who  = std::array<std::string_view, 6>{"fox", "owl", "king", "sailor", "baker", "child"};
  constexpr auto does = std::array<std::string_view, 5>{"sees", "follows", "greets", "forgets", "paints"};
  constexpr auto how  = std::array<std::string_view, 4>{"old", "small", "quiet", "merry"};
  auto const random   = chorale::Random{chorale::Seed{11}, 0};
  auto drawn          = std::uint64_t{0};
  auto const one_of   = [&](auto const& words) {
    return std::string{words[random.below(drawn++, static_cast<std::uint32_t>(words.size()))]};
  };
  auto text = std::string{};
  while (text.size() < n)
    text += "The " + one_of(how) + " " + one_of(who) + " " + one_of(does) + " the " + one_of(who) + ".\n";
  return numbers_of(text);
}

std::string topic_sentence(std::size_t topic, std::uint64_t number) {
  auto const draw = chorale::Random{chorale::Seed{5}, number};
  auto const word = [&](std::uint64_t i, std::size_t from) {
    return std::string{topics[topic][from + static_cast<std::size_t>(draw.below(i, 4))]};
  };
  return "The " + word(0, 0) + " " + word(1, 4) + " the " + word(2, 0) + ".";
}

std::vector<std::string> topic_tokens() {
  auto tokens = std::vector<std::string>{"[UNK]", "[CLS]", "[SEP]", "the", "."};
  for (auto const& words : topics) tokens.insert(tokens.end(), words.begin(), words.end());
  return tokens;
}

std::string as_string(std::vector<int> const& text) {
  auto all = std::string(text.size(), ' ');
  std::transform(text.begin(), text.end(), all.begin(),
                 [](int c) { return c == 0 ? '\n' : static_cast<char>(c - 1 + ' '); });
  return all;
}

int draw(std::vector<float> const& logits, float u) {
  auto const top = *std::max_element(logits.begin(), logits.end());
  auto upto      = std::vector<float>(logits.size());  // sums of exp(logit)
  std::transform(logits.begin(), logits.end(), upto.begin(), [top](float z) { return std::exp(z - top); });
  std::partial_sum(upto.begin(), upto.end(), upto.begin());
  auto const at = std::upper_bound(upto.begin(), upto.end() - 1, u * upto.back());
  return static_cast<int>(at - upto.begin());
}

std::vector<float> count_to(std::size_t n) {
  auto all = std::vector<float>(n);
  std::iota(all.begin(), all.end(), 0.0F);
  return all;
}

}  // namespace example
