// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
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

/// A new version of a file, written beside it: a reader finds the old bytes or all of the new ones, never a part.
///
///   auto file = WriteAside{path};   file.write(header);   file.write(data);   file.commit();
///
/// keeps   `path` is untouched until commit(); without commit() the bytes beside it are removed
/// throws  BadFile when there is no room, no right or no folder; `path` is as it was, and nothing lies beside it
///         after a power cut a "<path>.partial-<process>-<n>" may be left, which nobody reads
class WriteAside {
 public:
  explicit WriteAside(std::filesystem::path path) : path_{std::move(path)} {
    for (int n = 0; file_ < 0; ++n) {
      auto const name = path_.string() + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(n);
      file_           = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file_ >= 0) aside_ = name;
      else if (errno != EEXIST) fail("cannot make " + name, errno);
    }
  }
  WriteAside(WriteAside const&)            = delete;
  WriteAside& operator=(WriteAside const&) = delete;
  ~WriteAside() { discard(); }

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

  /// Makes the new bytes the file.
  ///
  /// keeps   when it returns, they survive a power cut
  /// order   bytes to the disk, then the name, then the folder's entry to the disk
  void commit() {
    if (::fsync(file_) != 0) fail("cannot bring " + std::to_string(written_) + " bytes to the disk", errno);
    if (::close(std::exchange(file_, -1)) != 0) fail("cannot close " + aside_.string(), errno);
    if (::rename(aside_.c_str(), path_.c_str()) != 0) fail("cannot rename " + aside_.string(), errno);
    aside_.clear();
    sync_folder();
  }

 private:
  [[noreturn]] void fail(std::string const& what, int number) {
    discard();
    throw BadFile{path_.string() + ": " + what + ": " + why(number) + ".",
                  number == ENOSPC || number == EDQUOT || number == EFBIG
                      ? "room for it there, or another folder; what was there before is untouched."
                      : "a folder that exists and may be written; what was there before is untouched."};
  }

  void sync_folder() {
    auto const parent = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path{"."};
    auto const folder = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;                                // a folder that may be written but not read
    auto const number = ::fsync(folder) == 0 ? 0 : errno;
    ::close(folder);
    if (number != 0 && number != EINVAL)                   // EINVAL: this file system has nothing to sync there
      throw BadFile{path_.string() + ": written, but its folder did not reach the disk: " + why(number) + "."};
  }

  static std::string why(int number) { return std::generic_category().message(number); }

  void discard() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    if (!aside_.empty()) ::unlink(aside_.c_str());
    aside_.clear();
  }

  std::filesystem::path path_, aside_;
  int file_ = -1;
  std::uint64_t written_ = 0;
};

}  // namespace chorale
