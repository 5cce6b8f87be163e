// SPDX-License-Identifier: Apache-2.0
// 400 lines: one format, its header and its numbers, read and written.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/half.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/numbers.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  std::string type;  // "f4", "i8", ..; "O": Python objects
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
                       (size == "1" ? kind != 'f' : kind != 'b' && (size == "2" || size == "4" || size == "8"));
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
  for (auto const size : shape) sizes.append(sizes.empty() ? "" : ", ") += std::to_string(size);
  if (shape.size() == 1) sizes += ",";
  auto dict         = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  auto const before = std::size_t{10};  // magic, version, length
  dict.append(63 - (before + dict.size()) % 64, ' ');
  return dict + '\n';
}

}  // namespace chorale::data::detail

namespace chorale::data {

/// The content of a .npy file.
template <class T> struct NpyArray {
  std::vector<std::size_t> shape;  // empty: one number
  std::vector<T> values;           // row-major
};

namespace detail {

/// Refuses a type whose numbers npy files do not hold. Returns false then.
template <class T> constexpr bool npy_holds() {
  constexpr bool holds = std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8;
  static_assert(holds, "chorale: npy files hold numbers of up to 8 bytes. Read bool as std::uint8_t.");
  return holds;
}

/// A type of numbers as NumPy writes it, without the byte order: "f4", "i8", "u1".
template <class T> std::string npy_type() {
  static_cast<void>(npy_holds<T>());
  auto const kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
  return kind + std::to_string(sizeof(T));
}

/// Calls f(S{}), where S is the type of the numbers of a file. Their type is one that the parser takes.
template <class F> void with_npy_type(std::string_view type, F&& f) {
  if (type == "f2") f(fp16{});
  else if (type == "f4") f(0.0F);
  else if (type == "f8") f(0.0);
  else if (type == "i1") f(std::int8_t{});
  else if (type == "i2") f(std::int16_t{});
  else if (type == "i4") f(std::int32_t{});
  else if (type == "i8") f(std::int64_t{});
  else if (type == "u2") f(std::uint16_t{});
  else if (type == "u4") f(std::uint32_t{});
  else if (type == "u8") f(std::uint64_t{});
  else f(std::uint8_t{});  // u1, b1
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
    file.fail(
        8,
        "a header of " + std::to_string(length) + " bytes, but at most " + std::to_string(npy_max_header) + " are read",
        ByteSource::again);
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

/// Appends the next numbers of a file, each an S, as numbers of T.
///
/// cost    memory in proportion to the bytes read, not to `count`; a piece of 64 KiB
/// throws  BadFile for the first number that is not a T, and when the file ends before
template <class T, class S>
void read_numbers_as(ByteSource& file, std::vector<T>& to, std::size_t count, std::string const& promise) {
  auto const ended = [&](std::size_t got) {
    file.fail(promise + ", but the file ends after " + std::to_string(got), ByteSource::again);
  };
  if constexpr (std::is_same_v<T, S>) {
    constexpr auto piece = (std::size_t{1} << 20) / sizeof(T);
    while (to.size() < count) {
      auto const before = to.size();
      to.resize(before + std::min(count - before, std::max(piece, before)));
      auto const room = std::as_writable_bytes(Span<T>{to}.subspan(before));
      if (auto const got = file.read(room); got < room.size()) ended(before * sizeof(T) + got);
    }
  } else {
    auto piece = std::vector<std::byte>((std::size_t{1} << 16) / sizeof(S) * sizeof(S));
    while (to.size() < count) {
      auto const room = Bytes{piece}.first(std::min(piece.size(), (count - to.size()) * sizeof(S)));
      if (auto const got = file.read(room); got < room.size()) ended(to.size() * sizeof(S) + got);
      for (std::size_t at = 0; at < room.size(); at += sizeof(S)) {
        auto stored = S{};
        std::memcpy(&stored, room.data() + at, sizeof(S));
        auto const value = [&] {
          if constexpr (std::is_arithmetic_v<S>) return stored;
          else return static_cast<float>(stored);  // fp16
        }();
        if (!fits_in<T>(value))
          file.fail(file.offset() - room.size() + at, "number " + std::to_string(to.size()) + " " + why_not<T>(value),
                    "another type than " + npy_type<T>());
        to.push_back(static_cast<T>(value));
      }
    }
  }
}

/// Numbers that lie column by column, row by row.
template <class T> std::vector<T> by_rows(std::vector<T> const& columns, std::vector<std::size_t> const& shape) {
  auto step = std::vector<std::size_t>(shape.size(), 1), at = std::vector<std::size_t>(shape.size());
  for (std::size_t k = 1; k < shape.size(); ++k) step[k] = step[k - 1] * shape[k - 1];
  auto rows = std::vector<T>{};
  rows.reserve(columns.size());
  for (auto place = std::size_t{0}; rows.size() < columns.size();) {
    rows.push_back(columns[place]);
    for (auto k = shape.size(); k-- > 0;) {
      place += step[k];
      if (++at[k] < shape[k]) break;
      place -= at[k] * step[k];
      at[k] = 0;
    }
  }
  return rows;
}

/// Reads an array to the end of the file.
template <class T> NpyArray<T> read_npy_numbers(ByteSource& file) {
  auto const header = read_npy_header(file);
  auto const begin  = file.offset();
  auto const fail   = [&](std::string const& what, std::string const& what_to_try) {
    file.fail(begin, what, what_to_try);
  };
  if (header.type == "O") fail("Python objects, which only Python can read", "numpy.save of an array of numbers");
  if (header.big_endian) fail("big-endian numbers", "array.astype(array.dtype.newbyteorder('<')) before numpy.save");
  auto text              = std::string{};
  auto count             = std::size_t{1};
  auto const size_of_one = static_cast<std::size_t>(header.type[1] - '0');
  for (auto const size : header.shape) {
    text.append(text.empty() ? "" : " x ") += std::to_string(size);
    if (size != 0 && count > std::numeric_limits<std::size_t>::max() / 2 / size_of_one / size)
      fail("the shape " + text + " has more than 2^63 bytes", ByteSource::again);
    count *= size;
  }
  auto const bytes   = std::to_string(count * size_of_one);
  auto const promise = "the shape " + text + " promises " + bytes + " bytes";
  file.expect_room_for(count * size_of_one, promise);
  auto array = NpyArray<T>{.shape = header.shape, .values = {}};
  with_npy_type(header.type, [&]<class S>(S) { read_numbers_as<T, S>(file, array.values, count, promise); });
  auto beyond    = std::array<std::byte, 1>{};
  auto const end = file.offset();
  if (file.read(beyond) != 0)
    file.fail(end, "the data of " + bytes + " bytes ends here, but the file goes on", ByteSource::again);
  if (header.fortran_order && count > 0) array.values = by_rows(array.values, array.shape);
  return array;
}

}  // namespace detail

/// Reads a .npy file, plain or gzipped.
///
/// T       type of the numbers that are made of those in the file: each has to be in its range, and whole where T is;
///         numpy's bool is 0 and 1
/// cost    memory in proportion to the bytes of the file, whatever the header promises; twice as much for an array that
///         lies column by column
/// throws  BadFile with the byte, when a number is not a T, when it is big-endian or has Python objects, or does not
///         end where its shape requires
/// source  numpy.lib.format, versions 1.0 to 3.0
template <class T> NpyArray<T> read_npy(std::filesystem::path const& path) {
  if constexpr (detail::npy_holds<T>()) {
    auto file = ByteSource{path};
    return chorale::detail::or_out_of_memory(path, [&] { return detail::read_npy_numbers<T>(file); });
  } else {
    return {};
  }
}

/// Writes a .npy file, as numpy.save would.
///
/// values  row-major
/// throws  BadFile when it cannot be written, and when the path names a device, a FIFO or a folder
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
  auto const rows = [](auto const& array, std::string const& file) {
    if (array.shape.empty())
      throw BadFile{file + ": one number without a dimension, but the first dimension counts rows.",
                    "array.reshape(1), or another array."};
    return array.shape[0];
  };
  auto const n = rows(x, x_file), targets = rows(y, y_file);
  if (n != targets)
    throw BadFile{x_file + ": " + std::to_string(n) + " rows, but " + y_file + " has " + std::to_string(targets) + ".",
                  "two files of one split."};
  if (x.values.empty()) throw BadFile{x_file + ": no rows, or rows without numbers.", "another file."};
  auto const width = x.values.size() / n;
  return from_tensors(std::move(x.values), std::move(y.values), width);
}

}  // namespace detail

/// Rows from two .npy files, read at once: the first dimension of both counts rows.
///
/// throws  BadFile as read_npy does, and when the numbers of rows differ
template <class X, class Y> auto npy(std::filesystem::path const& x_file, std::filesystem::path const& y_file) {
  if constexpr (detail::npy_holds<X>() && detail::npy_holds<Y>())
    return detail::rows_of(read_npy<X>(x_file), read_npy<Y>(y_file), x_file.string(), y_file.string());
  else return RefusedData{};
}

}  // namespace chorale::data
