// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/transport/shared_memory_file.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace chorale {

/// A file descriptor that is closed on destruction; -1 is none.
class HostDescriptor {
 public:
  explicit HostDescriptor(int number = -1) : number_{number} {}
  HostDescriptor(HostDescriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  HostDescriptor& operator=(HostDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~HostDescriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int number() const { return number_; }

 private:
  int number_;
};

/// A file of this many bytes in this process's memory, until it is destroyed.
class HostMapping {
 public:
  HostMapping(int file, std::size_t bytes)
      : base_{::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)}, bytes_{bytes} {
    if (base_ == MAP_FAILED)
      throw OutOfMemory{std::to_string(bytes) + " bytes of shared memory could not be mapped: " + std::strerror(errno) +
                        "."};
  }
  HostMapping(HostMapping&& other) noexcept : base_{std::exchange(other.base_, MAP_FAILED)}, bytes_{other.bytes_} {}
  HostMapping& operator=(HostMapping&&) = delete;
  ~HostMapping() {
    if (base_ != MAP_FAILED) ::munmap(base_, bytes_);
  }

  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
  std::size_t bytes_;
};

namespace detail {

/// When a process started, in ticks since the host did; 0 when it has ended, also when nobody has asked how.
inline std::uint64_t started_at(std::int32_t process) {
  auto file       = std::ifstream{"/proc/" + std::to_string(process) + "/stat"};
  auto const line = std::string{std::istreambuf_iterator<char>{file}, {}};
  auto const name = line.rfind(')');                                  // it may have any character in it
  if (name == std::string::npos) return 0;
  auto fields = std::istringstream{line.substr(name + 1)};
  auto state  = std::string{};
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  auto field = std::string{};
  for (int i = 4; i < 22; ++i) fields >> field;                       // fields are counted from 1; the state is 3
  auto ticks = std::uint64_t{0};
  fields >> ticks;
  return ticks;
}

}  // namespace detail

inline HostProcess this_process() {
  auto const id = static_cast<std::int32_t>(::getpid());
  return {id, detail::started_at(id)};
}

inline bool is_alive(HostProcess const& process) {
  return process.process != 0 && detail::started_at(process.process) == process.started;
}

/// The namespace in which this process's number means something; 0 when the host does not tell.
inline std::uint64_t namespace_of_processes() {
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? static_cast<std::uint64_t>(about.st_ino) : 0;
}

/// Readable once the process has ended; none where the kernel has no such thing, or it has ended already.
inline HostDescriptor watch_process(HostProcess const& process) {
  auto watched = HostDescriptor{static_cast<int>(::syscall(SYS_pidfd_open, process.process, 0))};
  return is_alive(process) ? std::move(watched) : HostDescriptor{};   // and not another one of that number
}

}  // namespace chorale
