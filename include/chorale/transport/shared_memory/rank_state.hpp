// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace chorale::shared_memory {

/// The announced operation that a message belongs to. Sequence 0: none.
struct AnnouncedOperations {
  std::uint64_t sequence    = 0;
  std::uint32_t fingerprint = 0;

  friend constexpr bool operator==(AnnouncedOperations, AnnouncedOperations) = default;
};

/// State of one rank: the operations that it announced, how it waits, and how it reports failures.
class RankState {
 public:
  RankState(Segment const& segment, Rank rank) : segment_{segment}, rank_{rank}, member_{segment.member(rank)} {}

  Segment const& segment() const { return segment_; }
  Rank rank() const { return rank_; }

  void announce(Operation const& operation, SubGroup const& group) {
    announced_.add(operation, group);
    auto const& last = announced_.newest();
    member_.operation(last.sequence).set(last.sequence, last.fingerprint, operation);
  }
  void announce(Operation const& operation) {
    announced_.add(operation);
    auto const& last = announced_.newest();
    member_.operation(last.sequence).set(last.sequence, last.fingerprint, operation);
    member_.history.store(last.history, std::memory_order_relaxed);
    member_.sequence.store(last.sequence, std::memory_order_release);
  }
  std::uint64_t last_announced() const { return announced_.last(); }

  /// The last operation of all ranks with this tag.
  AnnouncedOperations announced(Tag tag) const { return brief(announced_.of(tag)); }

  /// The last operation with this tag that a peer takes part in.
  AnnouncedOperations announced(Tag tag, Rank peer) const { return brief(announced_.of(tag, peer)); }

  /// True if the operation with this number is still to be announced here.
  bool is_ahead(std::uint64_t sequence) const { return announced_.is_ahead(sequence); }

  /// The window of the memory under this tag. Operations share one only if their sequences are equal modulo 64.
  std::size_t window(Tag tag) const {
    auto const sequence = announced_.of(tag).sequence;
    return sequence == 0 ? static_cast<std::uint32_t>(tag) % segment_slots : segment_slots + sequence % segment_slots;
  }

  /// Compares operations with a peer that this rank waits for: the peer may be waiting in another operation.
  ///
  /// throws  Disagreement when the peer has announced another operation under the same number
  void expect_same(Rank peer, Tag tag, AnnouncedOperations ours) {
    if (ours.sequence == 0 || segment_.is_apart()) return;
    auto const mark = segment_.member(peer).operation(ours.sequence).mark.load(std::memory_order_acquire);
    auto const same = SegmentOperation::mark_of(ours.sequence, ours.fingerprint);
    if (mark >> 32 != same >> 32 || mark == same) return;
    mismatch(peer, tag, {ours.sequence, static_cast<std::uint32_t>(mark)}, ours);
  }

  /// Marks this rank as having left: it calls no more operations.
  void leave() {
    member_.gone.store(1, std::memory_order_release);
    segment_.ring_others(rank_);
  }
  bool has_left(Rank peer) const { return segment_.member(peer).gone.load(std::memory_order_acquire) != 0; }

  /// throws  Disagreement when a peer, which has left, has not called the same operations as this rank
  void expect_same_end(Rank peer) {
    auto const& other = segment_.member(peer);
    for (auto const& one : announced_.last_of_groups())
      if (announced_.of(one.operation.tag, peer).sequence == one.sequence)
        expect_same(peer, one.operation.tag, brief(one));
    auto const theirs = other.sequence.load(std::memory_order_relaxed), ours = last_announced();
    auto const same_all = other.history.load(std::memory_order_relaxed) == announced_.at(ours).history;
    if (theirs == ours && same_all) return;
    for (auto i = ours - std::min<std::uint64_t>(ours, SegmentMember::remembered) + 1; i <= ours; ++i)
      expect_same(peer, announced_.at(i).operation.tag, brief(announced_.at(i)));
    auto const after = [&](Rank rank, std::uint64_t last) {
      return "rank " + std::to_string(rank) + " ended after operation " + std::to_string(last) +
             (last == 0 ? "" : ", " + operation_text(rank, last));
    };
    disagree(peer, ours,
             after(peer, theirs) + ", and " + after(rank_, ours) +
                 (theirs == ours ? "; earlier ones were not the same" : ""));
  }

  /// True in a wait in which nothing has moved for some milliseconds.
  bool waits_long() const { return waits_long_; }

  void begin_step(std::uint64_t step) { member_.step.store(step, std::memory_order_relaxed); }

  /// Counts a step of progress, for the ranks that wait for this one.
  void has_moved() { member_.moved.store(moves() + 1, std::memory_order_relaxed); }
  std::uint64_t moves() const { return member_.moved.load(std::memory_order_relaxed); }

  /// Fails because a peer's message or exposure belongs to another operation than this rank's in the same place.
  [[noreturn]] void mismatch(Rank peer, Tag tag, AnnouncedOperations theirs, AnnouncedOperations ours) {
    auto const they = described(peer, tag, theirs), we = described(rank_, tag, ours);
    auto const is_same = theirs.sequence == ours.sequence && ours.sequence != 0 &&
                         operation_text(peer, theirs.sequence) == operation_text(rank_, ours.sequence);
    auto const one_bound = (theirs.sequence == 0) != (ours.sequence == 0);
    disagree(peer, ours.sequence,
             they + (is_same ? ", with other counts" : "") + ", where " + we +
                 (one_bound ? ", or more than " + std::to_string(detail::OperationLog::remembered) +
                                  " operations are under way at once"
                            : ""));
  }

  [[noreturn]] void disagree(Rank peer, std::uint64_t sequence, std::string const& what) {
    give_up(loss(Fault::collective_mismatch, peer, sequence, what));
  }

  /// True if, with FailureScope::peer, this rank and the peer are lost to each other.
  bool has_parted(Rank peer) const { return segment_.is_apart() && segment_.lost(rank_, peer); }

  /// With FailureScope::peer, counts a poll as progress: a rank that only polls is never stuck.
  void has_polled() {
    if (segment_.is_apart()) has_moved();
  }

  void fail(std::string const& why, Fault fault = Fault::peer_lost) {
    auto reason = why;
    while (!reason.empty() && reason.back() == '.') reason.pop_back();  // the message adds its own
    auto const mine = loss(segment_.is_apart() ? Fault::peer_lost : fault, rank_, last_announced(), reason);
    if (segment_.is_apart()) return segment_.part_from_all(rank_, mine);
    segment_.report_failure(rank_, Segment::Witness::rank, mine);
    segment_.quiesce(rank_, [](Rank) { return false; });
  }

  /// Waits until done(): spins, yields, then sleeps until it is woken.
  ///
  /// whom    returns the rank that is missing, as far as this rank can see; called repeatedly
  /// what    a few words for the error: "recv, tag 7"
  template <class Done, class Whom> void wait(Tag tag, char const* what, Done&& done, Whom&& whom) {
    if (done()) return;
    auto patience    = Backoff{segment_.spins};
    auto vain        = Vain{};
    waits_long_      = false;
    auto moved       = moves();
    auto const going = [&] { return moves() != moved; };  // part of a message: more may follow
    for (auto turn = 0; !done(); ++turn) {
      if (going()) moved = moves();
      else if (!patience.asleep()) patience.pause();
      else segment_.sleep(rank_, [&] { return done() || going(); });
      if (!patience.slow() || (!patience.asleep() && turn % 64 != 0)) continue;
      member_.waits_for.store(1 + whom(), std::memory_order_relaxed);
      look_around(vain, tag, what, whom, done);
    }
    if (patience.slow()) member_.waits_for.store(0, std::memory_order_relaxed);
  }

 private:
  /// The time since which nothing has moved at this rank, nor at the rank that all seem to wait for.
  struct Vain {
    std::tuple<Rank, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t> seen{-1, 0, 0, 0, 0};
    std::chrono::steady_clock::time_point since;
    bool warned = false;
  };

  template <class Done, class Whom> void look_around(Vain& vain, Tag tag, char const* what, Whom&& whom, Done&& done) {
    auto const peer = whom();
    expect_same(peer, tag, announced(tag, peer));
    if (has_left(peer)) {  // its last messages may still be unread
      auto const moved = moves();
      if (done() || moves() != moved || whom() != peer) return;
      give_up(tag, what, Fault::peer_lost, peer, "it has left the group in good order");
    }
    auto const culprit = segment_.is_apart() ? peer : last_of_chain(peer);
    auto const& other  = segment_.member(culprit);
    auto const now     = std::chrono::steady_clock::now();
    auto const seen =
        std::tuple{culprit, moves(), other.moved.load(std::memory_order_relaxed),
                   other.sequence.load(std::memory_order_relaxed), other.step.load(std::memory_order_relaxed)};
    if (seen != vain.seen) vain = {seen, now, false};
    auto const quiet = now - vain.since;
    auto const tried = std::exchange(waits_long_, quiet > std::chrono::milliseconds{10});
    auto const waits = segment_.is_apart() && other.waits_for.load(std::memory_order_relaxed) != 0;
    if (tried && quiet >= segment_.timeouts.stuck * (waits ? 2 : 1))  // to store early messages
      give_up(tag, what, Fault::peer_stalled, culprit,
              "its process lives, but it has moved nothing for " + seconds_text(segment_.timeouts.stuck) +
                  (std::string_view{what}.ends_with(')') ? ", during " + std::string{what} : ""));
    if (quiet < segment_.timeouts.warn_stuck || vain.warned) return;
    vain.warned = true;
    log_line("rank " + std::to_string(rank_) + ": step " + std::to_string(std::get<4>(seen)) + ": waiting " +
             seconds_text(segment_.timeouts.warn_stuck) + " for rank " + std::to_string(culprit) +
             ", which lives, in " + described_wait(tag, what));
  }

  /// Follows waiting ranks to the first rank that does not wait. Returns `first` if they wait in a cycle.
  Rank last_of_chain(Rank first) const {
    auto rank = first;
    for (int i = 0; i < segment_.size; ++i) {
      auto const next = segment_.member(rank).waits_for.load(std::memory_order_relaxed) - 1;
      if (next < 0 || next >= segment_.size) return rank;
      if (next == rank_) break;
      rank = next;
    }
    return first;
  }

  [[noreturn]] void give_up(Tag tag, char const* what, Fault fault, Rank culprit, std::string const& why) {
    auto failure      = loss(fault, culprit, waits_in(tag),
                             why + sentence("; rank {} waited for it", rank_) + kept(rank_, culprit) + kept(culprit, rank_));
    failure.operation = described_wait(tag, what);
    give_up(failure);
  }

  std::string kept(Rank from, Rank to) const {
    auto const bytes = segment_.file.lane(from, to).kept.load(std::memory_order_relaxed);
    if (bytes == 0) return {};
    return sentence("; rank {} keeps {} bytes from rank {} for which it has posted no receive, and takes no more", to,
                    bytes, from);
  }

  [[noreturn]] void give_up(Loss const& failure) {
    if (segment_.is_apart()) {
      segment_.part(rank_, failure);
      segment_.check_apart(rank_, failure.rank);
    }
    segment_.report_failure(rank_, Segment::Witness::rank, failure);
    segment_.throw_root_cause(rank_);
  }

  Loss loss(Fault fault, Rank culprit, std::uint64_t sequence, std::string const& reason) const {
    return {fault,
            culprit,
            segment_.host,
            sequence == 0 ? "" : operation_text(rank_, sequence),
            detail::OperationNumber::place(sequence),
            member_.step.load(std::memory_order_relaxed),
            reason};
  }

  std::string described_wait(Tag tag, char const* what) const {
    if (auto const number = waits_in(tag); number != 0) return operation_text(rank_, number);
    return what + std::string{", tag "} + std::to_string(static_cast<std::uint32_t>(tag));
  }

  std::string described(Rank rank, Tag tag, AnnouncedOperations about) const {
    auto const who = "rank " + std::to_string(rank);
    if (about.sequence == 0)
      return who + " is in no announced operation, tag " + std::to_string(static_cast<std::uint32_t>(tag));
    return who + " is in operation " + std::to_string(detail::OperationNumber::place(about.sequence)) + ", " +
           operation_text(rank, about.sequence);
  }

  /// Number of the newest operation with this tag of any group, for errors; 0 for none.
  std::uint64_t waits_in(Tag tag) const { return announced_.of(tag, rank_).sequence; }

  std::string operation_text(Rank rank, std::uint64_t sequence) const {
    auto const& operation = segment_.member(rank).operation(sequence);
    auto const group      = announced_.last_of(detail::OperationNumber::group(sequence)).text_of_group();
    return operation.sequence == sequence ? operation.text() + group : "which it has forgotten";
  }

  static AnnouncedOperations brief(detail::LoggedOperation const& one) { return {one.sequence, one.fingerprint}; }

  Segment const& segment_;
  Rank const rank_;
  SegmentMember& member_;
  detail::OperationLog announced_;
  bool waits_long_ = false;
};

}  // namespace chorale::shared_memory
