// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/numbers.hpp>
#include <chorale/observe/csv.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// How a CSV file is read.
struct CsvOptions {
  char separator = ',';                // of cells: ';', '\t'
  char decimal   = '.';                // of numbers: ','
  std::vector<std::string> without{};  // columns that are left out, such as names
  std::vector<std::string> classes{};  // texts of the target, in the order of their labels 0, 1, ..
  std::optional<double> missing{};     // in place of an empty cell, NA, NaN or null; none: an error
  std::uint64_t most = 0;              // bytes, unpacked; 0: as read_text, if it is packed
};

namespace detail {

/// Which columns of a CSV file go where, and what the text of a cell is as a number.
class CsvColumns {
 public:
  enum class To { x, y, nowhere };

  CsvColumns(chorale::detail::CsvLines const& lines, std::string file, std::string_view target,
             CsvOptions const& options)
      : lines_{lines}, file_{std::move(file)}, options_{options}, target_{target} {}

  bool is_empty() const { return names_.empty(); }
  std::size_t size() const { return names_.size(); }
  std::size_t width() const { return static_cast<std::size_t>(std::ranges::count(to_, To::x)); }
  To to(std::size_t column) const { return to_[column]; }

  /// Reads the names of the columns.
  void begin() {
    names_ = lines_.names();
    to_.assign(names_.size(), To::x);
    to_[place(target_)] = To::y;
    for (auto const& name : options_.without) {
      if (name == target_) fail("the target " + printable(name) + " is to be left out", "another target");
      to_[place(name)] = To::nowhere;
    }
  }
  /// Expects a cell for each column.
  void expect_row() {
    ++row_;
    if (lines_.size() != size())
      throw BadFile{file_ + ": line " + std::to_string(lines_.number()) + " has " + std::to_string(lines_.size()) +
                        " cells, but line 1 names " + std::to_string(size()) + " columns.",
                    "as many cells in each line, or a text in quotes if it has a separator in it."};
  }

  /// The number of a cell.
  template <class T> T number(std::size_t column) const {
    auto text = lines_[column];  // in quotes it may have blanks around it
    if (to_[column] == To::y && !options_.classes.empty()) return converted<T>(column, class_of(column, text));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    text.remove_suffix(text.size() - (text.find_last_not_of(' ') + 1));
    if (is_missing(text)) {
      if (!options_.missing)
        refuse(column, text.empty() ? "is empty" : "is " + in_quotes(text),
               "CsvOptions{.missing = 0}, or another number for such cells");
      return converted<T>(column, *options_.missing);
    }
    for (auto const* word : {"True", "true", "TRUE", "False", "false", "FALSE"})
      if (text == word) return converted<T>(column, (word[0] | 0x20) == 't' ? 1 : 0);
    auto digits = std::string{};
    if (options_.decimal != '.') {
      if (text.find('.') != text.npos)  // of thousands, or of a number in another notation
        refuse(column, "is " + in_quotes(text) + ", which has a point",
               "CsvOptions{.decimal = '.'}, or no such points");
      digits = text;
      std::ranges::replace(digits, options_.decimal, '.');
      text = digits;
    }
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    if constexpr (std::is_integral_v<T>)
      if (auto const whole = parsed<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(text))
        return converted<T>(column, *whole);
    auto const value = parsed<double>(text);
    if (!value) refuse_text(column);
    if (!std::isfinite(*value)) refuse(column, "is " + number_text(*value) + ", no finite number", "another number");
    return converted<T>(column, *value);
  }

  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    throw BadFile{file_ + ": " + what + ".", what_to_try + "."};
  }

 private:
  std::size_t place(std::string_view name) const {
    auto const at = std::ranges::find(names_, name);
    if (at != names_.end()) return static_cast<std::size_t>(at - names_.begin());
    for (auto const& one : names_)
      if (parsed<double>(one))
        fail("line 1 has the number " + in_quotes(one) + " where names of columns are needed",
             "a first line with a name for each column");
    auto other = names_.size() == 1 ? names_[0].find_first_of(",;\t|") : std::string::npos;
    if (names_.size() == 1 && other == std::string::npos) other = names_[0].find(' ');
    if (other != std::string::npos)
      fail("line 1 has one column, " + in_quotes(names_[0]),
           "CsvOptions{.separator = '" + (names_[0][other] == '\t' ? "\\t" : names_[0].substr(other, 1)) + "'}");
    auto all = std::string{};
    for (std::size_t i = 0; i < names_.size() && i < 20; ++i) all.append(i == 0 ? "" : ", ") += printable(names_[i]);
    fail("has no column " + printable(name), "one of " + all + (names_.size() > 20 ? ", .." : ""));
  }

  template <class T> static std::optional<T> parsed(std::string_view text) {
    auto value              = T{};
    auto const* const end   = text.data() + text.size();
    auto const [stop, code] = std::from_chars(text.data(), end, value);
    return code == std::errc{} && stop == end ? std::optional{value} : std::nullopt;
  }
  template <class T, class From> T converted(std::size_t column, From value) const {
    if (!fits_in<T>(value)) refuse(column, why_not<T>(value), "another type of numbers");
    return static_cast<T>(value);
  }
  std::size_t class_of(std::size_t column, std::string_view text) const {
    auto const& all = options_.classes;
    auto const at   = std::ranges::find(all, text);
    if (at == all.end())
      refuse(column, "is " + in_quotes(text) + ", none of the " + std::to_string(all.size()) + " classes",
             "all classes in CsvOptions::classes");
    return static_cast<std::size_t>(at - all.begin());
  }
  /// source  pandas.read_csv(na_values), and '?' of the UCI repository
  static bool is_missing(std::string_view text) {
    constexpr auto words = std::array<std::string_view, 20>{
        "",     "NA",   "N/A",  "n/a", "NaN", "nan",      "-NaN",    "-nan",     "NULL",   "null",
        "None", "<NA>", "#N/A", "#NA", "?",   "#N/A N/A", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"};
    return std::ranges::find(words, text) != words.end();
  }

  [[noreturn]] void refuse_text(std::size_t column) const {
    auto const text  = lines_[column];
    auto const comma = options_.separator != ',' && options_.decimal == '.' && text.find(',') != text.npos &&
                       text.find_first_not_of("+-0123456789,eE") == text.npos;
    auto const name = "{" + in_quotes(to_[column] == To::y ? text : std::string_view{names_[column]});
    refuse(column, "is " + in_quotes(text) + ", which is no number",
           comma ? "CsvOptions{.decimal = ','}"
           : to_[column] == To::y
               ? "CsvOptions{.classes = " + name + ", ..}} with each text of this column, in the order of their labels"
               : "CsvOptions{.without = " + name + "}}, or data::text_lines and a map that takes texts");
  }
  [[noreturn]] void refuse(std::size_t column, std::string const& what, std::string const& what_to_try) const {
    auto const name = names_[column].empty() ? std::to_string(column + 1) : printable(names_[column]);
    fail("line " + std::to_string(lines_.number()) + ", row " + std::to_string(row_) + ", column " + name + " " + what,
         what_to_try);
  }

  chorale::detail::CsvLines const& lines_;
  std::string file_;
  CsvOptions const& options_;
  std::string target_;
  std::vector<std::string> names_;
  std::vector<To> to_;  // of each column
  std::size_t row_ = 0;
};

}  // namespace detail

/// Rows of a CSV file of numbers, plain or gzipped, whose first line names the columns: one is the target, all others
/// are x, in their order.
///
///   auto const rows = data::csv("iris.csv", "species");               // labels 0, 1, ..
///   auto const rows = data::csv<float, float>("houses.csv", "price");
///   auto const rows = data::csv("iris.csv", "species", {.classes = {"setosa", "versicolor", "virginica"}});
///
/// keeps   True is 1, and False is 0; a byte order mark, and blanks around a cell, are not part of it; a line ends with
///         \n, \r\n or \r
/// cost    memory for the numbers, and for one line of at most 16 MiB
/// throws  BadFile with the line and the column: when a name occurs twice or the target is missing, a row is not whole,
///         or a cell is missing, not a number, not in the range of its type or, for integers, not a whole number
/// source  RFC 4180
template <class X = float, class Y = int>
Tensors<X, Y> csv(std::filesystem::path const& file, std::string_view target, CsvOptions const& options = {}) {
  auto source     = ByteSource{file};
  auto lines      = chorale::detail::CsvLines{file.string(), options.separator};
  auto columns    = detail::CsvColumns{lines, file.string(), target, options};
  auto x          = std::vector<X>{};
  auto y          = std::vector<Y>{};
  auto const take = [&] {
    if (columns.is_empty()) return columns.begin();
    if (lines.is_blank() && columns.size() > 1) return;
    columns.expect_row();
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns.to(i) == detail::CsvColumns::To::x) x.push_back(columns.number<X>(i));
      else if (columns.to(i) == detail::CsvColumns::To::y) y.push_back(columns.number<Y>(i));
  };
  chorale::detail::or_out_of_memory(file, [&] {
    auto piece = std::vector<char>(std::size_t{1} << 16);
    while (auto const got = source.read(std::as_writable_bytes(Span<char>{piece}))) {
      if (source.is_packed() || options.most > 0) source.expect_at_most(options.most, "CsvOptions::most");
      lines.add({piece.data(), got}, take);
    }
    lines.end(take);
  });
  if (columns.is_empty()) columns.fail("is empty", "a file whose first line names the columns");
  if (columns.width() == 0 || y.empty())
    columns.fail("has " + std::to_string(y.size()) + " rows of " + std::to_string(columns.width()) +
                     " columns beside " + std::string{target},
                 "a file with at least one of each");
  return from_tensors(std::move(x), std::move(y), columns.width());
}

}  // namespace chorale::data
