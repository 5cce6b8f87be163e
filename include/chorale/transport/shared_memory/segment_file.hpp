// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/process.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::shared_memory {

/// The file of a job, as one of its processes sees it before all have joined.
///
/// keeps   mode 0600, and owned by this user: a file that another user put there is refused
class SegmentFile {
 public:
  static std::string path_of(std::string const& name) { return "/dev/shm/chorale-" + name; }

  /// name    of the job; empty for a file without a name, for ranks of one process
  /// who     the rank that opens it, for errors
  explicit SegmentFile(std::string const& name, std::string who = "this process")
      : who_{std::move(who)}, path_{name.empty() ? "" : path_of(name)},
        file_{name.empty() ? ::memfd_create("chorale", MFD_CLOEXEC)
                           : ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)} {
    if (number() < 0 && is_no_descriptor(errno)) throw_no_descriptors(who_, errno);
    if (number() < 0) throw_errno("cannot be opened");
    if (auto const about = status(); about.st_uid != ::geteuid() || (!path_.empty() && (about.st_mode & 077) != 0))
      throw BadFile{path_ + " belongs to user " + std::to_string(about.st_uid) + " with mode " +
                        mode_text(about.st_mode) + ", and this process to user " + std::to_string(::geteuid()) + ".",
                    "another name for this job."};
  }

  int number() const { return file_.number(); }
  bool try_lock() const { return ::flock(number(), LOCK_EX | LOCK_NB) == 0; }
  void unlock() const { ::flock(number(), LOCK_UN); }
  bool is_linked() const { return path_.empty() || status().st_nlink != 0; }
  void unlink() const {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  /// The prefix; all zeros if the file is too short.
  SegmentPrefix prefix() const {
    auto prefix = SegmentPrefix{};
    if (::pread(number(), &prefix, sizeof prefix, 0) != static_cast<ssize_t>(sizeof prefix)) return {};
    return prefix;
  }
  void write(SegmentPrefix const& prefix) const { put(0, &prefix, sizeof prefix); }

  /// Initializes an empty file. The magic number is written last, so that an incomplete file is detected.
  void make(SegmentPrefix prefix, SegmentLayout const& layout, std::string const& plan) const {
    if (::ftruncate(number(), 0) != 0 || ::ftruncate(number(), static_cast<off_t>(layout.bytes())) != 0)
      throw_errno("cannot have " + std::to_string(layout.bytes()) + " bytes");
    reserve(0, layout.lanes());
    put(layout.plan_text(), plan.data(), plan.size());
    write(prefix);
    prefix.magic = segment_magic;
    write(prefix);
  }

  /// The plan of the first rank: its description of the model.
  std::string plan(SegmentLayout const& layout) const {
    auto const begin = static_cast<off_t>(layout.plan_text());
    auto const size  = std::min(static_cast<off_t>(layout.plan), std::max(status().st_size - begin, off_t{0}));
    auto text        = std::string(static_cast<std::size_t>(size), '\0');
    auto const got   = ::pread(number(), text.data(), text.size(), begin);
    return got == static_cast<ssize_t>(text.size()) ? text : "";
  }

  /// The ranks that a refusal concerns.
  ///
  /// everyone    also the waiting ranks: the refusal has an odd number, and later refusals do not replace it
  enum class Concerns : std::uint32_t { newcomer, everyone };
  /// Reports to the waiting ranks why a rank was refused. Under the lock; the number is written after the text.
  void refuse(Concerns whom, std::string const& why) const {
    auto const root_cause = SegmentLayout{}.root_cause();
    auto text             = SegmentText<refusal_bytes>{};
    auto number_so_far    = std::uint32_t{0};
    auto const at         = root_cause + offsetof(SegmentRootCause, refused);
    text.set(why);
    if (::pread(number(), &number_so_far, sizeof number_so_far, static_cast<off_t>(at)) != sizeof number_so_far)
      throw_errno("cannot be read");
    if (number_so_far % 2 != 0) return;
    put(root_cause + offsetof(SegmentRootCause, refusal), &text, sizeof text);
    auto const next = (number_so_far / 2 + 1) * 2 + static_cast<std::uint32_t>(whom);
    put(at, &next, sizeof next);
  }

  /// Allocates the memory that this rank writes; the host places it near the core that writes it first.
  void populate(SegmentMemory const& mapped, Rank rank) const {
    auto const& layout = mapped.layout;
    auto const arena   = mapped.arena(rank);
    if (!arena.empty()) ::madvise(arena.data(), arena.size(), MADV_HUGEPAGE);  // a hint: not every host has them
    populate(mapped, layout.lane(rank, 0), layout.ranks() * layout.lane());
    populate(mapped, layout.arena_of(rank), SegmentLayout::pages(layout.arena));
  }

 private:
  struct stat status() const {
    struct stat about{};
    if (::fstat(number(), &about) != 0) throw_errno("cannot be read");
    return about;
  }

  void put(std::size_t offset, void const* bytes, std::size_t size) const {
    if (::pwrite(number(), bytes, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size))
      throw_errno("cannot be written");
  }

  void populate(SegmentMemory const& mapped, std::size_t offset, std::size_t bytes) const {
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, from Linux 5.14 on
    if (bytes == 0 || ::madvise(mapped.base + offset, bytes, populate_write) == 0) return;
    if (errno != EINVAL) throw_no_memory(bytes, errno);
    reserve(offset, bytes);
  }
  void reserve(std::size_t offset, std::size_t bytes) const {
    auto const error = ::posix_fallocate(number(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
    if (error != 0) throw_no_memory(bytes, error);
  }

  /// error   EFAULT is reported where a write would end the process with SIGBUS: the file system is full
  [[noreturn]] void throw_no_memory(std::size_t bytes, int error) const {
    struct statvfs space{};
    auto const is_full = (error == EFAULT || error == ENOSPC) && ::fstatvfs(number(), &space) == 0;
    auto const why     = is_full ? (path_.empty() ? "the host" : "/dev/shm") + std::string{" has "} +
                                   std::to_string(space.f_bavail * space.f_frsize) + " of " +
                                   std::to_string(space.f_blocks * space.f_frsize) + " bytes left"
                                 : "the host gave none: " + std::string{std::strerror(error)};
    throw OutOfMemory{who_ + " needs " + std::to_string(bytes) + " bytes of shared memory, and " + why + ".",
                      "a smaller .arena or .ring, or a larger /dev/shm (mount -o remount,size=8G /dev/shm; "
                      "docker run --shm-size=8g)."};
  }
  [[noreturn]] void throw_errno(std::string const& what) const {
    throw BadFile{(path_.empty() ? "a file in memory" : path_) + " " + what + ": " + std::strerror(errno) + "."};
  }

  std::string who_, path_;
  FileDescriptor file_;
};

/// The options of one process of a job. All processes must agree on them, except on the timeouts.
struct JobDescription {
  std::string name, plan;
  std::uint32_t incarnation;
  std::size_t arena, ring;  // bytes per rank; per channel
  Timeouts timeouts;
  FailureScope failures;
  std::function<void()> while_joining{};  // see SharedMemoryTransport

  SegmentLayout layout(int world, std::size_t plan_bytes) const { return {world, ring, arena, plan_bytes}; }

  /// A reason why this job is not the one of the file.
  struct Misfit {
    Fault fault;
    std::string reason, what_to_try;
  };
  std::optional<Misfit> misfit(SegmentPrefix const& theirs, int world, SegmentFile const& file) const {
    using std::to_string;
    auto const both = [&](std::string const& what, std::uint64_t a, std::uint64_t b) {
      return "job " + name + " was begun with " + what + " " + to_string(a) + ", and this process has " + to_string(b);
    };
    if (theirs.version != segment_wire_version)
      return Misfit{Fault::version_mismatch, both("wire version", theirs.version, segment_wire_version),
                    "one version of this library on every rank."};
    if (theirs.process_ids != namespace_of_processes())
      return Misfit{Fault::world_mismatch,
                    both("process numbers of namespace", theirs.process_ids, namespace_of_processes()),
                    "containers that share the numbers of processes, or one container for all ranks."};
    auto const other = [&](std::string const& what, std::uint64_t a, std::uint64_t b) -> std::optional<Misfit> {
      if (a == b) return std::nullopt;
      return Misfit{Fault::world_mismatch, both(what, a, b), "another name, if it is another job."};
    };
    if (auto m = other("a world of", static_cast<std::uint64_t>(theirs.world), static_cast<std::uint64_t>(world)))
      return m;
    if (auto m = other("incarnation", theirs.incarnation, incarnation)) return m;
    // Before the sizes, which follow from the model: its first difference is more informative.
    auto const first = file.plan({theirs.world, theirs.ring, theirs.arena, theirs.plan});
    if (first != plan)
      return Misfit{Fault::model_mismatch,
                    "job " + name + ": " + printable(wire::first_difference(lines_of(first), lines_of(plan))) +
                        " of the ranks that came before it",
                    same_model};
    if (auto m = other("bytes of arena:", theirs.arena, arena)) return m;
    if (auto m = other("bytes of ring:", theirs.ring, ring)) return m;
    return other("failures apart:", theirs.apart, failures == FailureScope::peer);
  }

  static constexpr char const* same_model = "the same model, loss, optimizer and options on every rank.";

 private:
  static std::vector<std::string> lines_of(std::string_view text) {
    auto lines = std::vector<std::string>{};
    while (!text.empty()) {
      auto const end = std::min(text.find('\n'), text.size());
      lines.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }
};

}  // namespace chorale::shared_memory
