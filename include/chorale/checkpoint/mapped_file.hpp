// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/types.hpp>

#include <sys/mman.h>

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
/// throws  BadFile when the path cannot be read, or does not name a regular file
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path const& path) {
    auto const file = InputFile{path};
    if (file.size() == 0) return;
    auto const size  = static_cast<std::size_t>(file.size());
    auto* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (data == MAP_FAILED)
      throw BadFile{path.string() + ": " + std::to_string(size) +
                        " bytes cannot be mapped: " + std::generic_category().message(errno) + ".",
                    "a process that may use more memory."};
    bytes_ = {static_cast<std::byte const*>(data), size};
  }

  /// Returns a MappedFile over a copy, which does not change when a file does: `fill` writes all of it, once.
  ///
  /// throws  OutOfMemory; and what fill throws
  template <class Fill> static MappedFile copied(std::size_t size, Fill&& fill) {
    auto file = MappedFile{};
    if (size == 0) return file;
    auto* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw OutOfMemory{"no memory for a file of " + std::to_string(size) + " bytes."};
    ::madvise(data, size, MADV_HUGEPAGE);  // a hint: fewer pages to be zeroed one by one
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

  ConstBytes bytes_;
};

}  // namespace chorale
