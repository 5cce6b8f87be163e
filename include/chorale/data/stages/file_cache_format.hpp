// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/elements.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

static_assert(std::endian::native == std::endian::little,
              "chorale: files of cached rows hold little-endian numbers. Swap them here for another processor.");

/// The fields of the rows in a file of cached rows.
struct CacheFields {
  std::array<std::uint8_t, 4> types{};   // of x and y: kind, and bytes of a number: "f4 i4"
  std::string named{};                   // named fields: "Title int(40),Body byte(ragged)"
  std::vector<std::size_t> sizes{0, 0};  // bytes of a number of each field
  std::uint64_t key = 0;                 // of the stages that make the rows: see cache_key()

  std::string text() const {
    if (!named.empty()) return named;
    return static_cast<char>(types[0]) + std::to_string(types[1]) + " and " + static_cast<char>(types[2]) +
           std::to_string(types[3]);
  }
};

namespace detail {

template <class X, class Y> CacheFields cache_fields(std::type_identity<Sample<X, Y>>) {
  auto const kind = []<class T>(std::type_identity<T>) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8 && sizeof(T) < 256,
                  "chorale: cache writes numbers byte by byte: float, int, std::uint8_t and the like.");
    return std::is_floating_point_v<T> ? 'f' : !std::is_integral_v<T> ? 'v' : std::is_signed_v<T> ? 'i' : 'u';
  };
  return {.types = {static_cast<std::uint8_t>(kind(std::type_identity<X>{})), sizeof(X),
                    static_cast<std::uint8_t>(kind(std::type_identity<Y>{})), sizeof(Y)},
          .sizes = {sizeof(X), sizeof(Y)}};
}
template <class... F> CacheFields cache_fields(std::type_identity<Row<F...>>) {
  return {.named = RowType<Row<F...>>::text(), .sizes = {sizeof(typename F::element_type)...}};
}

}  // namespace detail

/// The fields of a type of rows, as a file of cached rows stores them.
template <class Row> CacheFields cache_fields() { return detail::cache_fields(std::type_identity<Row>{}); }

namespace detail {

/// The header of a file of cached rows. With named fields, their text follows: its bytes, then itself, to a multiple of
/// 8 bytes.
struct CacheHeader {
  std::array<char, 8> magic{'c', 'h', 'o', 'r', 'r', 'o', 'w', 's'};
  std::uint32_t version = 3;            // 4: with named fields; 1 and 2 had no key
  std::array<std::uint8_t, 4> types{};  // of x and y; with named fields: checksum of their text
  std::uint64_t rows  = 0;
  std::uint64_t bytes = 0;  // of the file
  std::uint64_t key   = 0;  // of the stages that made the rows
  std::uint32_t last  = 0;  // checksum of the last row
  std::uint32_t crc   = 0;  // of the members before it

  std::uint32_t right_crc() const {
    return crc32c(std::as_bytes(Span<CacheHeader const>{this, 1}).first(sizeof(CacheHeader) - sizeof(crc)));
  }
};
static_assert(sizeof(CacheHeader) == 48);

constexpr std::uint64_t to_8(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

/// The bytes between the header and the first row.
inline std::vector<std::byte> cache_names(CacheFields const& fields) {
  auto const n = std::uint64_t{fields.named.size()};
  auto bytes   = std::vector<std::byte>(n == 0 ? 0 : sizeof n + to_8(n));
  if (n == 0) return bytes;
  std::memcpy(bytes.data(), &n, sizeof n);
  std::memcpy(bytes.data() + sizeof n, fields.named.data(), n);
  return bytes;
}

/// The header of an empty file.
inline CacheHeader cache_header(CacheFields const& fields) {
  auto header = CacheHeader{.types = fields.types, .key = fields.key};
  if (fields.named.empty()) return header;
  auto const crc = crc32c(cache_names(fields));
  header.version = 4;
  std::memcpy(header.types.data(), &crc, sizeof crc);
  return header;
}

/// An open file and its temporary name, if any; the destructor removes the name and closes the file.
struct OpenCache {
  int number = -1;
  std::filesystem::path aside{};

  OpenCache()                            = default;
  OpenCache(OpenCache const&)            = delete;
  OpenCache& operator=(OpenCache const&) = delete;
  ~OpenCache() {
    if (!aside.empty()) ::unlink(aside.c_str());  // first: closing releases a lock
    if (number >= 0) ::close(number);
  }
};

}  // namespace detail

/// A finished file of cached rows, mapped into memory: its pages are read from the disk as they are used.
///
///   header 48 B │ names of the fields, if any │ crc · bytes of each field · each field │ crc · … │ …
///
/// All numbers are little-endian; rows, and fields in them, begin at a multiple of 8 bytes. The crc of a row covers
/// all bytes up to the next row, and continues the crc of the previous row.
///
/// keeps   an open file keeps its bytes when it is deleted or replaced; it must not be written into
/// throws  BadFile with file, row and byte, when the file does not match its header and its checksums
class CacheFile {
 public:
  /// The position of a reader: before row number `row`.
  struct Cursor {
    std::uint64_t row = 0, at = 0;
    std::uint32_t crc = 0;  // of the previous row
  };

  /// Opens a file; nothing when it does not exist.
  static std::optional<CacheFile> open(std::filesystem::path const& path, CacheFields const& fields) {
    auto file   = detail::OpenCache{};
    file.number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a named pipe must not wait
    if (file.number >= 0) return CacheFile{path, file.number, fields};
    if (errno == ENOENT) return {};
    throw BadFile{path.string() + ": cannot be opened: " + std::generic_category().message(errno) + ".",
                  "another path, or a file that may be read."};
  }

  CacheFile(std::filesystem::path path, int file, CacheFields const& fields)
      : path_{std::move(path)}, sizes_{fields.sizes} {
    struct stat status{};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
      throw BadFile{path_.string() + ": is not a file that can be read.", "another path for the cache."};
    auto const size = static_cast<std::uint64_t>(status.st_size);
    if (size < sizeof header_)
      fail(size, "the file ends, but a cache begins with " + std::to_string(sizeof header_) + " bytes");
    auto* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
      throw BadFile{path_.string() + ": " + std::to_string(size) +
                        " bytes cannot be mapped: " + std::generic_category().message(errno) + ".",
                    "a disk of this machine, or more memory."};
    bytes_ = {static_cast<std::byte const*>(data), size};
    try {
      check_header(fields);
    } catch (...) {
      unmap();
      throw;
    }
  }
  CacheFile(CacheFile&& other) noexcept
      : path_{std::move(other.path_)}, sizes_{std::move(other.sizes_)}, bytes_{std::exchange(other.bytes_, {})},
        header_{other.header_}, first_row_{other.first_row_} {}
  CacheFile& operator=(CacheFile&&) = delete;
  ~CacheFile() { unmap(); }

  std::uint64_t rows() const { return header_.rows; }

  /// A reader before the first row.
  Cursor begin() const { return {.at = first_row_}; }

  enum class Check { none, all };  // none: the row has been checked before

  /// Reads the next row. False at the end.
  ///
  /// out     gets a view of the bytes of each field
  /// cost    no copy; computes the checksum, which reads the whole row, only with Check::all
  bool next(Cursor& cursor, Span<ConstBytes> out, Check check) const {
    if (cursor.row == header_.rows) {
      if (check == Check::all) check_end(cursor);
      return false;
    }
    auto const at = cursor.at, left = bytes_.size() - at;
    auto const bad  = [&](std::string const& what) { fail(at, "row " + std::to_string(cursor.row) + " " + what); };
    auto const head = sizeof(std::uint64_t) * (1 + out.size());
    if (left < head) bad("is cut after " + std::to_string(left) + " bytes");
    auto const number = [&](std::size_t i) {
      auto value = std::uint64_t{};
      std::memcpy(&value, &bytes_[at + i * sizeof value], sizeof value);
      return value;
    };
    auto const counts = [&] {
      auto text = std::to_string(number(1));
      for (std::size_t i = 1; i < out.size(); ++i)
        text += (i + 1 < out.size() ? ", " : " and ") + std::to_string(number(i + 1));
      return text;
    };
    auto end = at + head;
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto const bytes = number(i + 1), room = bytes_.size() - end;
      if (check == Check::all && (bytes > room || detail::to_8(bytes) > room))
        bad("claims " + counts() + " bytes, but " + std::to_string(left - head) + " are left");
      out[i] = bytes_.subspan(end, bytes);
      end += detail::to_8(bytes);
    }
    auto const crc = number(0);
    if (check == Check::all) {
      auto const begin = at + sizeof crc;
      auto const right = crc32c(bytes_.subspan(begin, end - begin), cursor.crc);
      if (crc != right) bad("has checksum " + std::to_string(crc) + ", but its bytes have " + std::to_string(right));
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i].size() % sizes_[i] != 0) bad("has " + counts() + " bytes, which are not whole numbers");
    }
    cursor = {cursor.row + 1, end, static_cast<std::uint32_t>(crc)};
    return true;
  }

  [[noreturn]] void fail(std::uint64_t at, std::string const& what) const {
    throw BadFile{path_.string() + ": byte " + std::to_string(at) + ": " + what + ".",
                  "to delete the file: it is made again."};
  }

 private:
  void check_header(CacheFields const& fields) {
    std::memcpy(&header_, bytes_.data(), sizeof header_);
    if (header_.magic != detail::CacheHeader{}.magic) fail(0, "this is not a file of cached rows");
    if (header_.version != 3 && header_.version != 4)
      fail(8,
           "version " + std::to_string(header_.version) + " of cached rows, but this program reads versions 3 and 4");
    if (header_.crc != header_.right_crc())
      fail(44, "the header has checksum " + std::to_string(header_.crc) + ", but its bytes have " +
                   std::to_string(header_.right_crc()));
    auto const found = fields_of_file();
    if (found.types != fields.types || found.named != fields.named)
      fail(12,
           "rows of " + printable(found.text()) + ", but the stage before the cache makes rows of " + fields.text());
    if (header_.key != fields.key)
      fail(32, "rows of other stages: those of this program have key " + std::to_string(fields.key) +
                   ", and those that made the file had " + std::to_string(header_.key));
    if (header_.bytes != bytes_.size())
      fail(24,
           "a cache of " + std::to_string(header_.bytes) + " bytes, but the file has " + std::to_string(bytes_.size()));
  }

  /// The fields that the header names; their sizes are not in it.
  CacheFields fields_of_file() {
    first_row_ = sizeof header_;
    if (header_.version == 3) return {.types = header_.types};
    auto n = std::uint64_t{};
    if (bytes_.size() - first_row_ < sizeof n) fail(first_row_, "the file ends, but the names of fields begin here");
    std::memcpy(&n, &bytes_[first_row_], sizeof n);
    auto const room = bytes_.size() - first_row_ - sizeof n;
    if (n == 0 || n > room || detail::to_8(n) > room)
      fail(first_row_,
           "the names of fields claim " + std::to_string(n) + " bytes, but " + std::to_string(room) + " are left");
    auto const names = bytes_.subspan(first_row_, sizeof n + detail::to_8(n));
    auto crc         = std::uint32_t{};
    std::memcpy(&crc, header_.types.data(), sizeof crc);
    if (crc != crc32c(names))
      fail(first_row_, "the names of fields have checksum " + std::to_string(crc) + ", but their bytes have " +
                           std::to_string(crc32c(names)));
    first_row_ += names.size();
    return {.named = {reinterpret_cast<char const*>(names.data()) + sizeof n, n}};
  }

  void check_end(Cursor const& cursor) const {
    if (cursor.at != bytes_.size() || cursor.crc != header_.last)
      fail(cursor.at, "the last of " + std::to_string(header_.rows) + " rows ends here with checksum " +
                          std::to_string(cursor.crc) + ", but the header says byte " + std::to_string(header_.bytes) +
                          " and checksum " + std::to_string(header_.last));
  }

  void unmap() noexcept {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    bytes_ = {};
  }

  std::filesystem::path path_;
  std::vector<std::size_t> sizes_;  // bytes of a number of each field
  ConstBytes bytes_;
  detail::CacheHeader header_{};
  std::uint64_t first_row_ = sizeof(detail::CacheHeader);
};

}  // namespace chorale::data
