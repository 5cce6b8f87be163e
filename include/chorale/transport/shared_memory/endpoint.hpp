// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/progress_engine.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/send_queue.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace chorale {

/// One rank of a SharedMemoryTransport.
///
/// keeps   nothing is allocated after connect(), unless more than 64 receives are posted for the first time, or messages
///         are stored. 63 messages may be in flight from one rank to another before send() waits; a rank that waits
///         while all 63 are others than it waits for stores them, up to 64 MiB from each rank. 1024 receives may be
///         posted for each rank before recv() waits; 64 announced operations and 64 other
///         tags may be exposed. A further exposure stays pending while the operation 64 before it, or a tag that is
///         equal modulo 64, is in use: wait() then throws BadArgument. 1024 operations may be in flight. An endpoint
///         may be moved while operations are in flight: they, and memory(), need only one live endpoint of the process
/// cost    a message is copied twice, once by each end and at the same time; once if it is stored in memory()
/// throws  PeerLost when a rank has failed, has left, or is silent or stuck for longer than the timeouts; Disagreement
///         when messages differ in operation or size. Then from every operation of every rank; with FailureScope::peer
///         from those with that rank, and a rank also fails when its last endpoint is destroyed
class SharedMemoryEndpoint {
 public:
  class pending;

  SharedMemoryEndpoint(std::shared_ptr<shared_memory::LocalRanks> group, shared_memory::ProgressEngine& rank)
      : here_{std::make_shared<Presence const>(std::move(group), rank)} {}

  Rank rank() const { return rank_state().rank(); }
  int size() const { return segment().size; }

  /// This rank's part of the shared memory: for memory to be exposed, and for messages to be copied only once.
  Bytes memory() const { return segment().file.arena(rank()); }

  /// Another rank's part of the shared memory. It may be read after that rank has sent a message that allows it.
  ConstBytes memory_of(Rank peer) const {
    expect_rank(peer);
    return segment().file.arena(peer);
  }

  /// This rank's shared memory for copies of data that is stored outside of memory(). See MeetingEndpoint.
  Bytes copies() const { return segment().file.copies(rank()); }
  ConstBytes copies_of(Rank peer) const {
    expect_rank(peer);
    return segment().file.copies(peer);
  }

  /// Returns the half of copies() to use next, 0 or 1: not the half that the previous call returned.
  unsigned next_half() { return here_->rank.half ^= 1U; }

  /// Waits until all ranks have called it equally often. All ranks may then read what each rank wrote before its call.
  ///
  /// tag     of the announced operation that the ranks are in, which they compare
  /// throws  Disagreement when a rank calls it in another operation; PeerLost
  void meet(Tag tag);

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);
  pending expose(Tag tag, Bytes mine);
  pending leave(Tag tag);

  Bytes peer(Rank rank, Tag tag) const {
    auto const& window = segment().file.window(rank, rank_state().window(tag));
    return segment().file.in_arena(rank, window.place, window.size);
  }

  /// See chorale::close().
  void close() {
    auto const use = here_->rank.use();
    segment().check(rank());
    if (!segment().is_apart()) here_->rank.close();
  }

  /// Keeps peers' memory valid while the result lives. Release it soon, without waiting: failing ranks wait for it.
  [[nodiscard]] shared_memory::Segment::Hold hold(std::size_t /*bytes*/) { return {segment(), rank(), rank()}; }

  /// True if nothing can be received from that rank any more, or from any rank. Does not throw.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return segment().failed() ||
           (segment().is_apart() && (segment().lost(rank(), rank()) || segment().lost(rank(), peer)));
  }

  /// Waits until any message may have moved since the last call, or a rank is lost; false if the time is over first.
  /// For a thread that serves many ranks.
  bool wait_any(std::chrono::nanoseconds longest) {
    auto const use = here_->rank.use();
    if (std::exchange(here_->rank.may_go_on, false)) return true;
    return segment().wait_for_bell(rank(), here_->rank.heard, longest, [this] { return lost(rank()); });
  }

  void announce(Operation const& operation) {
    auto const use = here_->rank.use();
    rank_state().announce(operation);
  }
  void announce(Operation const& operation, SubGroup const& group) {
    auto const use = here_->rank.use();
    rank_state().announce(operation, group);
  }
  void begin_step(std::uint64_t step) { rank_state().begin_step(step); }

  /// Ends every wait of every rank, with FailureScope::peer every wait for this one, with a PeerLost that names this
  /// rank and the reason.
  ///
  /// keeps   all ranks report the first cause. To be called before memory that peers may touch is freed
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { rank_state().fail(why, fault); }

 private:
  /// Shared by all copies of a rank's endpoint. Its destructor reports to the other ranks that the rank has left.
  struct Presence {
    Presence(std::shared_ptr<shared_memory::LocalRanks> all, shared_memory::ProgressEngine& mine)
        : group{std::move(all)}, rank{mine} {}
    ~Presence() {
      auto const& segment = rank.rank_state.segment();
      auto const me       = rank.rank_state.rank();
      if (segment.is_apart())
        segment.part_from_all(me, segment.report_exit(me, Fault::peer_lost, "it had ended and left the group"));
      rank.rank_state.leave();
    }
    Presence(Presence const&)            = delete;
    Presence& operator=(Presence const&) = delete;

    std::shared_ptr<shared_memory::LocalRanks> const group;
    shared_memory::ProgressEngine& rank;
  };

  shared_memory::RankState& rank_state() const { return here_->rank.rank_state; }
  shared_memory::Segment const& segment() const { return rank_state().segment(); }

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }
  void expect_in_arena(ConstBytes bytes) const;

  std::shared_ptr<Presence const> here_;
};

/// A message in flight, or a pending rendezvous of all ranks at an exposed tag.
class SharedMemoryEndpoint::pending {
 public:
  pending() = default;

  bool done() {
    if (kind_ == Kind::done) return true;
    auto const use = rank_->use();
    if (is_done()) return true;
    rank_state().has_polled();
    return false;
  }

  void wait() {
    if (kind_ == Kind::done) return;
    auto const use = rank_->use();
    finish();
  }

 private:
  void finish() {
    if (kind_ == Kind::expose && ticket_.turn == 0 && !is_done()) refuse_window();
    rank_state().wait(
        tag_, names[static_cast<std::size_t>(kind_)], [this] { return is_done(); }, [this] { return peer_; });
  }

  bool is_done() {
    if (kind_ == Kind::done) return true;
    segment().check(rank_state().rank());
    if (!look()) {
      if (is_meeting() && ++rank_->in_vain % 1'024 == 0)
        rank_state().expect_same(peer_, tag_, rank_state().announced(tag_));
      if (segment().is_apart()) segment().check_apart(rank_state().rank(), peer_);
      return false;
    }
    kind_ = Kind::done;
    rank_state().has_moved();
    return true;
  }

  friend SharedMemoryEndpoint;
  enum class Kind { done, send, recv, send_room, recv_room, expose, leave };

  static constexpr std::array names = {
      "", "send", "recv", "send (63 messages under way)", "recv (1024 receives under way)", "expose", "leave"};

  pending(Kind kind, shared_memory::ProgressEngine& rank, Rank peer, Tag tag, shared_memory::SlotTicket ticket = {})
      : kind_{kind}, tag_{tag}, peer_{peer}, ticket_{ticket}, rank_{&rank} {}

  shared_memory::RankState& rank_state() const { return rank_->rank_state; }
  shared_memory::Segment const& segment() const { return rank_state().segment(); }

  bool is_meeting() const { return kind_ == Kind::expose || kind_ == Kind::leave; }

  bool look() {
    if (is_meeting()) return met();
    if (kind_ == Kind::recv && rank_->inbox(peer_).look()) rank_->has_moved();  // first: it is the most likely
    if (is_over()) return true;
    rank_->progress();
    return is_over();
  }

  bool is_over() {
    switch (kind_) {
      case Kind::send: return rank_->outbox(peer_).is_done(ticket_);
      case Kind::recv: return rank_->inbox(peer_).is_done(ticket_);
      case Kind::send_room: return rank_->outbox(peer_).has_room();
      default: return rank_->inbox(peer_).has_room();
    }
  }

  /// Opens the window unless it is open; true if the windows of all peers have reached this turn.
  bool met() {
    auto const me = rank_state().rank();
    auto& in_use  = rank_->in_use[window_];
    if (ticket_.turn == 0) {
      if (in_use || rank_->opened[window_] + 1 != order_) return false;
      in_use = true;
      ++rank_->opened[window_];
      open(segment().file.window(me, window_));
    }
    for (; missing_ < segment().size; ++missing_) {
      auto const& other = segment().file.window(missing_, window_);
      peer_             = missing_;
      if (other.turn.load(std::memory_order_acquire) < ticket_.turn) return false;
      if (kind_ == Kind::expose && missing_ != me) compare(other);
    }
    if (kind_ == Kind::leave) in_use = false;
    return true;
  }

  void open(shared_memory::SegmentWindow& mine) {
    auto const about = rank_state().announced(tag_);
    mine.tag         = static_cast<std::uint32_t>(tag_);
    mine.place       = bytes_.empty() ? segment().file.layout.arena_of(rank_state().rank())
                                      : static_cast<std::uint64_t>(bytes_.data() - segment().file.base);
    mine.size        = bytes_.size();
    mine.sequence    = about.sequence;
    mine.fingerprint = about.fingerprint;
    ticket_.turn     = mine.turn.load(std::memory_order_relaxed) + 1;
    mine.turn.store(ticket_.turn, std::memory_order_release);
    segment().ring_others(rank_state().rank());
  }

  /// Only this thread could leave the exposure that has the window, and it waits here.
  [[noreturn]] void refuse_window() const {
    throw BadArgument{
        "rank " + std::to_string(rank_state().rank()) + " waits to expose memory under tag " +
            std::to_string(static_cast<std::uint32_t>(tag_)) +
            (window_ < shared_memory::segment_slots ? ", while a tag that is equal modulo 64 is exposed."
                                                    : ", while more than 63 other operations have memory exposed."),
        "to finish those that were started before."};
  }

  /// throws  Disagreement when a peer exposed something else in the same window
  void compare(shared_memory::SegmentWindow const& theirs) {
    auto const& mine = segment().file.window(rank_state().rank(), window_);
    auto const who = "rank " + std::to_string(missing_), me = "rank " + std::to_string(rank_state().rank());
    if (theirs.sequence != mine.sequence || theirs.fingerprint != mine.fingerprint)
      rank_state().mismatch(missing_, Tag{theirs.tag}, {theirs.sequence, theirs.fingerprint},
                            {mine.sequence, mine.fingerprint});
    if (theirs.tag != mine.tag)
      rank_state().disagree(missing_, mine.sequence,
                            who + " exposed tag " + std::to_string(theirs.tag) + " where " + me + " exposed tag " +
                                std::to_string(mine.tag));
    if (theirs.size != mine.size)
      rank_state().disagree(missing_, mine.sequence,
                            who + " exposed " + std::to_string(theirs.size) + " bytes where " + me + " exposed " +
                                std::to_string(mine.size) + " bytes, tag " + std::to_string(mine.tag));
  }

  Kind kind_           = Kind::done;
  Tag tag_             = {};
  Rank peer_           = 0;
  std::size_t window_  = 0;           // of a rendezvous
  std::uint64_t order_ = 0;           // number of the exposure in this window
  Rank missing_        = 0;           // of a rendezvous: first rank that may be missing
  shared_memory::SlotTicket ticket_;  // of a rendezvous: only its turn
  shared_memory::ProgressEngine* rank_ = nullptr;
  Bytes bytes_;  // to be exposed
};

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  auto const use = here_->rank.use();
  segment().check(rank());
  if (segment().is_apart()) segment().check_apart(rank(), peer);
  auto& here   = here_->rank;
  auto& outbox = here.outbox(peer);
  if (!outbox.has_room()) pending{pending::Kind::send_room, here, peer, tag}.finish();
  auto const ticket = outbox.post(tag, out);
  if (outbox.is_done(ticket)) return {};
  return {pending::Kind::send, here, peer, tag, ticket};
}

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::recv(Rank peer, Tag tag, Bytes in) {
  expect_rank(peer);
  auto const use = here_->rank.use();
  auto& here     = here_->rank;
  auto& inbox    = here.inbox(peer);
  if (!inbox.has_room()) pending{pending::Kind::recv_room, here, peer, tag}.finish();
  return {pending::Kind::recv, here, peer, tag, inbox.expect(tag, in)};
}

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::expose(Tag tag, Bytes mine) {
  CHORALE_EXPECTS(!segment().is_apart(),
                  "access in place needs all ranks, and SharedMemoryTransport has FailureScope::peer");
  expect_in_arena(mine);
  auto const use  = here_->rank.use();
  auto exposed    = pending{pending::Kind::expose, here_->rank, rank(), tag};
  exposed.bytes_  = mine;
  exposed.window_ = rank_state().window(tag);
  exposed.order_  = ++here_->rank.asked[exposed.window_];
  exposed.is_done();  // peers see it now, not at the first done()
  return exposed;
}

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::leave(Tag tag) {
  auto const use    = here_->rank.use();
  auto const window = rank_state().window(tag);
  auto& turn        = segment().file.window(rank(), window).turn;
  auto const ticket = shared_memory::SlotTicket{0, turn.load(std::memory_order_relaxed) + 1};
  turn.store(ticket.turn, std::memory_order_release);
  segment().ring_others(rank());
  auto left    = pending{pending::Kind::leave, here_->rank, rank(), tag, ticket};
  left.window_ = window;
  return left;
}

inline void SharedMemoryEndpoint::meet(Tag tag) {
  CHORALE_EXPECTS(!segment().is_apart(), "a meeting needs all ranks, and SharedMemoryTransport has FailureScope::peer");
  auto const use    = here_->rank.use();
  auto& here        = here_->rank;
  auto const turn   = ++here.meetings;
  auto const ours   = rank_state().announced(tag);
  auto const which  = turn % 2;
  auto& mine        = segment().member(rank()).meetings;
  mine.about[which] = {ours.sequence, ours.fingerprint, static_cast<std::uint32_t>(tag)};
  mine.turn.store(turn, std::memory_order_release);
  segment().ring_others(rank());
  auto missing        = Rank{0};  // the first rank that may be missing
  auto const are_here = [&] {
    segment().check(rank());
    for (; missing < size(); ++missing) {
      auto const& other = segment().member(missing).meetings;
      if (other.turn.load(std::memory_order_acquire) < turn) {
        if (++here.in_vain % 1'024 == 0) rank_state().expect_same(missing, tag, ours);
        return false;
      }
      auto const& theirs = other.about[which];
      if (theirs.sequence != ours.sequence || theirs.fingerprint != ours.fingerprint)
        rank_state().mismatch(missing, Tag{theirs.tag}, {theirs.sequence, theirs.fingerprint}, ours);
    }
    return true;
  };
  rank_state().wait(tag, "meet", are_here, [&] { return std::min(missing, size() - 1); });
  rank_state().has_moved();
}

inline void SharedMemoryEndpoint::expect_in_arena(ConstBytes bytes) const {
  auto const address = [](auto const* p) { return reinterpret_cast<std::uintptr_t>(p); };
  auto const arena   = memory();
  auto const begin = address(arena.data()), first = address(bytes.data());
  auto const end = begin + arena.size();
  if (bytes.empty() || (first >= begin && first <= end && bytes.size() <= end - first)) return;
  throw BadArgument{"rank " + std::to_string(rank()) + " exposes " + std::to_string(bytes.size()) + " bytes at " +
                        std::to_string(first) + ", outside of its shared memory of " + std::to_string(arena.size()) +
                        " bytes at " + std::to_string(begin) + ".",
                    "SharedMemoryTransport{.arena = bytes}, and to keep what is exposed in endpoint.memory()."};
}

static_assert(DirectAccessEndpoint<SharedMemoryEndpoint> && ReadsInPlace<SharedMemoryEndpoint>);

}  // namespace chorale
