// SPDX-License-Identifier: Apache-2.0
//
// Byte pair encoding against the package tokenizers, and files that are no such tokenizer.
#include "test/support/folder.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/text/bpe.hpp>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tokenizer_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

data::BpeTokenizer const& trained() {
  static auto const tokenizer = data::BpeTokenizer::read("test/golden/tokenizer.json");
  return tokenizer;
}
nlohmann::json json_of(std::string const& path) { return nlohmann::json::parse(data::read_text(path)); }

/// The sentence with which a text is refused as a tokenizer.json.
std::string refusal_of(std::string const& text) {
  auto const folder = test::Folder{};
  std::ofstream{folder / "tokenizer.json"} << text;
  try {
    data::BpeTokenizer::read(folder / "tokenizer.json");
  } catch (BadFile const& error) { return error.what(); }
  return "";
}
template <class Change> std::string refusal(Change&& change) {
  auto json = json_of("test/golden/tokenizer.json");
  change(json);
  return refusal_of(json.dump());
}

}  // namespace

TEST_CASE("ids are those of the package tokenizers, and decode to the text", "[golden][text]") {
  static_assert(data::Tokenizer<data::BpeTokenizer>);
  auto const cases = json_of("test/golden/tokenizer_ids.json");
  REQUIRE(cases.size() == 30);
  CHECK(trained().size() == 480);
  for (auto const& one : cases) {
    auto const text = one.at("text").get<std::string>();
    INFO(text);
    auto const ids = trained().encode(text);
    CHECK(ids == one.at("ids").get<std::vector<int>>());
    CHECK(trained().decode(ids) == text);
  }
  CHECK(trained().id_of("<|endoftext|>") == 0);
  CHECK(trained().id_of("a") >= 0);
  CHECK(trained().id_of("no such token") == -1);
}

TEST_CASE("any text of UTF-8 goes there and back, and words of any length end soon", "[text]") {
  auto const random = Random{Seed{4}, 0};
  for (std::uint64_t i = 0; i < 200; ++i) {
    auto text = std::string{};
    for (std::uint64_t k = 0; k < random.below(1000 * i, 40); ++k) {
      auto const wide = random.below(1000 * i + 2 * k + 1, 4);
      auto const code = random.below(1000 * i + 2 * k + 2, wide == 0   ? 0x80
                                                           : wide == 1 ? 0x800
                                                           : wide == 2 ? 0xD000
                                                                       : 0x110000);
      if (code < 0xD800 || code > 0xDFFF) data::append_utf8(text, static_cast<std::uint32_t>(code));
    }
    CHECK(trained().decode(trained().encode(text)) == text);
  }
  auto const a = std::string(200'000, 'a');  // one word
  CHECK(trained().decode(trained().encode(a)) == a);
}

TEST_CASE("a text that is not UTF-8, and ids that are no tokens, are one sentence", "[text]") {
  CHECK_THROWS_WITH(trained().encode("caf\xE9"), Contains("the text is not UTF-8 from byte 3 on"));
  CHECK_THROWS_WITH(trained().decode(std::vector<int>{3, 480}),
                    Contains("id 480 at position 1 is no token: they are 0 to 479"));
  CHECK_THROWS_WITH(trained().decode(std::vector<int>{-1}), Contains("id -1 at position 0 is no token"));
}

TEST_CASE("a tokenizer of another kind is refused with what differs", "[text]") {
  using Json = nlohmann::json;
  CHECK(refusal([](Json&) {}).empty());
  CHECK_THAT(refusal([](Json& j) { j["model"]["type"] = "WordPiece"; }),
             Contains("tokenizer.json: its model is \"WordPiece\", but BPE is needed."));
  CHECK_THAT(refusal([](Json& j) { j["model"]["ignore_merges"] = true; }),
             Contains("ignore_merges, which is not supported"));
  CHECK_THAT(refusal([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }), Contains("it has a normalizer"));
  CHECK_THAT(refusal([](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }), Contains("is not ByteLevel"));
  CHECK_THAT(refusal([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }), Contains("add_prefix_space"));
  CHECK_THAT(refusal([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }), Contains("has lstrip"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"]["Ab"] = 482; }),
             Contains("token \"Ab\" has id 482, but there are 482"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"]["\u4e2d"] = 480; }),
             Contains("has a character that stands for no byte"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["merges"][1] = {"q", "xyz"}; }),
             Contains("merge 1 is of \"q\" and \"xyz\", but the vocabulary has no \"xyz\""));
  CHECK_THAT(refusal([](Json& j) { j["model"]["merges"][0] = "aa"; }),
             Contains("merge 0 is \"aa\", but two tokens are needed"));
  CHECK_THAT(refusal([](Json& j) { j.erase("model"); }), Contains("is not a tokenizer.json"));
  CHECK(refusal([](Json& j) {  // the older form of merges
          for (auto& merge : j["model"]["merges"])
            merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        })
            .empty());
  CHECK_THROWS_WITH(data::BpeTokenizer::read("test/golden/losses.safetensors"), Contains("losses.safetensors: byte"));
}

TEST_CASE("a tokenizer that says two things is refused", "[text]") {
  using Json = nlohmann::json;
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"]["Ab"] = 7; }), Contains("both have id 7"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"]["Ab"] = 7.5; }),
             Contains("token \"Ab\" has id 7.5, which is no whole number"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"]["Ab"] = -1; }), Contains("\"Ab\" has id -1, but there are"));
  CHECK_THAT(refusal([](Json& j) { j["added_tokens"][0]["id"] = 3.0; }), Contains("id 3.0, which is no whole number"));
  CHECK_THAT(refusal([](Json& j) { j["added_tokens"][0]["id"] = 3; }), Contains("both have id 3"));
  CHECK_THAT(refusal([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }), Contains("is there twice"));
  CHECK_THAT(refusal([](Json& j) {
               j["added_tokens"].push_back(j["added_tokens"][0]);
               j["added_tokens"].back()["content"] = "<other>";
             }),
             Contains("the added token \"<other>\" has id") && Contains("and so has another one"));
  for (auto const& merge :
       {Json("a b c"), Json({"a", "b", "c"}), Json({"a"}), Json("a  b"), Json({{"a", "b"}}), Json(7)})
    CHECK_THAT(refusal([&](Json& j) { j["model"]["merges"][1] = merge; }), Contains("merge 1 is "));
  CHECK_THAT(refusal([](Json& j) { j["model"]["merges"].push_back(j["model"]["merges"][0]); }),
             Contains("is there twice"));
  CHECK_THAT(refusal([](Json& j) { j["model"]["vocab"] = {1, 2}; }), Contains("its vocab is no object"));
  auto twice    = json_of("test/golden/tokenizer.json").dump();
  auto const at = twice.find("\"vocab\":{") + 9;
  twice.insert(at, "\"a\":0,");
  CHECK_THAT(refusal_of(twice), Contains("the key \"a\" is there twice"));
  CHECK_THAT(refusal_of(twice.replace(at, 6, std::string(6, '\0'))), Contains("it has a zero byte, at byte"));
  CHECK_THAT(refusal_of(std::string(100, '[')), Contains("it is deeper than 32 levels"));
}

}  // namespace tokenizer_test
