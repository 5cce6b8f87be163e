// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "test/data/folder.hpp"

#include <chorale/core/random.hpp>
#include <chorale/data/formats/tf_example.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace example_test {

using namespace chorale;
using Catch::Matchers::Contains;
using data::Example;
using sources::Content;

namespace {

using Strings  = std::vector<std::string>;
using Floats   = std::vector<float>;
using Integers = std::vector<std::int64_t>;

Example golden_example() {
  auto e              = Example{};
  e.features["image"] = Strings{{"\x00\xff\x10", 3}, "", "png"};
  e.features["label"] = Integers{7};
  e.features["many"]  = Integers{
      0, 1, 127, 128, 300, -1, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  e.features["weights"] =
      Floats{0, 1.5F, -2.25F, std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()};
  e.features["none"]  = Floats{};
  e.features["unset"] = {};
  return e;
}

Example parsed(std::string const& text) { return Example::parse(sources::bytes_of(sources::hex(text))); }

std::string complaint(std::string const& text) {
  try {
    parsed(text);
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}

/// An Example with one entry: the bytes of a Features.FeatureEntry.
std::string with_entry(std::string const& entry) {
  auto const bytes = [](std::size_t n) {
    constexpr auto digits = "0123456789abcdef";
    return std::string{digits[n / 16], digits[n % 16]};
  };
  auto const n = entry.size() / 2;
  return "0a" + bytes(n + 2) + "0a" + bytes(n) + entry;
}

}  // namespace

TEST_CASE("an Example that protobuf wrote is read, its lists packed or not", "[data][example][golden]") {
  CHECK(parsed(golden::example).features == golden_example().features);
  CHECK(parsed(golden::example_unpacked).features == golden_example().features);
  CHECK(parsed("").features.empty());
}

TEST_CASE("an Example is written byte by byte as protobuf writes it", "[data][example][golden]") {
  auto const written = golden_example().bytes();
  auto const golden  = sources::hex(golden::example);
  CHECK(std::ranges::equal(written, sources::bytes_of(golden)));
}

TEST_CASE("what is written is read back, and every cut of it is an error or less", "[data][example]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto const random = Random{seed, 0};
    auto example      = Example{};
    for (std::uint64_t f = 0; f < random.below(0, 5); ++f) {
      auto const name  = std::string(random.below(10 + f, 4), 'a') + std::to_string(f);
      auto const count = random.below(20 + f, 200);
      auto strings     = Strings{};
      auto floats      = Floats{};
      auto integers    = Integers{};
      for (std::uint64_t i = 0; i < count; ++i) {
        strings.emplace_back(random.below(1'000 * f + i, 300), static_cast<char>(i));
        floats.push_back(random.normal(2'000 * (f + 1) + i));
        integers.push_back(static_cast<std::int64_t>(random.bits(3'000 * (f + 1) + i) >> random.below(i, 64)));
      }
      switch (random.below(30 + f, 3)) {
        case 0: example.features[name] = strings; break;
        case 1: example.features[name] = floats; break;
        default: example.features[name] = integers;
      }
    }
    auto const bytes = example.bytes();
    CHECK(Example::parse(bytes).features == example.features);
    for (std::size_t n = 1; n < std::min(bytes.size(), std::size_t{300}); ++n)
      CHECK_THROWS_AS(Example::parse(ConstBytes{bytes}.first(n)), BadFile);
  }
}

TEST_CASE("parts of a message are merged as protobuf merges them", "[data][example]") {
  // entry "a" with two values: packed 1 2, then 3 alone, in two Feature messages
  auto const integers =
      parsed(with_entry("0a0161"
                        "1206"
                        "1a04"
                        "0a020102"
                        "1204"
                        "1a02"
                        "0803"));
  CHECK(integers.get<std::int64_t>("a") == Integers{1, 2, 3});
  auto const floats =
      parsed(with_entry("0a0161"
                        "1206"
                        "1a04"
                        "0a020102"
                        "1209"
                        "1207"
                        "0d0000803f"
                        "0a00"));
  CHECK(floats.get<float>("a") == Floats{1});  // of two kinds, the last one
  CHECK(parsed(with_entry("1206"
                          "1a04"
                          "0a020102"))
            .get<std::int64_t>("") == Integers{1, 2});
  CHECK(parsed(with_entry("0a0161")).features.at("a").index() == 0);
  // twice the same name, of which protobuf takes the last one; a field that nobody knows is passed over
  CHECK_THAT(complaint("0a180a0a0a01611205"
                       "1a030a01010a0a0a01611205"
                       "1a030a0102"),
             Contains("an Example: two features are called \"a\""));
  CHECK(parsed("0a0c0a0a0a01611205"
               "1a030a0102"
               "1003"
               "1a0178"
               "21"
               "0000000000000000"
               "2d00000000")
            .get<std::int64_t>("a") == Integers{2});
}

TEST_CASE("a feature that records may lack has a default, or is found by a map", "[data][example]") {
  auto const row = [](Example const& example, data::Fields const& fields) {
    auto const bytes = example.bytes();
    auto x           = std::vector<float>{};
    auto y           = std::vector<int>{};
    fields({bytes, {}}, x, y);
    return std::pair{x, y};
  };
  using Numbers    = std::pair<std::vector<float>, std::vector<int>>;
  auto const whole = Example{{{"x", Floats{1, 2}}, {"y", Integers{3}}}}, bare = Example{{{"y", data::Feature{}}}};
  auto const fields = data::Fields{.x = "x", .y = "y", .width = 2, .x_if_missing = 0.5, .y_if_missing = -1};
  CHECK(row(whole, fields) == Numbers{{1, 2}, {3}});
  CHECK(row(bare, fields) == Numbers{{0.5F, 0.5F}, {-1}});
  CHECK_THROWS_WITH(row(bare, {.x = "x", .y = "y", .x_if_missing = 0}),
                    Contains("feature \"y\" has nothing, but integers are needed") && Contains("y_if_missing"));
  CHECK_THROWS_WITH(row(bare, {.x = "x"}), Contains("no feature \"x\"") && Contains("x_if_missing"));
  CHECK_THROWS_WITH(row(bare, {.x = "x", .y = "y", .x_if_missing = 0, .y_if_missing = 0.5}),
                    Contains("the number for a missing feature y is 0.5, no whole number"));
  CHECK(whole.find<float>("x")->size() == 2);
  CHECK(bare.find<float>("x") == nullptr);
  CHECK(bare.find<std::int64_t>("y") == nullptr);
  CHECK_THROWS_WITH(whole.find<float>("y"), Contains("feature \"y\" has integers, but floats are needed"));
}

TEST_CASE("bytes that are no Example are refused at their byte", "[data][example]") {
  CHECK_THAT(complaint("0a"), Contains("an Example: byte 1: 1 bytes are needed, but the message ends after 0"));
  CHECK_THAT(complaint("0a05"), Contains("byte 2: 5 bytes are needed, but the message ends after 0"));
  CHECK_THAT(complaint("00"), Contains("byte 0: field number 0"));
  CHECK_THAT(complaint("0b"), Contains("byte 0: wire type 3"));
  CHECK_THAT(complaint("0f"), Contains("byte 0: wire type 7"));
  CHECK_THAT(complaint("ffffffff7f00"), Contains("byte 0: field number"));
  CHECK_THAT(complaint("ffffffffffffffffff02"), Contains("byte 0: a varint of more than 64 bits"));
  CHECK_THAT(complaint("ffffffffffffffffffff01"), Contains("byte 0: a varint of more than 64 bits"));
  CHECK_THAT(complaint("0affffffffffffffffff01"), Contains("byte 11: 18446744073709551615 bytes are needed"));
  CHECK_THAT(complaint("0801"),
             Contains("byte 0: Example.features needs a length and bytes, but the field has a varint"));
  CHECK_THAT(complaint(with_entry("1205"
                                  "1203"
                                  "0a0100")),
             Contains("byte 10: 4 bytes are needed"));
  CHECK_THAT(complaint(with_entry("1204"
                                  "1202"
                                  "0801")),
             Contains("a float needs 32 bits"));
}

TEST_CASE("a feature that is missing or of another kind is named", "[data][example]") {
  auto const e = golden_example();
  CHECK_THROWS_WITH(e.get<float>("wieghts"), Contains("no feature \"wieghts\"") && Contains("\"unset\", \"weights\""));
  CHECK_THROWS_WITH(e.get<float>("label"), Contains("feature \"label\" has integers, but floats are needed"));
  CHECK_THROWS_WITH(e.get<std::string>("unset"), Contains("has nothing, but byte strings are needed"));
  auto strange                = Example{};
  strange.features["\x1b[2J"] = {};
  CHECK_THROWS_WITH(strange.get<float>("x"), Contains("\"?[2J\""));
}

TEST_CASE("records become rows of two features", "[data][example]") {
  auto const in   = sources::Folder{};
  auto const file = in.path() / "rows.tfrecord";
  auto to         = data::TfRecordWriter{file};
  for (std::int64_t i = 0; i < 5; ++i) {
    auto e              = Example{};
    e.features["image"] = Strings{std::string(4, static_cast<char>(200 + i))};
    e.features["half"]  = Floats{static_cast<float>(i) / 2};
    e.features["label"] = Integers{i * 100};
    to.write(e.bytes());
  }
  to.close();
  auto const records = data::tfrecords({file});
  auto const images  = records.map<std::uint8_t, int>(data::Fields{.x = "image", .y = "label"}).batch(5);
  auto stream        = images.stream(0);
  auto batch         = BasicBatch<std::uint8_t, int>{};
  REQUIRE(stream.next(batch));
  CHECK((batch.x.size() == 20 && batch.x[0] == 200 && batch.x[19] == 204));
  CHECK((batch.y.size() == 5 && batch.y[4] == 400));

  auto const read = [&]<class X, class Y>(X, Y, data::Fields const& fields) {
    auto rows = records.map<X, Y>(fields).stream(0);
    for (Sample<X, Y> row; rows.next(row);) continue;
  };
  CHECK_NOTHROW(read(1.0, 1.0F, {.x = "half", .y = "half", .width = 1}));
  CHECK_THROWS_WITH(read(1.0F, std::int8_t{}, {.x = "half", .y = "label"}),
                    Contains("file 0, record 0: an Example: feature \"label\" has integers, but byte strings"));
  CHECK_THROWS_WITH(read(1.0F, std::uint8_t{}, {.x = "half", .y = "none"}), Contains("no feature \"none\""));
  CHECK_THROWS_WITH(read(std::uint8_t{}, 1, {.x = "image", .width = 5}), Contains("has 4 numbers, but 5 are needed"));
  CHECK_NOTHROW(read(std::uint8_t{}, std::int16_t{}, {.x = "image", .y = "label"}));
}

TEST_CASE("an integer that a row cannot hold is refused", "[data][example]") {
  auto e           = Example{};
  e.features["i"]  = Integers{40'000};
  auto const bytes = e.bytes();
  auto x           = std::vector<std::int16_t>{};
  auto y           = std::vector<int>{};
  auto const row   = Sample<std::byte, std::uint64_t>{.x = bytes, .y = {}};
  CHECK_THROWS_WITH(data::Fields{.x = "i"}(row, x, y), Contains("has 40000, which an integer of 16 bits cannot hold"));
}

}  // namespace example_test
