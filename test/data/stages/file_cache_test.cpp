// SPDX-License-Identifier: Apache-2.0
#include "test/data/folder.hpp"
#include "test/data/sources.hpp"
#include "test/support/full_disk.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/data/digits.hpp>

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using Catch::Contains;
using data::InFile;
using sources::Content;

namespace {

std::size_t entries(std::filesystem::path const& folder) {
  auto const all = std::filesystem::directory_iterator{folder};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// The sentence of the BadFile that reading a whole pass throws, or nothing.
template <class D> std::string said(D const& dataset) {
  try {
    sources::targets(dataset);
  } catch (BadFile const& why) { return why.what(); }
  return {};
}

/// Rows whose widths and bits are all different: row i has i numbers, which are no ordinary ones.
auto odd_rows(int n) {
  return sources::Counting{static_cast<std::size_t>(n)}.map<double, std::uint8_t>(
      [](auto const& row, std::vector<double>& x, std::vector<std::uint8_t>& y) {
        auto const i = static_cast<std::size_t>(row.y[0]);
        x.resize(i), y.assign(i % 5, static_cast<std::uint8_t>(i));
        for (std::size_t k = 0; k < i; ++k) {
          auto const bits = Random{Seed{3}, i}.bits(k);
          std::memcpy(&x[k], &bits, sizeof bits);  // not-a-numbers and denormals among them
        }
      });
}

/// All bytes of a pass, and where rows end.
template <class D> std::vector<std::string> bytes_of_rows(D const& dataset) {
  auto stream = dataset.stream(0);
  auto all    = std::vector<std::string>{};
  auto add    = [&](ConstBytes b) { all.emplace_back(reinterpret_cast<char const*>(b.data()), b.size()); };
  for (typename D::element row; stream.next(row);) add(std::as_bytes(row.x)), add(std::as_bytes(row.y));
  return all;
}

}  // namespace

TEST_CASE("a cache in a file runs what is before it once, for all passes, copies and later runs", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = folder.path() / "rows";
  auto const source = sources::Counting{10};
  auto const cached = source.cache(InFile{file});
  auto const copy   = cached;
  CHECK_FALSE(std::filesystem::exists(file));
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    CHECK(sources::targets(cached, epoch) == sources::in_order(10));
    CHECK(sources::targets(copy, epoch) == sources::in_order(10));
  }
  CHECK(source.reads() == 10);
  CHECK(entries(folder.path()) == 1);

  auto const later = sources::Counting{10};  // as another run would make it
  CHECK(sources::targets(later.cache(InFile{file})) == sources::in_order(10));
  CHECK(later.reads() == 0);
}

TEST_CASE("a cache in a file gives the bits and widths of its source", "[data][cache]") {
  auto const folder   = sources::Folder{};
  auto const source   = odd_rows(40);
  auto const expected = bytes_of_rows(source);
  REQUIRE(expected.size() == 80);
  for (int run = 0; run < 2; ++run) CHECK(bytes_of_rows(source.cache(InFile{folder.path() / "rows"})) == expected);
}

TEST_CASE("rows of more than a buffer are written whole", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const wide   = sources::Counting{3}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(400'000, row.x[0]), y.assign(1, row.y[0]);
  });
  auto const cached = wide.cache(InFile{folder.path() / "rows"});
  CHECK(bytes_of_rows(cached) == bytes_of_rows(wide));
}

TEST_CASE("rows of a cache in a file are views that stay", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const source = sources::Counting{10}.cache(InFile{folder.path() / "rows"});
  STATIC_REQUIRE(sources::is_stable<decltype(source)>);
  auto first = source.stream(0), second = source.stream(1);
  auto a = Sample<float, int>{}, b = a;
  while (first.next(a)) {
    REQUIRE(second.next(b));
    CHECK(a.x.data() == b.x.data());
    CHECK(a.y.data() == b.y.data());
  }
  CHECK(a.y[0] == 9);
  std::filesystem::remove(folder.path() / "rows");  // who has it open goes on
  CHECK(sources::targets(source) == sources::in_order(10));
  CHECK(sources::targets(source.shuffle(10, 1).batch(3), 2) ==
        sources::targets(sources::Counting{10}.shuffle(10, 1).batch(3), 2));
}

TEST_CASE("a pass that fails leaves no file, and the next read tries again", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const source = sources::Counting{10, 4};
  auto const cached = source.cache(InFile{folder.path() / "rows"});
  CHECK_THROWS_WITH(sources::targets(cached), "row 4 is broken");
  CHECK(entries(folder.path()) == 0);
  CHECK_THROWS_WITH(sources::targets(cached), "row 4 is broken");
  CHECK(source.reads() == 8);
}

TEST_CASE("what was not finished is not used", "[data][cache]") {
  auto const folder = sources::Folder{};
  folder.plain("rows.partial-1-0", Content(100, 7));
  CHECK(sources::targets(sources::Counting{10}.cache(InFile{folder.path() / "rows"})) == sources::in_order(10));
}

TEST_CASE("a dataset without rows can be cached in a file", "[data][cache]") {
  auto const folder = sources::Folder{};
  for (int run = 0; run < 2; ++run)
    CHECK(sources::targets(sources::Counting{0}.cache(InFile{folder.path() / "rows"})).empty());
}

TEST_CASE("threads that read a cache in a file at the same time all get every row", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const source = sources::Counting{500};
  auto const cached = source.cache(InFile{folder.path() / "rows"});
  auto good         = std::atomic<int>{0};
  {
    auto threads = std::vector<NamedThread>{};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back("reader", [&] { good += sources::targets(cached) == sources::in_order(500); });
  }
  CHECK(good == 4);
  CHECK(source.reads() == 500);
}

TEST_CASE("two processes that write one cache at once both succeed", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = folder.path() / "rows";
  auto const mapped = [] {  // the same stages in both processes
    return sources::Counting{200}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
      x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
    });
  };
  auto const write = [&] { return sources::targets(mapped().cache(InFile{file})) == sources::in_order(200); };
  auto first       = mapped().cache(InFile{file}).stream(0);
  auto other       = ::pid_t{};
  // Each begins before the other has ended: the second process is made by a map of the first one's pass.
  auto const begun = sources::Counting{200}.map([&](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
    if (row.y[0] != 100) return;
    other = ::fork();
    if (other == 0) ::_exit(write() ? 0 : 1);
  });
  CHECK(sources::targets(begun.cache(InFile{file})) == sources::in_order(200));
  auto status = -1;
  REQUIRE(::waitpid(other, &status, 0) == other);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(entries(folder.path()) == 1);
  auto row = Sample<float, int>{};
  REQUIRE(first.next(row));  // finds the file of the others
  CHECK(row.y[0] == 0);
}

TEST_CASE("what a writer that was killed has left is removed by the next one", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  auto const killed = sources::Counting{10}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    if (row.y[0] == 5) std::raise(SIGKILL);
    x.assign(1, 0), y.assign(1, 0);
  });
  auto const writer = ::fork();
  if (writer == 0) ::_exit(sources::targets(killed.cache(file)).empty() ? 1 : 2);
  auto status = -1;
  REQUIRE(::waitpid(writer, &status, 0) == writer);
  REQUIRE(WIFSIGNALED(status));
  auto host = std::array<char, 256>{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  auto const aside = std::string{"rows.partial-"} + host.data() + "-";
  auto const left  = aside + std::to_string(writer) + "-0";
  REQUIRE(std::filesystem::exists(folder.path() / left));

  auto const others = std::vector<std::string>{aside,       aside + "notes",   aside + "1-0.txt",
                                               aside + "1", "row.partial-1-0", "rows.partial-another-host-1-0"};
  for (auto const& name : others) folder.plain(name, {1});
  std::filesystem::create_directory(folder.path() / (aside + "7-0"));
  REQUIRE(::mkfifo((folder.path() / (aside + "8-0")).c_str(), 0600) == 0);
  std::filesystem::create_symlink("row.partial-1-0", folder.path() / (aside + "9-0"));
  CHECK(sources::targets(sources::Counting{10}.cache(file)) == sources::in_order(10));
  CHECK_FALSE(std::filesystem::exists(folder.path() / left));
  CHECK(entries(folder.path()) == others.size() + 3 + 1);  // only what a writer would have made went
}

TEST_CASE("what a writer that lives has written so far is left alone", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  auto to = std::array<int, 2>{}, from = std::array<int, 2>{};  // ends of pipes: read, write
  REQUIRE((::pipe(to.data()) == 0 && ::pipe(from.data()) == 0));
  auto const slow   = sources::Counting{10}.map([&](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    auto byte = char{};
    if (row.y[0] == 5 && (::write(from[1], &byte, 1) != 1 || ::read(to[0], &byte, 1) != 1)) ::_exit(3);
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  });
  auto const writer = ::fork();
  if (writer == 0) ::_exit(sources::targets(slow.cache(file)) == sources::in_order(10) ? 0 : 1);
  ::close(from[1]);  // so that its end would be noticed
  auto byte = char{};
  REQUIRE(::read(from[0], &byte, 1) == 1);  // it is in the middle
  CHECK(sources::targets(sources::Counting{10}.cache(file)) == sources::in_order(10));
  CHECK(entries(folder.path()) == 2);
  REQUIRE(::write(to[1], &byte, 1) == 1);
  auto status = -1;
  REQUIRE(::waitpid(writer, &status, 0) == writer);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(entries(folder.path()) == 1);
  for (auto const end : {to[0], to[1], from[0]}) ::close(end);
}

TEST_CASE("another number of rows, or other types, than the stage before makes are refused", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  CHECK(said(sources::Counting{10}.cache(file)).empty());
  CHECK_THAT(said(sources::Counting{11}.cache(file)),
             Contains("rows: byte 16: 10 rows, but the stage before the cache makes 11.") &&
                 Contains("Try: to delete the file"));
  auto const doubles = sources::Counting{10}.map<double, int>(
      [](auto const& row, std::vector<double>& x, std::vector<int>& y) { x.assign(1, row.x[0]), y.assign(1, 0); });
  CHECK_THAT(said(doubles.cache(file)),
             Contains("byte 12: rows of f4 and i4, but") && Contains("makes rows of f8 and i4"));
}

TEST_CASE("a cache that other stages made is refused", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = InFile{folder.path() / "rows"};
  auto const read   = [](auto const& dataset) {  // the sentence that a first row gives
    auto row = typename std::remove_cvref_t<decltype(dataset)>::element{};
    try {
      dataset.stream(0).next(row);
    } catch (BadFile const& why) { return std::string{why.what()}; }
    return std::string{};
  };
  auto const rows = [](std::size_t seed) { return data::digits(12, seed); };
  CHECK(read(rows(1).shuffle(4, 1).cache(file)).empty());
  CHECK(read(rows(1).shuffle(4, 1).cache(file)).empty());
  auto const refused = Contains("rows: byte 32: rows of other stages: those of this program have key ");
  CHECK_THAT(read(rows(2).shuffle(4, 1).cache(file)), refused);                    // other rows
  CHECK_THAT(read(rows(1).shuffle(4, 2).cache(file)), refused);                    // another order
  CHECK_THAT(read(rows(1).cache(file)), refused);                                  // a stage less
  CHECK_THAT(read(rows(1).shuffle(4, 1).cache({file.path, "crop 24"})), refused);  // another function
  auto const tensors = [](float first) {
    return data::from_tensors(std::vector<float>{first, 1, 2, 3}, std::vector<int>{0, 1}, 2);
  };
  std::filesystem::remove(file.path);
  CHECK(read(tensors(0).cache(file)).empty());
  CHECK_THAT(read(tensors(5).cache(file)), refused);  // as many rows of as many bytes
}

TEST_CASE("a pass of another length than its stage says is not kept", "[data][cache]") {
  auto const folder    = sources::Folder{};
  auto const short_one = data::from_generator(
      [](std::size_t) {
        return [i = 0](std::vector<float>& x, std::vector<int>& y) mutable {
          x.assign(1, 0), y.assign(1, i);
          return i++ < 3;
        };
      },
      4);
  CHECK_THROWS_WITH(sources::targets(short_one.cache(InFile{folder.path() / "rows"})),
                    Contains("says that it makes 4 rows, and made 3"));
  CHECK(entries(folder.path()) == 0);
}

TEST_CASE("every damaged byte, every cut and every longer file is one sentence", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = (folder.path() / "rows").string();
  auto const rows   = [&] { return sources::Counting{5}.filter([](auto const&) { return true; }).cache(InFile{file}); };
  REQUIRE(sources::targets(rows()) == sources::in_order(5));
  auto const whole = sources::Folder::bytes_of(file);
  REQUIRE(whole.size() == 48 + 5 * (24 + 8 + 8));
  auto const refused = [&](Content const& content) {
    std::filesystem::remove(file);  // some disks sync what is written over
    folder.plain("rows", content);
    auto const text = said(rows());
    CHECK_THAT(text, Contains("rows: byte ") && Contains("Try: to delete the file"));
  };
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (auto const flip : {0x01U, 0x80U, 0xffU}) {
      CAPTURE(at, flip);
      auto content = whole;
      content[at]  = static_cast<std::uint8_t>(content[at] ^ flip);
      refused(content);  // padding has a checksum as well
    }
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CAPTURE(bytes);
    refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)});
  }
  auto longer = whole;
  longer.resize(whole.size() + 8);
  refused(longer);
  refused(Content(500, 0xff));  // a file of someone else
  folder.plain("rows", whole);
  CHECK(sources::targets(rows()) == sources::in_order(5));
}

TEST_CASE("rows before a damaged one come, and its number and byte are named", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = (folder.path() / "rows").string();
  auto const rows   = [&] { return sources::Counting{5}.cache(InFile{file}); };
  REQUIRE(sources::targets(rows()) == sources::in_order(5));
  auto content = sources::Folder::bytes_of(file);
  content.at(48 + 3 * 40 + 24) ^= 1U;  // of x of row 3
  folder.plain("rows", content);
  auto const cached = rows();
  for (int again = 0; again < 2; ++again) {
    auto stream = cached.stream(0);
    auto row    = Sample<float, int>{};
    for (int i = 0; i < 3; ++i) REQUIRE(stream.next(row));
    CHECK_THROWS_WITH(stream.next(row), Contains("rows: byte 168: row 3 has checksum ") && Contains("to delete"));
  }
}

TEST_CASE("rows that change places, or come from another cache, are noticed", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const file   = (folder.path() / "rows").string();
  auto const rows   = [&] { return sources::Counting{5}.cache(InFile{file}); };
  REQUIRE(sources::targets(rows()) == sources::in_order(5));
  auto const whole = sources::Folder::bytes_of(file);
  auto swapped     = whole;
  std::swap_ranges(swapped.begin() + 88, swapped.begin() + 128, swapped.begin() + 128);
  folder.plain("rows", swapped);
  CHECK_THAT(said(rows()), Contains("byte 88: row 1 has checksum"));

  std::filesystem::remove(file);
  auto const others = sources::Counting{6}.skip(1).cache(InFile{file});  // as many rows, of the same size
  REQUIRE(said(others).empty());
  auto mixed = sources::Folder::bytes_of(file);
  REQUIRE(mixed.size() == whole.size());
  std::copy_n(whole.begin(), 48, mixed.begin());  // the header of one, the rows of the other
  folder.plain("rows", mixed);
  CHECK_THAT(said(rows()), Contains("byte 248: the last of 5 rows ends here with checksum "));
}

TEST_CASE("a full disk is one sentence, and leaves nothing behind", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const source = sources::Counting{100'000};
  auto const cached = source.cache(InFile{folder.path() / "rows"});
  {
    auto const full = test::FullDisk{2'000'000};
    CHECK_THAT(said(cached), Contains("rows: row ") && Contains("byte 2000000: cannot write the next ") &&
                                 Contains("Try: room for the cache there, or another folder"));
  }
  CHECK(entries(folder.path()) == 0);
  CHECK(sources::targets(cached).size() == 100'000);  // there is room again
}

TEST_CASE("a path that cannot be written or read is one sentence", "[data][cache]") {
  auto const folder = sources::Folder{};
  auto const rows   = [](std::filesystem::path const& file) { return said(sources::Counting{3}.cache(InFile{file})); };
  CHECK_THAT(rows(folder.path() / "absent" / "rows"),
             Contains("absent/rows: cannot make ") && Contains("Try: a folder that exists and may be written"));
  CHECK_THAT(rows(folder.plain("file", {1}) + "/rows"), Contains("file/rows: cannot be opened: Not a directory"));
  CHECK_THAT(rows(folder.path()), Contains("is not a file that can be read"));
  CHECK_THAT(rows("/proc/rows"), Contains("/proc/rows: cannot make "));  // nobody may write there
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(rows(folder.path() / "pipe"), Contains("pipe: is not a file that can be read"));
  CHECK_THROWS_AS(sources::Counting{3}.cache(InFile{}), BadArgument);
}
