// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace chorale {

/// A checkpoint could not be written. Existing checkpoints are unchanged, and the unfinished one is removed.
class CheckpointFailed : public FileFault {
 public:
  /// number    the system's errno; EIO where it has none
  /// path      of the folder that was to be written
  /// what      a sentence without a full stop, with the system's reason
  /// need      bytes, with the reserve to be kept free; 0: not known
  /// free      bytes that may be used there; 0 where the system does not say
  CheckpointFailed(int number, std::string path, std::string const& what, std::uint64_t need, std::uint64_t free)
      : FileFault{path + ": not saved: " + what + ". It needs " + std::to_string(need) + " bytes; " +
                      std::to_string(free) + " are free there.",
                  "room there, a folder that may be written, or another one; older checkpoints are untouched."},
        number_{number}, path_{std::move(path)}, need_{need}, free_{free} {}

  int number() const noexcept { return number_; }
  std::string const& path() const noexcept { return path_; }
  std::uint64_t need() const noexcept { return need_; }
  std::uint64_t free() const noexcept { return free_; }

 private:
  int number_;
  std::string path_;
  std::uint64_t need_, free_;
};

/// There are checkpoints, but none can be used. Training from the start would be a silent loss, so it is an error.
/// A program that fails with it ends with exit code 5.
struct NoValidCheckpoint : FileFault {
  using FileFault::FileFault;
};

/// Returns an error's text for a line of a log: without the library's name, and without what to try.
inline std::string first_line(std::exception const& error) {
  auto text = std::string{error.what()};
  if (text.starts_with("chorale: ")) text.erase(0, 9);
  return text.substr(0, text.find("\n         Try: "));
}

}  // namespace chorale
