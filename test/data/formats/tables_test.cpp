// SPDX-License-Identifier: Apache-2.0
//
// Rows of a .npz file of numpy, and of a CSV file, in one line.
#include "test/support/folder.hpp"

#include <chorale/data/formats/csv.hpp>
#include <chorale/data/formats/npz.hpp>
#include <chorale/data/validation_split.hpp>
#include <chorale/observe/run_file.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tables_test {

using namespace chorale;
using chorale::test::Folder;

/// All x, and all y, of rows.
template <class Rows>
auto all_of(Rows const& rows, std::size_t epoch = 0) {
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
    CHECK_THROWS_WITH(file.read<float>("x"), Catch::Contains("array x: numbers of type u1, but f4 are needed"));
    CHECK_THROWS_WITH((data::npz<float, int>(golden + name, "zeros", "y")), Catch::Contains("5 rows, but y has 4"));
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
    for (std::size_t i = 0; i < whole.size(); i += 5) {    // a changed byte is found, or changes nothing
      auto changed = whole;
      changed[i]   = static_cast<char>(changed[i] ^ 0x41);
      replace_file(folder / "changed.npz", changed);
      auto const x = [&]() -> std::optional<std::vector<std::uint8_t>> {
        try {
          return data::NpzFile{folder / "changed.npz"}.read<std::uint8_t>("x").values;
        } catch (BadFile const&) {
          return {};
        }
      }();
      ++(x ? same : refused);
      if (x) REQUIRE(*x == data::NpzFile{golden + name}.read<std::uint8_t>("x").values);
    }
    CHECK(refused > 30);
    CHECK(same > 10);                                      // times, and bytes of the other arrays
  }
  CHECK_THROWS_WITH(data::NpzFile{folder / "none.npz"}, Catch::Contains("none.npz: cannot be read"));
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
  for (auto const* last : {"3", "3,x"}) {                  // nobody is writing it: no row is left out
    replace_file(file, std::string{"a,label\n1,2\n"} + last);
    CHECK_THROWS_WITH(data::csv(file, "label"), Catch::Contains("line 3"));
  }
  replace_file(file, "label\n1\n");
  CHECK_THROWS_WITH(data::csv(file, "label"), Catch::Contains("1 rows of 0 columns beside label"));
}

TEST_CASE("the last rows of a dataset are for validation", "[data]") {
  auto const rows                = data::from_tensors(std::vector<float>{0, 1, 2, 3, 4, 5, 6}, std::vector<int>(7), 1);
  auto const [train, validation] = data::validation_split(rows, 0.2);
  CHECK(all_of(train).first == std::vector<double>{0, 1, 2, 3, 4});        // floor(7 * 0.8), as in Keras
  CHECK(all_of(validation).first == std::vector<double>{5, 6});
  for (auto const part : {0.0, 1.0, -0.5, 1.5, 0.95})
    CHECK_THROWS_WITH(data::validation_split(rows, part), Catch::Contains("validation_split of 7 rows takes a part"));
}

TEST_CASE("rows that were shuffled and cached before they are split are on one side in every epoch", "[data]") {
  auto const rows = data::from_tensors(std::vector<float>{0, 1, 2, 3, 4, 5, 6}, std::vector<int>(7), 1);
  auto const [train, validation] = data::validation_split(rows.shuffle(7, 1).cache(), 0.3);
  auto const first = all_of(validation).first;
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
