// SPDX-License-Identifier: Apache-2.0
//
// Texts as tokens, and windows of tokens as rows.
#include "test/support/folder.hpp"
#include "test/support/graph_nets.hpp"
#include "test/support/shakespeare.hpp"

#include <chorale/chorale.hpp>
#include <chorale/data/auto_shard.hpp>
#include <chorale/data/text/tokenizer.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace text_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

struct Now : Field<int, 4> {};
struct Next : Field<int, 4> {};

std::vector<int> counting(int n) {
  auto tokens = std::vector<int>(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}
/// The first token of each row, after a check of the others.
template <class D> std::vector<int> firsts(D const& dataset, std::size_t epoch = 0) {
  auto all    = std::vector<int>{};
  auto stream = dataset.stream(epoch);
  auto row    = typename D::element{};
  while (stream.next(row)) {
    auto const now = row[Now{}], next = row[Next{}];
    for (int k = 0; k < 4; ++k) {
      CHECK(now[static_cast<std::size_t>(k)] == now[0] + k);
      CHECK(next[static_cast<std::size_t>(k)] == now[0] + k + 1);
    }
    all.push_back(now[0]);
  }
  return all;
}

void write(std::filesystem::path const& path, std::string const& text) {
  std::ofstream{path, std::ios::binary} << text;
}

}  // namespace

TEST_CASE("bytes are tokens, whatever they are", "[data][text]") {
  static_assert(data::Tokenizer<data::ByteTokenizer> && data::Tokenizer<data::CharacterTokenizer>);
  auto const text = std::string{"a\xFF\0b", 4};
  auto const ids  = data::ByteTokenizer{}.encode(text);
  CHECK(ids == std::vector<int>{97, 255, 0, 98});
  CHECK(data::ByteTokenizer{}.decode(ids) == text);
  CHECK_THROWS_WITH(data::ByteTokenizer{}.decode(std::vector<int>{1, 256}),
                    Contains("id 256 at position 1 is no token: they are 0 to 255"));
}

TEST_CASE("characters are tokens in the order of their code points, and a file keeps them", "[data][text]") {
  auto const folder     = test::Folder{};
  auto const characters = data::CharacterTokenizer::of("hé\nllo é😀");
  CHECK(characters.size() == 7);
  CHECK(characters.encode("\n éhlo😀") == std::vector<int>{0, 1, 5, 2, 3, 4, 6});
  CHECK(characters.decode(std::vector<int>{2, 5}) == "hé");
  characters.save(folder / "characters");
  auto const again = data::CharacterTokenizer::load(folder / "characters");
  CHECK(again.encode("hé😀") == characters.encode("hé😀"));
  CHECK_THROWS_WITH(characters.encode("hé€"),
                    Contains("the text has U+20AC at byte 3, which is none of the 7 characters"));
  CHECK_THROWS_WITH(characters.encode("h\x80"), Contains("the text is not UTF-8 from byte 1 on"));
  CHECK_THROWS_WITH(characters.decode(std::vector<int>{7}),
                    Contains("id 7 at position 0 is no token: they are 0 to 6"));
  CHECK_THROWS_WITH(data::CharacterTokenizer::of(""), Contains("an empty text has no characters"));
  write(folder / "other", "ba");
  CHECK_THROWS_WITH(data::CharacterTokenizer::load(folder / "other"),
                    Contains("not in the order of their code points"));
  CHECK_THROWS_AS(characters.save(folder / "none" / "x"), BadFile);
}

TEST_CASE("a file that is no text is one sentence", "[data][text]") {
  auto const folder = test::Folder{};
  write(folder / "good", "text: é€😀\n");
  CHECK(data::read_text(folder / "good") == "text: é€😀\n");
  write(folder / "empty", "");
  CHECK_THROWS_WITH(data::read_text(folder / "empty"), Contains("empty: is empty, but a text is needed"));
  CHECK_THROWS_WITH(data::read_text(folder / "none"), Contains("none: cannot be opened: No such file"));
  for (auto const* bad :
       {"ab\xC0\x80", "ab\xE0\x80\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xE2\x82", "ab\xFF", "ab\x80"}) {
    write(folder / "bad", bad);
    CHECK_THROWS_WITH(data::read_text(folder / "bad"), Contains("bad: byte 2: is not UTF-8, as a text is"));
  }
}

TEST_CASE("a row has tokens, and those after them", "[data][windows]") {
  CHECK(firsts(data::windows<Now, Next>(counting(13))) == std::vector<int>{0, 4, 8});
  CHECK(firsts(data::windows<Now, Next>(counting(12))) == std::vector<int>{0, 4});
  CHECK(firsts(data::windows<Now, Next>(counting(9), 2)) == std::vector<int>{0, 2, 4});
  CHECK(firsts(data::windows<Now, Next>(counting(8), 1)) == std::vector<int>{0, 1, 2, 3});
  CHECK(firsts(data::windows<Now, Next>(counting(5))) == std::vector<int>{0});
  CHECK(*data::windows<Now, Next>(counting(9), 2).size() == 3);
  CHECK_THROWS_WITH((data::windows<Now, Next>(counting(4))),
                    Contains("a window of 4 tokens and the one after them need 5 tokens, but there are 4"));
}

TEST_CASE("windows are shuffled, dealt out and continued as other rows", "[data][windows]") {
  auto const rows     = data::windows<Now, Next>(counting(100), 1);
  auto const shuffled = rows.shuffle(1'000, Seed{3});
  auto const one = firsts(shuffled, 0), two = firsts(shuffled, 1);
  auto sorted = one;
  std::ranges::sort(sorted);
  CHECK(sorted == counting(96));
  CHECK(one != sorted);
  CHECK(one != two);
  CHECK(firsts(rows.shuffle(1'000, Seed{3}), 0) == one);  // a function of the recipe and the epoch
  auto dealt       = std::vector<int>(96);                // to three workers
  auto const fixed = rows.shuffle(1'000, Seed{3}, data::Order::fixed);
  for (std::size_t i = 0; i < 3; ++i) {
    auto const mine = firsts(fixed.shard(3, i), i);
    for (std::size_t k = 0; k < mine.size(); ++k) dealt[3 * k + i] = mine[k];
  }
  CHECK(dealt == one);
  CHECK(firsts(fixed.skip(40), 5) == std::vector<int>(one.begin() + 40, one.end()));
  auto stream = rows.shuffle(10, Seed{1}).batch(7).stream(0);
  auto batch  = decltype(rows.shuffle(10, Seed{1}).batch(7))::element{};
  auto count  = std::size_t{0};
  while (stream.next(batch)) count += batch.rows;
  CHECK(count == 96);
  auto lines = std::vector<std::string>{}, others = lines;
  rows.describe(lines);
  auto changed = counting(100);
  changed[50]  = 7;
  data::windows<Now, Next>(changed, 1).describe(others);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "windows of 4 shift 1 of 100 tokens");
  CHECK(lines[0] == others[0]);
  CHECK(lines[1] != others[1]);  // ranks compare all tokens
}

namespace {

struct Tokens : Field<int, 16> {};
struct After : Field<int, 16> {};

/// Mean loss of each epoch of a small GPT over windows of a text.
template <int Words, class S> auto learn(std::vector<int> tokens, S strategy, std::size_t batches, int epochs) {
  using Gpt    = test::graph_nets::Gpt2<Tokens, After, 1, 16, 2, Words, 16>;
  auto trainer = Trainer{nn::compile<Gpt>(loss::SparseCrossEntropy{}, optim::AdamW{.learning_rate = 0.01F}), strategy,
                         RingAllReduce{}, LocalTransport{}, 1};
  auto const rows = data::windows<Tokens, After>(std::move(tokens)).shuffle(10'000, Seed{1}).batch(16).take(batches);
  auto losses     = std::vector<float>{};
  for (auto const& epoch : trainer.fit(rows, {.epochs = epochs, .show = Show::nothing}))
    losses.push_back(static_cast<float>(epoch.scores.loss()));
  return std::pair{losses, trainer.hashes()};
}

}  // namespace

TEST_CASE("a GPT learns a generated text, on two replicas as on one", "[data][windows]") {
  auto text = std::string{};  // after each word of the text one of two
  for (std::uint64_t i = 0; text.size() < 2'000; ++i)
    text += std::vector<std::string>{"to be ", "or not ", "that is "}[(i + Random{Seed{1}, 0}.below(i, 2)) % 3];
  auto const characters = data::CharacterTokenizer::of(text);
  REQUIRE(characters.size() <= 12);
  auto const tokens        = characters.encode(text);
  auto const [one, of_one] = learn<12>(tokens, OneDeviceStrategy{Cpu::logical(1)[0]}, 8, 6);
  auto const [two, of_two] = learn<12>(tokens, MirroredStrategy{Cpu::logical(2)}, 8, 6);
  CHECK(one[0] > 1.2F);
  CHECK(one.back() < 0.8F);
  for (std::size_t e = 0; e < one.size(); ++e) CHECK(two[e] == Approx(one[e]).epsilon(1e-3));
  CHECK(of_two[0] == of_two[1]);
}

TEST_CASE("a character GPT learns tiny Shakespeare", "[data][windows]") {
  auto const file = test::shakespeare_or_skip("a character GPT learns tiny Shakespeare");
  if (!file) return;
  auto const text       = data::read_text(*file);
  auto const characters = data::CharacterTokenizer::of(text);
  auto tokens           = characters.encode(text);
  CHECK(characters.size() == 65);
  CHECK(tokens.size() == 1'115'394);
  CHECK(characters.decode(tokens) == text);
  auto counts = std::vector<double>(65);
  for (auto const token : tokens) ++counts[static_cast<std::size_t>(token)];
  auto entropy = 0.0;  // of one character by itself
  for (auto const n : counts) entropy -= n / 1'115'394 * std::log(n / 1'115'394);
  auto const [losses, hashes] = learn<65>(std::move(tokens), OneDeviceStrategy{Cpu::logical(1)[0]}, 40, 2);
  CHECK(losses[0] < std::log(65.0F));
  CHECK(double{losses[1]} < entropy - 0.2);  // it looks at the characters before
}

TEST_CASE("a token that the table of a network does not have is one sentence", "[data][windows]") {
  CHECK_THROWS_WITH(learn<12>(counting(40), OneDeviceStrategy{Cpu::logical(1)[0]}, 1, 1),
                    Contains("has id 12 at position 12 of field ") &&
                        Contains("Tokens, but the nn::Embedding that takes it has 12 rows, 0 to 11"));
}

}  // namespace text_test
