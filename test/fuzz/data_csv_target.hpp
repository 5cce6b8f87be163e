// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/core/text.hpp>
#include <chorale/data/formats/csv.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

/// The lines of a CSV text that comes in two pieces, up to what is wrong with it.
inline std::vector<std::vector<std::string>> csv_lines(std::string_view text, std::size_t cut, char separator) {
  auto all        = std::vector<std::vector<std::string>>{};
  auto lines      = chorale::detail::CsvLines{"f", separator};
  auto const take = [&] {
    auto& cells = all.emplace_back();
    for (std::size_t i = 0; i < lines.size(); ++i) cells.emplace_back(lines[i]);
    cells.push_back("line " + std::to_string(lines.number()));
  };
  try {
    lines.add(text.substr(0, cut), take);
    lines.add(text.substr(cut), take);
    lines.end(take);
  } catch (BadFile const& why) { all.push_back({why.what()}); }
  return all;
}

/// The first byte says with which options; the rest is a table whose target is y. What is one has the same numbers when
/// it is written and read again, and the same lines in whatever pieces it comes.
inline void fuzz_data_csv(ConstBytes in) {
  if (in.empty()) return;
  static auto const memory = MemoryFile{}, other = MemoryFile{};
  auto const mode  = std::to_integer<unsigned>(in[0]);
  auto const bytes = in.subspan(1);
  auto options     = data::CsvOptions{.separator = ",;\t "[mode % 4], .most = 1 << 20};
  if (mode & 4) options.decimal = ',';
  if (mode & 8) options.missing = -1;
  if (mode & 16) options.classes = {"a", "b"};
  if (mode & 32) options.without = {"z"};
  try {
    auto const rows = data::csv<double, std::int64_t>(memory.holding(bytes), "y", options);
    auto text       = std::string{};
    auto x          = std::vector<double>{};
    auto row        = Sample<double, std::int64_t>{};
    auto n          = std::size_t{0};
    for (auto stream = rows.stream(0); stream.next(row); ++n) {
      if (n == 0)
        for (std::size_t i = 0; i < row.x.size(); ++i) text += std::to_string(i) + ",";
      if (n == 0) text += "y\n";
      must(row.y.size() == 1 && (!(mode & 16) || row.y[0] == 0 || row.y[0] == 1), "a class that was not named");
      for (auto const value : row.x) {
        must(std::isfinite(value), "a number that is not finite");
        x.push_back(value), text += number_text(value) + ",";
      }
      text += std::to_string(row.y[0]) + "\n";
    }
    must(n > 0 && n == rows.size() && (bytes[0] == std::byte{0x1f} || x.size() <= bytes.size()), "rows from nowhere");
    auto const again = data::csv<double, std::int64_t>(other.holding(std::as_bytes(Span<char const>{text})), "y");
    auto read        = std::vector<double>{};
    for (auto stream = again.stream(0); stream.next(row);) read.insert(read.end(), row.x.begin(), row.x.end());
    must(again.size() == n && read == x, "what was written is another table");
  } catch (BadFile const&) {}
  auto const text = std::string_view{reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  auto const cut  = std::min(text.size(), std::size_t{3} + mode);  // a byte order mark comes in one piece
  must(csv_lines(text, cut, options.separator) == csv_lines(text, text.size(), options.separator),
       "lines depend on pieces");
  try {
    auto const table = read_csv(memory.holding(bytes));
    for (auto const& column : table.columns) must(column.size() == table.rows(), "columns of several lengths");
    must(table.rows() < bytes.size(), "rows from nowhere");
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
