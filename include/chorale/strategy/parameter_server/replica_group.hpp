// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// The replicas of one worker of a parameter server: in one process, each with its own rank. They add up values in
/// memory; the first replica, which leads, sends requests to the servers for all.
///
///   replica 0   gradients ──┐ rendezvous                      ┌▶ values
///   replica 1   gradients ──┴▶ sum ──▶ one push, one pull ────┴▶ values
///
/// keeps   all members make the same calls, in the same order
template <Endpoint E> class ReplicaGroup {
 public:
  explicit ReplicaGroup(std::size_t size) : members_(size) {}

  std::size_t size() const { return members_.size(); }

  /// Adds up the values of all members, in the memory of the first: in pairs, along a binary tree in their order. Each
  /// member adds a part of the elements, and the values of other members change, too.
  template <class T> void add_up(E& at, std::size_t me, Span<T> mine) {
    members_[me] = mine.data();
    meet(at, me);
    auto const part = share(mine.size(), static_cast<int>(me), static_cast<int>(size()));
    for (std::size_t apart = 1; apart < size(); apart *= 2)
      for (std::size_t m = 0; m + apart < size(); m += 2 * apart) {
        auto* const to         = static_cast<T*>(members_[m]);
        auto const* const from = static_cast<T const*>(members_[m + apart]);
        for (auto i = part.begin; i < part.end; ++i) to[i] += from[i];
      }
    meet(at, me);
  }

  /// Calls add(x) on the first member for the x of each other member, in their order.
  template <class X, class Add> void collect(E& at, std::size_t me, X& mine, Add&& add) {
    members_[me] = &mine;
    meet(at, me);
    for (std::size_t m = 1; m < size() && me == 0; ++m) add(*static_cast<X*>(members_[m]));
    meet(at, me);
  }

  /// Calls f() on the first member, which fills its x; then copy(x) on all others.
  template <class X, class F, class Copy> void lead(E& at, std::size_t me, X& mine, F&& f, Copy&& copy) {
    if (me == 0) {
      f();
      members_[0] = &mine;
    }
    meet(at, me);
    if (me != 0) copy(*static_cast<X const*>(members_[0]));
    meet(at, me);
  }

  /// Returns when every member has called it.
  ///
  /// throws  PeerLost when a member failed
  void meet(E& at, std::size_t me) {
    auto const target = (arrived_.fetch_add(1, std::memory_order_acq_rel) / size() + 1) * size();
    auto const here   = [&] { return arrived_.load(std::memory_order_acquire) >= target; };
    if constexpr (RunsItsRanks<E>) {
      if (here()) return at.wake_all();
      for (; !here(); at.wait_any(std::chrono::seconds{1})) expect_all(at, me);
      return;
    }
    for (auto patience = Backoff{200}; !here(); patience.pause())
      if (patience.slow()) expect_all(at, me);
  }

 private:
  void expect_all(E& at, std::size_t me) const {
    auto const first = at.rank() - static_cast<Rank>(me);
    for (Rank rank = first; rank < first + static_cast<Rank>(size()); ++rank)
      if (rank != at.rank() && knows_lost(at, rank)) at.recv(rank, {}, {}).wait();  // throws the reason
  }

  std::vector<void*> members_;  // what each member gives, or the first
  std::atomic<std::uint64_t> arrived_{0};
};

}  // namespace chorale::parameter_server
