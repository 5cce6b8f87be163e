// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/timeouts.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// State of a peer, with FailureScope::peer. closed: messages that it had sent may still be received.
enum class PeerState : std::uint8_t { alive, closed, lost };

/// State shared by the two threads of a rank: the working thread writes its position, the control thread the root cause
/// and, with FailureScope::peer, the state of each peer.
class ThreadSharedState {
 public:
  /// throws  OutOfDescriptors
  ThreadSharedState(int size, FailureScope policy)
      : failures{policy}, wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, peers_(static_cast<std::size_t>(size)) {
    if (!wake_.is_open()) throw_no_socket(errno);
  }

  FailureScope const failures;

  // Written by the working thread only.
  std::atomic<std::uint64_t> step{0}, sequence{0};
  std::atomic<std::uint64_t> moved{0};     // bytes sent and received
  std::atomic<std::uint64_t> looks{0};     // checks of an incomplete message
  std::atomic<std::uint64_t> polls{0};     // checks without the intent to wait
  std::atomic<bool> sleeps{false};         // asleep in a wait for a message
  std::atomic<bool> rests{false};          // asleep in wait_any()
  std::atomic<Rank> waits_for{-1};         // peer of the message it last checked
  std::atomic<std::uint64_t> waits_in{0};  // the operation of that message; 0: none

  void add_moved(Rank peer, std::size_t bytes) {
    add(moved, bytes);
    add(peers_[static_cast<std::size_t>(peer)].moved, bytes);
  }
  std::uint64_t moved_with(Rank peer) const {
    return peer < 0 ? 0 : peers_[static_cast<std::size_t>(peer)].moved.load(std::memory_order_relaxed);
  }
  void add_look(Rank peer, std::uint64_t operation) {
    waits_for.store(peer, std::memory_order_relaxed);
    waits_in.store(operation, std::memory_order_relaxed);
    add(looks, 1);
  }
  void add_poll() { add(polls, 1); }

  void announce(Operation const& operation, auto const&... group) {
    auto const lock = std::scoped_lock{mutex_};
    announced_.add(operation, group...);
    sequence.store(announced_.last(), std::memory_order_relaxed);
  }

  /// The announced operations, for the working thread, which alone adds to them.
  detail::OperationLog const& announced() const { return announced_; }

  /// Calls f with the announced operations; for the control thread.
  template <class F> auto with_announced(F f) const {
    auto const lock = std::scoped_lock{mutex_};
    return f(announced_);
  }

  /// Returns the Loss for a fault at this rank's current position.
  Loss loss(Fault fault, Rank culprit, std::string host, std::string reason) const {
    auto const lock  = std::scoped_lock{mutex_};
    auto const& last = announced_.newest();
    return {fault,
            culprit,
            std::move(host),
            last.sequence == 0 ? "" : last.operation.text() + last.text_of_group(),
            detail::OperationNumber::place(last.sequence),
            step.load(std::memory_order_relaxed),
            std::move(reason)};
  }

  /// Sets the root cause, which ends every wait, now and later. The first call counts.
  void settle(Loss loss) {
    {
      auto const lock = std::scoped_lock{mutex_};
      if (settled_.load(std::memory_order_relaxed)) return;
      root_cause_ = std::move(loss);
      settled_.store(true, std::memory_order_release);
    }
    ring();
    changed_.notify_all();
  }

  bool settled() const { return settled_.load(std::memory_order_acquire); }

  /// Reports that all other ranks have closed their endpoints, after the same operations. By the control thread.
  void close() {
    closed_.store(true, std::memory_order_release);
    ring();
  }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  void wait_until_settled() {
    auto lock = std::unique_lock{mutex_};
    changed_.wait(lock, [&] { return settled_.load(std::memory_order_relaxed); });
  }

  /// Throws the root cause. Only if settled().
  [[noreturn]] void throw_root_cause(Rank me) const { detail::throw_peer_loss(me, root_cause_); }

  PeerState fate(Rank peer) const {
    return peers_[static_cast<std::size_t>(peer)].fate.load(std::memory_order_acquire);
  }

  /// The loss of a peer. Only if it is not PeerState::alive.
  Loss const& loss_of(Rank peer) const { return peers_[static_cast<std::size_t>(peer)].loss; }

  /// Number of changes of peers' states so far.
  std::uint64_t fates() const { return fates_.load(std::memory_order_acquire); }

  /// Changes the state of a peer, whose first loss stays. Only by the control thread.
  void decide(Rank rank, PeerState fate, Loss loss) {
    auto& peer       = peers_[static_cast<std::size_t>(rank)];
    auto const known = peer.fate.load(std::memory_order_relaxed);
    if (fate <= known) return;
    if (known == PeerState::alive) peer.loss = std::move(loss);
    peer.fate.store(fate, std::memory_order_release);
    fates_.fetch_add(1, std::memory_order_release);
    ring();
  }

  int wake() const { return wake_.number(); }  // readable after a change for this thread

  /// Resets wake(), which is not readable until the next change.
  void silence() {
    auto rung                     = std::uint64_t{0};
    [[maybe_unused]] auto const n = ::read(wake_.number(), &rung, sizeof(rung));
  }

 private:
  struct Peer {
    std::atomic<std::uint64_t> moved{0};  // bytes sent and received
    std::atomic<PeerState> fate{PeerState::alive};
    Loss loss{};  // constant once the peer is not alive
  };

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {  // only one thread writes
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  void ring() {
    auto const one                    = std::uint64_t{1};
    [[maybe_unused]] auto const woken = ::write(wake_.number(), &one, sizeof(one));
  }

  FileDescriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  detail::OperationLog announced_;  // written under the mutex
  std::atomic<bool> settled_{false}, closed_{false};
  Loss root_cause_;          // constant once settled
  std::vector<Peer> peers_;  // [rank]
  std::atomic<std::uint64_t> fates_{0};
};

}  // namespace chorale::tcp
