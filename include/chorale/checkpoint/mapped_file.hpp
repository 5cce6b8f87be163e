// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace chorale {

/// The bytes of a file, read as they are touched.
///
/// keeps   the old bytes stay when AtomicFile replaces the file
/// throws  BadFile when the path cannot be read or is not a file
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path const& path) {
    auto const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);   // a named pipe must not wait
    if (file < 0) fail(path, "cannot be opened: ", errno);
    struct stat status {};
    auto const known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    auto number      = known ? 0 : EINVAL;
    if (known && status.st_size > 0) {
      auto const size  = static_cast<std::size_t>(status.st_size);
      auto* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
      if (data == MAP_FAILED) number = errno;
      else bytes_ = {static_cast<std::byte const*>(data), size};
    }
    ::close(file);
    if (!known) fail(path, "is not a file that can be read: ", number);
    if (number != 0) fail(path, "cannot be mapped: ", number);
  }

  /// Returns a MappedFile over a copy, which does not change when a file does: `fill` writes all of it, once.
  ///
  /// throws  OutOfMemory; and what fill throws
  template <class Fill>
  static MappedFile copied(std::size_t size, Fill&& fill) {
    auto file = MappedFile{};
    if (size == 0) return file;
    auto* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw OutOfMemory{"no memory for a file of " + std::to_string(size) + " bytes."};
    ::madvise(data, size, MADV_HUGEPAGE);                  // a hint: fewer pages to be zeroed one by one
    file.bytes_ = {static_cast<std::byte const*>(data), size};
    fill(Bytes{static_cast<std::byte*>(data), size});
    return file;
  }

  MappedFile(MappedFile&& other) noexcept : bytes_{std::exchange(other.bytes_, {})} {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  ConstBytes bytes() const { return bytes_; }

 private:
  MappedFile() = default;

  [[noreturn]] static void fail(std::filesystem::path const& path, std::string const& what, int number) {
    throw BadFile{path.string() + ": " + what + std::generic_category().message(number) + ".",
                  "the path of a file that exists and may be read."};
  }

  ConstBytes bytes_;
};

}  // namespace chorale
