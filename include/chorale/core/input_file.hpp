// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace chorale {

/// A regular file, open for reading. Symbolic links are followed.
///
/// throws  BadFile when it cannot be opened, or is a folder, a device, a FIFO or a socket, which need not have an end;
///         nothing waits for one
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path)
      : path_{std::move(path)}, file_{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {  // no wait for a FIFO
    if (!file_.is_open())
      throw BadFile{path_.string() + ": cannot be opened: " + std::generic_category().message(errno) + ".",
                    "the path of a file that exists and may be read."};
    struct stat status{};
    if (::fstat(file_.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
      auto code = std::error_code{};
      throw BadFile{path_.string() + ": is " + detail::file_kind(std::filesystem::status(path_, code).type()) +
                        ", and only regular files are read.",
                    "the path of a regular file."};
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  std::filesystem::path const& path() const { return path_; }
  int number() const { return file_.number(); }  // of the descriptor
  std::uint64_t size() const { return size_; }   // bytes, when it was opened; a sparse one holds fewer

  /// Fills `to` from byte `at` on. Returns the number of bytes read, fewer only at the end of the file.
  std::size_t read_at(std::uint64_t at, Bytes to) const {
    auto done = std::size_t{0};
    while (done < to.size()) {
      auto const n = ::pread(file_.number(), to.data() + done, to.size() - done, static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw BadFile{path_.string() + ": byte " + std::to_string(at + done) +
                          ": cannot be read: " + std::generic_category().message(errno) + ".",
                      "another disk."};
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

namespace detail {

/// Calls read(). Where memory ends, the error names the file.
template <class Read> auto or_out_of_memory(std::filesystem::path const& path, Read&& read) {
  try {
    return read();
  } catch (std::bad_alloc const&) {
    throw OutOfMemory{path.string() + ": no memory is left to read it.",
                      "a machine with more memory, or a part of the file."};
  }
}

/// Appends up to n bytes to `to`, from fill(Bytes), which returns how many it had; fewer only at the end.
///
/// cost    memory in proportion to the bytes that arrive, not to n
template <class Container, class Fill> std::size_t append_read(Container& to, std::size_t n, Fill&& fill) {
  static_assert(sizeof(typename Container::value_type) == 1);
  constexpr auto step = std::size_t{1} << 20;
  auto const begin    = to.size();
  while (to.size() - begin < n) {
    auto const before = to.size(), left = n - (before - begin);
    to.resize(before + std::min(left, std::max(step, before - begin)));
    auto const got = fill(std::as_writable_bytes(Span<typename Container::value_type>{to}.subspan(before)));
    if (before + got == to.size()) continue;
    to.resize(before + got);
    break;
  }
  return to.size() - begin;
}

}  // namespace detail
}  // namespace chorale
