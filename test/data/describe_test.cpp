// SPDX-License-Identifier: Apache-2.0
// What a dataset says of itself before ranks train with it.
#include "folder.hpp"

#include <chorale/data/dataset.hpp>
#include <chorale/data/digits.hpp>
#include <chorale/data/formats/files.hpp>
#include <chorale/data/stages/interleave.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

using namespace chorale;

namespace {

using Lines = std::vector<std::string>;

template <class D> Lines lines_of(D const& dataset) {
  auto lines = Lines{};
  data::describe(dataset, lines);
  return lines;
}

template <class D> std::string last_line_of(D const& dataset) { return lines_of(dataset).back(); }

auto numbers(std::size_t n, float first = 0) {
  auto x = std::vector<float>(2 * n, 1.0F);
  x[0]   = first;
  return data::from_tensors(x, std::vector<int>(n), 2);
}

/// A dataset of a program's own, which says nothing of itself.
struct OwnRows {
  using element = Sample<float, int>;
  struct Stream {
    bool next(element&) { return false; }
  };
  Stream stream(std::size_t) const { return {}; }
  std::optional<std::size_t> size() const { return 0; }
};

}  // namespace

TEST_CASE("a dataset says its source, then each stage that changes what comes out", "[data][plan]") {
  auto const scale = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end());
    y.assign(row.y.begin(), row.y.end());
  };
  auto const all  = data::digits(100, 5, 20).map(scale).cache().skip(10).take(50).shuffle(20, 3).repeat(2).batch(8);
  auto const want = Lines{"digits 100 seed 5 from 20",
                          "map to float,int",
                          "elements from 10 step 1",
                          "elements from 0 step 1 count 50",
                          "shuffle 20 seed 3",
                          "repeat 2",
                          "batch 8 keep"};
  CHECK(lines_of(all) == want);
  CHECK(lines_of(all.prefetch(3)) == want);  // how it is made is not in it
  auto const by_threads = data::digits(100, 5, 20).map(scale, {.threads = 2}).skip(10).take(50);
  CHECK(lines_of(by_threads.shuffle(20, 3).repeat(2).batch(8)) == want);
  CHECK(last_line_of(numbers(4).batch(3, data::Remainder::drop)) == "batch 3 drop");
  CHECK(last_line_of(numbers(4).shard(4, 1)) == "elements from 1 step 4");
  CHECK(last_line_of(numbers(4).window({.size = 2, .shift = 1})) == "window 2 shift 1 stride 1 drop");
  CHECK(last_line_of(numbers(4).padded_batch(2, {.width = 3})) == "padded_batch 2 keep width 3 targets 0 with 0 and 0");
  CHECK(last_line_of(numbers(4).filter([](auto const&) { return true; })) == "filter");
  CHECK(last_line_of(data::range(3, 9, 2)) == "integers from 3 step 2 count 3");
  CHECK(lines_of(data::range(0, 2).concatenate(data::range(0, 3))) ==
        Lines{"integers from 0 step 1 count 2", "concatenate", "integers from 0 step 1 count 3"});
  CHECK(lines_of(OwnRows{}) == Lines{"source OwnRows"});
}

TEST_CASE("rows in memory say how many they are, and a checksum of some of them", "[data][plan]") {
  auto const lines = lines_of(numbers(4));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "rows 4 of 2 numbers and 1 targets");
  CHECK(lines == lines_of(numbers(4)));
  CHECK(lines[1] != lines_of(numbers(4, 0.5F))[1]);
  CHECK(lines[0] != lines_of(numbers(5))[0]);
  CHECK(lines_of(numbers(1)).size() == 2);
  CHECK(last_line_of(data::from_tensors(std::vector<float>{}, std::vector<int>{}, 2)) == "sample of rows 0");
}

TEST_CASE("files say their names and sizes, not where they are", "[data][plan]") {
  auto const here = sources::Folder{}, there = sources::Folder{};
  for (auto const& folder : {here.path(), there.path()}) {
    std::ofstream{folder / "a.txt"} << "one\n";
    std::ofstream{folder / "b.txt"} << "two\n";
  }
  auto const text = [](auto const& folder) {
    auto const files = std::vector{data::TextFile{folder / "a.txt", 0, 100}, data::TextFile{folder / "b.txt", 1, 100}};
    return data::interleave(files, {.cycle = 2, .shuffle = Seed{4}});
  };
  CHECK(last_line_of(data::TextFile{here.path() / "a.txt", 0, 100}) == "file a.txt of 4 bytes");
  CHECK(lines_of(text(here.path())) == lines_of(text(there.path())));
  CHECK(last_line_of(text(here.path())) == "interleave cycle 2 block 1 seed 4");
  auto const before = lines_of(text(there.path()))[0];
  std::ofstream{there.path() / "b.txt"} << "three\n";
  CHECK(lines_of(text(there.path()))[0] != before);
}
