// SPDX-License-Identifier: Apache-2.0
//
// Rows of a .npz file of numpy, and of a CSV file, in one line.
#include "test/data/folder.hpp"
#include "test/support/folder.hpp"

#include <chorale/data/formats/csv.hpp>
#include <chorale/data/formats/files.hpp>
#include <chorale/data/formats/idx.hpp>
#include <chorale/data/formats/npz.hpp>
#include <chorale/data/formats/tfrecord.hpp>
#include <chorale/data/text/read_text.hpp>
#include <chorale/data/validation_split.hpp>
#include <chorale/observe/run_file.hpp>

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tables_test {

using namespace chorale;
using chorale::test::Folder;

/// All x, and all y, of rows.
template <class Rows> auto all_of(Rows const& rows, std::size_t epoch = 0) {
  auto row    = typename Rows::element{};
  auto stream = rows.stream(epoch);
  auto x      = std::vector<double>{};
  auto y      = std::vector<double>{};
  while (stream.next(row)) {
    x.insert(x.end(), row.x.begin(), row.x.end());
    y.insert(y.end(), row.y.begin(), row.y.end());
  }
  return std::pair{x, y};
}

auto const golden = std::string{"test/golden/"};

TEST_CASE("arrays of numpy are read, packed or not", "[data][golden]") {
  for (auto const* name : {"arrays.npz", "packed.npz"}) {
    auto const file = data::NpzFile{golden + name};
    CHECK(file.names() == std::vector<std::string>{"x", "y", "zeros"});
    auto const x = file.read<std::uint8_t>("x");
    CHECK(x.shape == std::vector<std::size_t>{4, 2, 3});
    CHECK(x.values.back() == 23);
    CHECK(file.read<float>("zeros").values == std::vector<float>(200));
    auto const rows = data::npz<std::uint8_t, int>(golden + name, "x", "y");
    CHECK(rows.size() == 4);
    CHECK(all_of(rows).second == std::vector<double>{3, 1, 2, 0});
    CHECK(all_of(rows).first[23] == 23);
    CHECK_THROWS_WITH(file.read<float>("x_train"),
                      Catch::Contains("has no array x_train") && Catch::Contains("x, y, zeros"));
    CHECK(file.read<float>("x").values.back() == 23);
    CHECK_THROWS_WITH((data::npz<float, int>(golden + name, "zeros", "y")), Catch::Contains("5 rows, but y has 4"));
  }
}

TEST_CASE("arrays of numpy's default types become those that are asked for, where they fit", "[data][golden]") {
  auto const path = golden + "defaults.npz";
  auto const file = data::NpzFile{path};
  auto halves     = std::vector<float>{};
  for (int i = 0; i < 24; ++i) halves.push_back(static_cast<float>(i) / 2);
  for (auto const* name : {"x", "columns", "halves"}) {  // float64, the same column by column, float16
    CHECK(file.read<float>(name).shape == std::vector<std::size_t>{4, 2, 3});
    CHECK(file.read<float>(name).values == halves);
    CHECK(all_of(data::npz(path, name, "y")).second == std::vector<double>{3, 1, 2, 0});  // int64
  }
  CHECK(file.read<std::uint8_t>("mask").values[2] == 1);
  CHECK(file.read<std::int64_t>("large").values[2] == (std::int64_t{1} << 53) + 1);
  CHECK(file.read<float>("large").values[1] == 2147483648.0F);
  auto const nan = file.read<double>("nan").values;
  CHECK((nan[0] != nan[0] && nan[2] == 1e300));
  CHECK_THROWS_WITH(file.read<int>("large"),
                    Catch::Contains("array large: byte 136: number 1 is 2147483648, beyond the numbers of its type"));
  CHECK_THROWS_WITH(file.read<std::uint32_t>("large"), Catch::Contains("number 2 is 9007199254740993, beyond"));
  CHECK_THROWS_WITH(file.read<int>("x"), Catch::Contains("number 1 is 0.5, no whole number"));
  CHECK_THROWS_WITH(file.read<float>("nan"), Catch::Contains("number 2 is 1e+300, beyond the numbers of its type"));
  CHECK_THROWS_WITH(file.read<int>("nan"), Catch::Contains("number 0 is nan"));
  CHECK(file.read<int>("one").values == std::vector<int>{7});
  CHECK_THROWS_WITH(data::npz(path, "one", "y"), Catch::Contains("one: one number without a dimension"));
  CHECK_THROWS_WITH(data::npz(path, "x", "one"), Catch::Contains("one number without a dimension"));
}

TEST_CASE("an .npz file with two arrays of one name is refused", "[data]") {
  auto const folder = Folder{};
  auto two          = read_file(golden + "arrays.npz");
  for (auto at = two.find("y.npy"); at != two.npos; at = two.find("y.npy", at)) two[at] = 'x';
  replace_file(folder / "two.npz", two);
  CHECK_THROWS_WITH(data::NpzFile{folder / "two.npz"},
                    Catch::Contains("two.npz: byte ") && Catch::Contains("there are two arrays \"x\""));
}

TEST_CASE("a file that claims more than it has is one sentence, and takes no memory", "[data]") {
  auto const folder = Folder{};
  auto const huge   = [&](std::string const& name, std::string const& begin) {
    replace_file(folder / name, begin);
    std::filesystem::resize_file(folder / name, std::uint64_t{1} << 40);
    return folder / name;
  };
  CHECK_THROWS_WITH(data::NpzFile{huge("1.npz", "PK\3\4")}, Catch::Contains("no directory of arrays at its end"));
  CHECK_THROWS_WITH(data::csv(huge("1.csv", "a,b\n1,2\n"), "b"), Catch::Contains("1.csv: line 3: a zero byte"));
  CHECK_THROWS_WITH(read_csv(huge("2.csv", "a,b\n1,2\n")), Catch::Contains("2.csv: line 3: a zero byte"));
  CHECK_THROWS_WITH(read_file(huge("log", "")), Catch::Contains("has 1099511627776 bytes, but at most 4294967296"));
  CHECK_THROWS_WITH(data::read_text(huge("text", "a")),
                    Catch::Contains("text: byte 0: 1099511627776 bytes, but at most 8589934592 are read") &&
                        Catch::Contains("Try: read_text(path, most)"));
  for (auto const* name : {"arrays.npz", "packed.npz"}) {  // sizes of the directory: of array x, packed and unpacked
    for (auto const at : {std::size_t{20}, std::size_t{24}}) {
      auto larger      = read_file(golden + name);
      auto const entry = larger.find("PK\1\2");
      larger.replace(entry + at, 4, "\xF0\xFF\xFF\xFF");
      replace_file(folder / "larger.npz", larger);
      CHECK_THROWS_AS(data::NpzFile{folder / "larger.npz"}.read<std::uint8_t>("x"), BadFile);
    }
  }
}

TEST_CASE("a packed text of some bytes is not unpacked without end", "[data]") {
  auto const in   = sources::Folder{};
  auto const bomb = in.gzipped("bomb", sources::Content((std::size_t{64} << 20) + 5, '1'));
  CHECK_THROWS_WITH(data::read_text(bomb), Catch::Contains("bomb: byte 67108869: ") &&
                                               Catch::Contains(" packed bytes become more than 67108864"));
  auto const small = in.gzipped("small", sources::Content(1'000, '1'));
  CHECK(data::read_text(small).size() == 1'000);
  CHECK_THROWS_WITH(data::read_text(small, 999), Catch::Contains("become more than 999"));
  CHECK_THROWS_WITH(data::read_text(in.plain("plain", sources::Content(1'000, '1')), 999),
                    Catch::Contains("1000 bytes, but at most 999 are read"));
  CHECK_THROWS_WITH(data::csv(small, "a", {.most = 999}), Catch::Contains("Try: CsvOptions::most"));
  CHECK_THROWS_WITH(data::csv(bomb, "a"), Catch::Contains("line 1: more than 16777216 bytes"));
}

TEST_CASE("no reader waits for a FIFO, or reads a device or a folder", "[data]") {
  auto const folder = Folder{};
  auto const pipe   = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (auto const& one :
       {std::pair{pipe, "a FIFO"}, {std::filesystem::path{"/dev/zero"}, "a device"}, {folder.path, "a folder"}}) {
    auto const refused = [&](auto const& read) {
      CHECK_THROWS_WITH(read(one.first), Catch::Contains(one.first.string() + ": is " + one.second +
                                                         ", and only regular files are read"));
    };
    refused([](auto const& file) { data::NpzFile{file}; });
    refused([](auto const& file) { data::read_npy<float>(file); });
    refused([](auto const& file) { data::csv(file, "a"); });
    refused([](auto const& file) { data::idx(file, file); });
    refused([](auto const& file) { data::read_text(file); });
    refused([](auto const& file) { data::TfRecordReader{file}; });
    refused([](auto const& file) { all_of(data::text_lines({file})); });
    refused([](auto const& file) { read_file(file); });
    refused([](auto const& file) { read_csv(file); });
  }
}

TEST_CASE("a damaged .npz file is refused wherever it is cut or changed", "[data]") {
  auto const folder = Folder{};
  for (auto const* name : {"arrays.npz", "packed.npz"}) {
    auto const whole = read_file(golden + name);
    for (std::size_t n = 0; n < whole.size(); n += 7) {
      replace_file(folder / "cut.npz", whole.substr(0, n));
      CHECK_THROWS_AS(data::NpzFile{folder / "cut.npz"}.read<std::uint8_t>("x"), BadFile);
    }
    auto refused = 0, same = 0;
    for (std::size_t i = 0; i < whole.size(); i += 5) {  // a changed byte is found, or changes nothing
      auto changed = whole;
      changed[i]   = static_cast<char>(changed[i] ^ 0x41);
      replace_file(folder / "changed.npz", changed);
      auto const x = [&]() -> std::optional<std::vector<std::uint8_t>> {
        try {
          return data::NpzFile{folder / "changed.npz"}.read<std::uint8_t>("x").values;
        } catch (BadFile const&) { return {}; }
      }();
      ++(x ? same : refused);
      if (x) REQUIRE(*x == data::NpzFile{golden + name}.read<std::uint8_t>("x").values);
    }
    CHECK(refused > 30);
    CHECK(same > 10);  // times, and bytes of the other arrays
  }
  CHECK_THROWS_WITH(data::NpzFile{folder / "none.npz"}, Catch::Contains("none.npz: cannot be opened: No such file"));
}

TEST_CASE("rows of a CSV file have the target by its name", "[data]") {
  auto const folder = Folder{};
  auto const file   = folder / "rows.csv";
  replace_file(file, "a,label,\"b, c\"\n1,2,0.5\n3,0,-4e2\n");
  auto const [x, y] = all_of(data::csv(file, "label"));
  CHECK(x == std::vector<double>{1, 0.5, 3, -400});
  CHECK(y == std::vector<double>{2, 0});
  CHECK(all_of(data::csv<float, float>(file, "b, c")).second == std::vector<double>{0.5, -400});
  CHECK_THROWS_WITH(data::csv(file, "species"),
                    Catch::Contains("has no column species") && Catch::Contains("a, label, b, c"));
  CHECK_THROWS_WITH(data::csv(file, "b, c"), Catch::Contains("row 1, column b, c is 0.5"));
  CHECK_THROWS_WITH((data::csv<std::uint8_t, int>(file, "label")), Catch::Contains("row 1, column b, c is 0.5"));
  replace_file(file, "a,label\n-1,2147483648\n1e39,2147483647\n");
  CHECK_THROWS_WITH(data::csv(file, "label"),
                    Catch::Contains("row 1, column label is 2147483648, beyond the numbers of its type"));
  CHECK_THROWS_WITH((data::csv<std::uint8_t, double>(file, "label")), Catch::Contains("row 1, column a is -1, beyond"));
  CHECK_THROWS_WITH((data::csv<float, double>(file, "label")), Catch::Contains("row 2, column a is 1e+39, beyond"));
  CHECK(all_of(data::csv<double, std::int64_t>(file, "label")).second == std::vector<double>{2147483648, 2147483647});
  replace_file(file, "a,label\n1,2\n,0\n");
  CHECK_THROWS_WITH(data::csv(file, "label"), Catch::Contains("row 2, column a is empty"));
  for (auto const* last : {"3", "3,x"}) {  // nobody is writing it: no row is left out
    replace_file(file, std::string{"a,label\n1,2\n"} + last);
    CHECK_THROWS_WITH(data::csv(file, "label"), Catch::Contains("line 3"));
  }
  replace_file(file, "label\n1\n");
  CHECK_THROWS_WITH(data::csv(file, "label"), Catch::Contains("1 rows of 0 columns beside label"));
}

TEST_CASE("a CSV file as spreadsheets and other programs write it is read", "[data]") {
  auto const folder = Folder{};
  auto const file   = folder / "rows.csv";
  auto const read   = [&](std::string const& text, data::CsvOptions const& options = {}) {
    replace_file(file, text);
    return all_of(data::csv<double, std::int64_t>(file, "y", options));
  };
  using Numbers = std::pair<std::vector<double>, std::vector<double>>;
  CHECK(read("\xEF\xBB\xBFy,a\n1,2\n") == Numbers{{2}, {1}});  // a byte order mark
  CHECK(read("a, y\r\n 1.5 ,\t2 \r\n+3, +4") == Numbers{{1.5, 3}, {2, 4}});
  CHECK(read("a, \"b, c\" ,y\nTrue,FALSE,true\n") == Numbers{{1, 0}, {1}});
  CHECK(read("a,y\nNA,1\n,2\nnan,3\n?,4\n", {.missing = -1}) == Numbers{{-1, -1, -1, -1}, {1, 2, 3, 4}});
  CHECK(read("a;y\n0,5;1\n-1,25e1;+2\n", {.separator = ';', .decimal = ','}) == Numbers{{0.5, -12.5}, {1, 2}});
  CHECK(read("a\ty\n1\t2\n", {.separator = '\t'}) == Numbers{{1}, {2}});
  CHECK(read("y,a\nsetosa,1\n\"vir, a\",2\n", {.classes = {"vir, a", "setosa"}}) == Numbers{{1, 2}, {1, 0}});
  CHECK(read("name,a,y\nIris,1,2\n", {.without = {"name"}}) == Numbers{{1}, {2}});
  CHECK(read("a,y\n2,-3.0\n3,1e3\n") == Numbers{{2, 3}, {-3, 1000}});
  CHECK(read("a,y\r1,2\r\r3,4\r") == Numbers{{1, 3}, {2, 4}});  // of old Macintoshes
  CHECK(read("a,y\n1,2\r3,4\r\n") == Numbers{{1, 3}, {2, 4}});
  CHECK(read("\"a\r\nb\",y\r\n\"1\",\"2\"\r\n") == Numbers{{1}, {2}});
  CHECK(read("\xEF\xBB\xBF\"a \"\"x\"\"\";y\r\n\" 3\" ;4", {.separator = ';'}) == Numbers{{3}, {4}});
  CHECK(read("a b y\n1 2 3\n", {.separator = ' '}) == Numbers{{1, 2}, {3}});
  auto const nan = read("a,y\n#N/A,1\n", {.missing = std::numeric_limits<double>::quiet_NaN()});
  CHECK(nan.first[0] != nan.first[0]);
  replace_file(file, "a,y\n1,9007199254740993\n");  // beyond the whole numbers of double
  auto row    = Sample<double, std::int64_t>{};
  auto stream = data::csv<double, std::int64_t>(file, "y").stream(0);
  CHECK((stream.next(row) && row.y[0] == 9007199254740993));
  auto const in = sources::Folder{};
  auto const gz = in.gzipped("rows.csv.gz", {'a', ',', 'y', '\n', '5', ',', '6'});
  CHECK(all_of(data::csv(gz, "y")) == Numbers{{5}, {6}});
}

TEST_CASE("a CSV file that is not read is a sentence with the option that reads it", "[data]") {
  auto const folder  = Folder{};
  auto const file    = folder / "rows.csv";
  auto const refused = [&](std::string const& text, std::string const& what, std::string const& option,
                           data::CsvOptions const& options = {}) {
    replace_file(file, text);
    CHECK_THROWS_WITH(data::csv(file, "y", options),
                      Catch::Contains("rows.csv: " + what) && Catch::Contains("Try: " + option));
  };
  refused("a;y\n1;2\n", "line 1 has one column, \"a;y\"", "CsvOptions{.separator = ';'}");
  refused("a\ty\n1\t2\n", "line 1 has one column", "CsvOptions{.separator = '\\t'}");
  refused("a,y\n1,2\n", "line 1 has one column", "CsvOptions{.separator = ','}", {.separator = ';'});
  refused("a,y\n1,NA\n", "line 2, row 1, column y is \"NA\"", "CsvOptions{.missing = 0}");
  refused("a,y\n1,2\n\n,3\n", "line 4, row 2, column a is empty", "CsvOptions{.missing = 0}");
  refused("a,y\n1,setosa\n", "line 2, row 1, column y is \"setosa\", which is no number",
          "CsvOptions{.classes = {\"setosa\", ..}} with each text");
  refused("a,y\n1,rose\n", "line 2, row 1, column y is \"rose\", none of the 2 classes", "all classes",
          {.classes = {"setosa", "virginica"}});
  refused("a,y\nx,2\n", "line 2, row 1, column a is \"x\", which is no number", "CsvOptions{.without = {\"a\"}}");
  refused("a;y\n0,5;2\n", "line 2, row 1, column a is \"0,5\"", "CsvOptions{.decimal = ','}", {.separator = ';'});
  refused("a;y\n1.500;2\n", "line 2, row 1, column a is \"1.500\", which has a point", "CsvOptions{.decimal = '.'}",
          {.separator = ';', .decimal = ','});
  refused("a y\n1 2\n", "line 1 has one column, \"a y\"", "CsvOptions{.separator = ' '}");
  refused("5.1,3.5,setosa\n4.9,3,setosa\n", "line 1 has the number \"5.1\" where names of columns are needed",
          "a first line with a name for each column");
  refused("a,y\n\"1\n2\",3\nx,4\n", "line 2, row 1, column a is \"1?2\"", "CsvOptions{.without");
  refused("a,y,\"b\n\"\n1,3,5\nx,4,6\n", "line 4, row 2, column a is \"x\"", "CsvOptions{.without");
  refused("a,y\n\"1,234\",2\n", "line 2, row 1, column a is \"1,234\", which is no number", "CsvOptions{.without");
  refused("a,y,a\n1,2,3\n", "line 1: there are two columns \"a\"", "a name of its own");
  refused("a,y\n1,2,3\n", "line 2 has 3 cells, but line 1 names 2 columns", "as many cells in each line");
  refused("a,y\n1,\"2\n", "line 2: a quote is not closed", "the quote");
  refused("a,y\n1,inf\n", "line 2, row 1, column y is inf, no finite number", "another number");
  refused("a,y\n1,2\n", "has no column b", "one of a, y", {.without = {"b"}});
  refused("a,y\n1,2\n", "the target y is to be left out", "another target", {.without = {"y"}});
  refused(
      "\xFF\xFE"
      "a",
      "line 1: the text is UTF-16", "iconv");
  refused("", "is empty", "a file whose first line");
}

TEST_CASE("the last rows of a dataset are for validation", "[data]") {
  auto const rows                = data::from_tensors(std::vector<float>{0, 1, 2, 3, 4, 5, 6}, std::vector<int>(7), 1);
  auto const [train, validation] = data::validation_split(rows, 0.2);
  CHECK(all_of(train).first == std::vector<double>{0, 1, 2, 3, 4});  // floor(7 * 0.8), as in Keras
  CHECK(all_of(validation).first == std::vector<double>{5, 6});
  for (auto const part : {0.0, 1.0, -0.5, 1.5, 0.95})
    CHECK_THROWS_WITH(data::validation_split(rows, part), Catch::Contains("validation_split of 7 rows takes a part"));
}

TEST_CASE("rows that were shuffled and cached before they are split are on one side in every epoch", "[data]") {
  auto const rows                = data::from_tensors(std::vector<float>{0, 1, 2, 3, 4, 5, 6}, std::vector<int>(7), 1);
  auto const [train, validation] = data::validation_split(rows.shuffle(7, 1).cache(), 0.3);
  auto const first               = all_of(validation).first;
  CHECK(first != std::vector<double>{4, 5, 6});
  for (std::size_t epoch = 0; epoch < 5; ++epoch) {
    CHECK(all_of(validation, epoch).first == first);
    auto all = all_of(train, epoch).first;
    all.insert(all.end(), first.begin(), first.end());
    std::ranges::sort(all);
    CHECK(all == std::vector<double>{0, 1, 2, 3, 4, 5, 6});
  }
}

}  // namespace tables_test
