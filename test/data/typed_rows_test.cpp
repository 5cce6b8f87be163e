// SPDX-License-Identifier: Apache-2.0
#include "test/data/fields.hpp"

#include <chorale/strategy/runtime/distributed_batches.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <type_traits>
#include <vector>

using namespace chorale;
using Catch::Contains;
using sources::Frames;
using sources::Number;
using sources::Pair;
using sources::Word;

static_assert(data::is_row<Row<Pair, Number>> && !data::is_row<Rows<Pair, Number>>);
static_assert(data::is_row<Sample<float, int>> && !data::is_row<Batch>);
static_assert(Dataset<decltype(sources::pairs(3))> && Dataset<decltype(sources::words(3).batch(2))>);
static_assert(std::is_same_v<decltype(sources::words(3).batch(2))::element, Rows<Number, Word>>);

TEST_CASE("a batch of named fields gives each field by its name", "[data][fields]") {
  auto stream = sources::pairs(5).batch(3).stream(0);
  auto batch  = Rows<Pair, Number>{};
  REQUIRE(stream.next(batch));
  CHECK(batch.rows == 3);
  static_assert(std::is_same_v<decltype(batch[Number{}]), Span<int const>>);
  static_assert(std::is_same_v<decltype(batch[Pair{}]), Span<float const>>);
  CHECK((batch[Pair{}].size() == 6 && batch.width(Pair{}) == 2));
  CHECK((batch[Pair{}][2] == 1 && batch[Pair{}][3] == -1 && batch[Number{}][2] == 2));
  CHECK((batch.unpadded(Pair{}, 2).size() == 2 && batch.unpadded(Pair{}, 2)[0] == 2));
  CHECK(reinterpret_cast<std::uintptr_t>(batch[Pair{}].data()) % 64 == 0);
}

TEST_CASE("a batch can be made of the numbers of its fields", "[data][fields]") {
  auto const pairs   = std::array{1.0F, 2.0F, 3.0F, 4.0F};
  auto const numbers = std::array{5, 6};
  auto const batch   = Rows<Pair, Number>{pairs, numbers};
  CHECK((batch.rows == 2 && batch[Number{}][1] == 6 && batch[Pair{}][3] == 4));
  CHECK_THROWS_WITH((Rows<Pair, Number>{pairs, Span<int const>{numbers}.first(1)}),
                    Contains("a batch of 2 rows needs 2 numbers for field sources::Number, got 1"));
  CHECK_THROWS_AS((Rows<Pair>{Span<float const>{pairs}.first(3)}), BadArgument);
}

TEST_CASE("parts of a batch of named fields are disjoint, in order, and together all rows", "[data][fields]") {
  for (std::size_t const rows : {1U, 5U, 8U}) {
    auto stream = sources::words(rows).batch(8).stream(0);
    auto batch  = Rows<Number, Word>{};
    REQUIRE(stream.next(batch));
    for (int n = 1; n <= 6; ++n)
      for (int const shards : {0, 6}) {
        auto all = std::vector<int>{};
        for (int i = 0; i < n; ++i) {
          auto const part = shards == 0 ? batch.part(i, n) : batch.part(i, n, shards);
          CHECK((part.first_row == all.size() && part.global_rows == rows && part.lengths(Word{}).size() == part.rows));
          if (part.rows > 0) CHECK(part.width(Word{}) == batch.width(Word{}));
          for (std::size_t k = 0; k < part.rows; ++k) sources::expect_row(part, k);
          all.insert(all.end(), part[Number{}].begin(), part[Number{}].end());
          auto const halves = std::array{part.part(0, 2), part.part(1, 2)};
          CHECK(halves[0].rows + halves[1].rows == part.rows);
          CHECK((halves[1].first_row == part.first_row + halves[0].rows && halves[1].global_rows == rows));
        }
        CHECK(all == sources::in_order(static_cast<int>(rows)));
      }
  }
}

TEST_CASE("batches of named fields have the parts of a BasicBatch", "[data][fields]") {
  auto plain_stream = sources::Counting{7}.batch(7).stream(0);
  auto typed_stream = sources::pairs(7).batch(7).stream(0);
  auto plain        = Batch{};
  auto typed        = Rows<Pair, Number>{};
  REQUIRE((plain_stream.next(plain) && typed_stream.next(typed)));
  for (int i = 0; i < 3; ++i) {
    auto const a = plain.part(i, 3, 5);
    auto const b = typed.part(i, 3, 5);
    CHECK((a.rows == b.rows && a.first_row == b.first_row && a.global_rows == b.global_rows));
    CHECK(std::equal(a.x.begin(), a.x.end(), b[Pair{}].begin(), b[Pair{}].end()));
    CHECK(std::equal(a.y.begin(), a.y.end(), b[Number{}].begin(), b[Number{}].end()));
  }
  auto const a = plain.rows_in({2, 4});
  auto const b = typed.rows_in({2, 4});
  CHECK((b.rows == 2 && b.first_row == a.first_row && b[Number{}][0] == a.y[0]));
}

TEST_CASE("batches of named fields are dealt out to replicas", "[data][fields]") {
  auto const data = sources::words(10).batch(4);
  using Dealt     = DistributedBatches<data::StreamOf<std::remove_const_t<decltype(data)>>, Rows<Number, Word>>;
  for (int const shards : {0, 4}) {
    auto all    = std::vector<int>{};
    auto shares = Dealt{data.stream(0), 3, {0, 1, 2}, shards};
    for (auto& batch : shares)
      for (std::size_t i = 0; i < 3; ++i) all.insert(all.end(), batch[i][Number{}].begin(), batch[i][Number{}].end());
    CHECK(all == sources::in_order(10));
  }
}

TEST_CASE("a ragged field is as wide as the widest row of its batch", "[data][fields][ragged]") {
  for (bool const padded : {false, true}) {
    auto const check = [](auto const& batches) {
      auto stream = batches.stream(0);
      auto batch  = Rows<Number, Word>{};
      REQUIRE(stream.next(batch));  // "", "1", "22", "333"
      CHECK((batch.rows == 4 && batch.width(Word{}) == 3 && batch[Word{}].size() == 12));
      auto const lengths = batch.lengths(Word{});
      CHECK(std::vector<int>(lengths.begin(), lengths.end()) == std::vector<int>{0, 1, 2, 3});
      CHECK((batch.text(Word{}, 0).empty() && batch.text(Word{}, 2) == "22" && batch[Word{}][8] == 0));
      REQUIRE(stream.next(batch));  // "", "5"
      CHECK((batch.rows == 2 && batch.width(Word{}) == 1 && batch.text(Word{}, 1) == "5"));
      CHECK_FALSE(stream.next(batch));
    };
    if (padded) check(sources::words(6).padded_batch(4));
    else check(sources::words(6).batch(4));
  }
  auto stream = sources::words(1).batch(4).stream(0);
  auto batch  = Rows<Number, Word>{};
  REQUIRE(stream.next(batch));  // only rows of no bytes
  CHECK((batch.rows == 1 && batch[Word{}].empty() && batch.lengths(Word{})[0] == 0));
}

TEST_CASE("padded_batch pads ragged fields to a length, with a value", "[data][fields][ragged]") {
  auto stream = sources::words(6).padded_batch(4, data::PaddingOf<Word>{.length = 5, .value = '-'}).stream(0);
  auto batch  = Rows<Number, Word>{};
  REQUIRE(stream.next(batch));
  CHECK(batch.width(Word{}) == 5);
  CHECK(std::string{batch[Word{}].begin(), batch[Word{}].end()} == "-----1----22---333--");
  auto const narrow = sources::words(6).padded_batch(4, data::Remainder::drop, data::PaddingOf<Word>{.length = 2});
  CHECK_THROWS_WITH(sources::numbers(narrow), Contains("row 3: field sources::Word has length 3, but batches are "
                                                       "padded to 2") &&
                                                  Contains("Try: a longer PaddingOf"));
  CHECK_THROWS_WITH(sources::words(6).padded_batch(4, data::Padding{.width = 3}), Contains("write PaddingOf<Field>"));
  CHECK(narrow.size() == 1);
}

TEST_CASE("the ragged dimension of a field may be any of its dimensions", "[data][fields][ragged]") {
  struct Grid : Field<int, 2, ragged> {};
  auto const grid = sources::Counting{3}.map<Frames, Grid>([](auto const& row, auto& to) {
    auto const n = static_cast<std::size_t>(row.y[0]);
    to[Frames{}].assign(2 * n, row.x[0]);
    to[Grid{}].assign(2 * n, 0);
    for (std::size_t k = 0; k < 2 * n; ++k) to[Grid{}][k] = static_cast<int>(10 * n + k);
  });
  auto stream     = grid.batch(3).stream(0);
  auto batch      = Rows<Frames, Grid>{};
  REQUIRE(stream.next(batch));
  CHECK((batch.width(Frames{}) == 4 && batch.width(Grid{}) == 4));
  CHECK((batch.lengths(Frames{})[1] == 1 && batch.lengths(Grid{})[2] == 2));
  CHECK((batch.unpadded(Frames{}, 1).size() == 2 && batch.unpadded(Frames{}, 1)[1] == 1));
  auto const numbers = batch[Grid{}];
  CHECK(std::vector<int>(numbers.begin(), numbers.end()) ==
        std::vector<int>{0, 0, 0, 0, 10, 0, 11, 0, 20, 21, 22, 23});  // each line of a grid is padded
}

TEST_CASE("rows of named fields can be made of vectors", "[data][fields]") {
  auto const words = std::vector<std::string>{"", "1", "22", "333", "", "5"};
  auto const rows  = data::from_fields<Number, Word>(sources::in_order(6), words);
  STATIC_REQUIRE(sources::is_stable<decltype(rows)>);
  CHECK(rows.size() == 6);
  CHECK(sources::numbers(rows) == sources::in_order(6));
  CHECK(sources::numbers(rows.batch(4)) == sources::in_order(6));
  CHECK(sources::numbers(rows.shuffle(6, 1).batch(4), 3) == sources::numbers(sources::words(6).shuffle(6, 1), 3));

  auto const owned = std::vector{0.0F, -0.0F, 1.0F, -1.0F};
  auto const views = data::from_fields<Pair, Number>(Span<float const>{owned}, std::vector{0, 1});
  auto stream      = views.stream(0);
  auto row         = Row<Pair, Number>{};
  REQUIRE(stream.next(row));
  CHECK(row[Pair{}].data() == owned.data());
  CHECK(sources::numbers(views.batch(2)) == sources::in_order(2));
  auto lines = std::vector<std::string>{};
  data::describe(views.batch(2), lines);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "rows 2 of sources::Pair float(2),sources::Number int(1)");
}

TEST_CASE("vectors that are no rows of their fields are refused", "[data][fields]") {
  CHECK_THROWS_WITH((data::from_fields<Pair>(std::vector<float>(3))),
                    Contains("3 numbers for field sources::Pair are not rows of 2"));
  CHECK_THROWS_WITH((data::from_fields<Pair, Number>(std::vector<float>(4), std::vector<int>(3))),
                    Contains("field sources::Number has 3 rows, but the first field has 2"));
  CHECK_THROWS_WITH((data::from_fields<Frames>(std::vector<std::vector<float>>{{1, 2}, {1, 2, 3}})),
                    Contains("row 1: field sources::Frames has 3 numbers, but a multiple of 2 is needed"));
}

TEST_CASE("a generator fills the fields of its rows", "[data][fields]") {
  auto const rows = data::from_generator<Number, Word>(
      [](std::size_t) {
        return [i = 0](NewRow<Number, Word>& to) mutable {
          auto const text = sources::word(i);
          to[Number{}].assign(1, i);
          to[Word{}].assign(text.begin(), text.end());
          return i++ < 5;
        };
      },
      5);
  CHECK(rows.size() == 5);
  CHECK(sources::numbers(rows.batch(2)) == sources::in_order(5));
  auto const wrong = data::from_generator<Number>([](std::size_t) {
    return [i = 0](auto& to) mutable {
      to[Number{}].assign(i == 2 ? 2 : 1, i);
      return i++ < 5;
    };
  });
  auto error       = std::string{};
  CHECK(sources::numbers(wrong, 0, &error) == sources::in_order(2));
  CHECK_THAT(error, Contains("row 2: field sources::Number has 2 numbers, but 1 are needed") && Contains("Try: a map"));
}
