// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/host.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/stages/file_cache_format.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

enum class Lock { taken, refused, unknown };  // refused: locked by another; unknown: the disk has no locks

/// Locks an open file, without waiting; the system releases the lock when the file is closed or the process ends.
inline Lock lock(int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return Lock::taken;
  return errno == EWOULDBLOCK ? Lock::refused : Lock::unknown;
}

/// True if `name` is still the name of the open file.
inline bool is_called(int file, std::filesystem::path const& name) {
  struct stat open{}, named{};
  return ::fstat(file, &open) == 0 && ::lstat(name.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace detail

/// Writes a file of cached rows under a temporary name, and renames it to `path` when all rows are in it.
///
/// keeps   `path` never holds a part of a cache; several processes may write the same one; the last to finish stays.
///         After a kill, "<path>.partial-<host>-<process>-<n>" remains. It is never read, and the next writer on that
///         host removes it; a running writer holds a lock on its own file. On a disk without locks, it stays
/// cost    a buffer of 1 MiB; one system call for each
/// throws  BadFile when space, permission or the folder is missing, and when `path` is a device, a FIFO or a folder; no
///         temporary file is left then
class CacheWriter {
 public:
  CacheWriter(std::filesystem::path const& path, CacheFields fields)
      : path_{output_file(path)}, fields_{std::move(fields)}, header_{detail::cache_header(fields_)} {
    remove_left_over();
    for (int n = 0; file_.number < 0; ++n) begin(n);
    buffer_.reserve(buffer_bytes);
    put(std::as_bytes(Span<detail::CacheHeader const>{&header_, 1}));  // place of the header of finish()
    put(detail::cache_names(fields_));
  }

  /// Appends a row: the bytes of each field.
  void write(Span<ConstBytes const> row) {
    constexpr auto zeros = std::array<std::byte, 8>{};
    auto const pad       = [&](ConstBytes b) { return ConstBytes{zeros}.first(detail::to_8(b.size()) - b.size()); };
    head_.assign(1, 0);
    for (auto const part : row) head_.push_back(part.size());
    auto crc = crc32c(std::as_bytes(Span<std::uint64_t const>{head_}.subspan(1)), header_.last);
    for (auto const part : row) crc = crc32c(pad(part), crc32c(part, crc));
    head_[0] = header_.last = crc;
    put(std::as_bytes(Span<std::uint64_t const>{head_}));
    for (auto const part : row) put(part), put(pad(part));
    ++header_.rows;
  }

  /// Completes the file, and opens it for reading.
  ///
  /// keeps   when it returns, the file survives a power cut
  /// order   rows to the disk, then the name, then the folder's entry to the disk
  CacheFile finish() {
    flush();
    header_.bytes = written_;
    header_.crc   = header_.right_crc();
    write_at(std::as_bytes(Span<detail::CacheHeader const>{&header_, 1}), 0);
    if (::fsync(file_.number) != 0) fail("cannot bring " + std::to_string(written_) + " bytes to the disk", errno);
    auto finished = CacheFile{path_, file_.number, fields_};  // this file, even if others write `path`
    if (::rename(file_.aside.c_str(), path_.c_str()) != 0) fail("cannot rename " + file_.aside.string(), errno);
    file_.aside.clear();
    ::flock(file_.number, LOCK_UN);  // some disks refuse other readers a locked file
    sync_folder();
    return finished;
  }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

  /// Part of temporary names. Has the host's name: the locks of some disks do not exclude other hosts.
  static std::string aside() { return ".partial-" + host_name() + "-"; }

  /// Makes the nth temporary file of this process, unless it exists or another writer removes it before it is locked.
  void begin(int n) {
    auto const name = path_.string() + aside() + std::to_string(::getpid()) + "-" + std::to_string(n);
    file_.number    = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_.number < 0 && errno != EEXIST) fail("cannot make " + name, errno);
    if (file_.number < 0) return;
    bool const ours = detail::lock(file_.number) != detail::Lock::refused && detail::is_called(file_.number, name);
    if (ours) file_.aside = name;
    else ::close(std::exchange(file_.number, -1));
  }

  /// Removes the temporary files of writers of this path that have ended. Failures are ignored.
  void remove_left_over() const {
    auto trouble = std::error_code{}, gone = trouble;
    auto at = std::filesystem::directory_iterator{folder(), trouble};
    for (; !trouble && at != end(at); at.increment(trouble)) {
      auto const& name = at->path();
      if (!is_aside(name.filename().string()) || !is_regular_file(at->symlink_status(gone))) continue;
      auto left   = detail::OpenCache{};
      left.number = ::open(name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (left.number < 0 || detail::lock(left.number) != detail::Lock::taken) continue;
      if (detail::is_called(left.number, name)) left.aside = name;  // removed with `left`
    }
  }

  /// True if begin() makes this name for this path, in any process of this host.
  bool is_aside(std::string_view name) const {
    auto const begin  = path_.filename().string().append(aside());
    auto const number = [](std::string_view text) {
      return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    };
    if (!name.starts_with(begin)) return false;
    name.remove_prefix(begin.size());
    auto const dash = name.find('-');
    return dash != name.npos && number(name.substr(0, dash)) && number(name.substr(dash + 1));
  }

  std::filesystem::path folder() const { return path_.has_parent_path() ? path_.parent_path() : "."; }

  void put(ConstBytes bytes) {
    if (buffer_.size() + bytes.size() > buffer_bytes) flush();
    if (bytes.size() <= buffer_bytes) buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    else write_at(bytes, written_), written_ += bytes.size();
  }
  void flush() {
    write_at(buffer_, written_);
    written_ += buffer_.size();
    buffer_.clear();
  }

  void write_at(ConstBytes bytes, std::uint64_t at) {
    while (!bytes.empty()) {
      auto const n = ::pwrite(file_.number, bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail("row " + std::to_string(header_.rows) + ", byte " + std::to_string(at) + ": cannot write the next " +
                 std::to_string(bytes.size()) + " bytes",
             n == 0 ? EIO : errno);
      at += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void sync_folder() const {
    auto parent   = detail::OpenCache{};
    parent.number = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent.number < 0) return;                       // a folder that may be written but not read
    if (::fsync(parent.number) != 0 && errno != EINVAL)  // EINVAL: this file system has nothing to sync there
      fail("written, but its folder did not reach the disk", errno);
  }

  [[noreturn]] void fail(std::string const& what, int number) const {
    throw BadFile{path_.string() + ": " + what + ": " + std::generic_category().message(number) + ".",
                  number == ENOSPC || number == EDQUOT || number == EFBIG
                      ? "room for the cache there, or another folder."
                      : "a folder that exists and may be written."};
  }

  std::filesystem::path path_;
  detail::OpenCache file_;
  CacheFields fields_;
  std::vector<std::uint64_t> head_;  // of a row
  detail::CacheHeader header_;       // bytes and crc are set by finish()
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;  // bytes written to the file
};

}  // namespace chorale::data
