// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

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

namespace chorale::data {

static_assert(std::endian::native == std::endian::little,
              "chorale: files of cached rows hold little-endian numbers. Swap them here for another processor.");

/// The types of the numbers of a row, X and Y, as the header of a file of cached rows stores them: "f4 i4".
template <class X, class Y>
std::array<std::uint8_t, 4> cache_types() {
  auto const kind = []<class T>(std::type_identity<T>) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8 && sizeof(T) < 256,
                  "chorale: cache writes numbers byte by byte: float, int, std::uint8_t and the like.");
    return std::is_floating_point_v<T> ? 'f' : !std::is_integral_v<T> ? 'v' : std::is_signed_v<T> ? 'i' : 'u';
  };
  return {static_cast<std::uint8_t>(kind(std::type_identity<X>{})), sizeof(X),
          static_cast<std::uint8_t>(kind(std::type_identity<Y>{})), sizeof(Y)};
}

namespace detail {

/// The header of a file of cached rows.
struct CacheHeader {
  std::array<char, 8> magic{'c', 'h', 'o', 'r', 'r', 'o', 'w', 's'};
  std::uint32_t version = 1;
  std::array<std::uint8_t, 4> types{};                     // of x and y: kind, and bytes of a number
  std::uint64_t rows  = 0;
  std::uint64_t bytes = 0;                                 // of the file
  std::uint32_t last  = 0;                                 // checksum of the last row
  std::uint32_t crc   = 0;                                 // of the members before it

  std::uint32_t right_crc() const {
    return crc32c(std::as_bytes(Span<CacheHeader const>{this, 1}).first(sizeof(CacheHeader) - sizeof(crc)));
  }
};

/// The header of a row in the file. Rows, and y in them, begin at a multiple of 8 bytes.
struct CacheRow {
  std::uint64_t crc = 0;                                   // up to the next row, continued from that of the last row
  std::uint64_t x = 0, y = 0;                              // bytes
};
static_assert(sizeof(CacheHeader) == 40 && sizeof(CacheRow) == 24);

constexpr std::uint64_t to_8(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

/// An open file and its temporary name, if any; the destructor removes the name and closes the file.
struct OpenCache {
  int number = -1;
  std::filesystem::path aside{};

  OpenCache()                            = default;
  OpenCache(OpenCache const&)            = delete;
  OpenCache& operator=(OpenCache const&) = delete;
  ~OpenCache() {
    if (!aside.empty()) ::unlink(aside.c_str());           // first: closing releases a lock
    if (number >= 0) ::close(number);
  }
};

}  // namespace detail

/// A finished file of cached rows, mapped into memory: its pages are read from the disk as they are used.
///
///   header 40 B │ crc · bytes of x · bytes of y · x · y │ crc · … │ …          all little-endian, rows 8-byte aligned
///
/// keeps   an open file keeps its bytes when it is deleted or replaced; it must not be written into
/// throws  BadFile with file, row and byte, when the file does not match its header and its checksums
class CacheFile {
 public:
  struct Row {
    ConstBytes x, y;
  };

  /// The position of a reader: before row number `row`.
  struct Cursor {
    std::uint64_t row = 0, at = sizeof(detail::CacheHeader);
    std::uint32_t crc = 0;                                 // of the previous row
  };

  /// Opens a file; nothing when it does not exist.
  static std::optional<CacheFile> open(std::filesystem::path const& path, std::array<std::uint8_t, 4> types) {
    auto file   = detail::OpenCache{};
    file.number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);                 // a named pipe must not wait
    if (file.number >= 0) return CacheFile{path, file.number, types};
    if (errno == ENOENT) return {};
    throw BadFile{path.string() + ": cannot be opened: " + std::generic_category().message(errno) + ".",
                  "another path, or a file that may be read."};
  }

  CacheFile(std::filesystem::path path, int file, std::array<std::uint8_t, 4> types) : path_{std::move(path)} {
    struct stat status {};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
      throw BadFile{path_.string() + ": is not a file that can be read.", "another path for the cache."};
    auto const size = static_cast<std::uint64_t>(status.st_size);
    if (size < sizeof header_)
      fail(size, "the file ends, but a cache begins with " + std::to_string(sizeof header_) + " bytes");
    auto* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
      throw BadFile{path_.string() + ": " + std::to_string(size) + " bytes cannot be mapped: " +
                        std::generic_category().message(errno) + ".", "a disk of this machine, or more memory."};
    bytes_ = {static_cast<std::byte const*>(data), size};
    try {
      check_header(types);
    } catch (...) {
      unmap();
      throw;
    }
  }
  CacheFile(CacheFile&& other) noexcept
      : path_{std::move(other.path_)}, bytes_{std::exchange(other.bytes_, {})}, header_{other.header_} {}
  CacheFile& operator=(CacheFile&&) = delete;
  ~CacheFile() { unmap(); }

  std::uint64_t rows() const { return header_.rows; }

  /// Reads the next row. False at the end.
  ///
  /// cost    no copy; computes the checksum, which reads the whole row, only with Check::all
  enum class Check { none, all };                          // none: the row has been checked before
  bool next(Cursor& cursor, Row& out, Check check) const {
    if (cursor.row == header_.rows) {
      if (check == Check::all) check_end(cursor);
      return false;
    }
    auto const at   = cursor.at, left = bytes_.size() - at;
    auto const bad  = [&](std::string const& what) { fail(at, "row " + std::to_string(cursor.row) + " " + what); };
    auto head       = detail::CacheRow{};
    if (left < sizeof head) bad("is cut after " + std::to_string(left) + " bytes");
    std::memcpy(&head, &bytes_[at], sizeof head);
    auto const room = left - sizeof head;
    if (check == Check::all && (head.x > room || head.y > room || detail::to_8(head.x) > room ||
                                detail::to_8(head.y) > room - detail::to_8(head.x)))
      bad("claims " + std::to_string(head.x) + " and " + std::to_string(head.y) + " bytes, but " +
          std::to_string(room) + " are left");
    auto const y    = at + sizeof head + detail::to_8(head.x), end = y + detail::to_8(head.y);
    if (check == Check::all) {
      auto const begin = at + sizeof head.crc;
      auto const crc   = crc32c(bytes_.subspan(begin, end - begin), cursor.crc);
      if (head.crc != crc)
        bad("has checksum " + std::to_string(head.crc) + ", but its bytes have " + std::to_string(crc));
      if (head.x % header_.types[1] != 0 || head.y % header_.types[3] != 0)
        bad("has " + std::to_string(head.x) + " and " + std::to_string(head.y) + " bytes, which are not whole numbers");
    }
    out    = {bytes_.subspan(at + sizeof head, head.x), bytes_.subspan(y, head.y)};
    cursor = {cursor.row + 1, end, static_cast<std::uint32_t>(head.crc)};
    return true;
  }

  [[noreturn]] void fail(std::uint64_t at, std::string const& what) const {
    throw BadFile{path_.string() + ": byte " + std::to_string(at) + ": " + what + ".",
                  "to delete the file: it is made again."};
  }

 private:
  void check_header(std::array<std::uint8_t, 4> const& types) {
    std::memcpy(&header_, bytes_.data(), sizeof header_);
    auto const expected = detail::CacheHeader{};
    auto const text     = [](std::array<std::uint8_t, 4> const& t) {
      return static_cast<char>(t[0]) + std::to_string(t[1]) + " and " + static_cast<char>(t[2]) + std::to_string(t[3]);
    };
    if (header_.magic != expected.magic) fail(0, "this is not a file of cached rows");
    if (header_.version != expected.version)
      fail(8, "version " + std::to_string(header_.version) + " of cached rows, but this program reads version " +
                  std::to_string(expected.version));
    if (header_.crc != header_.right_crc())
      fail(36, "the header has checksum " + std::to_string(header_.crc) + ", but its bytes have " +
                   std::to_string(header_.right_crc()));
    if (header_.types != types)
      fail(12, "rows of " + text(header_.types) + ", but the stage before the cache makes rows of " + text(types));
    if (header_.bytes != bytes_.size())
      fail(24, "a cache of " + std::to_string(header_.bytes) + " bytes, but the file has " +
                   std::to_string(bytes_.size()));
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
  ConstBytes bytes_;
  detail::CacheHeader header_{};
};

}  // namespace chorale::data
