// SPDX-License-Identifier: Apache-2.0
//
// WordPiece against the packages tokenizers and transformers, and files that are no such tokenizer.
#include "test/support/folder.hpp"

#include <chorale/core/error.hpp>
#include <chorale/data/text/word_piece.hpp>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

namespace word_piece_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

constexpr auto stored = "test/golden/word_piece.json";

nlohmann::json json_of(std::string const& path) { return nlohmann::json::parse(data::read_text(path)); }

/// The sentence with which a file is refused; empty if it is read.
std::string refusal(std::string const& text) {
  auto const folder = test::Folder{};
  std::ofstream{folder / "tokens"} << text;
  try {
    data::WordPieceTokenizer::read(folder / "tokens");
  } catch (BadFile const& error) { return error.what(); }
  return "";
}
/// The sentence with which a changed tokenizer.json is refused.
template <class Change> std::string changed(Change&& change) {
  auto json = json_of(stored);
  change(json);
  return refusal(json.dump());
}

/// The tokens in their order.
std::vector<std::string> vocabulary() {
  auto const vocab = json_of(stored).at("model").at("vocab");
  auto tokens      = std::vector<std::string>(vocab.size());
  for (auto const& [token, id] : vocab.items()) tokens.at(id.get<std::size_t>()) = token;
  return tokens;
}

}  // namespace

TEST_CASE("ids of WordPiece are those of the packages, from either kind of file", "[golden][text]") {
  static_assert(data::Tokenizer<data::WordPieceTokenizer>);
  auto const folder = test::Folder{};
  auto lines        = std::ofstream{folder / "vocab.txt"};
  for (auto const& token : vocabulary()) lines << token << '\n';
  lines.close();
  auto const of_json    = data::WordPieceTokenizer::read(stored);
  auto const of_lines   = data::WordPieceTokenizer::read(folder / "vocab.txt");
  auto const as_written = data::WordPieceTokenizer::read(folder / "vocab.txt", data::Letters::as_written);
  auto const made       = data::WordPieceTokenizer::of(vocabulary());
  auto const cases      = json_of("test/golden/word_piece_ids.json");
  REQUIRE(cases.size() == 45);
  CHECK(of_json.size() == 400);
  for (auto const& one : cases) {
    auto const text = one.at("text").get<std::string>();
    INFO(text);
    auto const ids = one.at("ids").get<std::vector<int>>();
    CHECK(of_json.encode(text) == ids);
    CHECK(of_lines.encode(text) == ids);
    CHECK(made.encode(text) == ids);
    CHECK(as_written.encode(text) == one.at("as_written").get<std::vector<int>>());
    CHECK(of_json.encode(text, 8) == one.at("cut").get<std::vector<int>>());
    CHECK(of_json.decode(ids) == one.at("decoded").get<std::string>());
  }
  CHECK(of_json.id_of("[MASK]") == 4);
  CHECK(of_json.id_of("no such token") == -1);
  CHECK(of_json.encode("a b c d", 2) == std::vector<int>{2, 3});
  CHECK_THROWS_WITH(of_json.encode("a", 1), Contains("a text has at least 2 ids, [CLS] and [SEP], but at most 1"));
  CHECK_THROWS_WITH(of_json.encode("caf\xE9"), Contains("the text is not UTF-8 from byte 3 on"));
  CHECK_THROWS_WITH(of_json.decode(std::vector<int>{3, 400}), Contains("id 400 at position 1 is no token"));
}

TEST_CASE("a vocabulary of another kind is refused with what differs", "[text]") {
  using Json = nlohmann::json;
  CHECK(changed([](Json&) {}).empty());
  CHECK_THAT(changed([](Json& j) { j["model"]["type"] = "BPE"; }),
             Contains("tokens: its model is \"BPE\", but WordPiece is needed."));
  CHECK_THAT(changed([](Json& j) { j["model"]["unk_token"] = "?"; }), Contains("its unk_token is \"?\", but BERT has"));
  CHECK_THAT(changed([](Json& j) { j["model"]["max_input_chars_per_word"] = 9; }),
             Contains("its max_input_chars_per_word is 9, but BERT has 100"));
  CHECK_THAT(changed([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }),
             Contains("its normalizer is not BertNormalizer"));
  CHECK_THAT(changed([](Json& j) { j["normalizer"]["clean_text"] = false; }), Contains("does without clean_text"));
  CHECK_THAT(changed([](Json& j) { j["normalizer"]["strip_accents"] = false; }),
             Contains("has strip_accents false and lowercase true, but both are needed or neither"));
  CHECK_THAT(changed([](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }), Contains("is not BertPreTokenizer"));
  CHECK_THAT(changed([](Json& j) { j["post_processor"] = nullptr; }), Contains("puts no [CLS] before a text"));
  auto const ends = [](char const* last) {
    auto const special = [](char const* id) { return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}}; };
    auto const text    = Json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    return Json{{"type", "TemplateProcessing"}, {"single", Json::array({special("[CLS]"), text, special(last)})}};
  };
  CHECK(changed([&](Json& j) { j["post_processor"] = ends("[SEP]"); }).empty());
  CHECK_THAT(changed([&](Json& j) { j["post_processor"] = ends("[PAD]"); }), Contains("is not [CLS], the text, [SEP]"));
  CHECK_THAT(changed([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }), Contains("\"[PAD]\" has lstrip"));
  CHECK_THAT(changed([](Json& j) { j["model"]["vocab"]["Ab"] = 402; }),
             Contains("token \"Ab\" has id 402, but there are 401"));
  CHECK_THAT(changed([](Json& j) { j["model"]["vocab"]["Ab"] = 7; }), Contains("both have id 7"));
  CHECK_THAT(changed([](Json& j) { j["model"]["vocab"]["Ab"] = 7.5; }), Contains("id 7.5, which is no whole number"));
  CHECK_THAT(changed([](Json& j) { j["added_tokens"][0]["id"] = 0.0; }), Contains("id 0.0, which is no whole number"));
  CHECK_THAT(changed([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }), Contains("is there twice"));
  CHECK_THAT(changed([](Json& j) { j.erase("model"); }), Contains("is not a tokenizer.json"));
  CHECK(refusal("[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n").empty());
  CHECK_THAT(refusal("[UNK]\n[CLS]\na\n"), Contains("tokens: there is no [SEP] among 3 tokens."));
  CHECK_THAT(refusal("[UNK]\n[CLS]\n[SEP]\na\n\nb\n"), Contains("token 4 is empty"));
  CHECK_THAT(refusal("[UNK]\n[CLS]\n[SEP]\na\na\n"), Contains("tokens 3 and 4 are both \"a\""));
  CHECK_THROWS_WITH(data::WordPieceTokenizer::of({"[UNK]", "a"}), Contains("there is no [CLS] among 2 tokens"));
}

}  // namespace word_piece_test
