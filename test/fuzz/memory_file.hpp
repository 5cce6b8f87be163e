// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace chorale::test {

/// A file without a place on a disk, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile() : number_{::memfd_create("chorale", MFD_CLOEXEC)} {
    if (number_ < 0) throw std::runtime_error{"no file in memory"};
  }
  ~MemoryFile() { ::close(number_); }
  MemoryFile(MemoryFile const&)            = delete;
  MemoryFile& operator=(MemoryFile const&) = delete;

  /// Whoever opens the path reads from the first byte.
  std::string holding(ConstBytes bytes) const {
    if (::ftruncate(number_, 0) != 0 ||
        ::pwrite(number_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error{"the file in memory was not written"};
    return "/proc/self/fd/" + std::to_string(number_);
  }

 private:
  int number_;
};

}  // namespace chorale::test
