// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/transport/limits.hpp>
#include <chorale/transport/local_hub.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {
/// One rank of a LocalTransport: a thread that reads the memory of the other ranks' threads.
///
/// keeps   nothing is allocated after connect() unless a rank waits for more than 64 messages. 64 may be under way from
///         one rank to another, then send() waits; 64 tags may be exposed, and expose() stays pending while a tag that is equal modulo 64 is in use.
///         An endpoint may be moved while operations are in flight: they need only that one of the group lives
/// cost    a message is copied once, by its receiver; P ranks share 2 P² + 6 P KiB
/// throws  PeerLost when a rank has failed or a wait is longer than the timeout, then from every operation of every
///         rank; when it is thrown, no other rank touches this one's memory any more. With Failures::apart, from every
///         operation with that rank, and that rank alone touches nothing any more; a rank also fails when its endpoint
///         is destroyed, and no memory can be exposed
class LocalEndpoint {
 public:
  class pending;

  LocalEndpoint(std::shared_ptr<LocalHub> hub, Rank rank) : hub_{std::move(hub)}, rank_{rank} {}
  LocalEndpoint(LocalEndpoint&&) noexcept = default;
  LocalEndpoint& operator=(LocalEndpoint&& other) noexcept {
    std::swap(hub_, other.hub_);
    std::swap(rank_, other.rank_);
    return *this;
  }
  ~LocalEndpoint() {
    if (hub_ && hub_->is_apart()) hub_->fail(rank_, rank_, "it had ended and left the group.");
  }

  Rank rank() const { return rank_; }
  int  size() const { return hub_->size; }

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);
  pending expose(Tag tag, Bytes mine);
  pending leave(Tag tag);

  Bytes peer(Rank rank, Tag tag) const { return hub_->window(rank, tag).bytes; }

  /// keeps   the result must live briefly and without waiting: a rank that fails waits for it
  [[nodiscard]] LocalHub::Hold hold(std::size_t /*bytes*/) { return {*hub_, rank_, rank_}; }

  /// Nothing can be received from that rank any more, or from any. Does not throw.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return hub_->lost(rank_, peer);
  }

  /// For a thread that serves many: waits until any message may have moved since it last waited so, or a rank is lost,
  /// or the time is over; then false.
  bool wait_any(std::chrono::nanoseconds longest) { return hub_->wait_for_bell(rank_, longest); }

  /// Ends every wait of every rank, with Failures::apart every wait for this one, with a PeerLost that names this rank
  /// and says why. Its own operations throw the same.
  ///
  /// keeps   the first cause is what all ranks tell. To be called before memory goes that peers may touch
  void fail(std::string const& why) { hub_->fail(rank_, rank_, why); }

 private:
  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(), "no rank " + std::to_string(peer) + " in a group of " +
                                                    std::to_string(size()));
  }

  std::shared_ptr<LocalHub> hub_;
  Rank rank_;
};

/// A message, or a meeting of all ranks at an exposed tag, that is under way.
class LocalEndpoint::pending {
 public:
  pending() = default;

  /// throws  PeerLost when a rank has failed; Error when the other end has another size
  bool done() {
    if (kind_ == Kind::done) return true;
    hub_->check(me_, me_);
    bool const over = kind_ == Kind::send   ? taken()
                      : kind_ == Kind::recv ? take()
                      : kind_ == Kind::room ? has_room()
                                            : met();
    if (over) kind_ = Kind::done;
    else if (hub_->is_apart()) hub_->check(me_, peer_);
    return over;
  }

  /// throws  also PeerLost after the transport's timeout, which names the rank that is missing
  void wait() {
    auto const rings = kind_ == Kind::send || kind_ == Kind::recv || kind_ == Kind::room;
    auto patience    = hub_ == nullptr ? Patience{0} : hub_->patience(rings);
    auto deadline    = Deadline::never();
    while (!done()) {
      if (rings && patience.asleep()) hub_->doze(me_, deadline, [this] { return done(); });
      else patience.pause();
      if (!patience.slow()) continue;
      if (deadline.at == Deadline::never().at) deadline = Deadline::after(hub_->timeout);
      if (deadline.passed()) give_up();
    }
  }

 private:
  friend LocalEndpoint;
  enum class Kind { done, send, recv, room, expose, leave };

  pending(Kind kind, LocalHub& hub, Rank me, Rank peer, Tag tag, Bytes bytes)
      : kind_{kind}, tag_{tag}, me_{me}, peer_{peer}, hub_{&hub}, bytes_{bytes} {}

  bool has_room() const { return ~hub_->lane(me_, peer_).posted.load(std::memory_order_acquire) != 0; }

  void post(ConstBytes out) {
    auto& lane = hub_->lane(me_, peer_);
    slot_      = static_cast<unsigned>(std::countr_one(lane.posted.load(std::memory_order_acquire)));
    turn_      = ++lane.sent;
    lane.messages[slot_] = {turn_, tag_, out.data(), out.size()};
    lane.posted.fetch_or(std::uint64_t{1} << slot_);
    hub_->ring(peer_);
  }

  bool taken() const {
    auto const& lane = hub_->lane(me_, peer_);
    return (lane.posted.load(std::memory_order_acquire) >> slot_ & 1) == 0 || lane.messages[slot_].order != turn_;
  }

  /// Messages with this tag go to the receives that were posted for them, oldest to oldest, whichever is looked at
  /// first. True when this one has its own.
  bool take() {
    auto& lane     = hub_->lane(peer_, me_);
    auto& expected = hub_->member(me_).expected;
    for (;;) {
      auto const first = std::find_if(expected.begin(), expected.end(),
                                      [&](auto const& one) { return one.from == peer_ && one.tag == tag_; });
      if (first == expected.end() || first->order > turn_) return true;    // a look at another one took it
      auto const bit = oldest(lane);
      if (bit == 0) return false;
      auto const& got = lane.messages[static_cast<unsigned>(std::countr_zero(bit))];
      if (got.size != first->to.size())
        disagree(peer_, "sent " + bytes(got.size), "expected " + bytes(first->to.size()));
      {
        auto const hold = LocalHub::Hold{*hub_, me_, peer_};
        if (got.size != 0) std::memcpy(first->to.data(), got.data, got.size);
      }
      expected.erase(first);
      lane.posted.fetch_and(~bit);
      hub_->ring(peer_);
    }
  }

  /// The bit of the oldest message with this tag; 0 when there is none.
  std::uint64_t oldest(LocalHub::Lane const& lane) const {
    Message const* found = nullptr;
    auto bit             = std::uint64_t{0};
    for (auto rest = lane.posted.load(std::memory_order_acquire); rest != 0; rest &= rest - 1) {
      auto const& message = lane.messages[static_cast<unsigned>(std::countr_zero(rest))];
      if (message.tag != tag_ || (found != nullptr && found->order < message.order)) continue;
      found = &message;
      bit   = rest & (~rest + 1);
    }
    return bit;
  }

  /// Opens the window if that is still to be done; true when all peers have come as far in theirs.
  bool met() {
    auto& mine   = hub_->window(me_, tag_);
    auto& in_use = hub_->member(me_).in_use[LocalHub::slot(tag_)];
    if (turn_ == 0) {
      if (in_use) return false;
      in_use     = true;
      mine.tag   = tag_;
      mine.bytes = bytes_;
      turn_      = mine.turn.load(std::memory_order_relaxed) + 1;
      mine.turn.store(turn_, std::memory_order_release);
    }
    for (; peer_ < hub_->size; ++peer_) {
      auto const& other = hub_->window(peer_, tag_);
      if (other.turn.load(std::memory_order_acquire) < turn_) return false;
      if (kind_ == Kind::leave) continue;
      if (other.tag != tag_) disagree(peer_, "exposed tag " + std::to_string(number(other.tag)), "exposed it");
      if (other.bytes.size() != bytes_.size())
        disagree(peer_, "exposed " + bytes(other.bytes.size()), "exposed " + bytes(bytes_.size()));
    }
    if (kind_ == Kind::leave) in_use = false;
    return true;
  }

  static std::size_t number(Tag tag) { return static_cast<std::uint32_t>(tag); }

  static std::string bytes(std::size_t n) { return std::to_string(n) + " bytes"; }

  [[noreturn]] void disagree(Rank peer, std::string const& theirs, std::string const& ours) {
    auto const what = "rank " + std::to_string(peer) + " " + theirs + " where rank " + std::to_string(me_) + " " +
                      ours + ", tag " + std::to_string(number(tag_)) + ".";
    hub_->check(me_, peer);                                           // a second look tells what the first has done
    if (hub_->is_apart()) hub_->part(me_, peer, what);
    else hub_->fail(me_, me_, what);
    throw Error{what, "the same calls, with the same sizes and in the same order, on every rank."};
  }

  [[noreturn]] void give_up() {
    static constexpr std::array names = {"", "send", "recv", "send (64 messages under way)", "expose", "leave"};
    auto const whom = peer_ < hub_->size ? peer_ : me_;
    auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(hub_->timeout).count();
    auto const why   = "rank " + std::to_string(me_) + " waited " + std::to_string(limit) + " ms for it in " +
                     names[static_cast<std::size_t>(kind_)] + ", tag " + std::to_string(number(tag_)) + ".";
    if (hub_->is_apart()) hub_->part(me_, whom, why);
    else hub_->fail(me_, whom, why);
    hub_->throw_lost(me_, whom);
  }

  using Message = LocalHub::Message;

  Kind kind_     = Kind::done;
  Tag  tag_      = {};
  Rank me_       = 0;
  Rank peer_     = 0;                                                 // of a meeting: the first that may be missing
  unsigned slot_ = 0;
  std::uint64_t turn_ = 0;                                            // of a message or a receive: its order
  LocalHub* hub_ = nullptr;
  Bytes bytes_;                                                       // to be filled, or exposed
};

inline LocalEndpoint::pending LocalEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  hub_->check(rank_, peer);
  pending{pending::Kind::room, *hub_, rank_, peer, tag, {}}.wait();
  auto sent = pending{pending::Kind::send, *hub_, rank_, peer, tag, {}};
  sent.post(out);
  return sent;
}

inline LocalEndpoint::pending LocalEndpoint::recv(Rank peer, Tag tag, Bytes in) {
  expect_rank(peer);
  auto& mine = hub_->member(rank_);
  mine.expected.push_back({++mine.receives, peer, tag, in});
  auto expected  = pending{pending::Kind::recv, *hub_, rank_, peer, tag, {}};
  expected.turn_ = mine.receives;
  return expected;
}

inline LocalEndpoint::pending LocalEndpoint::expose(Tag tag, Bytes mine) {
  CHORALE_EXPECTS(!hub_->is_apart(), "access in place needs all ranks, and LocalTransport has Failures::apart");
  auto exposed = pending{pending::Kind::expose, *hub_, rank_, 0, tag, mine};
  exposed.done();                                                     // peers see it now, not at the first look
  return exposed;
}

inline LocalEndpoint::pending LocalEndpoint::leave(Tag tag) {
  auto& turn = hub_->window(rank_, tag).turn;
  auto left  = pending{pending::Kind::leave, *hub_, rank_, 0, tag, {}};
  left.turn_ = turn.load(std::memory_order_relaxed) + 1;
  turn.store(left.turn_, std::memory_order_release);
  return left;
}

/// Ranks that are threads of one process and read each other's memory.
///
/// timeout    the longest wait for one message or meeting
/// failures   apart: the loss of a rank leaves the others alone
struct LocalTransport {
  using endpoint = LocalEndpoint;

  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  Failures failures                = Failures::together;

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  /// throws  BadArgument when a rank of the group lives elsewhere
  std::vector<endpoint> connect(Group const& group) const {
    CHORALE_EXPECTS(group.is_all_local(), "LocalTransport connects threads of one process, but only " +
        std::to_string(group.local().size()) + " of " + std::to_string(group.size()) + " ranks live here");
    auto const hub = std::make_shared<LocalHub>(group.size(), timeout, failures);
    auto endpoints = std::vector<endpoint>{};
    for (Rank const rank : group.local()) endpoints.emplace_back(hub, rank);
    return endpoints;
  }
};

static_assert(Transport<LocalTransport> && SharedMemoryEndpoint<LocalEndpoint>);

}  // namespace chorale
