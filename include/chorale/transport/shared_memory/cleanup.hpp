// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/shared_memory/process.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace chorale {
namespace detail {

/// True if this process can determine that no process of the file's job lives. The caller holds the file's lock.
inline bool is_of_dead_job(int file) {
  struct stat about {};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != ::geteuid() || about.st_nlink == 0)
    return false;
  auto prefix    = shared_memory::SegmentPrefix{};
  auto const got = ::pread(file, &prefix, sizeof prefix, 0);
  if (got != static_cast<ssize_t>(sizeof prefix)) return about.st_size == 0;       // ended before it wrote anything
  if (prefix.magic == 0 && prefix.world == 0) return true;                          // likewise, and no rank is recorded
  if (prefix.magic != 0 && prefix.magic != shared_memory::segment_magic) return false;
  if (prefix.process_ids != shared_memory::namespace_of_processes()) return false;  // of another container
  return std::ranges::all_of(prefix.processes, [](auto const& process) {
    return shared_memory::life_of(process) == shared_memory::ProcessLife::ended;
  });
}

}  // namespace detail

/// Removes the files in /dev/shm of this user's dead jobs: those of which no process lives any more, because a signal
/// ended all of them before the last rank had joined.
///
/// current  the name of a job whose file stays
/// keeps    files that a process has locked, that belong to another user, or whose process numbers are those of another
///          container. Without a free file descriptor it does nothing
inline void remove_dead_jobs(std::string const& current) {
  constexpr auto ours = std::string_view{"chorale-"};
  auto error          = std::error_code{};
  for (auto at = std::filesystem::directory_iterator{"/dev/shm", error}; !error && at != end(at); at.increment(error)) {
    auto const name = at->path().filename().string();
    if (!name.starts_with(ours) || name.substr(ours.size()) == current) continue;
    auto const file =
        FileDescriptor{::open(at->path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (file.number() < 0 || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) continue;
    if (detail::is_of_dead_job(file.number())) ::unlink(at->path().c_str());
  }
}

}  // namespace chorale
