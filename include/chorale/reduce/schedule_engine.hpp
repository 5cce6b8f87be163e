// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/schedule_proof.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace chorale {

/// One collective operation to be carried out: what it is, and on which memory.
///
/// in          the elements to send, as many as in x, if x itself is not sent
/// ends        where each chunk of x ends, if chunks are uneven
/// announced   true if the caller has announced an operation for this tag that the messages belong to
template <class T> struct CollectiveCall {
  Collective collective        = Collective::all_reduce;
  Span<T> x                    = {};
  Span<T const> in             = {};
  Op op                        = Op::sum;
  Tag tag                      = {};
  CallSite where               = {};
  Rank root                    = 0;
  Span<std::size_t const> ends = {};
  bool announced               = false;

  /// Returns the operation to be announced.
  Operation operation() const {
    auto const rooted = collective == Collective::broadcast || collective == Collective::reduce;
    return {collective, op,    element_of<T>,           element_of<T> == Element::byte ? x.size_bytes() : x.size(),
            tag,        where, rooted ? root : no_root, ends.empty() ? 0 : fingerprint_of(ends)};
  }
};

/// A collective operation under way that follows schedule S. All algorithms with messages are executed by it.
///
/// The actions of a rank are the steps of its lanes, in an order that is the same on all ranks:
///
///   lanes of a group   0 1 2 3 0 1 2 3 0 1 2 3 ..   one step of four lanes, then the next step of the same four
///   step               0 0 0 0 1 1 1 1 2 2 2 2 ..
///                          |       |         |
///                          done_   folded_   posted_      actions before: complete; combined; started
///
/// While one message is combined, others are sent. An action starts when the elements that it sends and overwrites are
/// no longer in use. It waits for earlier actions only, and so does its peer: waits cannot form a cycle.
///
/// S       proved for up to 16 ranks when this is compiled
/// OnWire  the type in which elements are sent, by default T. All ranks round the result to it, so that they have the
///         same bits
/// keeps   one tag. At most 4 messages to one rank are under way, 16 in all. Scratch for 4 messages, or 8 if OnWire is
///         not T, kept for the next restart(); none if nothing is combined and OnWire is T
template <Schedule S, Endpoint E, class T, class OnWire = T> class ScheduleExecution {
  static_assert(Proof<S, first_flaw_of<S>>::checked);

 public:
  void restart(E& at, Span<T> x, Op op, Tag tag, CallSite where = {}) {
    restart(at, {.collective = S::collective, .x = x, .op = op, .tag = tag, .where = where});
  }

  void restart(E& at, CollectiveCall<T> const& job) {
    at_          = &at;
    job_         = job;
    job_.in      = job.in.data() != nullptr ? job.in : Span<T const>{job.x};
    auto const P = at.size();
    steps_       = S::steps(P);
    cut_         = Cut{job.x.size(), sizeof(OnWire), S::chunks(P), S::widest(P), job.ends};
    total_       = static_cast<std::size_t>(cut_.lanes()) * static_cast<std::size_t>(steps_);
    done_ = folded_ = posted_ = 0;
    used_                     = 0;
    rounded_                  = !coded || total_ == 0;
    planned_                  = false;
    if (!job.announced) announce(at, job.operation());
    poll();
  }

  bool poll() {
    while (post() || fold() || retire()) {}
    if (done_ < total_) return false;
    if (!std::exchange(rounded_, true)) round(Range{0, job_.x.size()});
    return true;
  }

  void finish() {
    while (!poll()) {
      if (folded_ < posted_ && !flight(folded_).arrived) flight(folded_).received.wait();
      else flight(done_).sent.wait();  // earlier than any message that waits for it
    }
  }

 private:
  static constexpr bool coded         = !std::is_same_v<T, OnWire>;
  static constexpr std::size_t window = 16;
  static constexpr std::size_t group  = 4;  // lanes side by side
  static constexpr int per_peer       = 4;  // 15 operations are below any transport's bound
  static constexpr unsigned slots     = (coded ? 2 : 1) * messages_kept;
  static constexpr int none           = -1;

  struct Action {
    Step step;
    int lane = 0;
    Range send, receive;        // elements
    int out = none, in = none;  // slots of scratch
    bool arrived = false;
    typename E::pending sent, received;
  };

  Action& flight(std::size_t i) { return flights_[i % window]; }

  /// Starts the next action if it may start.
  bool post() {
    if (posted_ == total_ || posted_ - done_ == window) return false;
    auto& next = flight(posted_);
    if (!planned_) plan(next);
    if (is_blocked(next)) return false;
    start(next);
    planned_ = false;
    ++posted_;
    return true;
  }

  void plan(Action& next) {
    auto const steps = static_cast<std::size_t>(steps_), lanes = static_cast<std::size_t>(cut_.lanes());
    auto const first = posted_ / (group * steps) * group;  // of this group of lanes
    auto const width = std::min(group, lanes - first), i = posted_ - first * steps;
    auto const P = at_->size();
    next.lane    = static_cast<int>(first + i % width);
    next.step    = S::step((at_->rank() - job_.root + P) % P, P, static_cast<int>(i / width));
    next.send    = next.step.to == nobody ? Range{} : cut_.range(next.lane, next.step.send);
    next.receive = next.step.from == nobody ? Range{} : cut_.range(next.lane, next.step.receive);
    next.out = next.in = none;
    next.arrived       = next.step.from == nobody;
    next.sent = next.received = typename E::pending{};
    planned_                  = true;
  }

  bool is_blocked(Action const& next) {
    for (auto i = folded_; i < posted_; ++i) {  // chunks that it sends or replaces are still
      auto const& before = flight(i);           // to arrive, even empty ones, as in a barrier
      if (before.lane != next.lane || before.step.from == nobody) continue;
      auto const later = before.step.receive;
      if ((sends_x() && next.step.to != nobody && later.overlaps(next.step.send)) ||
          (next.step.from != nobody && later.overlaps(next.step.receive)))
        return true;
    }
    if (is_kept(next) && is_being_sent(next.receive, posted_)) return true;
    if (next.step.to != nobody && posted_ - done_ >= static_cast<std::size_t>(per_peer)) {
      auto to_peer = 0;
      for (auto i = done_; i < posted_; ++i) to_peer += flight(i).step.to == next.step.to && !flight(i).sent.done();
      if (to_peer >= per_peer) return true;
    }
    return std::popcount(used_) + needs_out(next) + needs_in(next) > static_cast<int>(slots);
  }

  void start(Action& next) {
    auto const P    = at_->size();
    auto const real = [&](Rank rank) { return (rank + job_.root) % P; };
    if (next.step.from != nobody) {
      auto const in = needs_in(next) ? std::as_writable_bytes(slot(next.in = take_slot(), next.receive.size()))
                                     : std::as_writable_bytes(of_x(next.receive));
      next.received = at_->recv(real(next.step.from), job_.tag, in);
    }
    if (next.step.to == nobody) return;
    auto const out = job_.in.subspan(next.send.begin, next.send.size());
    next.sent      = at_->send(real(next.step.to), job_.tag,
                          needs_out(next) ? std::as_bytes(encoded(next, out)) : std::as_bytes(out));
  }

  /// Combines or decodes the received message of the oldest action that is not folded, if it has arrived.
  bool fold() {
    if (folded_ == posted_) return false;
    auto& oldest = flight(folded_);
    if (!oldest.arrived && !oldest.received.done()) return false;
    oldest.arrived = true;
    if (oldest.step.from != nobody && !is_kept(oldest)) {
      if (is_being_sent(oldest.receive, folded_ + 1)) return false;
      combine_arrived(oldest);
    } else if (oldest.in != none) {
      auto const from = slot(oldest.in, oldest.receive.size());
      std::transform(from.begin(), from.end(), of_x(oldest.receive).begin(),
                     [](OnWire w) { return static_cast<T>(w); });
    }
    give_back(oldest.in);
    ++folded_;
    return true;
  }

  void combine_arrived(Action const& action) {
    auto const mine = of_x(action.receive);
    auto const wire = slot(action.in, action.receive.size());
    if constexpr (coded) {
      with_combine(job_.op, [&](auto combined) {
        auto const mine_first = action.step.fold == Fold::mine_first;
        for (std::size_t i = 0; i < mine.size(); ++i) {
          auto const theirs = static_cast<T>(wire[i]);
          mine[i]           = mine_first ? combined(mine[i], theirs) : combined(theirs, mine[i]);
        }
      });
    } else if constexpr (Reducible<T>) {
      if (action.step.fold == Fold::mine_first) combine_before(job_.op, mine, wire);
      else combine_after(job_.op, wire, mine);
    }
    if constexpr (Reducible<T>)
      if (overlap(action.send, action.receive)) settle_nans(mine);  // the peer computes the same sum
  }

  bool retire() {
    if (done_ == folded_ || !flight(done_).sent.done()) return false;
    give_back(flight(done_).out);
    ++done_;
    return true;
  }

  /// Encodes `out` for sending. Where two ranks exchange the same elements, x is rounded too: both add the same values.
  Span<OnWire> encoded(Action& action, Span<T const> out) {
    if (overlap(action.send, action.receive)) round(action.send);
    auto const wire = slot(action.out = take_slot(), out.size());
    std::transform(out.begin(), out.end(), wire.begin(), [](T value) { return static_cast<OnWire>(value); });
    return wire;
  }

  void round(Range part) {
    for (auto& value : of_x(part)) value = static_cast<T>(static_cast<OnWire>(value));
  }

  bool sends_x() const { return job_.in.data() == job_.x.data(); }
  static bool is_kept(Action const& f) { return f.step.from != nobody && f.step.fold == Fold::keep; }
  static bool needs_in(Action const& f) { return f.step.from != nobody && (coded || f.step.fold != Fold::keep); }
  static bool needs_out(Action const& f) { return coded && f.step.to != nobody; }
  static bool overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

  /// True if an action before `end` is still sending some of these elements directly from x.
  bool is_being_sent(Range part, std::size_t end) {
    if (coded || !sends_x()) return false;
    for (auto i = done_; i < end; ++i)
      if (overlap(flight(i).send, part) && !flight(i).sent.done()) return true;
    return false;
  }

  Span<T> of_x(Range part) const { return job_.x.subspan(part.begin, part.size()); }

  Span<OnWire> slot(int i, std::size_t n) { return {scratch_.get() + static_cast<std::size_t>(i) * room_, n}; }

  int take_slot() {  // the lowest: it is in the cache
    if (room_ < cut_.largest()) {
      room_    = cut_.largest();
      scratch_ = std::make_unique_for_overwrite<OnWire[]>(slots * room_);
    }
    auto const i = std::countr_one(used_);
    used_ |= 1U << i;
    return i;
  }
  void give_back(int i) {
    if (i != none) used_ &= ~(1U << i);
  }

  E* at_ = nullptr;
  CollectiveCall<T> job_;
  Cut cut_;
  int steps_         = 0;
  bool planned_      = false;  // flight(posted_)
  bool rounded_      = true;
  std::size_t total_ = 0, done_ = 0, folded_ = 0, posted_ = 0;  // actions
  unsigned used_    = 0;                                        // bit i: slot i
  std::size_t room_ = 0;                                        // elements in a slot
  std::unique_ptr<OnWire[]> scratch_;
  std::array<Action, window> flights_;
};

/// Base class of an all-reduce by a schedule. R derives from it, and defines the schedule and its cost.
///
///   struct MyAllReduce : ScheduledAllReduce<MyAllReduce> { static constexpr int chunks(int ranks) .. };
template <class R> struct ScheduledAllReduce {
  static constexpr Collective collective = Collective::all_reduce;

  template <Endpoint E, Reducible T>
  ScheduleExecution<R, E, T> start(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = ScheduleExecution<R, E, T>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  template <Endpoint E, Reducible T>
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = ScheduleExecution<R, E, T>{};
    operation.restart(at, x, op, tag, where);
    operation.finish();
  }
};

}  // namespace chorale
