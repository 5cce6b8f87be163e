// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/npy.hpp>

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

/// A .npz file: arrays with names, as numpy.savez and numpy.savez_compressed write them.
///
///   auto const file = data::NpzFile{"mnist.npz"};
///   auto const x    = file.read<std::uint8_t>("x_train");
///
/// cost    the file in memory as long as this object lives, and each array once more, unpacked
/// throws  BadFile with the byte when it is no such file, or is damaged: every array's checksum is compared
/// source  PKWARE's APPNOTE 6.3, without its 64-bit part: files up to 4 GiB
class NpzFile {
 public:
  explicit NpzFile(std::filesystem::path path) : path_{std::move(path)} {
    auto code       = std::error_code{};
    auto const size = std::filesystem::is_regular_file(path_, code) ? std::filesystem::file_size(path_, code) : 0;
    auto from       = std::ifstream{path_, std::ios::binary};
    bytes_.resize(code ? 0 : size);
    if (!from.is_open() || code || bytes_.empty() ||
        !from.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size())))
      throw BadFile{path_.string() + ": cannot be read, or is empty.", "a file that numpy.savez made."};
    list();
  }

  /// Names of the arrays, in the order of the file.
  std::vector<std::string> names() const {
    auto all = std::vector<std::string>{};
    for (auto const& array : arrays_) all.push_back(array.name);
    return all;
  }

  /// The array of a name.
  ///
  /// T       type of its numbers: nothing is converted; numpy's bool is read as std::uint8_t
  /// throws  BadFile when there is none, it has other numbers, or it is damaged
  template <class T>
  NpyArray<T> read(std::string_view name) const {
    if constexpr (detail::npy_holds<T>()) return read_numbers<T>(name);
    else return {};
  }

 private:
  template <class T>
  NpyArray<T> read_numbers(std::string_view name) const {
    auto const at = std::ranges::find(arrays_, name, &Stored::name);
    if (at == arrays_.end()) {
      auto all = std::string{};
      for (auto const& array : arrays_) all += (all.empty() ? "" : ", ") + array.name;
      throw BadFile{path_.string() + ": has no array " + std::string{name} + ".", "one of " + all + "."};
    }
    auto const file = unpacked(*at);
    auto const fail = [&](std::string const& what, std::string const& what_to_try) {
      throw BadFile{path_.string() + ": array " + at->name + ": " + what + ".", what_to_try + "."};
    };
    auto const text   = std::string_view{file};
    auto const longer = text.size() > 6 && text[6] != 1 ? std::size_t{12} : std::size_t{10};   // version 1: 2 bytes
    if (!text.starts_with("\x93NUMPY") || text.size() < longer) fail("is no array", again);
    auto const length = number(text, 8, longer - 8);
    if (text.size() - longer < length) fail("its header does not end", again);
    auto parser       = detail::NpyHeaderParser{text.substr(longer, length)};
    auto const header = parser.parse();
    if (!parser.complaint().empty()) fail(parser.complaint(), again);
    detail::expect_numbers<T>(header, fail);
    auto const values = text.substr(longer + length);
    auto count        = std::size_t{1};
    for (auto const size : header.shape)                   // more than there are is as wrong as any other number
      count = size == 0 || count <= values.size() / size ? count * size : values.size() + 1;
    if (count > values.size() || count * sizeof(T) != values.size())
      fail("its shape does not have the " + std::to_string(values.size()) + " bytes that follow", again);
    auto array = NpyArray<T>{.shape = header.shape, .values = std::vector<T>(count)};
    if (count != 0) std::memcpy(array.values.data(), values.data(), values.size());
    return array;
  }

  /// What the directory at the end of the file says of an array.
  struct Stored {
    std::string name;                                      // without .npy
    std::uint64_t method, crc, packed, size, at;           // at: of the header before its bytes
  };
  static constexpr auto again = "a file that numpy.savez made, fetched again";

  [[noreturn]] void fail(std::size_t at, std::string const& what) const {
    throw BadFile{path_.string() + ": byte " + std::to_string(at) + ": " + what + ".", std::string{again} + "."};
  }
  static std::uint64_t number(std::string_view text, std::size_t at, std::size_t n) {
    auto value = std::uint64_t{0};
    for (auto i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[at + i]);
    return value;
  }
  /// A number of n bytes of the file.
  std::uint64_t at(std::size_t offset, std::size_t n) const {
    if (offset > bytes_.size() || bytes_.size() - offset < n) fail(bytes_.size(), "the file ends here");
    return number(std::string_view{bytes_}, offset, n);
  }

  void list() {
    auto const end = bytes_.rfind("PK\5\6");               // of the directory; only a comment may follow
    if (end == bytes_.npos || bytes_.size() - end < 22)
      fail(bytes_.size(), "there is no directory of arrays at its end");
    auto entry = at(end + 16, 4);
    for (auto left = at(end + 10, 2); left > 0; --left) {
      if (at(entry, 4) != 0x02014b50) fail(entry, "an entry of the directory is missing");
      auto const length = at(entry + 28, 2);
      at(entry + 46 + length, 0);
      auto name = bytes_.substr(entry + 46, length);
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      auto const stored = Stored{name, at(entry + 10, 2), at(entry + 16, 4), at(entry + 20, 4), at(entry + 24, 4),
                                 at(entry + 42, 4)};
      if ((at(entry + 8, 2) & 1) != 0) fail(entry, "array " + name + " is encrypted");
      if (stored.method != 0 && stored.method != 8)
        fail(entry, "array " + name + " is packed by method " + std::to_string(stored.method) +
                        ", and 0 and 8 are read");
      if (std::max({stored.packed, stored.size, stored.at}) == std::numeric_limits<std::uint32_t>::max())
        fail(entry, "array " + name + " has 4 GiB or more");
      arrays_.push_back(stored);
      entry += 46 + length + at(entry + 30, 2) + at(entry + 32, 2);
    }
  }

  /// The .npy file of an array.
  std::string unpacked(Stored const& array) const {
    auto const begin = array.at + 30 + at(array.at + 26, 2) + at(array.at + 28, 2);
    if (at(array.at, 4) != 0x04034b50 || begin > bytes_.size() || bytes_.size() - begin < array.packed)
      fail(array.at, "array " + array.name + " is not here, or not whole");
    auto const packed = std::string_view{bytes_}.substr(begin, array.packed);
    auto out          = array.method == 8 ? inflated(packed, array) : std::string{packed};
    auto const crc    = ::crc32_z(0, reinterpret_cast<Bytef const*>(out.data()), out.size());
    if (out.size() != array.size || crc != array.crc)
      fail(begin, "array " + array.name + " is damaged: its checksum is another one");
    return out;
  }
  std::string inflated(std::string_view packed, Stored const& array) const {
    if (array.size / 1032 > packed.size() + 1)             // no packed byte gives more than 1032
      fail(array.at, "array " + array.name + " promises " + std::to_string(array.size) +
                         " bytes, more than can be in " + std::to_string(packed.size()));
    auto out         = std::string(array.size, '\0');
    auto stream      = z_stream{};
    stream.next_in   = const_cast<Bytef*>(reinterpret_cast<Bytef const*>(packed.data()));
    stream.avail_in  = static_cast<uInt>(packed.size());
    stream.next_out  = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    if (::inflateInit2(&stream, -15) != Z_OK) throw OutOfMemory{path_.string() + ": no memory to unpack it."};
    auto const code = ::inflate(&stream, Z_FINISH);
    ::inflateEnd(&stream);
    if (code != Z_STREAM_END || stream.avail_out != 0) fail(array.at, "array " + array.name + " is damaged");
    return out;
  }

  std::filesystem::path path_;
  std::string bytes_;
  std::vector<Stored> arrays_;
};

/// Rows from two arrays of a .npz file: the first dimension of both counts rows.
///
///   auto const train = data::npz<std::uint8_t, std::uint8_t>("mnist.npz", "x_train", "y_train");
///
/// throws  BadFile as NpzFile does, and when the numbers of rows differ
template <class X = float, class Y = int>
Tensors<X, Y> npz(std::filesystem::path const& file, std::string_view x, std::string_view y) {
  auto const arrays = NpzFile{file};
  return detail::rows_of(arrays.read<X>(x), arrays.read<Y>(y), file.string() + ": " + std::string{x}, std::string{y});
}

}  // namespace chorale::data
