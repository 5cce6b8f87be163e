// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// What can happen to a message between ranks.
enum class InjectedFault {
  delay,      // it leaves later, and those after it too
  drop,       // it never arrives, nor what follows with its tag
  flip,       // one of its bits is flipped
  duplicate,  // it arrives twice
  cut         // its sender is cut off from all ranks
};

/// A fault that is injected for certain.
struct ScheduledFault {
  Rank rank;              // of the sender
  std::uint64_t message;  // its first is 0
  InjectedFault what;
};

/// A fault that took place.
struct FaultRecord {
  std::uint64_t message;
  Rank peer;  // the receiver
  InjectedFault what;

  friend constexpr bool operator==(FaultRecord const&, FaultRecord const&) = default;
};

/// Probability of each fault for a message. A message has at most one fault, so they add up to at most 1.
struct FaultRates {
  float delay = 0, drop = 0, flip = 0, duplicate = 0, cut = 0;
};

/// Faults of messages: scheduled ones, and random ones from a seed.
///
/// longest   the bound of a delay
/// order     a function of (seed, rank, number of the message): the same in every run
struct FaultPlan {
  Seed seed = 1;
  FaultRates rates{};
  std::vector<ScheduledFault> scheduled{};
  std::chrono::nanoseconds longest = std::chrono::milliseconds{1};

  void check() const {
    auto sum = 0.0F;
    for (auto const [chance, what] : by_kind()) {
      CHORALE_EXPECTS(chance >= 0, "the chance of a fault is " + std::to_string(chance));
      sum += chance;
    }
    CHORALE_EXPECTS(sum <= 1, "the rates of all faults add up to " + number_text(sum));
  }

  std::optional<InjectedFault> of(Rank rank, std::uint64_t message) const {
    for (auto const& plan : scheduled)
      if (plan.rank == rank && plan.message == message) return plan.what;
    auto left = random(rank).uniform(3 * message);
    for (auto const [chance, what] : by_kind()) {
      if (left < chance) return what;
      left -= chance;
    }
    return {};
  }

  std::chrono::nanoseconds delay_of(Rank rank, std::uint64_t message) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(longest * random(rank).uniform(3 * message + 1));
  }

  /// Index of the bit to flip, in [0, bits); 0 when there are none.
  std::size_t bit_of(Rank rank, std::uint64_t message, std::size_t bits) const {
    return bits == 0 ? 0 : random(rank).bits(3 * message + 2) % bits;
  }

 private:
  struct Chance {
    float chance;
    InjectedFault what;
  };

  std::array<Chance, 5> by_kind() const {
    return {{{rates.delay, InjectedFault::delay},
             {rates.drop, InjectedFault::drop},
             {rates.flip, InjectedFault::flip},
             {rates.duplicate, InjectedFault::duplicate},
             {rates.cut, InjectedFault::cut}}};
  }

  Random random(Rank rank) const { return {seed, static_cast<std::uint64_t>(rank)}; }
};

/// One rank of a Faulty transport. See Faulty.
///
/// keeps   it may be moved, but not destroyed, while operations are in flight. A delayed message is sent when any
///         operation of this rank is polled, or the next one begins; no wait returns before it is sent
/// throws  PeerLost from the message that is cut, which names its receiver, and from all operations after it; the
///         failure is reported to the other ranks if the inner transport can
template <Endpoint E> class FaultyEndpoint {
  class State;

 public:
  using pending = TablePending<State>;

  FaultyEndpoint(E at, FaultPlan faults) : state_{std::make_unique<State>(std::move(at), std::move(faults))} {}

  Rank rank() const { return state_->at.rank(); }
  int size() const { return state_->at.size(); }

  /// The faults injected so far, in the order of messages.
  std::vector<FaultRecord> const& injected() const { return state_->injected; }

  pending send(Rank peer, Tag tag, ConstBytes out) { return state_->send(peer, tag, out); }
  pending recv(Rank peer, Tag tag, Bytes in) {
    return state_->start([&](E& at) { return at.recv(peer, tag, in); });
  }

  pending expose(Tag tag, Bytes mine) requires DirectAccessEndpoint<E> {
    return state_->start([&](E& at) { return at.expose(tag, mine); });
  }
  Bytes peer(Rank rank, Tag tag) requires DirectAccessEndpoint<E> { return state_->at.peer(rank, tag); }
  pending leave(Tag tag) requires DirectAccessEndpoint<E> {
    return state_->start([&](E& at) { return at.leave(tag); });
  }
  auto hold(std::size_t bytes) requires DirectAccessEndpoint<E> { return state_->at.hold(bytes); }
  Bytes memory() requires requires(E& at) { at.memory(); } { return state_->at.memory(); }

  void announce(Operation const& operation) { chorale::announce(state_->at, operation); }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<E> {
    state_->at.announce(operation, group);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(state_->at, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { chorale::fail(state_->at, why, fault); }
  void listen(bool on) { chorale::listen(state_->at, on); }
  bool lost(Rank rank) const requires requires(E const& at) { at.lost(rank); } { return state_->at.lost(rank); }
  bool wait_any(std::chrono::nanoseconds longest) { return chorale::rest(state_->at, state_->until_next(longest)); }

 private:
  struct Item {
    typename E::pending pending;
    bool held = false;              // delayed: not given to the inner endpoint yet
    std::vector<std::byte> copy{};  // of a message that is sent changed, or twice

    bool done() { return !held && pending.done(); }
  };

  struct Held {
    Ticket ticket;
    Rank peer;
    Tag tag;
    ConstBytes out;
    Deadline leaves;
  };

  class State {
   public:
    State(E endpoint, FaultPlan m) : at{std::move(endpoint)}, faults_{std::move(m)} {}

    pending send(Rank peer, Tag tag, ConstBytes out) {
      go_on();
      auto const number = sent_++;
      auto const what   = faults_.of(at.rank(), number);
      if (what) injected.push_back({number, peer, *what});
      if (what == InjectedFault::cut) cut(peer, number);
      if (what == InjectedFault::drop) silent_.emplace_back(peer, tag);
      if (is_silent(peer, tag)) return {};  // sent, as far as this rank can tell
      auto const ticket = under_way_.take();
      if (what == InjectedFault::flip) out = flipped(ticket, number, out);
      hand_over(ticket, {ticket, peer, tag, out, leaves(what, number)});
      if (what == InjectedFault::duplicate) again(peer, tag, out);
      return {*this, ticket};
    }

    template <class Begin> pending start(Begin begin) {
      go_on();
      auto const ticket          = under_way_.take();
      under_way_[ticket].held    = false;
      under_way_[ticket].pending = begin(at);
      return {*this, ticket};
    }

    bool done(Ticket ticket) {
      go_on();
      return under_way_.done(ticket);
    }

    void wait(Ticket ticket) {
      go_on();
      for (auto patience = Backoff{}; !held_.empty(); patience.pause()) go_on();
      if (under_way_.is_over(ticket)) return;
      under_way_[ticket].pending.wait();
      under_way_.finish(ticket);
    }

    /// Returns `longest`, or the time until a delayed message is due, if less; it is sent at the next poll.
    std::chrono::nanoseconds until_next(std::chrono::nanoseconds longest) const {
      if (held_.empty()) return longest;
      auto const left = held_.front().leaves.at - std::chrono::steady_clock::now();
      return std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds{0}, longest);
    }

    E at;
    std::vector<FaultRecord> injected;

   private:
    /// Sends the messages whose delay is over.
    void go_on() {
      if (lost_) throw PeerLost{at.rank(), *lost_};
      for (; !held_.empty() && held_.front().leaves.passed(); held_.pop_front()) give(held_.front());
    }

    void give(Held const& message) {
      auto& item   = under_way_[message.ticket];
      item.held    = false;
      item.pending = at.send(message.peer, message.tag, message.out);
    }

    /// Sends a message, or queues it if it is delayed or follows a delayed one, so that messages stay in order.
    void hand_over(Ticket ticket, Held message) {
      if (held_.empty() && message.leaves.passed()) return give(message);
      under_way_[ticket].held = true;
      held_.push_back(message);
    }

    Deadline leaves(std::optional<InjectedFault> what, std::uint64_t number) const {
      return what == InjectedFault::delay ? Deadline::after(faults_.delay_of(at.rank(), number)) : Deadline{{}};
    }

    /// True after a dropped message: a later one must not take its place, because an endpoint keeps the order.
    bool is_silent(Rank peer, Tag tag) const {
      return std::find(silent_.begin(), silent_.end(), std::pair{peer, tag}) != silent_.end();
    }

    [[noreturn]] void cut(Rank peer, std::uint64_t number) {
      lost_           = Loss{.fault  = Fault::peer_lost,
                             .rank   = peer,
                             .reason = "the connection was cut at message " + std::to_string(number) + " of rank " +
                             std::to_string(at.rank())};
      auto const lost = PeerLost{at.rank(), *lost_};
      chorale::fail(at, lost.what());
      throw lost;
    }

    ConstBytes flipped(Ticket ticket, std::uint64_t number, ConstBytes out) {
      auto& copy = under_way_[ticket].copy;
      copy.assign(out.begin(), out.end());
      auto const bit = faults_.bit_of(at.rank(), number, copy.size() * 8);
      if (!copy.empty()) copy[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
      return copy;
    }

    void again(Rank peer, Tag tag, ConstBytes out) {
      auto const ticket = under_way_.take();
      auto& copy        = under_way_[ticket].copy;
      copy.assign(out.begin(), out.end());  // no wait covers it: `out` may be gone by then
      hand_over(ticket, {ticket, peer, tag, copy, Deadline{{}}});
    }

    FaultPlan faults_;
    std::uint64_t sent_ = 0;  // messages
    std::optional<Loss> lost_;
    std::vector<std::pair<Rank, Tag>> silent_;  // after a drop
    PendingTable<Item> under_way_;
    std::deque<Held> held_;  // in the order sent
  };

  std::unique_ptr<State> state_;
};

/// Any transport, with injected faults on the sender's side: scheduled ones, and random ones from a seed. For tests of
/// programs that use it: an operation must give the right result, or throw before its deadline.
///
///   Faulty<LocalTransport>{.faults = {.seed = 7, .rates = {.delay = 0.2F}, .scheduled = {{1, 4, InjectedFault::cut}}}}
///
/// order   what happens to a message is a function of seed, rank and the message's number on that rank, 0-based
template <Transport T> struct Faulty {
  using endpoint = FaultyEndpoint<typename T::endpoint>;

  T transport{};
  FaultPlan faults{};

  static constexpr bool reaches(Memory memory) { return T::reaches(memory) && memory == Memory::host; }

  /// throws  BadArgument when the rates add up to more than 1
  std::vector<endpoint> connect(Group const& group) const {
    faults.check();
    auto faulty = std::vector<endpoint>{};
    for (auto& at : transport.connect(group)) faulty.emplace_back(std::move(at), faults);
    return faulty;
  }
};

}  // namespace chorale
