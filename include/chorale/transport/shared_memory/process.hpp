// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace chorale::shared_memory {

/// A mapping of a file into this process's memory, unmapped on destruction.
class Mapping {
 public:
  Mapping(int file, std::size_t bytes)
      : base_{::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)}, bytes_{bytes} {
    if (base_ == MAP_FAILED)
      throw OutOfMemory{std::to_string(bytes) + " bytes of shared memory could not be mapped: " + std::strerror(errno) +
                        "."};
  }
  Mapping(Mapping&& other) noexcept : base_{std::exchange(other.base_, MAP_FAILED)}, bytes_{other.bytes_} {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (base_ != MAP_FAILED) ::munmap(base_, bytes_);
  }

  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
  std::size_t bytes_;
};

inline bool is_no_descriptor(int error) { return error == EMFILE || error == ENFILE; }

/// Returns a part of a sentence, such as "no file descriptors left (limit 64)".
inline std::string no_descriptors_text(int error) {
  auto limit = rlimit{};
  if (error == ENFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "no file descriptors left on its host";
  return "no file descriptors left (limit " + std::to_string(limit.rlim_cur) + ")";
}

/// Throws OutOfDescriptors if no file descriptors are left, else Error. `who` is a rank, such as "rank 2".
[[noreturn]] inline void throw_no_descriptors(std::string const& who, int error) {
  if (!is_no_descriptor(error))
    throw Error{who + " cannot see in /proc whether the processes of other ranks live: " + std::strerror(error) + "."};
  throw OutOfDescriptors{who + " has " + no_descriptors_text(error) + " to share memory with the others.",
                         "a higher limit (ulimit -n): a rank needs one for each rank of another process, and two "
                         "more."};
}

/// The time at which a process started, in ticks since the host started; 0 if it has ended, even if its parent has not
/// waited for it yet. Empty, with errno, if /proc cannot be read: this process may have no file descriptor left.
inline std::optional<std::uint64_t> started_at(std::int32_t process) {
  auto const path = "/proc/" + std::to_string(process) + "/stat";
  auto const file = FileDescriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  auto text       = std::array<char, 1'024>{};
  auto const n    = file.number() < 0 ? -1 : ::read(file.number(), text.data(), text.size());
  if (n < 0 && errno != ENOENT && errno != ESRCH) return std::nullopt;
  auto const line = std::string(text.data(), static_cast<std::size_t>(n < 0 ? 0 : n));
  auto const name = line.rfind(')');  // it may have any character in it
  if (name == std::string::npos) return 0;
  auto fields = std::istringstream{line.substr(name + 1)};
  auto state  = std::string{};
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  auto field = std::string{};
  for (int i = 4; i < 22; ++i) fields >> field;  // fields are counted from 1; the state is 3
  auto ticks = std::uint64_t{0};
  fields >> ticks;
  return ticks;
}

/// Returns the number and the start of this process. Throws OutOfDescriptors, or Error if /proc cannot be read.
inline Process this_process(std::string const& who) {
  auto const id      = static_cast<std::int32_t>(::getpid());
  auto const started = started_at(id);
  if (!started) throw_no_descriptors(who, errno);
  return {id, *started};
}

/// Whether another process lives. `unknown` if /proc cannot be read, for lack of file descriptors.
enum class ProcessLife { lives, ended, unknown };

inline ProcessLife life_of(Process const& process) {
  if (process.process == 0) return ProcessLife::ended;
  auto const started = started_at(process.process);
  if (!started) return ProcessLife::unknown;
  return *started == process.started ? ProcessLife::lives : ProcessLife::ended;
}

/// The namespace of this process's number; 0 if the host does not report it.
inline std::uint64_t namespace_of_processes() {
  struct stat about{};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? static_cast<std::uint64_t>(about.st_ino) : 0;
}

/// Returns a descriptor that is readable once the process has ended; none without pidfd_open(), or if it has ended.
///
/// who     the rank that watches, such as "rank 2"
/// throws  OutOfDescriptors, or Error if /proc cannot be read
inline FileDescriptor watch_process(Process const& process, std::string const& who) {
  auto watched = FileDescriptor{static_cast<int>(::syscall(SYS_pidfd_open, process.process, 0))};
  if (watched.number() < 0 && is_no_descriptor(errno)) throw_no_descriptors(who, errno);
  auto const life = life_of(process);
  if (life == ProcessLife::unknown) throw_no_descriptors(who, errno);
  return life == ProcessLife::lives ? std::move(watched) : FileDescriptor{};  // not another process of that number
}

}  // namespace chorale::shared_memory
