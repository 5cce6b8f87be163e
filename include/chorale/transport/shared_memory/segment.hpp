// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/futex.hpp>
#include <chorale/core/host.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/shared_memory/process.hpp>
#include <chorale/transport/shared_memory/segment_file.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/timeouts.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace chorale::shared_memory {

/// Shared state of the endpoints of one process: the mapped file, wake-ups between ranks, and reports of failures.
struct Segment {
  enum class Witness : std::uint32_t { rank, watcher };

  Segment(Mapping mapped, SegmentLayout layout, JobDescription const& job, std::vector<Rank> ranks,
          std::array<Process, max_segment_ranks> const& all)
      : mapping{std::move(mapped)}, file{mapping.base(), layout}, timeouts{job.timeouts}, failures{job.failures},
        size{layout.world}, shares_cores{size > host_cores() || static_cast<int>(ranks.size()) > usable_cores()},
        spins{shares_cores ? 20 : 2'000}, local{std::move(ranks)}, processes{all}, host{host_name()} {}

  SegmentMember& member(Rank rank) const { return file.member(rank); }

  /// Wakes a rank that may sleep until a value changes that the caller has just stored with release order.
  void ring(Rank rank) const {
    detail::full_fence();
    ring_if_asleep(rank);
  }
  /// Wakes a rank that may sleep in sleep() until it has room again; wait_for_bell() does not wait for room.
  void ring_for_room(Rank rank) const {
    detail::full_fence();
    if (member(rank).asleep.load(std::memory_order_relaxed) == waiting) ring_if_asleep(rank);
  }
  void ring_others(Rank me) const {
    detail::full_fence();
    for (Rank rank = 0; rank < size; ++rank)
      if (rank != me) ring_if_asleep(rank);
  }

  /// Sleeps until another rank wakes this one, unless done() is already true; a tenth of a second at most.
  template <class Done> bool sleep(Rank me, Done&& done) const {
    auto& mine      = member(me);
    auto const rung = mine.wakeup.load(std::memory_order_acquire);
    mine.asleep.store(waiting, std::memory_order_relaxed);
    detail::full_fence();
    auto const over = done();
    if (!over) futex_wait<FutexScope::shared>(mine.wakeup, rung, std::chrono::milliseconds{100});
    mine.asleep.store(0, std::memory_order_relaxed);
    return over;
  }

  /// Waits for the first wake-up since the last call, or until lost(); false if the time is over first.
  ///
  /// heard   the rank's counter of wake-ups, as the last call left it
  template <class Lost>
  bool wait_for_bell(Rank me, std::uint32_t& heard, std::chrono::nanoseconds longest, Lost&& lost) const {
    auto& mine = member(me);
    if (mine.listens.exchange(1) == 0) return true;  // no wake-up was counted so far
    auto const deadline = Deadline::after(longest);
    auto patience       = Backoff{spins, shares_cores ? rests : Backoff::many_yields};
    for (;;) {
      auto const rung = mine.wakeup.load(std::memory_order_acquire);
      if (std::exchange(heard, rung) != rung || lost()) return true;
      if (deadline.passed()) return false;
      if (!patience.asleep()) patience.pause();
      else sleep_until_rung(mine, rung, deadline.at - std::chrono::steady_clock::now());
    }
  }

  bool is_apart() const { return failures == FailureScope::peer; }

  /// With FailureScope::peer: true if neither rank can receive anything more from the other.
  bool lost(Rank me, Rank peer) const {
    auto const& lane = file.lane(peer, me);
    return lane.by_receiver.is_over() || lane.by_sender.is_over();
  }

  /// Disconnects `me` and loss.rank from each other. Called by the process of `me`.
  void part(Rank me, Loss const& loss) const {
    file.lane(loss.rank, me).by_receiver.set(loss);
    if (loss.rank != me) {
      auto theirs = loss;
      theirs.rank = me;
      if (loss.fault != Fault::collective_mismatch) {
        theirs.fault  = Fault::evicted;
        theirs.reason = "it went on without rank " + std::to_string(loss.rank) + ": " + loss.reason;
      }
      file.lane(me, loss.rank).by_sender.set(theirs);
    }
    ring(loss.rank);
    ring(me);
  }

  /// Disconnects `me` from all other ranks. Returns when none of them touches its memory, like quiesce().
  void part_from_all(Rank me, Loss const& loss) const {
    auto missed = std::bitset<max_segment_ranks>{};
    for (Rank peer = 0; peer < size; ++peer) {
      missed[static_cast<std::size_t>(peer)] = lost(me, peer);
      file.lane(peer, me).by_receiver.set(loss);
      if (peer != me) file.lane(me, peer).by_sender.set(loss);
    }
    ring_others(-1);
    quiesce(me, [&](Rank rank) { return missed[static_cast<std::size_t>(rank)]; });
  }

  /// throws   PeerLost or Disagreement when `me` or `peer` is lost
  void check_apart(Rank me, Rank peer) const {
    for (Rank const rank : {me, peer}) {
      auto const& lane = file.lane(rank, me);
      if (lane.by_receiver.is_over()) throw_lost(me, lane.by_receiver.report.loss());
      if (lane.by_sender.is_over()) throw_lost(me, lane.by_sender.report.loss());
    }
  }

  /// Reports a failure, which ends every wait of every rank with this loss. The first call of all ranks counts.
  ///
  /// by      the rank whose report it is: written by its own thread, or by the failure detector
  void report_failure(Rank by, Witness witness, Loss const& loss) const {
    auto& root_cause = file.root_cause().report;
    if (root_cause.load(std::memory_order_acquire) != 0) return;
    auto const which = static_cast<std::uint32_t>(witness);
    member(by).reports[which].set(loss);
    auto expected = std::uint32_t{0};
    if (root_cause.compare_exchange_strong(expected, 1 + 2 * static_cast<std::uint32_t>(by) + which)) ring_others(-1);
  }

  bool failed() const { return !is_apart() && file.root_cause().report.load(std::memory_order_acquire) != 0; }

  void check(Rank me) const {
    if (failed()) throw_root_cause(me);
    if (is_apart()) check_apart(me, me);
  }

  [[noreturn]] void throw_root_cause(Rank me) const {
    auto const report = file.root_cause().report.load(std::memory_order_acquire) - 1;
    auto const by     = static_cast<Rank>(report / 2);
    CHORALE_ENSURES(by < size, "the root cause names rank " + std::to_string(by) + " of " + std::to_string(size));
    auto loss = member(by).reports[report % 2].loss();
    quiesce(me, [&](Rank rank) { return rank == loss.rank; });
    if (loss.rank == me && by != me && loss.fault != Fault::collective_mismatch) {
      loss.fault  = Fault::evicted;
      loss.reason = "the others do not wait for it any more: " + loss.reason;
      throw PeerLost{me, loss, "a restart."};
    }
    throw_lost(me, loss);
  }

  [[noreturn]] static void throw_lost(Rank me, Loss const& loss) {
    if (loss.fault > Fault::collective_mismatch) detail::throw_peer_loss(me, loss);
    if (loss.fault == Fault::collective_mismatch)
      throw detail::Told<Disagreement>{loss.fault, "step " + std::to_string(loss.step) + ": " + loss.reason + ".",
                                       "the same calls, with the same sizes and in the same order, on every rank."};
    if (loss.fault == Fault::peer_stalled)
      throw PeerLost{me, loss, "is it stopped, swapping or in a debugger? A slower step needs higher Timeouts."};
    throw PeerLost{me, loss};
  }

  /// Returns when no other rank touches this one's memory, and none will again. Only after a failure was reported.
  ///
  /// missed   true for ranks not to wait for. It waits for the others at most a second: they may have ended, too
  template <class Missed> void quiesce(Rank me, Missed&& missed) const {
    auto const deadline = Deadline::after(std::chrono::seconds{1});
    for (Rank rank = 0; rank < size; ++rank)
      if (rank != me && !missed(rank))
        spin_until([&] { return member(rank).holds.load(std::memory_order_acquire) == 0 || deadline.passed(); });
  }

  /// While it lives, a rank that fails waits before it gives up its memory.
  class Hold {
   public:
    Hold(Segment const& segment, Rank rank, Rank peer) : holds_{segment.member(rank).holds} {
      holds_.store(1, std::memory_order_relaxed);
      detail::full_fence();
      try {
        segment.check(rank);
        if (segment.is_apart()) segment.check_apart(rank, peer);
      } catch (...) {
        holds_.store(0, std::memory_order_release);
        throw;
      }
    }
    ~Hold() { holds_.store(0, std::memory_order_release); }
    Hold(Hold const&)            = delete;
    Hold& operator=(Hold const&) = delete;

   private:
    std::atomic<std::uint32_t>& holds_;
  };

  /// The loss of a rank, with its last operation and step. Only for a rank that does nothing any more.
  Loss report_exit(Rank rank, Fault fault, std::string reason) const {
    auto const& lost      = member(rank);
    auto const sequence   = lost.sequence.load(std::memory_order_relaxed);
    auto const& operation = lost.operations[sequence % SegmentMember::remembered];
    return {fault,
            rank,
            host,
            sequence == 0 ? "" : operation.text(),
            sequence,
            lost.step.load(std::memory_order_relaxed),
            std::move(reason)};
  }

  Mapping const mapping;
  SegmentMemory const file;
  Timeouts const timeouts;
  FailureScope const failures;
  int const size;
  bool const shares_cores;  // more ranks than cores; the query reads a file
  int const spins;          // few if `shares_cores`
  std::vector<Rank> const local;
  std::array<Process, max_segment_ranks> const processes;  // [rank]
  std::string const host;

 private:
  static constexpr std::uint32_t waiting = 1, listening = 2;  // values of `asleep`
  static constexpr int rests = 20;                            // yields before wait_for_bell() sleeps

  void ring_if_asleep(Rank rank) const {
    auto& other       = member(rank);
    auto const asleep = other.asleep.load(std::memory_order_relaxed) != 0;
    if (!asleep && other.listens.load(std::memory_order_relaxed) == 0) return;
    other.wakeup.fetch_add(1);
    if (asleep || other.asleep.load() != 0) futex_wake<FutexScope::shared>(other.wakeup);
  }

  static void sleep_until_rung(SegmentMember& mine, std::uint32_t rung, std::chrono::nanoseconds longest) {
    mine.asleep.store(listening);
    if (mine.wakeup.load() == rung) futex_wait<FutexScope::shared>(mine.wakeup, rung, longest);
    mine.asleep.store(0, std::memory_order_relaxed);
  }
};

}  // namespace chorale::shared_memory
