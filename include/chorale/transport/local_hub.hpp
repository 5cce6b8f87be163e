// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/limits.hpp>

#include <gsl/util>

#include <linux/futex.h>
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

namespace chorale {

/// What the ranks of one LocalTransport share.
///
/// A rank that throws takes its buffers with it, while another may be copying from them. So a rank touches foreign
/// memory only while it holds, and whoever is about to throw first waits until nobody else does.
struct LocalHub {
  static constexpr unsigned slots = 64;                               // messages per pair; windows per rank

  struct Message {
    std::uint64_t    order;                                           // of all messages from this rank to that
    Tag              tag;
    std::byte const* data;
    std::size_t      size;
  };

  /// A receive that waits.
  struct Expected {
    std::uint64_t order;                                              // of all receives of this rank
    Rank  from;
    Tag   tag;
    Bytes to;
  };

  /// Why nothing passes any more. The first who claims it says so.
  struct Loss {
    std::atomic<bool> claimed{false}, failed{false};
    Rank culprit = 0;                                                 // these two: set before `failed`, then constant
    std::string cause{};

    void claim(Rank who, std::string const& why) {
      if (!claimed.exchange(true)) {
        culprit = who;
        cause   = why;
        failed.store(true);
      }
      spin_until([&] { return failed.load(std::memory_order_acquire); });
    }
  };

  /// From one rank to another. A set bit of `posted` is a message: the sender sets it, the receiver clears it.
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> posted{0};
    Loss loss;                                                        // of the sender for the receiver, if apart
    std::uint64_t sent = 0;                                           // the sender's
    std::array<Message, slots> messages;                              // written by the sender while the bit is clear
  };

  /// One tag that a rank exposes: 2n - 1 while it is the n-th of this slot, 2n once the rank has left.
  struct alignas(64) Window {
    std::atomic<std::uint64_t> turn{0};
    Tag   tag{};
    Bytes bytes;
  };

  struct alignas(64) Member {
    std::atomic<bool> holds{false};
    std::array<bool, slots> in_use{};                                 // the rank's own: peers may still need the window
    std::array<Window, slots> windows;
    alignas(64) std::atomic<std::uint32_t> bell{0};                   // rung when something moves, if the rank listens
    std::atomic<bool> listens{false}, sleeps{false};
    std::atomic<int> dozing{0};                                       // threads of the rank in doze()
    std::uint32_t heard = 0;                                          // the rank's own, as is what follows
    std::uint64_t receives = 0;                                       // so far
    std::vector<Expected> expected;                                   // in the order posted
  };

  LocalHub(int n, std::chrono::nanoseconds limit, Failures policy = Failures::together)
      : size{n}, timeout{limit}, failures{policy},
        shares_cores{static_cast<unsigned>(n) > std::thread::hardware_concurrency()},
        members(static_cast<std::size_t>(n)), lanes(members.size() * members.size()),
        fenced{syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0} {
    for (auto& member : members) member.expected.reserve(slots);
  }

  Member& member(Rank rank) { return members[static_cast<std::size_t>(rank)]; }
  Window& window(Rank rank, Tag tag) { return member(rank).windows[slot(tag)]; }
  Lane&   lane(Rank from, Rank to) {
    return lanes[static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to)];
  }
  static std::size_t slot(Tag tag) { return static_cast<std::uint32_t>(tag) % slots; }

  /// What a rank would throw in an operation with that peer.
  Loss& loss(Rank me, Rank peer) { return is_apart() ? lane(peer, me).loss : all; }
  bool is_apart() const { return failures == Failures::apart; }

  /// While it lives, no rank that fails gives up its memory.
  class Hold {
   public:
    Hold(LocalHub& hub, Rank rank, Rank peer) : holds_{hub.member(rank).holds} {
      holds_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);            // the processor's fence is the failing rank's
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

  /// A rank cannot go on, because of `culprit`. The first call counts. Returns when no rank but `me` touches foreign
  /// memory of who can be blamed, and none will again.
  void fail(Rank me, Rank culprit, std::string const& why) {
    if (!is_apart()) all.claim(culprit, why);
    for (Rank rank = 0; is_apart() && rank < size; ++rank) {
      loss(rank, me).claim(me, why);
      loss(me, rank).claim(me, why);
    }
    for (Rank rank = 0; rank < size; ++rank) ring(rank);
    quiesce(me);
  }

  /// Two ranks have nothing to do with each other any more, where failures are apart.
  void part(Rank me, Rank peer, std::string const& why) {
    loss(me, peer).claim(peer, why);
    loss(peer, me).claim(me, "it went on without this rank: " + why);
    ring(peer);
    quiesce(me);
  }

  bool lost(Rank me, Rank peer) {
    return loss(me, peer).failed.load(std::memory_order_acquire) || loss(me, me).failed.load(std::memory_order_acquire);
  }
  void check(Rank me, Rank peer) {
    for (Rank const rank : {me, peer})
      if (loss(me, rank).failed.load(std::memory_order_acquire)) throw_lost(me, rank);
  }

  [[noreturn]] void throw_lost(Rank me, Rank peer) {
    quiesce(me);
    auto const& found = loss(me, peer);
    throw PeerLost{found.culprit, "rank " + std::to_string(me) + " lost rank " + std::to_string(found.culprit) + ": " +
                                      found.cause};
  }

  /// For a wait of a rank; `rings` when it is rung for what it waits for.
  Patience patience(bool rings) const { return Patience{spins(), rings && shares_cores ? rests : Patience::many_yields}; }

  /// Tells a rank that something moved, if it wants to know.
  void ring(Rank rank) {
    auto& m = member(rank);
    auto const wakes = m.dozing.load() != 0;
    if (!wakes && !m.listens.load()) return;
    m.bell.fetch_add(1);
    if (wakes || m.sleeps.load()) syscall(SYS_futex, &m.bell, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  /// Until it rings for the first time since the last call; false when the time is over.
  bool wait_for_bell(Rank me, std::chrono::nanoseconds longest) {
    auto& m = member(me);
    if (!m.listens.exchange(true)) return true;                       // nobody has rung so far
    auto const deadline = Deadline::after(longest);
    for (int turns = 0;; ++turns) {
      check(me, me);
      auto const rung = m.bell.load();
      if (std::exchange(m.heard, rung) != rung) return true;
      if (deadline.passed()) return false;
      if (turns < spins()) relax();
      else if (turns < spins() + rests) std::this_thread::yield();
      else sleep(m, deadline.at - std::chrono::steady_clock::now());
    }
  }

  /// Sleeps until it rings, unless done() by now.
  template <class Done>
  void doze(Rank me, Deadline until, Done done) {
    auto& m         = member(me);
    auto const rung = m.bell.load();
    m.dozing.fetch_add(1);
    auto const up   = gsl::finally([&] { m.dozing.fetch_sub(1); });
    detail::full_fence();                                             // who moves something after it rings
    if (!done()) wait_on(m.bell, rung, until.at - std::chrono::steady_clock::now());
  }

  void quiesce(Rank me) {
    if (!fenced || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});     // far longer than any store takes to be seen
    for (Rank rank = 0; rank < size; ++rank)
      if (rank != me) spin_until([&] { return !member(rank).holds.load(std::memory_order_acquire); });
  }

  int const size;
  std::chrono::nanoseconds const timeout;
  Failures const failures;
  bool const shares_cores;                                            // there are more ranks
  std::vector<Member> members;
  std::vector<Lane> lanes;
  bool const fenced;
  Loss all;                                                           // for all ranks, where failures are together

 private:
  static constexpr int rests = 20;                                    // yields before it sleeps

  int spins() const { return shares_cores ? 20 : 2'000; }

  static void sleep(Member& m, std::chrono::nanoseconds longest) {
    m.sleeps.store(true);
    wait_on(m.bell, m.heard, longest);
    m.sleeps.store(false);
  }

  static void wait_on(std::atomic<std::uint32_t>& bell, std::uint32_t rung, std::chrono::nanoseconds longest) {
    auto const ns   = std::max<std::chrono::nanoseconds::rep>(longest.count(), 1);
    auto const time = timespec{ns / 1'000'000'000, ns % 1'000'000'000};
    syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, rung, &time, nullptr, 0);
  }
};

}  // namespace chorale
