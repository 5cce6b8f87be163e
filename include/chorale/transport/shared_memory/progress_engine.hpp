// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/shared_memory/process.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/receive_queue.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/shared_memory/send_queue.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::shared_memory {

/// Thread that sends the heartbeats of this process, and detects processes that have ended or stopped.
///
///   ended     reported by the kernel, at once
///   stopped   no further heartbeat: a warning after timeouts.warn_silent, a failure after timeouts.dead
///
/// keeps   sends and checks heartbeats four times per timeouts.heartbeat: a process is declared dead no earlier than
///         timeouts.dead after it stopped, and no later than three quarters of a heartbeat after that, if threads run
///         as soon as they are woken. A rank that has left is not watched. A detector that was itself stopped starts
///         again: the other processes may have been stopped, too
/// throws  OutOfDescriptors, from the constructor
class FailureDetector {
 public:
  explicit FailureDetector(Segment const& segment)
      : segment_{segment},
        tick_{std::max<std::chrono::nanoseconds>(segment.timeouts.heartbeat / 4, std::chrono::milliseconds{1})},
        stop_{::eventfd(0, EFD_CLOEXEC)} {
    auto const who = "rank " + std::to_string(segment.local.front());
    if (stop_.number() < 0) throw_no_descriptors(who, errno);
    for (Rank rank = 0; rank < segment.size; ++rank) {
      auto const& process = segment.processes[static_cast<std::size_t>(rank)];
      if (std::ranges::find(segment.local, rank) == segment.local.end())
        others_.push_back({rank, process, watch_process(process, who), {}, 0, std::chrono::steady_clock::now(), false});
    }
    if (!others_.empty()) thread_ = NamedThread{"chorale watch", [this] { run(); }};
  }
  ~FailureDetector() {
    auto const one                      = std::uint64_t{1};
    [[maybe_unused]] auto const written = ::write(stop_.number(), &one, sizeof one);
  }
  FailureDetector(FailureDetector const&)            = delete;
  FailureDetector& operator=(FailureDetector const&) = delete;

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Other {
    Rank rank;
    Process process;
    FileDescriptor end;  // readable once the process has ended
    bool has_ended;
    std::uint64_t beats;  // at the last check
    Time since;           // when `beats` last changed
    bool warned;
  };

  void run() {
    auto watched = std::vector<pollfd>{{stop_.number(), POLLIN, 0}};
    for (auto const& other : others_) watched.push_back({other.end.number(), POLLIN, 0});  // -1 is never ready
    auto last = std::chrono::steady_clock::now();
    while (watched[0].revents == 0) {
      for (Rank const rank : segment_.local) segment_.member(rank).beats.fetch_add(1, std::memory_order_relaxed);
      auto const now       = std::chrono::steady_clock::now();
      auto const overslept = now - last > tick_ + segment_.timeouts.dead / 2;
      last                 = now;
      for (std::size_t i = 0; i < others_.size(); ++i) {
        auto& other = others_[i];
        if (watched[i + 1].revents != 0) other.has_ended = true;
        if (other.has_ended) watched[i + 1].fd = -1;  // or poll() would return at once from now on
        if (overslept) other.since = now;
        if (segment_.member(other.rank).gone.load(std::memory_order_acquire) == 0) look_at(other, now);
      }
      ::poll(watched.data(), watched.size(), pause());
    }
  }

  void look_at(Other& other, Time now) {
    if (!other.has_ended && other.end.number() < 0) other.has_ended = life_of(other.process) == ProcessLife::ended;
    if (other.has_ended)
      return report_failure(other, Fault::peer_lost, "its process " + std::to_string(other.process.process) + " ended");
    auto const beats = segment_.member(other.rank).beats.load(std::memory_order_relaxed);
    if (beats != other.beats) {
      other.beats  = beats;
      other.since  = now;
      other.warned = false;
    }
    auto const silent = now - other.since - tick_;  // tick_: the pause between two heartbeats
    if (silent >= segment_.timeouts.dead)
      return report_failure(other, Fault::peer_stalled,
                            "its process " + std::to_string(other.process.process) + " is there, but silent for " +
                                seconds_text(segment_.timeouts.dead));
    if (silent < segment_.timeouts.warn_silent || other.warned) return;
    other.warned = true;
    log_line("rank " + std::to_string(segment_.local.front()) + ": waiting " +
             seconds_text(segment_.timeouts.warn_silent) + " for a heartbeat of rank " + std::to_string(other.rank) +
             ", last in step " + std::to_string(segment_.member(other.rank).step.load(std::memory_order_relaxed)));
  }

  void report_failure(Other const& other, Fault fault, std::string reason) {
    auto const loss = segment_.report_exit(other.rank, fault, std::move(reason));
    if (!segment_.is_apart()) return segment_.report_failure(segment_.local.front(), Segment::Witness::watcher, loss);
    for (Rank const rank : segment_.local) segment_.part(rank, loss);
  }

  /// Milliseconds until the next check; few where the kernel does not report the end of a process.
  int pause() const {
    auto const blind = std::ranges::any_of(others_, [](auto const& other) { return other.end.number() < 0; });
    auto const limit = blind ? std::min<std::chrono::nanoseconds>(tick_, std::chrono::milliseconds{50}) : tick_;
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count());
  }

  Segment const& segment_;
  std::chrono::nanoseconds const tick_;
  FileDescriptor const stop_;
  std::vector<Other> others_;  // used only by the thread, once it runs
  NamedThread thread_;         // last: it ends before the rest is destroyed
};

/// All operations in flight at one rank. Whichever operation is polled, all of them make progress.
struct ProgressEngine {
  ProgressEngine(Segment const& segment, Rank rank) : rank_state{segment, rank} {
    for (Rank peer = 0; peer < segment.size; ++peer) {
      outboxes.emplace_back(rank_state, peer);
      inboxes.emplace_back(rank_state, peer);
    }
  }
  ProgressEngine(ProgressEngine const&)            = delete;  // the queues refer to `rank_state`
  ProgressEngine& operator=(ProgressEngine const&) = delete;

  /// Begins a call by the thread that owns this rank.
  ///
  /// throws  BadArgument when another thread owns it
  auto use() {
    return owner.use(rank_state.rank(), [this] {
      return std::ranges::none_of(in_use, [](bool used) { return used; }) &&
             std::ranges::all_of(outboxes, [](SendQueue& box) { return box.is_idle(); }) &&
             std::ranges::none_of(inboxes, [](ReceiveQueue const& box) { return box.is_waiting(); });
    });
  }

  SendQueue& outbox(Rank peer) { return outboxes[static_cast<std::size_t>(peer)]; }
  ReceiveQueue& inbox(Rank peer) { return inboxes[static_cast<std::size_t>(peer)]; }

  /// Moves one segment of every message that can move. Every 1024 calls without progress, it checks all channels.
  void progress() {
    auto moved = false;
    for (std::size_t peer = 0; peer < inboxes.size(); ++peer)
      moved |= at_peer(static_cast<Rank>(peer), [&] {
        auto const took = inboxes[peer].is_moving() && inboxes[peer].look();
        if (!outboxes[peer].is_streaming() || !outboxes[peer].feed()) return took;
        rank_state.segment().ring(static_cast<Rank>(peer));
        return true;
      });
    auto const makes_room = in_vain >= 64 || rank_state.waits_long();
    for (std::size_t peer = 0; !moved && makes_room && peer < inboxes.size(); ++peer)
      moved = at_peer(static_cast<Rank>(peer), [&] { return inboxes[peer].make_room(); });
    if (moved) {
      has_moved();
      in_vain = 0;
    } else if (++in_vain % 1'024 == 0) {
      for (std::size_t peer = 0; peer < inboxes.size(); ++peer)
        at_peer(static_cast<Rank>(peer), [&] { return inboxes[peer].look_again(), false; });
    }
  }

  /// What moves between this rank and a peer. With FailureScope::peer an error there is the loss of that peer, which
  /// calls about it throw, and no others.
  template <class Move> bool at_peer(Rank peer, Move const& move) {
    if (rank_state.has_parted(peer)) return false;  // its destination may have been freed
    try {
      return move();
    } catch (Error const&) {
      if (!rank_state.has_parted(peer)) throw;
      return true;
    }
  }

  void has_moved() {
    rank_state.has_moved();
    may_go_on = true;
  }

  /// Closes this rank: waits until all ranks have closed, and compares the operations that they have called.
  void close() {
    auto const me        = rank_state.rank();
    auto peer            = Rank{0};  // is_so() for all ranks before it
    auto const until_all = [&](char const* what, auto&& is_so) {
      peer = 0;
      rank_state.wait(
          Tag{}, what,
          [&] {
            rank_state.segment().check(me);
            progress();
            while (peer < rank_state.segment().size && (peer == me || is_so(peer))) ++peer;
            return peer == rank_state.segment().size;
          },
          [&] { return peer; });
    };
    until_all("close (sends)", [&](Rank to) { return outbox(to).is_idle(); });
    rank_state.leave();
    until_all("close", [&](Rank other) { return rank_state.has_left(other); });
    for (Rank other = 0; other < rank_state.segment().size; ++other)
      if (other != me) rank_state.expect_same_end(other);
  }

  OwnerThread owner;
  RankState rank_state;
  std::vector<SendQueue> outboxes;                                 // [peer]
  std::vector<ReceiveQueue> inboxes;                               // [peer]
  std::array<bool, 2 * segment_slots> in_use{};                    // windows that peers may still need
  std::array<std::uint64_t, 2 * segment_slots> asked{}, opened{};  // times for each window, in the same order
  std::uint64_t meetings = 0;                                      // calls of `meet()` so far
  unsigned half          = 0;                                      // of copies(): the one that was used last
  std::uint32_t heard    = 0;                                      // wake-ups counted at the last wait_any()
  bool may_go_on         = false;                                  // something moved since; more may move at once
  unsigned in_vain       = 0;                                      // polls since something moved
};

/// The ranks of one process.
struct LocalRanks {
  /// throws  OutOfDescriptors, which is reported to the other ranks
  explicit LocalRanks(std::unique_ptr<Segment> joined) : segment{std::move(joined)}, watcher(watcher_of(*segment)) {
    for (Rank const rank : segment->local) ranks.push_back(std::make_unique<ProgressEngine>(*segment, rank));
  }

  std::unique_ptr<Segment> const segment;
  std::vector<std::unique_ptr<ProgressEngine>> ranks;  // in the order of `segment->local`
  FailureDetector watcher;

 private:
  static FailureDetector watcher_of(Segment const& segment) {
    try {
      return FailureDetector{segment};
    } catch (OutOfDescriptors const&) {
      RankState{segment, segment.local.front()}.fail("it has " + no_descriptors_text(EMFILE));
      throw;
    }
  }
};

}  // namespace chorale::shared_memory
