// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/limits.hpp>
#include <chorale/transport/shared_memory_file.hpp>
#include <chorale/transport/shared_memory_hub.hpp>
#include <chorale/transport/shared_memory_job.hpp>
#include <chorale/transport/shared_memory_process.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale {

/// How the ranks of one process become part of a job's file. Everything here is done under the file's lock, except
/// waiting.
///
///   lock the file ─▶ of a dead job? ── yes ─▶ unlink it, begin again with a new one
///                         │ no
///                    made by nobody yet? ── yes ─▶ make it whole
///                         │ no
///                    same job? rank free? ── no ─▶ refuse
///                         │ yes
///                    write down this process ─▶ the last one unlinks the file: it lives as long as it is mapped
///
/// A rank with another model is written down, too, and refused together with all others. Those that wait see it at once,
/// and stay up to limits.handshake, so that a rank that comes later still finds the file and the reason in it.
class HostJoin {
 public:
  HostJoin(HostJob const& job, Group const& group)
      : job_{job}, group_{group}, deadline_{Deadline::after(job.limits.join)} {}

  /// throws  Disagreement when this process is of another job than those that came before, or claims a taken rank;
  ///         PeerLost with Fault::join_timeout when ranks never came; OutOfMemory when the host has not enough
  std::unique_ptr<HostHub> join() {
    enter();
    if (other_model_) end_with_all();
    auto const layout = job_.layout(group_.size(), prefix_.plan);
    auto mapping      = HostMapping{file_->number(), layout.bytes()};
    auto const mapped = HostFile{mapping.base(), layout};
    try {
      for (Rank const rank : group_.local()) file_->populate(mapped, rank);
      sign();
    } catch (...) {
      leave();
      throw;
    }
    if (is_everybody_here()) complete(mapped);
    file_->unlock();
    await(mapped);
    return std::make_unique<HostHub>(std::move(mapping), layout, job_, group_.local(), prefix_.processes);
  }

  /// waiting for 1 of 4: rank 3
  static std::string waiting_text(std::vector<Rank> const& missing, int world) {
    auto text = "waiting for " + std::to_string(missing.size()) + " of " + std::to_string(world) + ": rank";
    for (auto const* between = " "; auto const rank : missing)
      text += std::exchange(between, ", ") + std::to_string(rank);
    return text;
  }

 private:
  /// Leaves the file locked, whole, and of this very job.
  void enter() {
    for (;;) {
      file_.emplace(job_.name);
      lock();
      if (!file_->is_linked()) continue;                              // of a job that has just begun, or was stale
      prefix_ = file_->prefix();
      if (prefix_.magic == 0) return make();
      if (prefix_.magic != host_magic)
        throw BadFile{HostJobFile::path_of(job_.name) + " is not the shared memory of a job.",
                      "another name for this job."};
      if (is_anybody_alive()) return agree();
      file_->unlink();
    }
  }

  void lock() { lock(deadline_); }
  void lock(Deadline const& until) {
    while (!file_->try_lock()) {
      if (until.passed())
        throw_timeout("another process held the lock of " + HostJobFile::path_of(job_.name) + " all the time", 0);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  void make() {
    prefix_             = HostPrefix{};
    prefix_.version     = host_wire_version;
    prefix_.world       = group_.size();
    prefix_.process_ids = namespace_of_processes();
    prefix_.incarnation = job_.incarnation;
    prefix_.apart       = job_.failures == Failures::apart ? 1 : 0;
    prefix_.arena       = job_.arena;
    prefix_.ring        = job_.ring;
    prefix_.plan        = job_.plan.size();
    file_->make(prefix_, job_.layout(group_.size(), prefix_.plan), job_.plan);
    prefix_.magic = host_magic;
  }

  /// Throws unless what the first rank wrote down is what this one would have.
  void agree() {
    auto const misfit = job_.misfit(prefix_, group_.size(), *file_);
    if (!misfit) return;
    if (misfit->fault == Fault::model_mismatch) {
      other_model_ = "rank " + std::to_string(group_.local().front()) + " of " + misfit->reason;
      return;
    }
    if (prefix_.version == host_wire_version)                         // else its place is unknown
      file_->refuse(HostJobFile::Concerns::newcomer, misfit->reason);
    throw Disagreement{misfit->fault, misfit->reason + ".", misfit->what_to_try};
  }

  /// Of a rank with another model than those before it: it is refused together with them.
  void end_with_all() {
    auto const mapping = HostMapping{file_->number(), HostLayout{}.members()};        // as far as the verdict
    auto const mapped  = HostFile{mapping.base(), HostLayout{}};
    try {
      sign();                                                         // before: a rank that is taken concerns no other
      file_->refuse(HostJobFile::Concerns::everyone, *other_model_);
    } catch (...) {
      leave();
      throw;
    }
    if (is_everybody_here()) complete(mapped);
    file_->unlock();
    await(mapped);
  }

  void sign() {
    auto const me = this_process();
    for (Rank const rank : group_.local()) {
      auto& process = prefix_.processes[static_cast<std::size_t>(rank)];
      if (is_alive(process)) {
        auto const both = "rank " + std::to_string(rank) + " of job " + job_.name + " is process " +
                          std::to_string(process.process) + ", and process " + std::to_string(me.process) +
                          " claims it, too";
        file_->refuse(HostJobFile::Concerns::newcomer, both);
        throw Disagreement{Fault::duplicate_rank, both + ".", "another rank for one of them."};
      }
      process = me;
    }
    file_->write(prefix_);
    signed_ = true;
  }

  void complete(HostFile const& mapped) {
    file_->unlink();
    auto& verdict = mapped.verdict();
    verdict.complete.store(is_for_all(verdict.refused.load(std::memory_order_acquire)) ? all_refused : all_joined,
                           std::memory_order_release);
    detail::futex_wake(verdict.complete);
  }

  /// Waits, without the lock, until the last one has come.
  ///
  /// throws  Disagreement when all were refused
  void await(HostFile const& mapped) {
    auto& verdict  = mapped.verdict();
    auto next_line = Deadline::after(std::chrono::seconds{10});
    auto told      = std::uint32_t{0};
    auto until     = deadline_;
    while (verdict.complete.load(std::memory_order_acquire) == 0) {
      detail::futex_wait(verdict.complete, 0, std::chrono::milliseconds{20});
      if (auto const refused = verdict.refused.load(std::memory_order_acquire); refused != told) {
        told = refused;
        if (is_for_all(refused)) until = Deadline::after(job_.limits.handshake);
        else detail::tell("refused: " + verdict.refusal.text());
      }
      if (next_line.passed()) {
        lock();
        prefix_ = file_->prefix();
        file_->unlock();
        detail::tell("rank " + std::to_string(group_.local().front()) + ": " + waiting_text(missing(), group_.size()));
        next_line = Deadline::after(std::chrono::seconds{10});
      }
      if (!until.passed()) continue;
      if (is_for_all(told)) end_refused(verdict);
      give_up(mapped);
    }
    if (verdict.complete.load(std::memory_order_acquire) == all_refused) end_refused(verdict);
    prefix_ = file_->prefix();                                        // constant from here on
  }

  static constexpr std::uint32_t all_joined = 1, all_refused = 2;

  /// True if the refusal with this number concerns all ranks: they can never become one job.
  static bool is_for_all(std::uint32_t refused) { return refused % 2 != 0; }

  [[noreturn]] void end_refused(HostVerdict const& verdict) {
    auto const why = verdict.refusal.text();
    if (verdict.complete.load(std::memory_order_acquire) == 0) {      // else nobody looks at the file any more
      lock(Deadline::after(job_.limits.handshake));
      leave();
    }
    throw Disagreement{Fault::model_mismatch, why + ".", HostJob::same_model};
  }

  void give_up(HostFile const& mapped) {
    lock();
    prefix_ = file_->prefix();
    if (mapped.verdict().complete.load(std::memory_order_acquire) != 0) return file_->unlock();
    auto const absent = missing();
    leave();
    throw_timeout("it did not come within " + detail::seconds_text(job_.limits.join) + "; " +
                      waiting_text(absent, group_.size()),
                  absent.empty() ? 0 : absent.front());
  }

  /// Takes this process out of the file, which goes with the last one.
  void leave() {
    prefix_ = file_->prefix();                                        // without what was not written
    if (signed_) {
      for (Rank const rank : group_.local()) prefix_.processes[static_cast<std::size_t>(rank)] = {};
      file_->write(prefix_);
    }
    if (!is_anybody_alive()) file_->unlink();
    file_->unlock();
  }

  [[noreturn]] void throw_timeout(std::string reason, Rank culprit) const {
    throw PeerLost{group_.local().front(),
                   Loss{.fault = Fault::join_timeout, .rank = culprit, .reason = std::move(reason)},
                   "are all ranks started on this host, with the same name? A slower start needs more Limits::join."};
  }

  std::vector<Rank> missing() const {
    auto absent = std::vector<Rank>{};
    for (Rank rank = 0; rank < group_.size(); ++rank)
      if (!is_alive(prefix_.processes[static_cast<std::size_t>(rank)])) absent.push_back(rank);
    return absent;
  }
  bool is_everybody_here() const { return missing().empty(); }
  bool is_anybody_alive() const { return std::ranges::any_of(prefix_.processes, is_alive); }

  HostJob const& job_;
  Group const& group_;
  Deadline const deadline_;
  std::optional<HostJobFile> file_;                                   // locked by join(), but for await()
  HostPrefix prefix_;
  bool signed_ = false;                                               // this process is in the file
  std::optional<std::string> other_model_;                            // why neither it nor the others can go on
};

}  // namespace chorale
