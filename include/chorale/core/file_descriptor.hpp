// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace chorale {

/// Owns a file descriptor of the system: a file, a socket, a process. Closed on destruction; -1 is none.
///
/// keeps   moves only, so that a descriptor is closed once
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_{number} {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() {
    if (is_open()) ::close(number_);
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

  /// Closes now. Returns what close(2) returns: -1 with errno when data could not be written.
  int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_ = -1;
};

/// The permission bits of a file's mode as chmod takes them: "0644".
inline std::string mode_text(unsigned mode) {
  auto text = std::string{"0"};
  for (auto const shift : {6U, 3U, 0U}) text += static_cast<char>('0' + (mode >> shift & 7U));
  return text;
}

namespace detail {

/// Name of a kind of file for a sentence.
inline std::string file_kind(std::filesystem::file_type type) {
  switch (type) {
    case std::filesystem::file_type::directory: return "a folder";
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character: return "a device";
    case std::filesystem::file_type::fifo: return "a FIFO";
    case std::filesystem::file_type::socket: return "a socket";
    default: return "not a regular file";
  }
}

}  // namespace detail
}  // namespace chorale
