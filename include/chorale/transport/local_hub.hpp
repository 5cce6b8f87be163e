// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
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

  /// From one rank to another. A set bit of `posted` is a message: the sender sets it, the receiver clears it.
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> posted{0};
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
  };

  LocalHub(int n, std::chrono::nanoseconds limit)
      : size{n}, timeout{limit}, spins{static_cast<unsigned>(n) <= std::thread::hardware_concurrency() ? 2'000 : 20},
        members(static_cast<std::size_t>(n)), lanes(members.size() * members.size()),
        fenced{syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0} {}

  Member& member(Rank rank) { return members[static_cast<std::size_t>(rank)]; }
  Window& window(Rank rank, Tag tag) { return member(rank).windows[slot(tag)]; }
  Lane&   lane(Rank from, Rank to) {
    return lanes[static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to)];
  }
  static std::size_t slot(Tag tag) { return static_cast<std::uint32_t>(tag) % slots; }

  /// While it lives, no rank that fails gives up its memory.
  class Hold {
   public:
    Hold(LocalHub& hub, Rank rank) : holds_{hub.member(rank).holds} {
      holds_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);            // the processor's fence is the failing rank's
      if (!hub.failed.load(std::memory_order_acquire)) return;
      holds_.store(false, std::memory_order_release);
      hub.throw_lost(rank);
    }
    ~Hold() { holds_.store(false, std::memory_order_release); }
    Hold(Hold const&)            = delete;
    Hold& operator=(Hold const&) = delete;

   private:
    std::atomic<bool>& holds_;
  };

  /// The first call counts. Returns when no rank but `me` touches foreign memory, and none will again.
  void fail(Rank me, Rank culprit, std::string const& why) {
    if (!claimed.exchange(true)) {
      lost  = culprit;
      cause = why;
      failed.store(true);
    }
    spin_until([&] { return failed.load(std::memory_order_acquire); });
    quiesce(me);
  }

  void check(Rank me) {
    if (failed.load(std::memory_order_acquire)) throw_lost(me);
  }

  [[noreturn]] void throw_lost(Rank me) {
    quiesce(me);
    throw PeerLost{lost, "rank " + std::to_string(me) + " lost rank " + std::to_string(lost) + ": " + cause};
  }

  void quiesce(Rank me) {
    if (!fenced || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});     // far longer than any store takes to be seen
    for (Rank rank = 0; rank < size; ++rank)
      if (rank != me) spin_until([&] { return !member(rank).holds.load(std::memory_order_acquire); });
  }

  int const size;
  std::chrono::nanoseconds const timeout;
  int const spins;                                                    // few when ranks share cores
  std::vector<Member> members;
  std::vector<Lane> lanes;
  bool const fenced;

  std::atomic<bool> claimed{false}, failed{false};
  Rank lost = 0;                                                      // these two: set before `failed`, then constant
  std::string cause;
};

}  // namespace chorale
