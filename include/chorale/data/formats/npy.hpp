// SPDX-License-Identifier: Apache-2.0
// A little over 300 lines: one format, its header and its rows, read and written.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data::detail {

/// The content of the header of a .npy file.
struct NpyHeader {
  std::string type;                                        // "f4", "i8", ..; "O": Python objects
  bool big_endian = false, fortran_order = false;
  std::vector<std::size_t> shape;
};

inline constexpr std::size_t npy_max_header = std::size_t{1} << 16;

/// Reads the header's dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, keys in any order.
///
/// keeps   complaint() is the first error, empty without one; at() is its position
class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_{text} {}

  std::string const& complaint() const { return complaint_; }
  std::size_t at() const { return at_; }

  NpyHeader parse() {
    auto header = NpyHeader{};
    auto seen   = std::string{};
    if (!expect('{')) return header;
    while (ok() && !take('}')) {
      auto const begin = at_;
      auto const key   = in_quotes();
      if (!ok() || !expect(':')) break;
      if (key == "descr") descr(header);
      else if (key == "fortran_order") header.fortran_order = boolean();
      else if (key == "shape") header.shape = tuple();
      else fail(begin, "a key that is none of descr, fortran_order and shape");
      seen += key.empty() ? '?' : key[0];
      if (ok() && !take(',') && !ahead('}')) fail(at_, "',' or '}' is missing");
    }
    std::sort(seen.begin(), seen.end());
    if (ok() && seen != "dfs") fail(at_, "the header needs descr, fortran_order and shape, each once");
    skip_space();
    if (ok() && at_ != text_.size()) fail(at_, "the header goes on after its dict");
    return header;
  }

 private:
  bool ok() const { return complaint_.empty(); }
  void fail(std::size_t at, std::string const& what) {
    if (ok()) complaint_ = what, at_ = at;
  }

  void skip_space() {
    while (ok() && at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool ahead(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    auto const there = ahead(c);
    at_ += there ? 1 : 0;
    return there;
  }
  bool expect(char c) {
    if (!take(c)) fail(at_, std::string{"'"} + c + "' is missing");
    return ok();
  }

  std::string in_quotes() {
    auto const quote = ahead('"') ? '"' : '\'';
    if (!expect(quote)) return {};
    auto const end = text_.find(quote, at_);
    if (end == text_.npos) return fail(at_, "a text that does not end"), std::string{};
    auto const text = text_.substr(at_, end - at_);
    at_             = end + 1;
    return std::string{text};
  }

  void descr(NpyHeader& header) {
    if (ahead('[')) return fail(at_, "a structured array, but arrays of numbers are read");
    auto const begin = at_;
    auto text        = in_quotes();
    if (!ok()) return;
    auto const order = text.empty() ? '?' : text[0];
    header.type      = text.substr(text.empty() ? 0 : 1);
    auto const kind  = header.type.empty() ? '?' : header.type[0];
    auto const size  = header.type.substr(header.type.empty() ? 0 : 1);
    auto const known = std::string_view{"<>|="}.find(order) != std::string_view::npos;
    auto const plain = std::string_view{"fiub"}.find(kind) != std::string_view::npos &&
                       (size == "1" || size == "2" || size == "4" || size == "8");
    if (!known || (!plain && header.type != "O"))
      fail(begin, "a type of numbers that is none of f, i, u and b with 1, 2, 4 or 8 bytes");
    header.big_endian = order == '>' && size != "1";
  }

  bool boolean() {
    skip_space();
    for (auto const* word : {"False", "True"})
      if (text_.substr(at_).starts_with(word)) return at_ += std::string_view{word}.size(), word[0] == 'T';
    fail(at_, "True or False is missing");
    return false;
  }

  std::vector<std::size_t> tuple() {
    auto sizes = std::vector<std::size_t>{};
    if (!expect('(')) return sizes;
    while (ok() && !take(')')) {
      sizes.push_back(number());
      if (sizes.size() > 32) fail(at_, "more than 32 dimensions");
      if (ok() && !take(',') && (sizes.size() == 1 || !ahead(')'))) fail(at_, "',' or ')' is missing");
    }
    return sizes;
  }

  std::size_t number() {
    skip_space();
    auto const begin = at_;
    auto value       = std::size_t{0};
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      auto const digit = static_cast<std::size_t>(text_[at_] - '0');
      if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10)
        return fail(begin, "a dimension above 2^64"), value;
      value = 10 * value + digit;
    }
    if (at_ == begin) fail(begin, "a number is missing");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string complaint_;
};

/// The header's dict, padded with spaces so that the data begins at a multiple of 64 bytes.
inline std::string npy_dict(std::string const& descr, std::vector<std::size_t> const& shape) {
  auto sizes = std::string{};
  for (auto const size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (shape.size() == 1) sizes += ",";
  auto dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  auto const before = std::size_t{10};                     // magic, version, length
  dict.append(63 - (before + dict.size()) % 64, ' ');
  return dict + '\n';
}

}  // namespace chorale::data::detail

namespace chorale::data {

/// The content of a .npy file.
template <class T>
struct NpyArray {
  std::vector<std::size_t> shape;                          // empty: one number
  std::vector<T> values;                                   // row-major
};

namespace detail {

/// Refuses a type of which npy files hold no numbers. Returns false then.
template <class T>
constexpr bool npy_holds() {
  constexpr bool holds = std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8;
  static_assert(holds, "chorale: npy files hold numbers of up to 8 bytes. Read bool as std::uint8_t.");
  return holds;
}

/// A type of numbers as NumPy writes it, without the byte order: "f4", "i8", "u1".
template <class T>
std::string npy_type() {
  static_cast<void>(npy_holds<T>());
  auto const kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
  return kind + std::to_string(sizeof(T));
}

/// Refuses what a header announces unless it is rows of T.
///
/// fail    of (what, what to try): throws
template <class T>
void expect_numbers(NpyHeader const& header, auto const& fail) {
  auto const wanted = npy_type<T>();
  auto const type   = header.type == "b1" ? "u1" : header.type;
  if (header.type == "O")
    fail("Python objects, which only Python can read", "numpy.save of an array of numbers");
  if (header.big_endian) fail("big-endian numbers", "array.astype(array.dtype.newbyteorder('<')) before numpy.save");
  if (header.fortran_order)
    fail("an array that lies column by column (fortran_order)", "numpy.ascontiguousarray(array) before numpy.save");
  if (type != wanted)
    fail("numbers of type " + header.type + ", but " + wanted + " are needed", "read_npy of that type, or astype");
}

/// Reads the header of an open file: its magic, version and dict.
inline NpyHeader read_npy_header(ByteSource& file) {
  auto start      = std::array<std::byte, 8>{};
  auto const got  = file.read(start);
  auto const text = std::string_view{reinterpret_cast<char const*>(start.data()), got};
  if (!text.starts_with("\x93NUMPY"))
    file.fail(0, "a npy file begins with 93 4e 55 4d 50 59 (.NUMPY), this one does not", "a file that numpy.save made");
  auto const major = got == 8 ? std::to_integer<int>(start[6]) : 0;
  if (major < 1 || major > 3)
    file.fail(6, "format version " + std::to_string(major) + ", but 1, 2 and 3 are read", ByteSource::again);
  auto size         = std::array<std::byte, 4>{};
  auto const digits = major == 1 ? std::size_t{2} : std::size_t{4};
  if (file.read(Bytes{size}.first(digits)) < digits) file.fail("the header ends here", ByteSource::again);
  auto length = std::size_t{0};
  for (auto i = digits; i-- > 0;) length = length << 8 | std::to_integer<std::size_t>(size[i]);
  if (length > npy_max_header)
    file.fail(8, "a header of " + std::to_string(length) + " bytes, but at most " + std::to_string(npy_max_header) +
                     " are read", ByteSource::again);
  auto const begin = file.offset();
  auto dict        = std::vector<char>{};
  if (auto const had = file.append(dict, length); had < length)
    file.fail("the header has " + std::to_string(length) + " bytes, but the file ends after " + std::to_string(had),
              ByteSource::again);
  auto parser = NpyHeaderParser{{dict.data(), dict.size()}};
  auto header = parser.parse();
  if (!parser.complaint().empty())
    file.fail(begin + parser.at(), parser.complaint(), "a file that numpy.save made of an array of numbers");
  return header;
}

template <class T>
NpyArray<T> read_npy_numbers(std::filesystem::path const& path) {
  auto file         = ByteSource{path};
  auto const header = detail::read_npy_header(file);
  auto const begin  = file.offset();
  auto const fail   = [&](std::string const& what, std::string const& what_to_try) {
    file.fail(begin, what, what_to_try);
  };
  detail::expect_numbers<T>(header, fail);

  auto text  = std::string{};
  auto count = std::size_t{1};
  for (auto const size : header.shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(size);
    if (size != 0 && count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T) / size)
      fail("the shape " + text + " has more than 2^63 bytes", ByteSource::again);
    count *= size;
  }
  auto const promise   = "the shape " + text + " promises " + std::to_string(count * sizeof(T)) + " bytes";
  file.expect_room_for(count * sizeof(T), promise);
  auto array           = NpyArray<T>{.shape = header.shape, .values = {}};
  constexpr auto piece = (std::size_t{1} << 20) / sizeof(T);
  while (array.values.size() < count) {                    // grows with the bytes read, not with those promised
    auto const before = array.values.size();
    array.values.resize(before + std::min(count - before, std::max(piece, before)));
    auto const room = std::as_writable_bytes(Span<T>{array.values}.subspan(before));
    if (auto const got = file.read(room); got < room.size())
      file.fail(promise + ", but the file ends after " + std::to_string(before * sizeof(T) + got), ByteSource::again);
  }
  auto beyond    = std::array<std::byte, 1>{};
  auto const end = file.offset();
  if (file.read(beyond) != 0)
    file.fail(end, "the data of " + std::to_string(count * sizeof(T)) + " bytes ends here, but the file goes on",
              ByteSource::again);
  return array;
}

}  // namespace detail

/// Reads a .npy file, plain or gzipped.
///
/// T       type of its numbers: nothing is converted; numpy's bool is read as std::uint8_t
/// cost    memory in proportion to the bytes of the file, whatever the header promises
/// throws  BadFile with the byte, when it holds other numbers, is big-endian or column-major, or does not end where
///         its shape requires
/// source  numpy.lib.format, versions 1.0 to 3.0
template <class T>
NpyArray<T> read_npy(std::filesystem::path const& path) {
  if constexpr (detail::npy_holds<T>()) return detail::read_npy_numbers<T>(path);
  else return {};
}

/// Writes a .npy file, as numpy.save would.
///
/// values  row-major
/// throws  BadFile when it cannot be written, and when the path is that of a device, a FIFO or a folder
template <class T>
void write_npy(std::filesystem::path const& path, std::vector<std::size_t> const& shape, Span<T const> values) {
  auto count = std::size_t{1};
  for (auto const size : shape) count *= size;
  CHORALE_EXPECTS(count == values.size(), "write_npy: the shape has " + std::to_string(count) + " numbers, but " +
                                              std::to_string(values.size()) + " are given");
  auto const dict = detail::npy_dict((sizeof(T) == 1 ? "|" : "<") + detail::npy_type<T>(), shape);
  auto const size = static_cast<std::uint16_t>(dict.size());
  auto file       = std::ofstream{output_file(path), std::ios::binary};
  file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(size & 0xFF) << static_cast<char>(size >> 8) << dict;
  file.write(reinterpret_cast<char const*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  file.close();
  if (!file) throw BadFile{path.string() + ": cannot be written.", "a folder that exists, with room in it."};
}

namespace detail {

template <class X, class Y>
Tensors<X, Y> rows_of(NpyArray<X> x, NpyArray<Y> y, std::string const& x_file, std::string const& y_file) {
  auto const rows = [](auto const& array) { return array.shape.empty() ? 1 : array.shape[0]; };
  if (rows(x) != rows(y))
    throw BadFile{x_file + ": " + std::to_string(rows(x)) + " rows, but " + y_file + " has " +
                      std::to_string(rows(y)) + ".", "two files of one split."};
  if (x.values.empty()) throw BadFile{x_file + ": no rows, or rows without numbers.", "another file."};
  auto const width = x.values.size() / rows(x);
  return from_tensors(std::move(x.values), std::move(y.values), width);
}

}  // namespace detail

/// Rows from two .npy files, read at once: the first dimension of both counts rows.
///
/// throws  BadFile as read_npy does, and when the numbers of rows differ
template <class X, class Y>
auto npy(std::filesystem::path const& x_file, std::filesystem::path const& y_file) {
  if constexpr (detail::npy_holds<X>() && detail::npy_holds<Y>())
    return detail::rows_of(read_npy<X>(x_file), read_npy<Y>(y_file), x_file.string(), y_file.string());
  else return RefusedData{};
}

}  // namespace chorale::data
