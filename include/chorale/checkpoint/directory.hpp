// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/file_descriptor.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale {

[[noreturn]] inline void system_fault(std::string const& what, int number = errno) {
  throw std::system_error{number, std::generic_category(), what};
}

/// An open folder, which stays the same when its path is renamed or replaced. Names are looked up inside it only: no
/// symbolic link is followed, so nothing outside is ever read, written or removed.
///
/// throws  std::system_error from everything that the system refuses; its text begins with the name
class Directory {
 public:
  explicit Directory(std::filesystem::path const& path) : Directory{AT_FDCWD, path.string(), path.string(), 0} {}
  Directory(Directory const& parent, std::string const& name)
      : Directory{parent.number(), name, parent.path_ + "/" + name, O_NOFOLLOW} {}

  int number() const { return folder_.number(); }
  std::string const& path() const { return path_; }

  /// Returns the names in the folder but "." and "..", ascending.
  std::vector<std::string> names() const {
    auto const again = ::openat(number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // with its own position
    if (again < 0) system_fault("it cannot be listed");
    auto const list = std::unique_ptr<DIR, int (*)(DIR*)>{::fdopendir(again), ::closedir};
    if (!list) {
      ::close(again);
      system_fault("it cannot be listed");
    }
    auto found = std::vector<std::string>{};
    for (errno = 0; auto const* entry = ::readdir(list.get()); errno = 0)
      if (auto name = std::string{entry->d_name}; name != "." && name != "..") found.push_back(std::move(name));
    if (errno != 0) system_fault("it cannot be listed");
    std::sort(found.begin(), found.end());
    return found;
  }

  FileDescriptor read(std::string const& name) const { return open(name, O_RDONLY | O_NONBLOCK); }
  FileDescriptor create(std::string const& name) const { return open(name, O_WRONLY | O_CREAT | O_EXCL); }

  void make_folder(std::string const& name) const {
    if (::mkdirat(number(), name.c_str(), 0777) != 0) system_fault(name + ": cannot be made");
  }

  bool has(std::string const& name) const {
    struct stat status{};
    return ::fstatat(number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  }

  bool has_folder(std::string const& name) const {
    struct stat status{};
    return ::fstatat(number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  }

  /// Size of a file in bytes; nothing when there is none, or it is not a regular file.
  std::optional<std::uint64_t> size_of(std::string const& name) const {
    struct stat status{};
    if (::fstatat(number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) return {};
    return static_cast<std::uint64_t>(status.st_size);
  }

  void rename(std::string const& from, std::string const& to) const {
    if (::renameat(number(), from.c_str(), number(), to.c_str()) != 0) system_fault(from + ": cannot become " + to);
  }

  /// Exchanges two names in one step; false where the file system cannot do that.
  bool exchange(std::string const& one, std::string const& other) const {
    if (::renameat2(number(), one.c_str(), number(), other.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) system_fault(one + ": cannot take the place of " + other);
    return false;
  }

  /// Syncs the names in the folder to the disk.
  void sync() const {
    if (::fsync(number()) != 0 && errno != EINVAL)  // EINVAL: this file system has nothing to sync there
      system_fault("the names in it did not reach the disk");
  }

  /// Locks the folder for this process, false if another has it; the system unlocks it when the process ends.
  bool lock() const { return ::flock(number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

  void remove_file(std::string const& name) const {
    if (::unlinkat(number(), name.c_str(), 0) != 0) system_fault(name + ": cannot be removed");
  }
  void remove_empty_folder(std::string const& name) const {
    if (::unlinkat(number(), name.c_str(), AT_REMOVEDIR) != 0) system_fault(name + ": cannot be removed");
  }

  /// Bytes that may still be written; nothing where the system does not count them.
  std::optional<std::uint64_t> free_bytes() const {
    struct statvfs status{};
    if (::fstatvfs(number(), &status) != 0 || status.f_blocks == 0) return {};
    return std::uint64_t{status.f_bavail} * status.f_frsize;
  }

 private:
  Directory(int parent, std::string const& name, std::string path, int flags)
      : path_{std::move(path)}, folder_{::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags)} {
    if (folder_.number() < 0) system_fault(name + ": cannot be opened as a folder");
  }

  FileDescriptor open(std::string const& name, int flags) const {
    auto file = FileDescriptor{::openat(number(), name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666)};
    if (file.number() < 0) system_fault(name + ": cannot be opened");
    struct stat status{};
    if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) system_fault(name + ": is no file", EINVAL);
    return file;
  }

  std::string path_;
  FileDescriptor folder_;
};

}  // namespace chorale
