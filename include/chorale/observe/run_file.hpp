// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace chorale {

/// The time of day in seconds since 1970, of a clock that may be set during a run.
using WallClock = std::function<double()>;

inline double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A file that a run writes piece by piece. Its folder is created if it is missing.
///
/// keeps   written bytes are with the system when the call returns: they survive this process, not a power cut
/// throws  BadFile with the file, the byte and the reason; the file then ends where that write was to begin. Also when
///         the path names a device, a FIFO or a folder; a symbolic link is followed
class RunFile {
 public:
  enum class Open { fresh, append };  // fresh: the earlier content is removed

  RunFile(std::filesystem::path path, Open how) : path_{std::move(path)} {
    if (path_.has_parent_path()) {
      auto code = std::error_code{};
      std::filesystem::create_directories(path_.parent_path(), code);  // if it fails, so does open()
    }
    file_ = ::open(output_file(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (how == Open::fresh ? O_TRUNC : 0), 0666);
    if (file_ < 0) fail("cannot be opened for writing", errno);
    struct stat status{};
    if (::fstat(file_, &status) != 0) fail("has no size", errno);
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  RunFile(RunFile&& other) noexcept
      : path_{std::move(other.path_)}, file_{std::exchange(other.file_, -1)}, size_{other.size_} {}
  RunFile& operator=(RunFile&&) = delete;
  ~RunFile() {
    if (file_ >= 0) ::close(file_);
  }

  void append(std::string_view text) { write_at(size_, text); }

  /// Writes `text` at byte `offset`, and cuts the file after it.
  void write_at(std::uint64_t offset, std::string_view text) {
    auto const end = offset + text.size();
    for (auto at = offset; at < end;) {
      auto const left = text.substr(static_cast<std::size_t>(at - offset));
      auto const n    = ::pwrite(file_, left.data(), left.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        auto const number = n == 0 ? EIO : errno;
        if (::ftruncate(file_, static_cast<off_t>(offset)) == 0) size_ = offset;  // none of it is better than a part
        fail("byte " + std::to_string(at) + ": cannot be written", number);
      }
      at += static_cast<std::uint64_t>(n);
      size_ = std::max(size_, at);
    }
    if (end < size_ && ::ftruncate(file_, static_cast<off_t>(end)) != 0) fail("cannot be cut", errno);
    size_ = end;
  }

  std::filesystem::path const& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes

 private:
  [[noreturn]] void fail(std::string const& what, int number) const {
    throw BadFile{path_.string() + ": " + what + ": " + std::generic_category().message(number) + ".",
                  "a folder that may be written, with room in it."};
  }

  std::filesystem::path path_;
  int file_           = -1;
  std::uint64_t size_ = 0;
};

/// Replaces the content of a file by `text` in one step: a concurrent reader sees the old text or the new one.
///
/// keeps   a symbolic link stays one: its target is replaced
/// throws  BadFile; the old file is then as it was. Also when the path names a device, a FIFO or a folder
inline void replace_file(std::filesystem::path const& name, std::string_view text) {
  auto const path  = output_file(name);
  auto const aside = path.string() + ".partial-" + std::to_string(::getpid());
  auto code        = std::error_code{};
  try {
    RunFile{aside, RunFile::Open::fresh}.append(text);
    std::filesystem::rename(aside, path, code);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  if (!code) return;
  ::unlink(aside.c_str());
  throw BadFile{path.string() + ": cannot be replaced: " + code.message() + ".", "the name of a file."};
}

/// Returns the content of a file that a run has written.
///
/// throws  BadFile, also for a file of more than 4 GiB; OutOfMemory
inline std::string read_file(std::filesystem::path const& path) {
  constexpr auto most = std::uint64_t{4} << 30;
  auto const file     = InputFile{path};
  if (file.size() > most)
    throw BadFile{path.string() + ": has " + std::to_string(file.size()) + " bytes, but at most " +
                      std::to_string(most) + " are read.",
                  "the name of a file that a run has written."};
  return detail::or_out_of_memory(path, [&] {
    auto text = std::string{};
    detail::append_read(text, static_cast<std::size_t>(file.size()), [&, at = std::uint64_t{0}](Bytes to) mutable {
      auto const got = file.read_at(at, to);
      at += got;
      return got;
    });
    return text;
  });
}

}  // namespace chorale
