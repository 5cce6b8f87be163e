// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/event.hpp>
#include <chorale/observe/run_file.hpp>

#include <algorithm>
#include <array>
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
  std::vector<std::vector<double>> columns;  // as many as names; an empty cell is NaN
  std::string file = {};                     // the file it was read from, for errors

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

/// Cuts a CSV text, which comes in pieces, into lines of cells. The line that was read last is kept here.
///
/// keeps   blanks around a cell are not part of it, unless they are in quotes; a byte order mark is passed over. A line
///         ends with \n, \r\n or \r
/// cost    memory for one line of at most 16 MiB
/// throws  BadFile with the line: for a quote that is not closed, a zero byte, UTF-16, or too long a line
/// source  RFC 4180
class CsvLines {
 public:
  /// file    begins errors
  explicit CsvLines(std::string file, char separator = ',') : file_{std::move(file)}, separator_{separator} {}

  /// Takes the next piece of the text; calls line() after each line that ends in it.
  template <class Line> void add(std::string_view piece, Line&& line) {
    if (number_ == 0) begin(piece);
    for (auto const c : piece)
      if (take(c)) line(), clear();
  }
  /// Takes the end of the text; calls line() if the last line has no line break.
  template <class Line> void end(Line&& line) {
    if (state_ == State::quoted) fail("a quote is not closed", "the quote at its end, or \"\" for one in a cell");
    if (ends_.empty() && text_.empty() && state_ == State::before) return;
    end_cell(), line(), clear();
  }

  std::uint64_t number() const { return number_; }   // of the line, from 1; line breaks in quotes count
  std::size_t size() const { return ends_.size(); }  // cells
  std::string_view operator[](std::size_t i) const {
    auto const begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view{text_}.substr(begin, ends_[i] - begin);
  }
  bool is_blank() const { return ends_.size() == 1 && text_.empty(); }

  /// The cells as names of columns. Each name must occur once.
  std::vector<std::string> names() const {
    auto all = std::vector<std::string>{};
    for (std::size_t i = 0; i < size(); ++i) all.emplace_back((*this)[i]);
    auto sorted = std::vector<std::string_view>(all.begin(), all.end());
    std::ranges::sort(sorted);
    if (auto const twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      fail("there are two columns " + in_quotes(*twice), "a name of its own for each column");
    return all;
  }

  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    throw BadFile{file_ + ": line " + std::to_string(number_) + ": " + what + ".", what_to_try + "."};
  }

 private:
  enum class State { before, bare, quoted, after_quote };  // of the cell that is being read
  static constexpr std::size_t most_line = std::size_t{1} << 24, most_cells = std::size_t{1} << 20;

  void begin(std::string_view& piece) {
    number_ = 1;
    if (piece.starts_with("\xEF\xBB\xBF")) piece.remove_prefix(3);
    else if (piece.starts_with("\xFF\xFE") || piece.starts_with("\xFE\xFF"))
      fail("the text is UTF-16", "iconv -f utf-16 -t utf-8");
  }
  void clear() { number_ += 1 + std::exchange(breaks_, 0), text_.clear(), ends_.clear(), kept_ = 0; }
  bool is_space(char c) const { return (c == ' ' || c == '\t') && c != separator_; }

  /// True if a line ends with this character.
  bool take(char c) {
    if (c == '\0') fail("a zero byte, which no text has", "a CSV file, unpacked");
    if (std::exchange(after_return_, false) && c == '\n') return false;
    if (state_ == State::quoted && c == '"') kept_ = text_.size(), state_ = State::after_quote;
    else if (state_ == State::quoted) put(c), breaks_ += c == '\n' ? 1 : 0;
    else if (c == '"' && state_ == State::after_quote) put(c), state_ = State::quoted;
    else if (c == '"' && state_ == State::before) state_ = State::quoted;
    else if (c == separator_) end_cell();
    else if (c == '\n' || c == '\r') return after_return_ = c == '\r', end_cell(), true;
    else if (state_ != State::before || !is_space(c)) {
      if (state_ == State::before) state_ = State::bare;
      put(c);
    }
    return false;
  }
  void put(char c) {
    if (text_.size() == most_line) fail("more than " + std::to_string(most_line) + " bytes", "a text file");
    text_ += c;
  }
  void end_cell() {
    while (text_.size() > kept_ && is_space(text_.back())) text_.pop_back();
    if (ends_.size() == most_cells) fail("more than " + std::to_string(most_cells) + " cells", "a text file");
    ends_.push_back(text_.size());
    kept_ = text_.size(), state_ = State::before;
  }

  std::string file_;
  char separator_;
  std::uint64_t number_ = 0;
  std::string text_;               // of the cells, one after the other
  std::vector<std::size_t> ends_;  // of each cell, in text_
  std::size_t kept_     = 0;       // blanks from here on are around a cell
  std::uint64_t breaks_ = 0;       // in quotes, of this line
  bool after_return_    = false;   // which has ended a line: the \n after it does not
  State state_          = State::before;
};

/// Adds a row. Returns an error text, or an empty string on success.
inline std::string csv_row(CsvLines const& cells, CsvTable& table) {
  if (cells.size() != table.names.size())
    return " has " + std::to_string(cells.size()) + " cells, but line 1 names " + std::to_string(table.names.size()) +
           " columns.";
  auto values = std::vector<double>(cells.size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    auto const* end = cells[i].data() + cells[i].size();
    if (cells[i].empty()) continue;
    if (auto const [stop, code] = std::from_chars(cells[i].data(), end, values[i]); code != std::errc{} || stop != end)
      return ", column " + table.names[i] + ": " + in_quotes(cells[i]) + " is no number.";
  }
  for (std::size_t i = 0; i < cells.size(); ++i) table.columns[i].push_back(values[i]);
  return {};
}

}  // namespace detail

/// Reads a table of numbers that a run has written, or is writing: a last line that has no end and does not fit is left
/// out.
///
/// throws  BadFile with the line, if it has fewer or more cells than the first line, or a cell that is not a number
/// source  RFC 4180
inline CsvTable read_csv(std::filesystem::path const& path) {
  auto const file = InputFile{path};
  auto table      = CsvTable{.names = {}, .columns = {}, .file = path.string()};
  auto lines      = detail::CsvLines{table.file};
  auto const take = [&](bool whole) {
    if (table.names.empty()) table.names = lines.names(), table.columns.resize(table.names.size());
    else if (!lines.is_blank() || table.names.size() == 1)
      if (auto const why = detail::csv_row(lines, table); !why.empty() && whole)
        throw BadFile{table.file + ": line " + std::to_string(lines.number()) + why,
                      "the file as a run has written it, or data::csv for a table of another program."};
  };
  detail::or_out_of_memory(path, [&] {
    auto buffer = std::array<char, std::size_t{1} << 16>{};
    auto at     = std::uint64_t{0};
    while (auto const got = file.read_at(at, std::as_writable_bytes(Span<char>{buffer})))
      lines.add({buffer.data(), got}, [&] { take(true); }), at += got;
    lines.end([&] { take(false); });
  });
  if (table.names.empty()) throw BadFile{table.file + ": is empty.", "a file whose first line names the columns."};
  return table;
}

/// A sink that writes one line of a CSV file for each step: step, wall_time, then the columns.
///
///   auto log = CsvLog{"run/scalars.csv", {"loss", "accuracy", "val_loss"}};
///
/// keeps   the first line names the columns, once: a resumed run appends, after it has cut a line that a crash left
///         half written. It does not remove steps that are repeated: tools/plot shows the later ones
/// cost    one write for each line
/// throws  BadFile when the file exists with other columns, or cannot be written; BadArgument for a name that is not
///         a column
class CsvLog {
 public:
  CsvLog(std::filesystem::path path, std::vector<std::string> columns, WallClock clock = wall_time)
      : columns_{std::move(columns)}, clock_{std::move(clock)}, file_{std::move(path), RunFile::Open::append} {
    auto header = std::string{"step,wall_time"};
    for (auto const& name : columns_) header.append(",") += detail::csv_cell(name);
    header += '\n';
    auto const content = read_file(file_.path());
    auto const whole   = content.rfind('\n') + 1;  // npos + 1 is 0
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
    for (auto const& cell : cells) line.append(",") += cell;
    file_.append(line + "\n");
  }
  void flush() const noexcept {}  // take() has written every line

 private:
  std::vector<std::string> columns_;
  WallClock clock_;
  RunFile file_;
};

}  // namespace chorale
