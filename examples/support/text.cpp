// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>

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

int number_of(char c) { return c == '\n' ? 0 : c >= ' ' && c <= '~' ? c - ' ' + 1 : '?' - ' ' + 1; }

std::vector<int> numbers_of(std::string_view text) {
  auto all = std::vector<int>(text.size());
  std::transform(text.begin(), text.end(), all.begin(), number_of);
  return all;
}

}  // namespace

TextOptions parse_text_options(int argc, char** argv) {
  auto o     = TextOptions{};
  auto flags = CLI::App{"Trains a GPT of characters; what is special about it stands at the top of its file."};
  flags.add_option("--data", o.data, "a file of text; without it sentences are made");
  flags.add_option("--steps", o.steps, "updates, each of 12 rows")->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  flags.add_option("--characters", o.characters, "to write in the end")->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  try {
    flags.parse(argc, argv);
  } catch (CLI::Success const& asked) {                                    // --help
    std::exit(flags.exit(asked));
  } catch (CLI::ParseError const& error) {
    throw chorale::BadArgument{error.what(), "--help"};
  }
  return o;
}

std::vector<int> read_text(std::string const& file) {
  constexpr std::size_t least = 10'000;
  auto in         = std::ifstream{file, std::ios::binary};
  auto const text = std::string{std::istreambuf_iterator<char>{in}, {}};
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

std::string as_string(std::vector<int> const& text) {
  auto all = std::string(text.size(), ' ');
  std::transform(text.begin(), text.end(), all.begin(),
                 [](int c) { return c == 0 ? '\n' : static_cast<char>(c - 1 + ' '); });
  return all;
}

int draw(std::vector<float> const& logits, float u) {
  auto const top = *std::max_element(logits.begin(), logits.end());
  auto upto      = std::vector<float>(logits.size());                      // sums of exp(logit)
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
