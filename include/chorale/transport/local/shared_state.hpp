// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class, in one piece: waking, failing and closing hold one protocol over the same atomics.
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/futex.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/common/shared_operation_log.hpp>
#include <chorale/transport/timeouts.hpp>

#include <gsl/util>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::local {

/// Shared state of the ranks of one LocalTransport. A LocalEndpoint is one rank's view of it.
///
/// A rank that throws may free its buffers while another rank copies from them. So a rank touches foreign memory only
/// while it has a Hold, and a rank that is about to throw first waits until no other rank has one.
struct SharedState {
  static constexpr unsigned slots           = 64;   // messages per pair; windows per rank
  static constexpr std::uint64_t remembered = 256;  // operations
  using Log                                 = detail::SharedOperationLog<remembered>;

  struct Message {
    std::uint64_t order;  // among all messages of this `Lane`
    Tag tag;
    std::byte const* data;
    std::size_t size;
    detail::Label about;
  };

  /// A posted receive.
  struct Expected {
    std::uint64_t order;  // among all receives of this rank
    Rank from;
    Tag tag;
    Bytes to;
    detail::Label about;
  };

  /// The failure after which operations throw. The first call of claim() sets it.
  struct Loss {
    std::atomic<bool> claimed{false}, failed{false};
    chorale::Loss what{};  // set before `failed`, then constant

    void claim(chorale::Loss const& first) {
      if (!claimed.exchange(true)) {
        what = first;
        failed.store(true);
      }
      spin_until([&] { return failed.load(std::memory_order_acquire); });
    }
  };

  /// Messages from one rank to another. A set bit of `posted` is a message: the sender sets it, the receiver clears it.
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> posted{0};
    Loss loss;                            // of the sender; with FailureScope::peer
    std::uint64_t sent = 0;               // used by the sender only
    std::array<Message, slots> messages;  // written by the sender while the bit is clear
  };

  /// Window for every 64th exposure of a rank: the turn is 2n - 1 during the n-th exposure, 2n once it is left.
  struct alignas(64) Window {
    std::atomic<std::uint64_t> turn{0};
    Tag tag{};
    Bytes bytes;
    detail::Label about;
  };

  /// An exposure that this rank has not left.
  struct Exposed {
    Tag tag;
    std::uint64_t number;  // among all exposures of this rank, from 0
  };

  /// Ranks that each wait for room at the next one, and the turns of each when this was first seen.
  struct Circle {
    std::vector<Rank> ranks;
    std::vector<std::uint64_t> turns;
  };

  /// How far a rank has compared its announced operations with a peer's: positions in the two logs.
  struct Compared {
    std::uint64_t mine = 0, theirs = 0;
  };

  struct alignas(64) Member {
    std::atomic<bool> holds{false};
    std::atomic<std::uint64_t> step{0};
    std::array<Window, slots> windows;
    alignas(64) std::atomic<std::uint32_t> wakeup{0};  // wake-ups, counted if the rank listens or sleeps
    std::atomic<bool> listens{false}, sleeps{false};
    std::atomic<int> dozing{0};            // threads of the rank in `doze()`
    std::uint32_t heard    = 0;            // the rank's own, as are the next five
    std::uint64_t receives = 0;            // so far
    std::vector<Expected> expected;        // in the order posted
    std::uint64_t exposures = 0;           // so far
    std::vector<Exposed> exposed;          // in the order of numbers
    std::vector<Compared> compared;        // [peer]
    std::atomic<Rank> waits_for_room{-1};  // at that rank; -1: at none
    std::atomic<std::uint64_t> turns{0};   // of long waits
    OwnerThread owner;
    Log announced;  // other ranks read it; see there
    std::atomic<bool> ended{false};
  };

  SharedState(int n, std::chrono::nanoseconds limit, FailureScope policy = FailureScope::group)
      : size{n}, timeout{limit}, failures{policy}, shares_cores{n > usable_cores()},
        members(static_cast<std::size_t>(n)), lanes(members.size() * members.size()),
        fenced{syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0} {
    for (auto& member : members) {
      member.expected.reserve(slots);
      member.exposed.reserve(slots);
      member.compared.resize(members.size());
    }
  }

  Member& member(Rank rank) { return members[static_cast<std::size_t>(rank)]; }
  Window& window(Rank rank, std::uint64_t exposure) { return member(rank).windows[exposure % slots]; }
  Lane& lane(Rank from, Rank to) {
    return lanes[static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to)];
  }

  /// The turn of an exposure's window while the rank exposes it, and once the rank has left it.
  static constexpr std::uint64_t shown(std::uint64_t exposure) { return 2 * (exposure / slots) + 1; }
  static constexpr std::uint64_t left(std::uint64_t exposure) { return 2 * (exposure / slots) + 2; }

  /// Begins a call of the endpoint; see OwnerThread.
  OwnerThread::Use use(Rank rank) {
    return member(rank).owner.use(rank, [&] { return has_nothing_under_way(rank); });
  }

  /// The failure that a rank throws in operations with that peer.
  Loss& loss(Rank me, Rank peer) { return is_apart() ? lane(peer, me).loss : all; }
  bool is_apart() const { return failures == FailureScope::peer; }

  /// While it lives, a rank that fails waits before it gives up its memory.
  class Hold {
   public:
    Hold(SharedState& hub, Rank rank, Rank peer) : holds_{hub.member(rank).holds} {
      holds_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the failing rank has the processor's fence
      if (!hub.loss(rank, peer).failed.load(std::memory_order_acquire)) return;
      holds_.store(false, std::memory_order_release);
      hub.throw_lost(rank, peer);
    }
    ~Hold() { holds_.store(false, std::memory_order_release); }
    Hold(Hold const&)            = delete;
    Hold& operator=(Hold const&) = delete;

   private:
    std::atomic<bool>& holds_;
  };

  /// Fails a rank for this reason; the first call counts. Returns when no other rank touches the memory of `me`, and
  /// none will again.
  void fail(Rank me, chorale::Loss why) {
    if (!is_apart()) all.claim(why);
    else why.fault = Fault::peer_lost;
    for (Rank rank = 0; is_apart() && rank < size; ++rank) {
      loss(rank, me).claim(why);
      loss(me, rank).claim(why);
    }
    for (Rank rank = 0; rank < size; ++rank) ring(rank);
    quiesce(me);
  }

  /// Disconnects two ranks from each other, with FailureScope::peer.
  void part(Rank me, Rank peer, chorale::Loss why) {
    loss(me, peer).claim(why);
    if (why.fault != Fault::collective_mismatch) {
      why.rank   = me;
      why.reason = "it went on without this rank: " + why.reason;
    }
    loss(peer, me).claim(why);
    ring(peer);
    quiesce(me);
  }

  /// Fails all ranks, or with FailureScope::peer these two, for a fault of the peer in the operation of `label`.
  [[noreturn]] void give_up(Rank me, Rank peer, chorale::Loss what, detail::Label const& label) {
    check(me, peer);  // an earlier failure comes first
    if (auto const known = member(me).announced.find(label); label.number != 0 && known) {
      what.operation = known->operation.text();
      what.sequence  = label.number;
    }
    what.step = member(me).step.load(std::memory_order_relaxed);
    if (is_apart()) part(me, peer, what);
    else fail(me, what);
    throw_lost(me, peer);
  }

  /// Ends a rank whose endpoint is destroyed: its sent messages can still be received, unless this is a failure.
  void end(Rank me) {
    auto const why = chorale::Loss{.rank = me, .reason = has_ended};
    if (is_apart() || !member(me).exposed.empty()) return fail(me, why);
    member(me).ended.store(true, std::memory_order_release);
    endings.fetch_add(1);
    for (Rank rank = 0; rank < size; ++rank) ring(rank);
  }

  /// Compares the operations that this rank and all others have announced, as far as they are new since the last call.
  ///
  /// throws  Disagreement where two operations with the same number differ
  void compare(Rank me) {
    auto const& mine = member(me).announced;
    auto const last  = mine.count();
    for (Rank peer = 0; last != 0 && peer < size; ++peer) {
      if (peer == me || lost(me, peer)) continue;
      auto const& theirs     = member(peer).announced;
      auto& seen             = member(me).compared[static_cast<std::size_t>(peer)];
      auto const theirs_last = theirs.count();
      compare_from(seen.theirs, theirs_last, theirs, mine,
                   [&](auto const& other, auto const& own) { mismatch(me, peer, other.label, own.label, {}, 0); });
      compare_from(seen.mine, last, mine, theirs,
                   [&](auto const& own, auto const& other) { mismatch(me, peer, other.label, own.label, {}, 0); });
      seen = {last, theirs_last};
    }
  }

  /// Fails because a peer's message or exposure does not belong to the operation that this rank is in.
  ///
  /// bytes   of the message or exposure, where no operation was announced
  [[noreturn]] void mismatch(Rank me, Rank peer, detail::Label theirs, detail::Label ours, Tag tag, std::size_t bytes) {
    auto const& mine = member(me).announced;
    auto const raw   = Operation{.count = bytes, .tag = tag};
    give_up(me, peer,
            {.fault  = Fault::collective_mismatch,
             .rank   = peer,
             .reason = detail::text_of(peer, theirs, member(peer).announced, mine, raw) + ", and " +
                       detail::text_of(me, ours, mine, mine, raw)},
            ours);
  }

  /// True if this rank is in a cycle that no rank in it can break: each has looked for messages to take since the cycle
  /// was first seen.
  bool is_stuck(Rank me, Circle& seen) {
    auto now = Circle{};
    for (auto at = me; now.ranks.empty() || at != me;) {
      now.ranks.push_back(at);
      now.turns.push_back(member(at).turns.load(std::memory_order_acquire));
      at = member(at).waits_for_room.load(std::memory_order_relaxed);
      if (at < 0 || now.ranks.size() > members.size()) return false;
    }
    if (now.ranks != seen.ranks) {
      seen = std::move(now);
      return false;
    }
    for (std::size_t i = 0; i < seen.turns.size(); ++i)
      if (now.turns[i] < seen.turns[i] + 2) return false;
    return true;
  }

  bool lost(Rank me, Rank peer) {
    return loss(me, peer).failed.load(std::memory_order_acquire) || loss(me, me).failed.load(std::memory_order_acquire);
  }
  bool ended(Rank peer) {
    return endings.load(std::memory_order_relaxed) != 0 && member(peer).ended.load(std::memory_order_acquire);
  }
  void check(Rank me, Rank peer) {
    for (Rank const rank : {me, peer})
      if (loss(me, rank).failed.load(std::memory_order_acquire)) throw_lost(me, rank);
  }

  [[noreturn]] void throw_lost(Rank me, Rank peer) {
    quiesce(me);
    auto const& found = loss(me, peer).what;
    if (found.fault >= Fault::collective_mismatch) detail::throw_peer_loss(me, found);
    throw PeerLost{me, found};
  }

  /// Backoff for a wait of a rank; `rings` if the awaited event wakes the rank. Such a rank sleeps soon: another
  /// program may keep a yielded core for milliseconds, but a thread that is woken gets the core back at once.
  Backoff patience(bool rings) const {
    return Backoff{spins(), !rings ? Backoff::many_yields : shares_cores ? rests : 0};
  }

  /// Counts a wake-up of a rank that listens or sleeps, because something has moved; wakes it if it sleeps.
  void ring(Rank rank) {
    auto& m          = member(rank);
    auto const wakes = m.dozing.load() != 0;
    if (!wakes && !m.listens.load()) return;
    m.wakeup.fetch_add(1);
    if (wakes || m.sleeps.load()) futex_wake<FutexScope::process>(m.wakeup);
  }

  /// Wakes the ranks in `doze()`: they may wait for a window that `me` has written. Costs no fence: `doze()` has it.
  void wake_others(Rank me) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (Rank rank = 0; rank < size; ++rank) {
      auto& m = member(rank);
      if (rank == me || m.dozing.load(std::memory_order_relaxed) == 0) continue;
      m.wakeup.fetch_add(1);
      futex_wake<FutexScope::process>(m.wakeup);
    }
  }

  /// Waits for the first wake-up since the last call; false if the time is over first.
  bool wait_for_wakeup(Rank me, std::chrono::nanoseconds longest) {
    auto& m = member(me);
    if (!m.listens.exchange(true)) return true;  // no wake-up was counted so far
    auto const deadline = Deadline::after(longest);
    for (int turns = 0;; ++turns) {
      check(me, me);
      auto const rung = m.wakeup.load();
      if (std::exchange(m.heard, rung) != rung) return true;
      if (deadline.passed()) return false;
      if (turns < spins()) relax();
      else if (turns < spins() + rests) std::this_thread::yield();
      else sleep(m, deadline.at - std::chrono::steady_clock::now());
    }
  }

  /// Sleeps until a wake-up, unless done() is already true.
  template <class Done> void doze(Rank me, Deadline until, Done done) {
    auto& m         = member(me);
    auto const rung = m.wakeup.load();
    m.dozing.fetch_add(1);
    auto const up = gsl::finally([&] { m.dozing.fetch_sub(1); });
    if (fenced) fence_all();  // a rank that moves something later wakes us
    else detail::full_fence();
    if (!done()) futex_wait<FutexScope::process>(m.wakeup, rung, until.at - std::chrono::steady_clock::now());
  }

  void quiesce(Rank me) {
    if (!fenced || !fence_all())
      std::this_thread::sleep_for(std::chrono::milliseconds{10});  // far longer than any store takes to be seen
    for (Rank rank = 0; rank < size; ++rank)
      if (rank != me) spin_until([&] { return !member(rank).holds.load(std::memory_order_acquire); });
  }

  int const size;
  std::chrono::nanoseconds const timeout;
  FailureScope const failures;
  bool const shares_cores;  // there are more ranks than cores
  std::vector<Member> members;
  std::vector<Lane> lanes;
  bool const fenced;
  std::atomic<int> endings{0};  // ranks that have ended
  Loss all;                     // for all ranks, with FailureScope::group

  static constexpr char const* has_ended = "it had ended and left the group";

 private:
  static constexpr int rests = 20;  // yields before it sleeps

  /// True if another thread may take over this rank. Operations with a lost rank do not prevent it.
  bool has_nothing_under_way(Rank me) {
    if (loss(me, me).failed.load(std::memory_order_acquire)) return true;
    auto const& mine = member(me);
    if (!mine.exposed.empty()) return false;
    for (auto const& one : mine.expected)
      if (!lost(me, one.from)) return false;
    for (Rank peer = 0; peer < size; ++peer)
      if (lane(me, peer).posted.load(std::memory_order_acquire) != 0 && !lost(me, peer)) return false;
    return true;
  }

  /// Calls differ() for each operation in `here`, after `seen` up to `last`, that is another one in `there`.
  template <class Differ>
  static void compare_from(std::uint64_t seen, std::uint64_t last, Log const& here, Log const& there, Differ differ) {
    auto const first = last - std::min(last - seen, remembered - 1);
    for (auto at = first; at < last; ++at)
      if (auto const known = here.at(at + 1))
        if (auto const other = there.find(known->label); other && other->label.fingerprint != known->label.fingerprint)
          differ(*known, *other);
  }

  int spins() const { return shares_cores ? 20 : 2'000; }

  /// A full fence in every thread of the process.
  static bool fence_all() { return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0; }

  static void sleep(Member& m, std::chrono::nanoseconds longest) {
    m.sleeps.store(true);
    futex_wait<FutexScope::process>(m.wakeup, m.heard, longest);
    m.sleeps.store(false);
  }
};

}  // namespace chorale::local
