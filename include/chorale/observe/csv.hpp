// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/event.hpp>
#include <chorale/observe/run_file.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// A table of numbers with a name for each column.
struct CsvTable {
  std::vector<std::string> names;
  std::vector<std::vector<double>> columns;                // as many as names; an empty cell is NaN
  std::string file = {};                                   // the file it was read from, for errors

  std::size_t rows() const { return columns.empty() ? 0 : columns[0].size(); }
};

namespace detail {

/// Puts a text in quotes if it has a comma, a quote or a line break.
inline std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string{text};
  auto quoted = std::string{"\""};
  for (auto const c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

/// Removes one line, in which quotes may contain line breaks, from the front of `text`, and returns its cells.
inline std::vector<std::string> take_csv_line(std::string_view& text, std::string const& file, std::size_t line) {
  auto cells  = std::vector<std::string>(1);
  auto quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') cells.back() += text[i++];
    else if (c == '"') quoted = !quoted;
    else if (quoted) cells.back() += c;
    else if (c == ',') cells.emplace_back();
    else if (c == '\n') {
      text.remove_prefix(i + 1);
      return cells;
    } else if (c != '\r') cells.back() += c;
  }
  if (quoted) throw BadFile{file + ": line " + std::to_string(line) + ": a quote is not closed."};
  text = {};
  return cells;
}

/// Adds a row. Returns an error text, or an empty string on success.
inline std::string csv_row(std::vector<std::string> const& cells, CsvTable& table) {
  if (cells.size() != table.names.size())
    return " has " + std::to_string(cells.size()) + " cells, but line 1 names " + std::to_string(table.names.size()) +
           " columns.";
  auto values = std::vector<double>(cells.size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    auto const* end = cells[i].data() + cells[i].size();
    if (cells[i].empty()) continue;
    if (auto const [stop, code] = std::from_chars(cells[i].data(), end, values[i]); code != std::errc{} || stop != end)
      return ", column " + table.names[i] + ": \"" + cells[i].substr(0, 40) + "\" is no number.";
  }
  for (std::size_t i = 0; i < cells.size(); ++i) table.columns[i].push_back(values[i]);
  return {};
}

}  // namespace detail

/// Whether a run may still be writing a CSV file. growing: a last line that has no end and does not fit is left out.
enum class CsvFile { growing, finished };

/// Reads a table of numbers.
///
/// throws  BadFile with the line, if it has not as many cells as the first line has names, or a cell that is no number
/// source  RFC 4180
inline CsvTable read_csv(std::filesystem::path const& path, CsvFile is = CsvFile::growing) {
  auto const content = read_file(path);
  auto const file    = path.string();
  auto text          = std::string_view{content};
  if (text.empty()) throw BadFile{file + ": is empty.", "a file whose first line names the columns."};
  auto table = CsvTable{.names = detail::take_csv_line(text, file, 1), .columns = {}, .file = file};
  table.columns.resize(table.names.size());
  auto const whole = is == CsvFile::finished || content.back() == '\n';    // else the last line may be half written
  for (std::size_t line = 2; !text.empty(); ++line) {
    auto const cells = detail::take_csv_line(text, file, line);
    if (cells.size() == 1 && cells[0].empty() && table.names.size() > 1) continue;
    auto const why = detail::csv_row(cells, table);
    if (!why.empty() && text.empty() && !whole) break;
    if (!why.empty()) throw BadFile{file + ": line " + std::to_string(line) + why, "removing that line."};
  }
  return table;
}

/// A sink that writes one line of a CSV file for each step: step, wall_time, then the columns.
///
///   auto log = CsvLog{"run/scalars.csv", {"loss", "accuracy", "val_loss"}};
///
/// keeps   the first line names the columns, once: a resumed run appends, after it has cut a line that a crash left
///         half written. It does not remove steps that are repeated: tools/plot shows the later ones
/// cost    one write for each line
/// throws  BadFile when the file exists with other columns, or cannot be written; BadArgument for a name that is no
///         column
class CsvLog {
 public:
  CsvLog(std::filesystem::path path, std::vector<std::string> columns, WallClock clock = wall_time)
      : columns_{std::move(columns)}, clock_{std::move(clock)}, file_{std::move(path), RunFile::Open::append} {
    auto header = std::string{"step,wall_time"};
    for (auto const& name : columns_) header += "," + detail::csv_cell(name);
    header += '\n';
    auto const content = read_file(file_.path());
    auto const whole   = content.rfind('\n') + 1;          // npos + 1 is 0
    if (whole == 0) file_.write_at(0, header);
    else if (!content.starts_with(header))
      throw BadFile{file_.path().string() + ": has the columns \"" + content.substr(0, content.find_first_of("\r\n")) +
                        "\", but this run has \"" + header.substr(0, header.size() - 1) + "\".",
                    "another folder for this run, or the same columns."};
    else if (whole < content.size()) file_.write_at(whole, "");
  }

  /// Writes a line; a column without a value stays empty.
  void take(Scalars const& scalars) {
    auto cells = std::vector<std::string>(columns_.size());
    for (auto const& [name, value] : scalars.values) {
      auto const at = std::ranges::find(columns_, name);
      if (at == columns_.end())
        throw BadArgument{file_.path().string() + ": has no column " + std::string{name} + ".",
                          "naming it where the CsvLog is made."};
      cells[static_cast<std::size_t>(at - columns_.begin())] = number_text(value);
    }
    auto line = std::to_string(scalars.step) + formatted(",%.3f", clock_());
    for (auto const& cell : cells) line += "," + cell;
    file_.append(line + "\n");
  }
  void flush() const noexcept {}                           // take() has written every line

 private:
  std::vector<std::string> columns_;
  WallClock clock_;
  RunFile file_;
};

}  // namespace chorale
