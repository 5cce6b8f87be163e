// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/futex.hpp>
#include <chorale/core/host.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/process.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/segment_file.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {
namespace detail {

/// True if this process can determine that no process of the file's job lives. The caller holds the file's lock.
inline bool is_of_dead_job(int file) {
  struct stat about{};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != ::geteuid() || about.st_nlink == 0)
    return false;
  auto prefix    = shared_memory::SegmentPrefix{};
  auto const got = ::pread(file, &prefix, sizeof prefix, 0);
  if (got != static_cast<ssize_t>(sizeof prefix)) return about.st_size == 0;  // ended before it wrote anything
  if (prefix.magic == 0 && prefix.world == 0) return true;                    // likewise, and no rank is recorded
  if (prefix.magic != 0 && prefix.magic != shared_memory::segment_magic) return false;
  if (prefix.process_ids != shared_memory::namespace_of_processes()) return false;  // of another container
  return std::ranges::all_of(prefix.processes, [](auto const& process) {
    return shared_memory::life_of(process) == shared_memory::ProcessLife::ended;
  });
}

}  // namespace detail

/// Removes the files in /dev/shm of this user's dead jobs: no process of such a job lives any more, because a signal
/// ended all of them before the last rank had joined.
///
/// current  the name of a job whose file stays
/// keeps    files that a process has locked, that belong to another user, or whose process numbers are from another
///          container. Without a free file descriptor it does nothing
inline void remove_dead_jobs(std::string const& current) {
  constexpr auto ours = std::string_view{"chorale-"};
  auto error          = std::error_code{};
  for (auto at = std::filesystem::directory_iterator{"/dev/shm", error}; !error && at != end(at); at.increment(error)) {
    auto const name = at->path().filename().string();
    if (!name.starts_with(ours) || name.substr(ours.size()) == current) continue;
    auto const file = FileDescriptor{::open(at->path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (file.number() < 0 || ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) continue;
    if (detail::is_of_dead_job(file.number())) ::unlink(at->path().c_str());
  }
}

}  // namespace chorale

namespace chorale::shared_memory {

/// Joins the ranks of one process to a job's file. Everything here is done under the file's lock, except waiting.
///
///   lock the file ─▶ of a dead job? ── yes ─▶ unlink it, begin again with a new one
///                         │ no
///                    not initialized? ── yes ─▶ initialize it
///                         │ no
///                    same job? rank free? ── no ─▶ refuse
///                         │ yes
///                    record this process ─▶ the last one unlinks the file: it lives as long as it is mapped
///
/// A rank with another model is recorded, too, and refused together with all others. The waiting ranks see it at once,
/// and stay up to timeouts.handshake, so that a rank that comes later still finds the file and the reason in it.
class Rendezvous {
 public:
  Rendezvous(JobDescription const& job, Group const& group)
      : job_{job}, group_{group}, deadline_{Deadline::after(job.timeouts.join)} {}

  /// Joins the job, and returns when all its ranks have joined.
  ///
  /// throws  Disagreement when this process belongs to another job than the ones before it, or claims a taken rank;
  ///         PeerLost with Fault::join_timeout when ranks never came; OutOfMemory when the host has too little, and
  ///         PeerLost on the waiting ranks; OutOfDescriptors
  std::unique_ptr<Segment> join() {
    enter();
    if (other_model_) end_with_all();
    auto const layout = job_.layout(group_.size(), prefix_.plan);
    auto mapping      = or_leave([&] { return Mapping{file_->number(), layout.bytes()}; });
    auto const mapped = SegmentMemory{mapping.base(), layout};
    or_leave([&] {
      populate(mapped);
      sign();
      if (is_everybody_here()) complete(mapped);
    });
    file_->unlock();
    await(mapped);
    return std::make_unique<Segment>(std::move(mapping), layout, job_, group_.local(), prefix_.processes);
  }

  /// Returns a text such as "waiting for 1 of 4: rank 3".
  static std::string waiting_text(std::vector<Rank> const& missing, int world) {
    auto text = "waiting for " + std::to_string(missing.size()) + " of " + std::to_string(world) + ": rank";
    for (auto const* between = " "; auto const rank : missing)
      text += std::exchange(between, ", ") + std::to_string(rank);
    return text;
  }

 private:
  /// Opens the job's file, or makes it. Leaves it locked, complete, and of this job.
  void enter() {
    for (;;) {
      file_.emplace(job_.name, name());
      lock();
      if (!file_->is_linked()) continue;  // its job has just begun, or was dead
      prefix_ = file_->prefix();
      if (prefix_.magic == 0) return make();
      if (prefix_.magic != segment_magic)
        throw BadFile{SegmentFile::path_of(job_.name) + " is not the shared memory of a job.",
                      "another name for this job."};
      if (is_anybody_alive()) return agree();
      file_->unlink();
    }
  }

  void lock() { lock(deadline_); }
  void lock(Deadline const& until) {
    while (!file_->try_lock()) {
      if (until.passed())
        throw_timeout("another process held the lock of " + SegmentFile::path_of(job_.name) + " all the time", 0);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  void make() {
    remove_dead_jobs(job_.name);
    prefix_             = SegmentPrefix{};
    prefix_.version     = segment_wire_version;
    prefix_.world       = group_.size();
    prefix_.process_ids = namespace_of_processes();
    prefix_.incarnation = job_.incarnation;
    prefix_.apart       = job_.failures == FailureScope::peer ? 1 : 0;
    prefix_.arena       = job_.arena;
    prefix_.ring        = job_.ring;
    prefix_.plan        = job_.plan.size();
    try {
      file_->make(prefix_, job_.layout(group_.size(), prefix_.plan), job_.plan);
    } catch (...) {
      file_->unlink();
      throw;
    }
    prefix_.magic = segment_magic;
  }

  /// Throws, or sets `other_model_`, if this job differs from the one that the first rank recorded.
  void agree() {
    auto const misfit = job_.misfit(prefix_, group_.size(), *file_);
    if (!misfit) return;
    if (misfit->fault == Fault::model_mismatch) {
      other_model_ = "rank " + std::to_string(group_.local().front()) + " of " + misfit->reason;
      return;
    }
    if (prefix_.version == segment_wire_version)  // else the refusal's place is unknown
      file_->refuse(SegmentFile::Concerns::newcomer, misfit->reason);
    throw Disagreement{misfit->fault, misfit->reason + ".", misfit->what_to_try};
  }

  std::string name() const { return "rank " + std::to_string(group_.local().front()); }

  /// Calls f() under the lock; if it throws, removes this process from the file.
  template <class F> std::invoke_result_t<F> or_leave(F f) {
    try {
      return f();
    } catch (...) {
      leave();
      throw;
    }
  }

  /// Refuses all ranks, because this one has another model than those before it.
  void end_with_all() {
    auto const mapping = or_leave([&] { return Mapping{file_->number(), SegmentLayout{}.members()}; });
    auto const mapped  = SegmentMemory{mapping.base(), SegmentLayout{}};
    or_leave([&] {
      sign();  // first: the others did not take the rank
      file_->refuse(SegmentFile::Concerns::everyone, *other_model_);
      if (is_everybody_here()) complete(mapped);
    });
    file_->unlock();
    await(mapped);
  }

  /// throws  OutOfMemory, which is reported to the waiting ranks
  void populate(SegmentMemory const& mapped) {
    for (Rank const rank : group_.local()) {
      try {
        file_->populate(mapped, rank);
      } catch (OutOfMemory const&) {
        mapped.member(rank).reports[0].set(
            {.rank = rank, .host = host_name(), .reason = "it found too little shared memory, and could not join"});
        auto none = std::uint32_t{0};
        mapped.root_cause().report.compare_exchange_strong(none, 1 + 2 * static_cast<std::uint32_t>(rank));
        throw;
      }
    }
  }

  void sign() {
    auto const me = this_process(name());
    for (Rank const rank : group_.local()) {
      auto& process = prefix_.processes[static_cast<std::size_t>(rank)];
      if (lives(process)) {
        auto const both = "rank " + std::to_string(rank) + " of job " + job_.name + " is process " +
                          std::to_string(process.process) + ", and process " + std::to_string(me.process) +
                          " claims it, too";
        file_->refuse(SegmentFile::Concerns::newcomer, both);
        throw Disagreement{Fault::duplicate_rank, both + ".", "another rank for one of them."};
      }
      process = me;
    }
    file_->write(prefix_);
    signed_ = true;
  }

  void complete(SegmentMemory const& mapped) {
    file_->unlink();
    auto& root_cause = mapped.root_cause();
    root_cause.complete.store(is_for_all(root_cause.refused.load(std::memory_order_acquire)) ? all_refused : all_joined,
                              std::memory_order_release);
    futex_wake<FutexScope::shared>(root_cause.complete);
  }

  /// Waits, without the lock, until the last rank has joined.
  ///
  /// throws  Disagreement when all were refused; PeerLost when a rank could not join, or did not come in time
  void await(SegmentMemory const& mapped) {
    auto& root_cause = mapped.root_cause();
    auto next_line   = Deadline::after(std::chrono::seconds{10});
    auto told        = std::uint32_t{0};
    auto until       = deadline_;
    while (root_cause.complete.load(std::memory_order_acquire) == 0) {
      futex_wait<FutexScope::shared>(root_cause.complete, 0, std::chrono::milliseconds{20});
      if (auto const refused = root_cause.refused.load(std::memory_order_acquire); refused != told) {
        told = refused;
        if (is_for_all(refused)) until = Deadline::after(job_.timeouts.handshake);
        else log_line("refused: " + root_cause.refusal.text());
      }
      if (next_line.passed()) {
        lock();
        prefix_ = file_->prefix();
        file_->unlock();
        log_line(name() + ": " + waiting_text(missing(), group_.size()));
        next_line = Deadline::after(std::chrono::seconds{10});
      }
      // A rank with another model has mapped only the SegmentRootCause, and no reports of ranks.
      if (auto const report = root_cause.report.load(std::memory_order_acquire); report != 0 && !other_model_)
        hear_loss(mapped, report);
      if (job_.while_joining) look_around();
      if (!until.passed()) continue;
      if (is_for_all(told)) end_refused(root_cause);
      give_up(mapped);
    }
    if (root_cause.complete.load(std::memory_order_acquire) == all_refused) end_refused(root_cause);
    prefix_ = file_->prefix();  // constant from here on
  }

  /// Leaves the job if the program has a reason not to wait.
  void look_around() {
    try {
      job_.while_joining();
    } catch (...) {
      lock();
      leave();
      throw;
    }
  }

  static constexpr std::uint32_t all_joined = 1, all_refused = 2;

  /// True if the refusal with this number concerns all ranks: they can never become one job.
  static bool is_for_all(std::uint32_t refused) { return refused % 2 != 0; }

  [[noreturn]] void end_refused(SegmentRootCause const& root_cause) {
    auto const why = root_cause.refusal.text();
    if (root_cause.complete.load(std::memory_order_acquire) == 0) {  // else no rank reads the file any more
      lock(Deadline::after(job_.timeouts.handshake));
      leave();
    }
    throw Disagreement{Fault::model_mismatch, why + ".", JobDescription::same_model};
  }

  /// Throws the PeerLost of a rank that could not join: see populate().
  void hear_loss(SegmentMemory const& mapped, std::uint32_t report) {
    auto const by = static_cast<Rank>((report - 1) / 2);
    CHORALE_ENSURES(by < group_.size(),
                    "the root cause names rank " + std::to_string(by) + " of " + std::to_string(group_.size()));
    auto const loss = mapped.member(by).reports[(report - 1) % 2].loss();
    lock();
    leave();
    throw PeerLost{group_.local().front(), loss};
  }

  void give_up(SegmentMemory const& mapped) {
    lock();
    prefix_ = file_->prefix();
    if (mapped.root_cause().complete.load(std::memory_order_acquire) != 0) return file_->unlock();
    auto const absent = missing();
    leave();
    throw_timeout(
        "it did not come within " + seconds_text(job_.timeouts.join) + "; " + waiting_text(absent, group_.size()),
        absent.empty() ? 0 : absent.front());
  }

  /// Removes this process from the file, and the file with the last process.
  void leave() {
    prefix_ = file_->prefix();  // without changes that were not written
    if (signed_) {
      for (Rank const rank : group_.local()) prefix_.processes[static_cast<std::size_t>(rank)] = {};
      file_->write(prefix_);
    }
    if (std::ranges::none_of(prefix_.processes, may_live)) file_->unlink();
    file_->unlock();
  }

  [[noreturn]] void throw_timeout(std::string reason, Rank culprit) const {
    throw PeerLost{group_.local().front(),
                   Loss{.fault = Fault::join_timeout, .rank = culprit, .reason = std::move(reason)},
                   "are all ranks started on this host, with the same name? A slower start needs more Timeouts::join."};
  }

  std::vector<Rank> missing() const {
    auto absent = std::vector<Rank>{};
    for (Rank rank = 0; rank < group_.size(); ++rank)
      if (!may_live(prefix_.processes[static_cast<std::size_t>(rank)])) absent.push_back(rank);
    return absent;
  }
  bool is_everybody_here() const {
    return std::all_of(prefix_.processes.begin(), prefix_.processes.begin() + group_.size(),
                       [this](auto const& process) { return lives(process); });
  }
  bool is_anybody_alive() const {
    return std::ranges::any_of(prefix_.processes, [this](auto const& process) { return lives(process); });
  }

  /// throws  OutOfDescriptors when /proc cannot be read: the others must not be taken for dead then
  bool lives(Process const& process) const {
    auto const life = life_of(process);
    if (life == ProcessLife::unknown) throw_no_descriptors(name(), errno);
    return life == ProcessLife::lives;
  }
  static bool may_live(Process const& process) { return life_of(process) != ProcessLife::ended; }

  JobDescription const& job_;
  Group const& group_;
  Deadline const deadline_;
  std::optional<SegmentFile> file_;  // locked by join(), except in await()
  SegmentPrefix prefix_;
  bool signed_ = false;                     // this process is in the file
  std::optional<std::string> other_model_;  // why neither this rank nor the others can join
};

}  // namespace chorale::shared_memory
