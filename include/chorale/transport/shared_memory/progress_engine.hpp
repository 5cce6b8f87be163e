// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/shared_memory/failure_detector.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/receive_queue.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/send_queue.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::shared_memory {

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
