// SPDX-License-Identifier: Apache-2.0
#include "test/data/folder.hpp"

#include <chorale/data/formats/files.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Matchers::Contains;
using sources::Content;
using sources::Folder;

namespace {

Content text(std::string const& s) { return {s.begin(), s.end()}; }

std::vector<std::string> names(std::vector<std::filesystem::path> const& files) {
  auto all = std::vector<std::string>{};
  for (auto const& file : files) all.push_back(file.filename().string());
  return all;
}

std::vector<std::string> lines(auto const& dataset) {
  auto stream = dataset.stream(0);
  auto all    = std::vector<std::string>{};
  for (Sample<char, std::uint64_t> row; stream.next(row);)
    all.push_back(std::to_string(row.y[0]) + ":" + std::to_string(row.y[1]) + ":" +
                  std::string{row.x.begin(), row.x.end()});
  return all;
}

}  // namespace

TEST_CASE("files are listed by the bytes of their names, without folders", "[data][files]") {
  auto const in = Folder{};
  for (auto const* name : {"b-10", "b-2", "a-1", "B-3", "other"}) in.plain(name, {});
  std::filesystem::create_directory(in.path() / "c-folder");
  auto const all = data::list_files((in.path() / "*-*").string());
  CHECK(names(all) == std::vector<std::string>{"B-3", "a-1", "b-10", "b-2"});
  CHECK(names(data::list_files((in.path() / "[ab]-?").string())) == std::vector<std::string>{"a-1", "b-2"});
  CHECK_THROWS_WITH(data::list_files((in.path() / "*.tfrecord").string()), Contains("*.tfrecord: no file matches"));
  CHECK_THROWS_AS(data::list_files((in.path() / "c-*").string()), BadFile);
}

TEST_CASE("a shuffled list is a function of names and seed, and its checksum can be compared", "[data][files]") {
  auto const in = Folder{};
  for (int i = 0; i < 20; ++i) in.plain("part-" + std::to_string(100 + i), {});
  auto const pattern = (in.path() / "part-*").string();
  auto const sorted  = data::list_files(pattern);
  auto const one     = data::list_files(pattern, Seed{1});
  CHECK(one == data::list_files(pattern, Seed{1}));
  CHECK(one != sorted);
  CHECK(one != data::list_files(pattern, Seed{2}));
  CHECK(data::checksum(one) == data::checksum(data::list_files(pattern, Seed{1})));
  CHECK(data::checksum(one) != data::checksum(sorted));
  CHECK(data::checksum({"ab", "c"}) != data::checksum({"a", "bc"}));
  auto again = one;
  std::sort(again.begin(), again.end());
  CHECK(again == sorted);
}

TEST_CASE("lines end with a newline, with or without a return, or with the file", "[data][files]") {
  auto const in   = Folder{};
  auto const file = in.plain("text", text("one\r\n\n two \nlast\rline"));
  CHECK(lines(data::text_lines({file})) == std::vector<std::string>{"0:0:one", "0:1:", "0:2: two ", "0:3:last\rline"});
  CHECK(lines(data::text_lines({in.plain("empty", {}), file}, {.cycle = 2})).front() == "1:0:one");
  CHECK(lines(data::text_lines({in.gzipped("text.gz", text("a\nb\n"))})) == std::vector<std::string>{"0:0:a", "0:1:b"});
  CHECK_THROWS_WITH(lines(data::text_lines({in.path() / "absent"})), Contains("absent: cannot be opened"));
}

TEST_CASE("lines may be longer than every buffer, up to a cap", "[data][files]") {
  auto const in = Folder{};
  auto big      = std::string(300'000, 'x');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>('a' + i % 26);
  auto const file = in.plain("text", text("a\n" + big + "\nb\n"));
  CHECK(lines(data::text_lines({file})) == std::vector<std::string>{"0:0:a", "0:1:" + big, "0:2:b"});
  CHECK(lines(data::text_lines({file}, {}, 300'000)).size() == 3);
  CHECK_THROWS_WITH(lines(data::text_lines({file}, {}, 299'999)),
                    Contains("text: line 1, byte ") && Contains("a line of more than 299999 bytes"));
}
