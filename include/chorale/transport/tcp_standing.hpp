// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/tcp_socket.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace chorale::detail {

/// Why a connection between two ranks is of no use any more; a part of a sentence.
struct LinkFault {
  Fault fault;
  std::string reason;
};

/// An operation and its place in the order of all, from 1; 0 is no announced operation.
struct Announced {
  std::uint64_t sequence    = 0;
  std::uint32_t fingerprint = 0;
  Operation operation       = {};
};

/// What the working thread of a rank has announced, for the messages that follow. Its own: not shared.
class Announcements {
 public:
  static constexpr std::uint64_t remembered = 256;                         // operations, to compare late messages with

  std::uint64_t last() const { return last_; }

  void add(Operation const& operation) {
    auto const announced = Announced{++last_, operation.fingerprint(), operation};
    by_tag_[slot(operation.tag)]       = announced;
    by_sequence_[last_ % remembered]   = announced;
  }

  /// The last one with this tag. Sequence 0 where there is none, or where an equal tag modulo 64 came after it.
  Announced const& of(Tag tag) const {
    auto const& found = by_tag_[slot(tag)];
    return found.sequence != 0 && found.operation.tag == tag ? found : none_;
  }

  /// Sequence 0 where it was not announced, or is forgotten.
  Announced const& at(std::uint64_t sequence) const {
    auto const& found = by_sequence_[sequence % remembered];
    return found.sequence == sequence ? found : none_;
  }

 private:
  static std::size_t slot(Tag tag) { return static_cast<std::uint32_t>(tag) % 64; }

  std::uint64_t last_ = 0;
  Announced none_;
  std::array<Announced, 64> by_tag_;
  std::array<Announced, remembered> by_sequence_;
};

/// What the two threads of a rank tell each other: the working one where it stands, the watching one the verdict.
class TcpStanding {
 public:
  /// throws  OutOfDescriptors
  TcpStanding() : wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (!wake_.open()) throw_no_socket(errno);
  }

  // Written by the working thread only.
  std::atomic<std::uint64_t> step{0}, sequence{0};
  std::atomic<std::uint64_t> moved{0};                                     // bytes, both ways
  std::atomic<std::uint64_t> looks{0};                                     // at messages that were not complete
  std::atomic<bool> sleeps{false};                                         // in a wait, until something happens
  std::atomic<Rank> waits_for{-1};                                         // whose message it last looked at

  void add_moved(std::size_t bytes) {
    moved.store(moved.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  void add_look(Rank peer) {
    waits_for.store(peer, std::memory_order_relaxed);
    looks.store(looks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  void now_in(Operation const& operation, std::uint64_t number) {
    auto const lock = std::scoped_lock{mutex_};
    operation_      = operation;
    sequence.store(number, std::memory_order_relaxed);
  }

  /// What a fault now would be blamed on.
  Loss loss(Fault fault, Rank culprit, std::string host, std::string reason) const {
    auto const lock   = std::scoped_lock{mutex_};
    auto const number = sequence.load(std::memory_order_relaxed);
    return {fault, culprit, std::move(host), number == 0 ? "" : operation_.text(), number,
            step.load(std::memory_order_relaxed), std::move(reason)};
  }

  /// Ends every wait, now and later. The first call counts.
  void settle(Loss loss) {
    {
      auto const lock = std::scoped_lock{mutex_};
      if (settled_.load(std::memory_order_relaxed)) return;
      verdict_ = std::move(loss);
      settled_.store(true, std::memory_order_release);
    }
    auto const one = std::uint64_t{1};
    [[maybe_unused]] auto const woken = ::write(wake_.get(), &one, sizeof(one));
    changed_.notify_all();
  }

  bool settled() const { return settled_.load(std::memory_order_acquire); }

  void wait_until_settled() {
    auto lock = std::unique_lock{mutex_};
    changed_.wait(lock, [&] { return settled_.load(std::memory_order_relaxed); });
  }

  /// The verdict as an error. Only once it is settled.
  [[noreturn]] void throw_verdict(Rank me) const {
    auto const& loss = verdict_;
    switch (loss.fault) {
      case Fault::collective_mismatch:
        throw Disagreement{loss.fault, "in step " + std::to_string(loss.step) + ", operation " +
                                           std::to_string(loss.sequence) + ": " + loss.reason + ".",
                           "the same calls, with the same sizes and in the same order, on every rank."};
      case Fault::model_mismatch:
      case Fault::world_mismatch:
      case Fault::version_mismatch:
      case Fault::duplicate_rank:
      case Fault::not_authentic: throw Disagreement{loss.fault, loss.reason + "."};
      case Fault::evicted:
        throw PeerLost{me, loss, "a restart: the others went on, or ended, without this rank."};
      case Fault::join_timeout: throw PeerLost{me, loss, "start what is missing, or a longer Limits::join."};
      case Fault::peer_stalled:
        throw PeerLost{me, loss, "is it stopped, swapping or in a debugger? A slower step needs higher Limits."};
      default: throw PeerLost{me, loss};
    }
  }

  int wake() const { return wake_.get(); }                                 // readable once it is settled

 private:
  Descriptor wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Operation operation_;
  std::atomic<bool> settled_{false};
  Loss verdict_;                                                           // constant once settled
};

}  // namespace chorale::detail
