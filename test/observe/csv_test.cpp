// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/csv.hpp>
#include <chorale/observe/sink.hpp>

#include "test/observe/folder.hpp"
#include "test/support/full_disk.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using observe::content_of, observe::said;

namespace {

using Values = std::vector<MetricValue>;

double at_five() { return 5.0625; }

}  // namespace

static_assert(Sink<CsvLog> && !EventSink<CsvLog>);

TEST_CASE("a CSV log names its columns once, and appends when a run goes on", "[observe][golden]") {
  auto const folder  = observe::Folder{};
  auto const file    = folder / "run/scalars.csv";
  auto const columns = std::vector<std::string>{"loss", "val, \"loss\""};
  CsvLog{file, columns, at_five}.take({.step = 1, .values = Values{{"loss", 0.1}}});
  auto log = CsvLog{file, columns, at_five};
  log.take({.step = 2, .values = Values{{"val, \"loss\"", -1e300}, {"loss", 2}}});
  log.take({.step = 3, .values = {}});
  CHECK(content_of(file) == "step,wall_time,loss,\"val, \"\"loss\"\"\"\n1,5.062,0.1,\n2,5.062,2,-1e+300\n3,5.062,,\n");
}

TEST_CASE("a line that a crash left half written is cut", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const header = std::string{"step,wall_time,loss\n"};
  for (auto const& [left, kept] : std::vector<std::pair<std::string, std::string>>{
           {header + "1,2,3\n2,2,", header + "1,2,3\n"}, {header, header}, {"step,wa", header}, {"", header}}) {
    auto const file = folder.file("scalars.csv", left);
    CsvLog{file, {"loss"}, at_five};
    CHECK(content_of(file) == kept);
  }
}

TEST_CASE("a log with other columns, and a value without a column, are refused", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const file   = folder.file("scalars.csv", "step,wall_time,loss\n1,2,3\n");
  CHECK_THAT(said<BadFile>([&] { CsvLog{file, {"loss", "accuracy"}}; }),
             Catch::Contains("has the columns \"step,wall_time,loss\", but this run has "
                             "\"step,wall_time,loss,accuracy\""));
  CHECK(content_of(file) == "step,wall_time,loss\n1,2,3\n");
  auto log = CsvLog{file, {"loss"}};
  CHECK_THAT(said<BadArgument>([&] { log.take({.step = 1, .values = Values{{"acc", 1}}}); }),
             Catch::Contains("has no column acc"));
  CHECK_THAT(said<BadFile>([&] { CsvLog{file / "x.csv", {"loss"}}; }), Catch::Contains("cannot be opened for writing"));
  CHECK_THAT(said<BadFile>([&] { CsvLog{"/dev/full", {"loss"}}; }), Catch::Contains("/dev/full: is a device"));
}

TEST_CASE("on a full disk a CSV log keeps whole lines, and goes on when there is room", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto log          = CsvLog{folder / "s.csv", {"loss"}, at_five};
  auto const fill   = [&](std::uint64_t first) {
    for (auto step = first; step < first + 20; ++step) log.take({.step = step, .values = Values{{"loss", 0.5}}});
  };
  auto sentence = std::string{};
  {
    auto const full = chorale::test::FullDisk{100};
    sentence        = said<BadFile>([&] { fill(10); });
  }
  CHECK_THAT(sentence, Catch::Contains("s.csv: byte 100: cannot be written"));
  auto const lines = read_csv(folder / "s.csv").rows();
  CHECK(lines == 6);  // of 13 bytes, after 20
  fill(50);
  CHECK(read_csv(folder / "s.csv").columns[0].at(lines) == 50);
}

TEST_CASE("what a CSV log writes reads back as the same numbers", "[observe][unit]") {
  auto const folder   = observe::Folder{};
  auto const infinity = std::numeric_limits<double>::infinity();
  auto const numbers  = std::vector<double>{0.1, 1.0 / 3, -5e-324, 1.7976931348623157e308, 0, infinity, -infinity};
  auto const name     = std::string{"a\n\"b\",\r"};
  {
    auto log = CsvLog{folder / "s.csv", {name, "b"}, at_five};
    for (std::size_t i = 0; i < numbers.size(); ++i) log.take({.step = i, .values = Values{{name, numbers[i]}}});
    log.take({.step = 99, .values = Values{{name, std::nan("")}}});
  }
  auto const table = read_csv(folder / "s.csv");
  CHECK(table.names == std::vector<std::string>{"step", "wall_time", name, "b"});
  REQUIRE(table.rows() == numbers.size() + 1);
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(table.columns[2][i] == numbers[i]);
  CHECK(std::isnan(table.columns[2].back()));
  CHECK(std::isnan(table.columns[3][0]));
}

TEST_CASE("a table that is none is refused with its line", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const read   = [&](std::string const& text) {
    return said<BadFile>([&] { read_csv(folder.file("t.csv", text)); });
  };
  CHECK_THAT(read(""), Catch::Contains("t.csv: is empty"));
  CHECK_THAT(read("a,b\n1,2\n3\n"), Catch::Contains("line 3 has 1 cells, but line 1 names 2 columns"));
  CHECK_THAT(read("a,b\n1,2,3\n"), Catch::Contains("line 2 has 3 cells"));
  CHECK_THAT(read("a,b\n1,2x\n"), Catch::Contains("line 2, column b: \"2x\" is no number"));
  CHECK_THAT(read("a,\"b\n1,2\n"), Catch::Contains("line 1: a quote is not closed"));
  CHECK_THAT(said<BadFile>([&] { read_csv(folder / "none.csv"); }), Catch::Contains("none.csv: cannot be opened"));
  CHECK_THAT(said<BadFile>([&] { read_csv(folder / ""); }), Catch::Contains("is a folder, and only"));
  CHECK_THAT(read("a,b\n1,\"\n"), Catch::Contains("a quote is not closed"));
  CHECK(read_csv(folder.file("t.csv", "a,b\r\n1,\r\n\r\n3,4")).columns[0] == std::vector<double>{1, 3});
  CHECK(read_csv(folder.file("t.csv", "a,b\n1,2\n3")).rows() == 1);  // is being written
  CHECK(read_csv(folder.file("t.csv", "a,b\n1,2\n3,-")).rows() == 1);
}

TEST_CASE("a file is replaced in one step, and what lies beside it is removed when that fails", "[observe][unit]") {
  auto const folder = observe::Folder{};
  replace_file(folder / "new/a", "one");
  replace_file(folder / "new/a", "two");
  CHECK(content_of(folder / "new/a") == "two");
  auto sentence = std::string{};
  {
    auto const full = chorale::test::FullDisk{3};
    sentence        = said<BadFile>([&] { replace_file(folder / "new/a", "three"); });
  }
  CHECK_THAT(sentence, Catch::Contains("byte 3: cannot be written: File too large"));
  CHECK(content_of(folder / "new/a") == "two");
  auto names = 0;
  for (auto const& entry : std::filesystem::directory_iterator{folder / "new"}) names += !entry.path().empty();
  CHECK(names == 1);
}
