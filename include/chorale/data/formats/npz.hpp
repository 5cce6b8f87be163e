// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/npy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::data {

/// A .npz file: arrays with names, as numpy.savez and numpy.savez_compressed write them.
///
///   auto const file = data::NpzFile{"mnist.npz"};
///   auto const x    = file.read<std::uint8_t>("x_train");
///
/// cost    the names of the arrays; an array is read, and unpacked, when it is asked for
/// throws  BadFile with the byte when it is not such a file, has two arrays of one name, or is damaged: the checksum of
///         an array is compared when it is read
/// source  PKWARE's APPNOTE 6.3, without its 64-bit part: files up to 4 GiB
class NpzFile {
 public:
  explicit NpzFile(std::filesystem::path const& path) : file_{std::make_shared<InputFile>(path)} {
    chorale::detail::or_out_of_memory(path, [&] { list(); });
  }

  /// Names of the arrays, in the order of the file.
  std::vector<std::string> names() const {
    auto all = std::vector<std::string>{};
    for (auto const& array : arrays_) all.push_back(array.name);
    return all;
  }

  /// The array of a name.
  ///
  /// T       type of the numbers that are made of those in the file, as by read_npy
  /// throws  BadFile when there is none, a number of it is not a T, or it is damaged
  template <class T> NpyArray<T> read(std::string_view name) const {
    if constexpr (detail::npy_holds<T>()) {
      auto const& array = stored(name);
      auto numbers      = bytes_of(array);
      return chorale::detail::or_out_of_memory(file_->path(), [&] {
        auto made = detail::read_npy_numbers<T>(numbers);
        if (numbers.offset() != array.size || numbers.checksum() != array.crc)
          fail(array.at, "array " + in_quotes(array.name) + " is damaged: its checksum is another one");
        return made;
      });
    } else {
      return {};
    }
  }

 private:
  /// What the directory at the end of the file says of an array.
  struct Stored {
    std::string name;                             // without .npy
    std::uint64_t method, crc, packed, size, at;  // at: of the header before its bytes
  };

  Stored const& stored(std::string_view name) const {
    auto const at = std::ranges::find(arrays_, name, &Stored::name);
    if (at != arrays_.end()) return *at;
    auto all = std::string{};
    for (std::size_t i = 0; i < arrays_.size() && i < 20; ++i)
      all.append(i == 0 ? "" : ", ") += printable(arrays_[i].name);
    throw BadFile{file_->path().string() + ": has no array " + printable(name) + ".",
                  "one of " + all + (arrays_.size() > 20 ? ", .." : "") + "."};
  }

  [[noreturn]] void fail(std::uint64_t at, std::string const& what) const {
    throw BadFile{file_->path().string() + ": byte " + std::to_string(at) + ": " + what + ".",
                  "a file that numpy.savez made, fetched again."};
  }
  /// A number of n bytes in a part of the file, little-endian.
  static std::uint64_t number(std::string_view text, std::size_t at, std::size_t n) {
    auto value = std::uint64_t{0};
    for (auto i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[at + i]);
    return value;
  }
  /// Bytes [begin, begin + n) of the file.
  std::string part(std::uint64_t begin, std::size_t n) const {
    auto text = std::string(n, '\0');
    if (file_->read_at(begin, std::as_writable_bytes(Span<char>{text})) < n) fail(file_->size(), "the file ends here");
    return text;
  }

  void list() {
    constexpr auto most_end = std::uint64_t{22 + 65'535};  // the last record; only a comment may follow it
    auto const begin        = file_->size() - std::min(file_->size(), most_end);
    auto const tail         = part(begin, static_cast<std::size_t>(file_->size() - begin));
    auto const end          = tail.rfind("PK\5\6");
    if (end == tail.npos || tail.size() - end < 22) fail(file_->size(), "there is no directory of arrays at its end");
    auto entry = number(tail, end + 16, 4);
    for (auto left = number(tail, end + 10, 2); left > 0; --left) {
      auto const head = part(entry, 46);
      auto const of   = [&](std::size_t at, std::size_t n) { return number(head, at, n); };
      if (of(0, 4) != 0x02014b50) fail(entry, "an entry of the directory is missing");
      auto name = part(entry + 46, static_cast<std::size_t>(of(28, 2)));
      if (name.ends_with(".npy")) name.resize(name.size() - 4);
      auto const array = "array " + in_quotes(name);
      if ((of(8, 2) & 1) != 0) fail(entry, array + " is encrypted");
      if (of(10, 2) != 0 && of(10, 2) != 8)
        fail(entry, array + " is packed by method " + std::to_string(of(10, 2)) + ", and 0 and 8 are read");
      if (std::max({of(20, 4), of(24, 4), of(42, 4)}) == std::numeric_limits<std::uint32_t>::max())
        fail(entry, array + " has 4 GiB or more");
      arrays_.push_back({std::move(name), of(10, 2), of(16, 4), of(20, 4), of(24, 4), of(42, 4)});
      entry += 46 + of(28, 2) + of(30, 2) + of(32, 2);
    }
    auto sorted = names();
    std::ranges::sort(sorted);
    if (auto const twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      fail(entry, "there are two arrays " + in_quotes(*twice));
  }

  /// The .npy file of an array.
  ByteSource bytes_of(Stored const& array) const {
    auto const head  = part(array.at, 30);
    auto const begin = array.at + 30 + number(head, 26, 2) + number(head, 28, 2);
    if (number(head, 0, 4) != 0x04034b50 || begin > file_->size() || file_->size() - begin < array.packed)
      fail(array.at, "array " + in_quotes(array.name) + " is not here, or not whole");
    auto source = ByteSource{file_, file_->path().string() + ": array " + printable(array.name), begin, array.packed,
                             array.method == 8};
    source.expect_room_for(array.size, "the directory promises " + std::to_string(array.size) + " bytes");
    return source;
  }

  std::shared_ptr<InputFile const> file_;
  std::vector<Stored> arrays_;
};

/// Rows from two arrays of a .npz file: the first dimension of both counts rows.
///
///   auto const train = data::npz<std::uint8_t, std::uint8_t>("mnist.npz", "x_train", "y_train");
///
/// throws  BadFile as NpzFile does, when the numbers of rows differ, and when an array has no dimension
template <class X = float, class Y = int>
Tensors<X, Y> npz(std::filesystem::path const& file, std::string_view x, std::string_view y) {
  auto const arrays = NpzFile{file};
  return detail::rows_of(arrays.read<X>(x), arrays.read<Y>(y), file.string() + ": " + std::string{x}, std::string{y});
}

}  // namespace chorale::data
