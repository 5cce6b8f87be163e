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
/// keeps   nothing is allocated after connect(). 63 messages may be in flight from one rank to another before send()
///         waits; 64 receives may be posted for each rank before recv() waits; 64 announced operations and 64 other
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

  Rank rank() const { return seat().rank(); }
  int  size() const { return hub().size; }

  /// This rank's part of the shared memory: for memory to be exposed, and for messages to be copied only once.
  Bytes memory() const { return hub().file.arena(rank()); }

  /// Another rank's part of the shared memory. It may be read after that rank has sent a message that allows it.
  ConstBytes memory_of(Rank peer) const {
    expect_rank(peer);
    return hub().file.arena(peer);
  }

  /// This rank's shared memory for copies of data that is stored outside of memory(). See MeetingEndpoint.
  Bytes copies() const { return hub().file.copies(rank()); }
  ConstBytes copies_of(Rank peer) const {
    expect_rank(peer);
    return hub().file.copies(peer);
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
    auto const& window = hub().file.window(rank, seat().window(tag));
    return hub().file.in_arena(rank, window.place, window.size);
  }

  /// See chorale::close().
  void close() {
    auto const use = here_->rank.use();
    hub().check(rank());
    if (!hub().is_apart()) here_->rank.close();
  }

  /// Keeps peers' memory valid while the result lives. Release it soon, without waiting: failing ranks wait for it.
  [[nodiscard]] shared_memory::Segment::Hold hold(std::size_t /*bytes*/) { return {hub(), rank(), rank()}; }

  /// True if nothing can be received from that rank any more, or from any rank. Does not throw.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return hub().failed() || (hub().is_apart() && (hub().lost(rank(), rank()) || hub().lost(rank(), peer)));
  }

  /// Waits until any message may have moved since the last call, or a rank is lost; false if the time is over first.
  /// For a thread that serves many ranks.
  bool wait_any(std::chrono::nanoseconds longest) {
    auto const use = here_->rank.use();
    if (std::exchange(here_->rank.may_go_on, false)) return true;
    return hub().wait_for_bell(rank(), here_->rank.heard, longest, [this] { return lost(rank()); });
  }

  void announce(Operation const& operation) {
    auto const use = here_->rank.use();
    seat().announce(operation);
  }
  void begin_step(std::uint64_t step) { seat().begin_step(step); }

  /// Ends every wait of every rank, with FailureScope::peer every wait for this one, with a PeerLost that names this
  /// rank and the reason.
  ///
  /// keeps   all ranks report the first cause. To be called before memory that peers may touch is freed
  void fail(std::string const& why) { seat().fail(why); }

 private:
  /// Shared by all copies of a rank's endpoint. Its destructor reports to the other ranks that the rank has left.
  struct Presence {
    Presence(std::shared_ptr<shared_memory::LocalRanks> all, shared_memory::ProgressEngine& mine)
        : group{std::move(all)}, rank{mine} {}
    ~Presence() {
      auto const& hub = rank.seat.hub();
      auto const me   = rank.seat.rank();
      if (hub.is_apart())
        hub.part_from_all(me, hub.report_exit(me, Fault::peer_lost, "it had ended and left the group"));
      rank.seat.leave();
    }
    Presence(Presence const&)            = delete;
    Presence& operator=(Presence const&) = delete;

    std::shared_ptr<shared_memory::LocalRanks> const group;
    shared_memory::ProgressEngine& rank;
  };

  shared_memory::RankState&      seat() const { return here_->rank.seat; }
  shared_memory::Segment const& hub() const { return seat().hub(); }

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(), "no rank " + std::to_string(peer) + " in a group of " +
                                                    std::to_string(size()));
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
    seat().has_polled();
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
    seat().wait(tag_, names[static_cast<std::size_t>(kind_)], [this] { return is_done(); }, [this] { return peer_; });
  }

  bool is_done() {
    if (kind_ == Kind::done) return true;
    hub().check(seat().rank());
    if (!look()) {
      if (is_meeting() && ++rank_->in_vain % 1'024 == 0) seat().expect_same(peer_, tag_, seat().announced(tag_));
      if (hub().is_apart()) hub().check_apart(seat().rank(), peer_);
      return false;
    }
    kind_ = Kind::done;
    seat().has_moved();
    return true;
  }

  friend SharedMemoryEndpoint;
  enum class Kind { done, send, recv, send_room, recv_room, expose, leave };

  static constexpr std::array names = {"",       "send", "recv", "send (63 messages under way)",
                                       "recv (64 receives under way)", "expose", "leave"};

  pending(Kind kind, shared_memory::ProgressEngine& rank, Rank peer, Tag tag, shared_memory::SlotTicket ticket = {})
      : kind_{kind}, tag_{tag}, peer_{peer}, ticket_{ticket}, rank_{&rank} {}

  shared_memory::RankState&      seat() const { return rank_->seat; }
  shared_memory::Segment const& hub() const { return seat().hub(); }

  bool is_meeting() const { return kind_ == Kind::expose || kind_ == Kind::leave; }

  bool look() {
    if (is_meeting()) return met();
    if (kind_ == Kind::recv && rank_->inbox(peer_).look()) rank_->has_moved();   // first: it is the most likely
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
    auto const me = seat().rank();
    auto& in_use  = rank_->in_use[window_];
    if (ticket_.turn == 0) {
      if (in_use || rank_->opened[window_] + 1 != order_) return false;
      in_use = true;
      ++rank_->opened[window_];
      open(hub().file.window(me, window_));
    }
    for (; missing_ < hub().size; ++missing_) {
      auto const& other = hub().file.window(missing_, window_);
      peer_             = missing_;
      if (other.turn.load(std::memory_order_acquire) < ticket_.turn) return false;
      if (kind_ == Kind::expose && missing_ != me) compare(other);
    }
    if (kind_ == Kind::leave) in_use = false;
    return true;
  }

  void open(shared_memory::SegmentWindow& mine) {
    auto const about = seat().announced(tag_);
    mine.tag         = static_cast<std::uint32_t>(tag_);
    mine.place       = bytes_.empty() ? hub().file.layout.arena_of(seat().rank())
                                      : static_cast<std::uint64_t>(bytes_.data() - hub().file.base);
    mine.size        = bytes_.size();
    mine.sequence    = about.sequence;
    mine.fingerprint = about.fingerprint;
    ticket_.turn     = mine.turn.load(std::memory_order_relaxed) + 1;
    mine.turn.store(ticket_.turn, std::memory_order_release);
    hub().ring_others(seat().rank());
  }

  /// Only this thread could leave the exposure that has the window, and it waits here.
  [[noreturn]] void refuse_window() const {
    throw BadArgument{"rank " + std::to_string(seat().rank()) + " waits to expose memory under tag " +
                          std::to_string(static_cast<std::uint32_t>(tag_)) +
                          (window_ < shared_memory::segment_slots ? ", while a tag that is equal modulo 64 is exposed."
                                                : ", while more than 63 other operations have memory exposed."),
                      "to finish those that were started before."};
  }

  /// throws  Disagreement when a peer exposed something else in the same window
  void compare(shared_memory::SegmentWindow const& theirs) {
    auto const& mine = hub().file.window(seat().rank(), window_);
    auto const who = "rank " + std::to_string(missing_), me = "rank " + std::to_string(seat().rank());
    if (theirs.sequence != mine.sequence || theirs.fingerprint != mine.fingerprint)
      seat().mismatch(missing_, Tag{theirs.tag}, {theirs.sequence, theirs.fingerprint},
                      {mine.sequence, mine.fingerprint});
    if (theirs.tag != mine.tag)
      seat().disagree(missing_, mine.sequence, who + " exposed tag " + std::to_string(theirs.tag) + " where " + me +
                                                   " exposed tag " + std::to_string(mine.tag));
    if (theirs.size != mine.size)
      seat().disagree(missing_, mine.sequence,
                      who + " exposed " + std::to_string(theirs.size) + " bytes where " + me + " exposed " +
                          std::to_string(mine.size) + " bytes, tag " + std::to_string(mine.tag));
  }

  Kind kind_      = Kind::done;
  Tag  tag_       = {};
  Rank peer_      = 0;
  std::size_t window_ = 0;                                            // of a rendezvous
  std::uint64_t order_ = 0;                                           // number of the exposure in this window
  Rank missing_   = 0;                                                // of a rendezvous: first rank that may be missing
  shared_memory::SlotTicket ticket_;                                       // of a rendezvous: only its turn
  shared_memory::ProgressEngine* rank_ = nullptr;
  Bytes bytes_;                                                       // to be exposed
};

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  auto const use = here_->rank.use();
  hub().check(rank());
  if (hub().is_apart()) hub().check_apart(rank(), peer);
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
  auto& here  = here_->rank;
  auto& inbox = here.inbox(peer);
  if (!inbox.has_room()) pending{pending::Kind::recv_room, here, peer, tag}.finish();
  return {pending::Kind::recv, here, peer, tag, inbox.expect(tag, in)};
}

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::expose(Tag tag, Bytes mine) {
  CHORALE_EXPECTS(!hub().is_apart(),
                  "access in place needs all ranks, and SharedMemoryTransport has FailureScope::peer");
  expect_in_arena(mine);
  auto const use = here_->rank.use();
  auto exposed   = pending{pending::Kind::expose, here_->rank, rank(), tag};
  exposed.bytes_  = mine;
  exposed.window_ = seat().window(tag);
  exposed.order_  = ++here_->rank.asked[exposed.window_];
  exposed.is_done();                                                    // peers see it now, not at the first done()
  return exposed;
}

inline SharedMemoryEndpoint::pending SharedMemoryEndpoint::leave(Tag tag) {
  auto const use    = here_->rank.use();
  auto const window = seat().window(tag);
  auto& turn        = hub().file.window(rank(), window).turn;
  auto const ticket = shared_memory::SlotTicket{0, turn.load(std::memory_order_relaxed) + 1};
  turn.store(ticket.turn, std::memory_order_release);
  hub().ring_others(rank());
  auto left    = pending{pending::Kind::leave, here_->rank, rank(), tag, ticket};
  left.window_ = window;
  return left;
}

inline void SharedMemoryEndpoint::meet(Tag tag) {
  CHORALE_EXPECTS(!hub().is_apart(), "a meeting needs all ranks, and SharedMemoryTransport has FailureScope::peer");
  auto const use   = here_->rank.use();
  auto& here       = here_->rank;
  auto const turn  = ++here.meetings;
  auto const ours  = seat().announced(tag);
  auto const which = turn % 2;
  auto& mine       = hub().member(rank()).meetings;
  mine.about[which] = {ours.sequence, ours.fingerprint, static_cast<std::uint32_t>(tag)};
  mine.turn.store(turn, std::memory_order_release);
  hub().ring_others(rank());
  auto missing       = Rank{0};                                       // the first rank that may be missing
  auto const are_here = [&] {
    hub().check(rank());
    for (; missing < size(); ++missing) {
      auto const& other = hub().member(missing).meetings;
      if (other.turn.load(std::memory_order_acquire) < turn) {
        if (++here.in_vain % 1'024 == 0) seat().expect_same(missing, tag, ours);
        return false;
      }
      auto const& theirs = other.about[which];
      if (theirs.sequence != ours.sequence || theirs.fingerprint != ours.fingerprint)
        seat().mismatch(missing, Tag{theirs.tag}, {theirs.sequence, theirs.fingerprint}, ours);
    }
    return true;
  };
  seat().wait(tag, "meet", are_here, [&] { return std::min(missing, size() - 1); });
  seat().has_moved();
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
