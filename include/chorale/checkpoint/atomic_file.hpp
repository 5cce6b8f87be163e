// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace chorale {

/// A new version of a file that replaces the old one in one step: a reader finds all of one of them, never a part.
///
///   auto file = AtomicFile{path};   file.write(header);   file.write(data);   file.commit();
///
/// keeps   `path` is untouched until commit(); without commit(), or after a kill, the new bytes are gone: they have no
///         name until then. Without support for unnamed files (NFS, no /proc), and during the rename, their name is
///         "<path>.partial-<process>-<n>", which no reader opens, and which a kill may leave
///         A symbolic link stays one: its target is replaced, in the target's folder
/// throws  BadFile when room, permission or the folder is missing, and when `path` is not a regular file but a
///         device, a FIFO or a folder; `path` is as it was, and nothing is left beside it
class AtomicFile {
 public:
  /// named   the new bytes have a name from the beginning, also where they need none
  explicit AtomicFile(std::filesystem::path const& path, bool named = false) : path_{output_file(path)} {
    if (!named && ::access(open_files, X_OK) == 0)
      file_ = ::open(folder().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file_ < 0)
      name_it("make", [&](std::string const& name) {
        file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        return file_ >= 0;
      });
  }
  AtomicFile(AtomicFile const&)            = delete;
  AtomicFile& operator=(AtomicFile const&) = delete;
  ~AtomicFile() { discard(); }

  void write(ConstBytes bytes) {
    while (!bytes.empty()) {
      auto const n = ::write(file_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail("byte " + std::to_string(written_) + ": cannot write the next " + std::to_string(bytes.size()) + " bytes",
             n == 0 ? EIO : errno);
      written_ += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  /// Replaces the file by the new bytes.
  ///
  /// keeps   when commit() returns, the new bytes survive a power cut
  /// order   bytes to the disk, then the name, then the folder's entry to the disk
  void commit() {
    sync_file();
    if (aside_.empty()) {
      name_it("name", [&](std::string const& name) {
        auto const unnamed = std::string{open_files} + std::to_string(file_);
        return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
      });
      sync_file();  // btrfs logs nothing of a file without a name
    }
    if (::close(std::exchange(file_, -1)) != 0) fail("cannot close " + aside_.string(), errno);
    if (::rename(aside_.c_str(), path_.c_str()) != 0) fail("cannot rename " + aside_.string(), errno);
    aside_.clear();
    sync_folder();
  }

 private:
  static constexpr char const* open_files = "/proc/self/fd/";

  /// Calls make(name) with one name after another, until one is not taken.
  template <class Make> void name_it(std::string const& what, Make const& make) {
    for (int n = 0; aside_.empty(); ++n) {
      auto const name = path_.string() + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(n);
      if (make(name)) aside_ = name;
      else if (errno != EEXIST) fail("cannot " + what + " " + name, errno);
    }
  }

  void sync_file() {
    if (::fsync(file_) != 0) fail("cannot bring " + std::to_string(written_) + " bytes to the disk", errno);
  }

  std::filesystem::path folder() const { return path_.has_parent_path() ? path_.parent_path() : "."; }

  [[noreturn]] void fail(std::string const& what, int number) {
    discard();
    throw BadFile{path_.string() + ": " + what + ": " + why(number) + ".",
                  number == ENOSPC || number == EDQUOT || number == EFBIG
                      ? "room for it there, or another folder; what was there before is untouched."
                      : "a folder that exists and may be written; what was there before is untouched."};
  }

  void sync_folder() {
    auto const opened = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return;  // a folder that may be written but not read
    auto const number = ::fsync(opened) == 0 ? 0 : errno;
    ::close(opened);
    if (number != 0 && number != EINVAL)  // EINVAL: this file system has nothing to sync there
      throw BadFile{path_.string() + ": written, but its folder did not reach the disk: " + why(number) + "."};
  }

  static std::string why(int number) { return std::generic_category().message(number); }

  void discard() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    if (!aside_.empty()) ::unlink(aside_.c_str());
    aside_.clear();
  }

  std::filesystem::path path_, aside_;
  int file_              = -1;
  std::uint64_t written_ = 0;
};

}  // namespace chorale
