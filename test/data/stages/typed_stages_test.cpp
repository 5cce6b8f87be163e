// SPDX-License-Identifier: Apache-2.0
// Every stage over rows of named fields, against a loop or against the same stage over Samples.
#include "test/data/fields.hpp"
#include "test/data/folder.hpp"

#include <chorale/data/formats/skip_broken.hpp>
#include <chorale/data/stages/interleave.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

using namespace chorale;
using Catch::Contains;
using data::InFile;
using sources::in_order;
using sources::Number;
using sources::numbers;
using sources::Pair;
using sources::pairs;
using sources::targets;
using sources::Word;
using sources::words;

namespace {

struct Line : Field<int, 3> {};
struct Lines : Field<int, ragged> {};
struct Other : Field<int, 1> {};
struct Wide : Field<float, 6> {};

/// A map that gives row `wrong` a Number of two.
struct Wrong {
  int wrong = 7;
  void operator()(Sample<float, int> const& row, NewRow<Pair, Number>& to) const {
    sources::ToPair{}(row, to);
    if (row.y[0] == wrong) to[Number{}].push_back(0);
  }
};

/// A dataset of a program's own, whose second row is too long.
struct Own : data::Pipe<Own> {
  using element = Row<Number>;
  struct Stream {
    std::vector<int> all = {1, 2};
    std::size_t n        = 0;
    bool next(element& out) {
      out = element{Span<int const>{all}.first(++n)};
      return n <= 2;
    }
  };
  Stream stream(std::size_t) const { return {}; }
  std::optional<std::size_t> size() const { return {}; }
};

}  // namespace

TEST_CASE("each stage gives rows of named fields in the order of Samples", "[data][fields]") {
  auto const check = [](auto stage) {
    auto const want = targets(stage(sources::Counting{20}), 3);
    CHECK(numbers(stage(pairs(20)), 3) == want);
    CHECK(numbers(stage(words(20)), 3) == want);
    CHECK(numbers(stage(pairs(20)).batch(6), 3) == want);
    CHECK(numbers(stage(words(20)).batch(6), 3) == want);
    CHECK(numbers(stage(words(20).cache()).padded_batch(6), 3) == want);
    CHECK(numbers(stage(words(20)).batch(6).prefetch(2), 3) == want);
  };
  check([](auto rows) { return rows.take(9); });
  check([](auto rows) { return rows.skip(9).shard(3, 1); });
  check([](auto rows) { return rows.shuffle(5, Seed{1}); });
  check([](auto rows) { return rows.shuffle(40, Seed{2}).repeat(2); });
  check([](auto rows) { return rows.repeat(3); });
  check([](auto rows) { return rows.cache().shuffle(7, Seed{3}); });
  check([](auto rows) { return rows.prefetch(3); });
  check([](auto rows) { return rows.concatenate(rows.take(4)); });
  check([](auto rows) { return data::interleave(std::vector{rows.take(5), rows.skip(5)}, {.cycle = 2, .block = 2}); });
}

TEST_CASE("the last batch of named fields is smaller, or left out when asked", "[data][fields]") {
  CHECK(numbers(pairs(10).batch(4, data::Remainder::drop)) == in_order(8));
  CHECK(numbers(words(10).batch(4, data::Remainder::drop)) == in_order(8));
  CHECK(words(10).batch(4).size() == 3);
}

TEST_CASE("batches of named fields can be shuffled, kept and repeated", "[data][fields]") {
  auto sorted = numbers(words(20).batch(5).shuffle(4, Seed{1}).prefetch(2));
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == in_order(20));
  CHECK(numbers(words(6).batch(4).concatenate(words(6).batch(4)).prefetch({.elements = 2, .bytes = 8})).size() == 12);
  CHECK(numbers(pairs(6).batch(4).repeat(2).take(3)).size() == 10);
}

TEST_CASE("filter, and a map that returns false, leave out rows of named fields", "[data][fields]") {
  auto const odd = words(10).filter([](auto const& row) { return row[Number{}][0] % 2 == 1; });
  CHECK(numbers(odd) == std::vector{1, 3, 5, 7, 9});
  auto const same = [](auto const& row, auto& to) {
    sources::ToPair{}(row, to);
    return row.y[0] % 2 == 1;
  };
  auto const serial = sources::Counting{10}.map<Pair, Number>(same);
  CHECK(numbers(serial) == std::vector{1, 3, 5, 7, 9});
  CHECK_FALSE(serial.size());
  CHECK(numbers(sources::Counting{10}.map<Pair, Number>(same, {.threads = 3}).batch(2)) == std::vector{1, 3, 5, 7, 9});
}

TEST_CASE("zip gives rows the fields of both datasets", "[data][fields]") {
  struct Twice : Field<int, 1> {};
  auto const twice = sources::Counting{9}.map<Twice>([](auto const& row, auto& to) { to[Twice{}] = {2 * row.y[0]}; });
  auto const both  = data::zip(words(7), twice);
  CHECK(numbers(both.batch(3)) == in_order(7));
  auto stream = both.stream(0);
  for (Row<Number, Word, Twice> row; stream.next(row);) CHECK(row[Twice{}][0] == 2 * row[Number{}][0]);
}

TEST_CASE("a map of rows of named fields reads them by name", "[data][fields]") {
  auto const longer = words(8).map<Number, Pair>([](Row<Number, Word> const& row, auto& to, data::Place at) {
    if (at.row != static_cast<std::size_t>(row[Number{}][0])) throw std::logic_error{"place"};
    to[Number{}] = {row[Number{}][0]};
    to[Pair{}]   = {static_cast<float>(at.row), -static_cast<float>(at.row)};
  });
  CHECK(numbers(longer) == in_order(8));
  auto const back = longer.map<float, int>([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row[Pair{}].begin(), row[Pair{}].end()), y.assign(row[Number{}].begin(), row[Number{}].end());
  });
  CHECK(targets(back.batch(3)) == in_order(8));
}

TEST_CASE("several threads make rows of named fields in the order of one", "[data][fields][threads]") {
  for (std::size_t const threads : {1U, 2U, 5U}) {
    auto const many  = sources::Counting{500}.map<Pair, Number>(sources::ToPair{}, {.threads = threads});
    auto const texts = sources::Counting{500}.map<Number, Word>(sources::ToWord{}, {.threads = threads});
    CHECK(numbers(many) == in_order(500));
    CHECK(numbers(many.batch(7)) == in_order(500));  // the fused stage
    CHECK(numbers(many.shuffle(50, 1).batch(7).prefetch(2), 2) == targets(sources::Counting{500}.shuffle(50, 1), 2));
    CHECK(numbers(texts.batch(7)) == in_order(500));
    CHECK(numbers(texts.cache().batch(7).prefetch(data::auto_tune)) == in_order(500));
    auto sorted = numbers(
        sources::Counting{500}.map<Pair, Number>(sources::ToPair{}, {.threads = threads, .order = data::Order::any}));
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == in_order(500));
  }
  auto gathered = numbers(data::gather(std::vector{words(30), words(30)}, 2));
  CHECK(gathered.size() == 60);
}

TEST_CASE("a row of another shape than its field is one sentence, after the rows before it", "[data][fields]") {
  auto const check = [](auto const& dataset, int before) {
    auto error = std::string{};
    CHECK(numbers(dataset, 0, &error) == in_order(before));
    CHECK_THAT(error, Contains("row 7: field sources::Number has 2 numbers, but 1 are needed.") &&
                          Contains("Try: a map that gives as many for every row, or a Field with a ragged dimension."));
  };
  auto const rows   = sources::Counting{20};
  auto const serial = rows.map<Pair, Number>(Wrong{});
  check(serial, 7);
  check(serial.batch(3), 6);
  check(serial.padded_batch(3), 6);
  check(serial.cache(), 0);
  check(serial.prefetch(2), 7);
  check(serial.batch(3).prefetch(2), 6);
  for (std::size_t const threads : {1U, 3U}) {
    auto const parallel = rows.map<Pair, Number>(Wrong{}, {.threads = threads});
    check(parallel, 7);
    check(parallel.batch(3), 6);
    check(parallel.batch(3).prefetch(2), 6);
  }
  auto const folder = sources::Folder{};
  check(serial.cache(InFile{folder.path() / "rows"}), 0);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "rows"));
}

TEST_CASE("rows of a dataset of a program's own are checked by the stages after it", "[data][fields]") {
  auto const folder = sources::Folder{};
  auto const wrong  = Contains("row 1: field sources::Number has 2 numbers, but 1 are needed");
  CHECK_THROWS_WITH(numbers(Own{}.batch(2)), wrong);
  CHECK_THROWS_WITH(numbers(Own{}.padded_batch(2)), wrong);
  CHECK_THROWS_WITH(numbers(Own{}.cache()), wrong);
  CHECK_THROWS_WITH(numbers(Own{}.cache(InFile{folder.path() / "rows"})), wrong);
}

TEST_CASE("a window of rows of named fields has fields of its own shape", "[data][fields]") {
  auto const ones = sources::Counting{7}.map<Number>([](auto const& row, auto& to) { to[Number{}] = {row.y[0]}; });
  auto const read = [](auto const& dataset, auto field) {
    auto all    = std::vector<std::vector<int>>{};
    auto stream = dataset.stream(0);
    for (typename std::remove_cvref_t<decltype(dataset)>::element row; stream.next(row);)
      all.emplace_back(row[field].begin(), row[field].end());
    return all;
  };
  using All = std::vector<std::vector<int>>;
  CHECK(read(ones.window<Line>({.size = 3, .shift = 2}), Line{}) == All{{0, 1, 2}, {2, 3, 4}, {4, 5, 6}});
  CHECK(read(ones.window<Lines>({.size = 4, .remainder = data::Remainder::keep}), Lines{}) ==
        All{{0, 1, 2, 3}, {4, 5, 6}});
  CHECK_THROWS_WITH(read(ones.window<Line>({.size = 2}), Line{}),
                    Contains("row 0: field Line has 2 numbers, but 3 are needed"));
  auto const uneven = sources::Counting{4}.map<Lines>(
      [](auto const& row, auto& to) { to[Lines{}].assign(static_cast<std::size_t>(row.y[0]), row.y[0]); });
  CHECK(read(uneven.window({.size = 2}), Lines{}) == All{{1}, {2, 2, 3, 3, 3}});
  CHECK(read(uneven.cache().window({.size = 2}), Lines{}) == All{{1}, {2, 2, 3, 3, 3}});
}

TEST_CASE("rows of named fields in memory are kept, ragged or not", "[data][fields][cache]") {
  auto const source = sources::Counting{30};
  auto const cached = source.map<Number, Word>(sources::ToWord{}).cache();
  STATIC_REQUIRE(sources::is_stable<decltype(cached)>);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) CHECK(numbers(cached, epoch) == in_order(30));
  CHECK(numbers(cached.shuffle(30, 1).batch(4), 1) == targets(sources::Counting{30}.shuffle(30, 1), 1));
  CHECK(source.reads() == 30);
}

TEST_CASE("a cache of named fields in a file is read again by a later run", "[data][fields][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  for (int run = 0; run < 3; ++run) {
    auto const source = sources::Counting{30};
    auto const cached = source.map<Number, Word>(sources::ToWord{}).cache(file);
    STATIC_REQUIRE(sources::is_stable<decltype(cached)>);
    CHECK(numbers(cached) == in_order(30));
    CHECK(numbers(cached.shuffle(9, 1).batch(4)) == targets(sources::Counting{30}.shuffle(9, 1)));
    CHECK(source.reads() == (run == 0 ? 30 : 0));
  }
}

TEST_CASE("a file of other fields is refused with both", "[data][fields][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  CHECK(numbers(pairs(5).cache(file)) == in_order(5));
  CHECK_THROWS_WITH(numbers(words(5).cache(file)),
                    Contains("rows: byte 12: rows of sources::Pair float(2),sources::Number int(1), but the stage "
                             "before the cache makes rows of sources::Number int(1),sources::Word byte(ragged).") &&
                        Contains("Try: to delete the file"));
  CHECK_THROWS_WITH(targets(sources::Counting{5}.cache(file)),
                    Contains("rows of sources::Pair float(2),sources::Number int(1), but the stage before the cache "
                             "makes rows of f4 and i4"));
  CHECK_THROWS_WITH(numbers(pairs(6).cache(file)), Contains("5 rows, but the stage before the cache makes 6"));
  auto const old = InFile{folder.path() / "old"};
  CHECK(targets(sources::Counting{5}.cache(old)) == in_order(5));
  CHECK(sources::Folder::bytes_of(old.path.string()).size() == 48 + 5 * (24 + 8 + 8));
  CHECK_THROWS_WITH(numbers(pairs(5).cache(old)), Contains("rows of f4 and i4, but the stage before the cache makes"));
}

TEST_CASE("every damaged byte and every cut of a file of named fields is one sentence", "[data][fields][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = (folder.path() / "rows").string();
  auto const rows   = [&] { return words(4).filter([](auto const&) { return true; }).cache(InFile{file}); };
  REQUIRE(numbers(rows()) == in_order(4));
  auto const whole   = sources::Folder::bytes_of(file);
  auto const refused = [&](sources::Content const& content) {
    std::filesystem::remove(file);
    folder.plain("rows", content);
    CHECK_THROWS_WITH(numbers(rows()), Contains("rows: byte ") && Contains("Try: to delete the file"));
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    auto content = whole;
    content[at]  = static_cast<std::uint8_t>(content[at] ^ 0x81U);
    refused(content);
    refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)});
  }
}

TEST_CASE("skip_broken leaves out rows of named fields that cannot be made", "[data][fields]") {
  auto const skipped = std::make_shared<data::Skipped>();
  auto const some    = [](Sample<float, int> const& row, NewRow<Pair, Number>& to) {
    if (row.y[0] % 3 == 0) throw BadFile{"row " + std::to_string(row.y[0]), "another"};
    sources::ToPair{}(row, to);
  };
  CHECK(numbers(sources::Counting{6}.map<Pair, Number>(data::skip_broken(some, skipped))) == std::vector{1, 2, 4, 5});
  CHECK(skipped->records() == 2);
}

TEST_CASE("datasets of named fields describe them", "[data][fields][plan]") {
  auto lines = std::vector<std::string>{};
  data::describe(words(5).padded_batch(2, data::PaddingOf<Word>{.value = 1}), lines);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1] == "map to sources::Number int(1),sources::Word byte(ragged)");
  CHECK(lines[2] == "padded_batch 2 keep sources::Number int(1),sources::Word byte(ragged) length 0 with 1");
}

TEST_CASE("batches of named fields lie in the same memory in every step", "[data][fields]") {
  auto stream = pairs(40).batch(4).stream(0);
  auto batch  = Rows<Pair, Number>{};
  REQUIRE(stream.next(batch));
  auto const pair = batch[Pair{}].data();
  while (stream.next(batch)) CHECK(batch[Pair{}].data() == pair);
}
