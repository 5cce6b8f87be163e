// SPDX-License-Identifier: Apache-2.0
#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/checkpoint/manifest.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

Manifest example() {
  return {.step     = 812,
          .epoch    = 3,
          .batch    = 40,
          .seed     = 18'446'744'073'709'551'615U,
          .world    = 4,
          .strategy = "MirroredStrategy",
          .plan     = R"(a "quoted" \ text)",
          .job      = "mnist-17",
          .block    = 4096,
          .files    = {{Section::variables, {0, 2}, 4097, {0x8a9136aa, 0}},
                       {Section::variables, {1, 2}, 1, {0xffffffff}},
                       {Section::state, {0, 1}, 0, {}}}};
}

/// The text without its last line, to be changed.
std::string body(Manifest const& manifest) {
  auto const text = manifest.write();
  return text.substr(0, text.rfind("  \"crc32c\": "));
}

/// What the reader says of these bytes; empty when it takes them.
std::string complaint(std::string const& text) {
  try {
    Manifest::parse(text, "run/manifest.json");
  } catch (BadFile const& error) { return error.what(); }
  return {};
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  auto const at = text.find(what);
  REQUIRE(at != text.npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("a manifest is written as this text", "[checkpoint][golden]") {
  CHECK(body(example()) ==
        "{\n"
        "  \"format\": \"chorale checkpoint 1\",\n"
        "  \"step\": 812,\n"
        "  \"epoch\": 3,\n"
        "  \"batch\": 40,\n"
        "  \"seed\": 18446744073709551615,\n"
        "  \"world\": 4,\n"
        "  \"strategy\": \"MirroredStrategy\",\n"
        "  \"plan\": \"a \\\"quoted\\\" \\\\ text\",\n"
        "  \"job\": \"mnist-17\",\n"
        "  \"block\": 4096,\n"
        "  \"files\": [\n"
        "    {\"name\": \"variables-00001-of-00002.safetensors\", \"size\": 4097, "
        "\"crc32c\": [\"8a9136aa\", \"00000000\"]},\n"
        "    {\"name\": \"variables-00002-of-00002.safetensors\", \"size\": 1, "
        "\"crc32c\": [\"ffffffff\"]},\n"
        "    {\"name\": \"state.safetensors\", \"size\": 0, \"crc32c\": []}\n"
        "  ],\n");
  CHECK(ManifestText::sealed("123456789") == "123456789  \"crc32c\": \"e3069283\"\n}\n");  // the usual check value
}

TEST_CASE("a manifest that was written is read back, and white space does not matter", "[checkpoint][unit]") {
  CHECK(Manifest::parse(example().write(), "m") == example());
  auto const empty = Manifest{.job = "j"};
  CHECK(Manifest::parse(empty.write(), "m") == empty);
  auto spaced = std::string{};
  for (char const c : body(example())) spaced += std::string{c} + (c == ',' || c == '[' || c == '{' ? " \n\t\r" : "");
  CHECK(Manifest::parse(ManifestText::sealed(replaced(spaced, "\"step\":", "\"step\" \t:")), "m") == example());
}

TEST_CASE("a manifest that is cut off, or has one byte changed, is refused with its byte", "[checkpoint][unit]") {
  auto const text = example().write();
  for (std::size_t n = 0; n < text.size(); ++n)
    if (complaint(text.substr(0, n)).find("run/manifest.json: byte ") == std::string::npos) FAIL("cut at " << n);
  for (std::size_t n = 0; n < text.size(); ++n)
    for (int bit = 0; bit < 8; ++bit) {
      auto flipped = text;
      flipped[n]   = static_cast<char>(flipped[n] ^ 1 << bit);
      if (complaint(flipped).find("run/manifest.json: byte ") == std::string::npos) FAIL("bit " << bit << " of " << n);
    }
  CHECK_THAT(complaint(replaced(text, "812", "813")), Contains("bytes 0 to 5") && Contains("have the CRC-32C"));
  CHECK_THAT(complaint(text + "\n"), Contains("have the CRC-32C"));
}

TEST_CASE("a manifest of another kind is refused even when its checksum is right", "[checkpoint][unit]") {
  auto const row  = GENERATE(table<std::string, std::string, std::string>({
      {"checkpoint 1", "checkpoint 2", "the format is not \"chorale checkpoint 1\""},
      {"\"step\"", "\"stop\"", "the key \"step\" is needed"},
      {"  \"epoch\": 3,\n", "", "the key \"epoch\" is needed"},
      {"\"step\": 812", "\"step\": 812, \"step\": 812", "the key \"epoch\" is needed"},
      {"812", "-812", "a whole number is needed"},
      {"812", "0812", "a whole number is needed"},
      {"812", "8.0", "',' is needed"},
      {"812", "1e3", "',' is needed"},
      {"812", "18446744073709551616", "a number is not below 2^64"},
      {"812", "99999999999999999999999999", "a number is not below 2^64"},
      {"812", "\"812\"", "a whole number is needed"},
      {"812", "null", "a whole number is needed"},
      {"\"world\": 4", "\"world\": 0", "a world of 0 ranks"},
      {"MirroredStrategy", "Mirrored\nStrategy", "not printable ASCII"},
      {"MirroredStrategy", "Mirrored\xC3\xA4", "not printable ASCII"},
      {"MirroredStrategy", "\\u0041", "an escape that no manifest has"},
      {"MirroredStrategy", std::string(4097, 'x'), "a text has more than 4096 bytes"},
      {"\"block\": 4096", "\"block\": 0", "blocks of 0 bytes"},
      {"\"block\": 4096", "\"block\": 4294967296", "blocks of 4294967296 bytes"},
      {"\"block\": 4096", "\"block\": 5000", "2 checksums for the 4097 bytes of variables-00001-of-00002"},
      {"4097", "4096", "2 checksums for the 4096 bytes"},
      {"4097", "18446744073709551615", "2 checksums for the 18446744073709551615 bytes"},
      {"8a9136aa", "8A9136AA", "a checksum has eight digits"},
      {"8a9136aa", "8a9136a", "a checksum has eight digits"},
      {"8a9136aa", "8a9136aaa", "a text has more than 8 bytes"},
      {"state.safetensors", "../state.safetensors", "is no name of a part"},
      {"state.safetensors", "/etc/passwd", "is no name of a part"},
      {"state.safetensors", "a/state.safetensors", "is no name of a part"},
      {"state.safetensors", "..", "is no name of a part"},
      {"state.safetensors", "", "is no name of a part"},
      {"state.safetensors", "state", "is no name of a part"},
      {"state.safetensors", "state-1-of-2.safetensors", "is no name of a part"},
      {"state.safetensors", "state-00001-of-00001.safetensors", "is no name of a part"},
      {"state.safetensors", "state-00000-of-00002.safetensors", "it cannot be"},
      {"state.safetensors", "state-00003-of-00002.safetensors", "it cannot be"},
      {"state.safetensors", "state-00001-of-99999.safetensors", "it cannot be"},
      {"state.safetensors", "state-00001-of-00002.safetensors", "1 of the 2 parts of state"},
      {"state.safetensors", "manifest.json", "is no name of a part"},
      {"state.safetensors", "variables.safetensors", "twice, or it cannot be"},
      {"state.safetensors", "variables-00002-of-00002.safetensors", "twice"},
      {"state.safetensors", "variables-00003-of-00003.safetensors", "beside parts of 2"},
      {"variables-00002-of-00002", "optimizer", "1 of the 2 parts of variables"},
      {"\"crc32c\": []", "\"crc32c\": [,]", "'\"' is needed"},
      {"[]}", "[]},", "'{' is needed"},
      {"  ],\n", "  ]\n", "',' is needed"},
      {"  ],\n", "  ], \"more\": 1,\n", "something follows"},
      {"[\n", std::string(100'000, '['), "'{' is needed"},
  }));
  auto const said = complaint(ManifestText::sealed(replaced(body(example()), std::get<0>(row), std::get<1>(row))));
  CHECK_THAT(said, Contains("run/manifest.json: byte ") && Contains(std::get<2>(row)) && Contains("\n         Try: "));
  CHECK(said.size() < 500);
}

TEST_CASE("what a caller cannot have in a manifest is refused before it is written", "[checkpoint][unit]") {
  auto wrong = example();
  SECTION("a text with a line break") { wrong.strategy = "a\nb"; }
  SECTION("a text that is too long") { wrong.plan = std::string(4097, 'p'); }
  SECTION("a part that is missing") { wrong.files.pop_back(), wrong.files.pop_back(); }
  SECTION("a checksum that is missing") { wrong.files[0].crc32c.pop_back(); }
  SECTION("no rank") { wrong.world = 0; }
  CHECK_THROWS_AS(wrong.write(), BadArgument);
}

TEST_CASE("only names that a checkpoint can have are steps, and only its own job's names are left over",
          "[checkpoint][unit]") {
  CHECK(checkpoint_name(812) == "ckpt-000812");
  for (auto const step : {std::uint64_t{0}, std::uint64_t{999'999}, std::uint64_t{1'000'000}, ~std::uint64_t{0}})
    CHECK(step_of(checkpoint_name(step)) == step);
  for (auto const* stranger : {"ckpt-", "ckpt-812", "ckpt-0000812", "ckpt-00081a", "ckpt-000812.tmp.job", "Ckpt-000812",
                               "ckpt-18446744073709551616", "ckpt--00812", "ckpt-000812 ", "", "ckpt"})
    CHECK_FALSE(step_of(stranger));
  CHECK(is_left_over(unfinished_name(812, "a.b"), "a.b"));
  CHECK(is_left_over(removed_name(812, "a.b"), "a.b"));
  CHECK_FALSE(is_left_over(unfinished_name(812, "a.b"), "b"));
  CHECK_FALSE(is_left_over(unfinished_name(812, "a.tmp.b"), "b"));
  CHECK_FALSE(is_left_over("ckpt-000812.bak.b", "b"));
  CHECK_FALSE(is_left_over("notes.tmp.b", "b"));
  CHECK_FALSE(is_left_over("ckpt-000812", "b"));
  for (auto const* bad : {"", ".", "..", ".a", "a/b", "a b", "a\n"}) CHECK_FALSE(is_job_name(bad));
  CHECK_FALSE(is_job_name(std::string(65, 'j')));
  CHECK(is_job_name("mnist-17_a.b"));
}
