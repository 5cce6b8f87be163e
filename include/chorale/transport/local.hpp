// SPDX-License-Identifier: Apache-2.0
//
// An endpoint and its pending operations, in one piece: each is defined by what the other may touch.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/transport/local/shared_state.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>

#include <gsl/util>

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
/// keeps   nothing is allocated after connect() unless a rank waits for more than 64 messages. 64 messages may be in
///         flight from one rank to another: then send() waits, and meanwhile takes messages for this rank's posted
///         receives; ranks that wait so in a cycle get PeerLost. 64 exposures may be in flight, of any tags: one that
///         begins while this rank has not left the 64th before it throws BadArgument. An exposure of a tag that this
///         rank has exposed waits until that is left. An endpoint may be moved while operations are in flight: they
///         need only one live endpoint of the group. One thread at a time, see OwnerThread
/// cost    a message is copied once, by its receiver; P ranks share 4 P² + 40 P KiB
/// throws  Disagreement, on all ranks, when two are in different operations, or the ends of a message differ in size:
///         before the data of that operation is touched. Operations are compared when a message or an exposure arrives,
///         and by ranks that have waited for some milliseconds. A rank whose part of the operation was complete by then
///         throws in its next call. PeerLost when a rank has failed, when this one waits for a rank whose endpoint is
///         destroyed, or when a wait is longer than the timeout; then from every operation of every rank, and when it
///         is thrown, no other rank touches this one's memory any more. With FailureScope::peer, from every operation
///         with that rank, and only that rank touches no memory of this one any more; a rank then fails when its
///         endpoint is destroyed, and no memory can be exposed
class LocalEndpoint {
 public:
  class pending;

  LocalEndpoint(std::shared_ptr<local::SharedState> state, Rank rank) : state_{std::move(state)}, rank_{rank} {}
  LocalEndpoint(LocalEndpoint&&) noexcept = default;
  LocalEndpoint& operator=(LocalEndpoint&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(rank_, other.rank_);
    return *this;
  }
  ~LocalEndpoint() {
    if (state_) state_->end(rank_);
  }

  Rank rank() const { return rank_; }
  int size() const { return state_->size; }

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);
  pending expose(Tag tag, Bytes mine);
  pending leave(Tag tag);

  /// The memory that a rank has exposed. This rank's own exposure of the tag must be done, and not be left.
  Bytes peer(Rank rank, Tag tag) const { return state_->window(rank, exposed(tag)->number).bytes; }

  /// See chorale::announce().
  void announce(Operation const& operation) { announce(operation, nullptr); }
  void announce(Operation const& operation, SubGroup const& group) { announce(operation, &group); }

  /// See chorale::begin_step().
  void begin_step(std::uint64_t step) { state_->member(rank_).step.store(step, std::memory_order_relaxed); }

  /// Keeps peers' memory valid while the result lives. Release it soon, without waiting: failing ranks wait for it.
  [[nodiscard]] local::SharedState::Hold hold(std::size_t /*bytes*/) { return {*state_, rank_, rank_}; }

  /// True if nothing can be received from that rank any more, or from any rank. Does not throw.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return state_->lost(rank_, peer);
  }

  /// Waits until any message may have moved since the last call, or a rank is lost; false if the time is over first.
  /// For a thread that serves many ranks.
  bool wait_any(std::chrono::nanoseconds longest) {
    auto const use = state_->use(rank_);
    return state_->wait_for_wakeup(rank_, longest);
  }

  /// Ends every wait of every rank, with FailureScope::peer every wait for this one, with a PeerLost that names this
  /// rank and the reason, or the error of that fault. Its own operations throw it, too.
  ///
  /// keeps   all ranks report the first cause. To be called before memory that peers may touch is freed
  void fail(std::string why, Fault fault = Fault::peer_lost) {
    while (!why.empty() && why.back() == '.') why.pop_back();  // the message adds its own
    auto const step = state_->member(rank_).step.load(std::memory_order_relaxed);
    state_->fail(rank_, {.fault = fault, .rank = rank_, .step = step, .reason = why});
  }

 private:
  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }

  void announce(Operation const& operation, SubGroup const* group) {
    auto const use = state_->use(rank_);
    state_->member(rank_).announced.add(operation, group);
  }

  /// The exposure of that tag by this rank.
  std::vector<local::SharedState::Exposed>::iterator exposed(Tag tag) const {
    auto& all        = state_->member(rank_).exposed;
    auto const found = std::find_if(all.begin(), all.end(), [&](auto const& one) { return one.tag == tag; });
    CHORALE_EXPECTS(found != all.end(), "rank " + std::to_string(rank_) + " has not exposed tag " +
                                            std::to_string(static_cast<std::uint32_t>(tag)) + ", or has left it");
    return found;
  }

  std::shared_ptr<local::SharedState> state_;
  Rank rank_;
};

/// A message in flight, or a pending rendezvous of all ranks at an exposed tag.
class LocalEndpoint::pending {
 public:
  pending() = default;

  /// throws  Disagreement, PeerLost; see LocalEndpoint
  bool done() {
    if (kind_ == Kind::done) return true;
    auto const use = state_->use(me_);
    return look();
  }

  /// throws  also PeerLost after the transport's timeout, with the rank that is missing
  void wait() {
    if (kind_ == Kind::done) return;
    auto const use = state_->use(me_);
    wait_in_call();
  }

 private:
  friend LocalEndpoint;
  enum class Kind { done, send, recv, room, expose, leave };

  pending(Kind kind, local::SharedState& state, Rank me, Rank peer, Tag tag, Bytes bytes)
      : kind_{kind}, tag_{tag}, me_{me}, peer_{peer}, state_{&state}, bytes_{bytes} {}

  bool look() {
    if (kind_ == Kind::done) return true;  // seen by the last look before it slept
    state_->check(me_, me_);
    if (is_over()) {
      kind_ = Kind::done;
      return true;
    }
    if (state_->is_apart()) expect_peer();
    else if (whom() != me_ && state_->ended(whom())) expect_over();
    return kind_ == Kind::done;
  }

  bool is_over() {
    return kind_ == Kind::send   ? taken()
           : kind_ == Kind::recv ? take(peer_, tag_, turn_)
           : kind_ == Kind::room ? has_room()
                                 : met();
  }

  void wait_in_call() {
    using namespace std::chrono_literals;
    auto const is_message = kind_ == Kind::send || kind_ == Kind::recv || kind_ == Kind::room;
    auto const rings      = is_message || (state_->fenced && !state_->shares_cores);
    auto patience         = state_->patience(rings);
    auto deadline = Deadline::never(), compares = Deadline::never();
    auto pause           = std::chrono::nanoseconds{2ms};  // between two comparisons
    auto circle          = local::SharedState::Circle{};
    auto& waits_for_room = state_->member(me_).waits_for_room;
    auto const clear     = gsl::finally([&] { waits_for_room.store(-1, std::memory_order_relaxed); });
    if (kind_ == Kind::room) waits_for_room.store(peer_, std::memory_order_relaxed);
    while (!look()) {
      if (rings && patience.asleep())
        state_->doze(me_, deadline.at < compares.at ? deadline : compares, [this] { return look(); });
      else patience.pause();
      if (!patience.slow()) continue;
      state_->member(me_).turns.fetch_add(1, std::memory_order_release);
      take_from_full_lanes();
      auto const now = std::chrono::steady_clock::now();
      if (deadline.at == Deadline::never().at) {
        deadline = {now + state_->timeout};
        compares = {now + pause};
      }
      if (now >= compares.at) {
        state_->compare(me_);
        if (kind_ == Kind::room) expect_no_circle(circle);
        pause    = std::min<std::chrono::nanoseconds>(2 * pause, 50ms);
        compares = {now + pause};
      }
      if (now >= deadline.at) give_up();
    }
  }

  bool has_room() const { return ~state_->lane(me_, peer_).posted.load(std::memory_order_acquire) != 0; }

  void post(ConstBytes out) {
    auto& lane           = state_->lane(me_, peer_);
    slot_                = static_cast<unsigned>(std::countr_one(lane.posted.load(std::memory_order_acquire)));
    turn_                = ++lane.sent;
    lane.messages[slot_] = {turn_, tag_, out.data(), out.size(), state_->member(me_).announced.label_of(tag_, peer_)};
    lane.posted.fetch_or(std::uint64_t{1} << slot_);
    state_->ring(peer_);
  }

  bool taken() const {
    auto const& lane = state_->lane(me_, peer_);
    return (lane.posted.load(std::memory_order_acquire) >> slot_ & 1) == 0 || lane.messages[slot_].order != turn_;
  }

  /// Matches the messages with this tag to the posted receives, oldest to oldest, whichever receive is polled first.
  /// True if the receive of that turn has its message.
  bool take(Rank from, Tag tag, std::uint64_t turn) {
    auto& lane     = state_->lane(from, me_);
    auto& expected = state_->member(me_).expected;
    for (;;) {
      auto const first = std::find_if(expected.begin(), expected.end(),
                                      [&](auto const& one) { return one.from == from && one.tag == tag; });
      if (first == expected.end() || first->order > turn) return true;  // taken by a poll of another one
      auto const bit = oldest(lane, tag);
      if (bit == 0) return false;
      auto const& got = lane.messages[static_cast<unsigned>(std::countr_zero(bit))];
      if (!got.about.agrees_with(first->about)) state_->mismatch(me_, from, got.about, first->about, tag, got.size);
      if (got.size != first->to.size())
        disagree(from, "sent " + bytes(got.size), "expected " + bytes(first->to.size()), first->about);
      {
        auto const hold = local::SharedState::Hold{*state_, me_, from};
        if (got.size != 0) std::memcpy(first->to.data(), got.data, got.size);
      }
      expected.erase(first);
      lane.posted.fetch_and(~bit);
      state_->ring(from);
    }
  }

  /// Takes messages that have a posted receive from full channels, where a sender may wait for room.
  void take_from_full_lanes() {
    auto const& expected = state_->member(me_).expected;
    for (Rank from = 0; from < state_->size; ++from) {
      if (~state_->lane(from, me_).posted.load(std::memory_order_relaxed) != 0) continue;
      for (std::size_t i = 0; i < expected.size();) {
        auto const one = expected[i];
        i              = one.from == from && take(one.from, one.tag, one.order) ? 0 : i + 1;
      }
    }
  }

  /// throws  PeerLost when this rank and others wait for room in a cycle, and none of them receives
  void expect_no_circle(local::SharedState::Circle& circle) {
    if (!state_->is_stuck(me_, circle)) return;
    auto text = std::string{};
    for (auto const& one : circle.ranks) text += (text.empty() ? "ranks " : ", ") + std::to_string(one);
    state_->give_up(me_, peer_,
                    {.fault  = Fault::peer_stalled,
                     .rank   = peer_,
                     .reason = text + " each have 64 messages under way to the next one, which receives none "
                                      "of them before it has sent more; no more than 64 may be under way"},
                    label());
  }

  /// The bit of the oldest message with this tag; 0 if there is none.
  static std::uint64_t oldest(local::SharedState::Lane const& lane, Tag tag) {
    local::SharedState::Message const* found = nullptr;
    auto bit                                 = std::uint64_t{0};
    for (auto rest = lane.posted.load(std::memory_order_acquire); rest != 0; rest &= rest - 1) {
      auto const& message = lane.messages[static_cast<unsigned>(std::countr_zero(rest))];
      if (message.tag != tag || (found != nullptr && found->order < message.order)) continue;
      found = &message;
      bit   = rest & (~rest + 1);
    }
    return bit;
  }

  /// Opens the window unless it is open; true if the windows of all peers have reached this turn.
  bool met() {
    if (kind_ == Kind::expose && !is_open_ && !open()) return false;
    for (; peer_ < state_->size; ++peer_) {
      auto const& other = state_->window(peer_, number_);
      if (other.turn.load(std::memory_order_acquire) < turn_) return false;
      if (kind_ == Kind::expose && peer_ != me_) compare(other);
    }
    return true;
  }

  /// Opens the window; false while an earlier exposure of this rank needs the window, or has the tag.
  bool open() {
    auto& mine = state_->window(me_, number_);
    if (number_ >= local::SharedState::slots && !is_left(number_ - local::SharedState::slots)) return false;
    for (auto const& one : state_->member(me_).exposed)
      if (one.tag == tag_ && one.number < number_) return false;
    mine.tag   = tag_;
    mine.bytes = bytes_;
    mine.about = about_;
    is_open_   = true;
    mine.turn.store(turn_, std::memory_order_release);
    state_->wake_others(me_);
    return true;
  }

  /// True if every rank has left that exposure.
  bool is_left(std::uint64_t exposure) const {
    auto const turn = local::SharedState::left(exposure);
    for (Rank rank = 0; rank < state_->size; ++rank)
      if (state_->window(rank, exposure).turn.load(std::memory_order_acquire) < turn) return false;
    return true;
  }

  void compare(local::SharedState::Window const& other) {
    if (!other.about.agrees_with(about_))
      state_->mismatch(me_, peer_, other.about, about_, other.tag, other.bytes.size());
    if (other.tag != tag_)
      disagree(peer_, "exposed tag " + std::to_string(number(other.tag)), "exposed tag " + std::to_string(number(tag_)),
               about_);
    if (other.bytes.size() != bytes_.size())
      disagree(peer_, "exposed " + bytes(other.bytes.size()), "exposed " + bytes(bytes_.size()), about_);
  }

  static std::size_t number(Tag tag) { return static_cast<std::uint32_t>(tag); }
  static std::string bytes(std::size_t n) { return std::to_string(n) + " bytes"; }

  [[noreturn]] void disagree(Rank peer, std::string const& theirs, std::string const& ours,
                             detail::Label const& label) {
    state_->give_up(me_, peer,
                    {.fault  = Fault::collective_mismatch,
                     .rank   = peer,
                     .reason = "rank " + std::to_string(peer) + " " + theirs + " where rank " + std::to_string(me_) +
                               " " + ours + ", tag " + std::to_string(number(tag_))},
                    label);
  }

  /// The rank that is missing, as far as this rank can see.
  Rank whom() const { return peer_ < state_->size ? peer_ : me_; }

  detail::Label label() const {
    if (kind_ == Kind::expose || kind_ == Kind::leave) return about_;
    return state_->member(me_).announced.label_of(tag_, peer_);
  }

  /// With FailureScope::peer, completes a send whose message the peer took before it was lost.
  ///
  /// throws  PeerLost when the peer is lost and did not take it
  void expect_peer() {
    if (!state_->lost(me_, peer_)) return;
    if (kind_ != Kind::send || !taken()) state_->check(me_, peer_);
    else kind_ = Kind::done;
  }

  /// Completes an operation for which the missing rank did its part before it ended; else fails.
  void expect_over() {
    if (!is_over()) state_->give_up(me_, whom(), {.rank = whom(), .reason = local::SharedState::has_ended}, label());
    kind_ = Kind::done;
  }

  [[noreturn]] void give_up() {
    static constexpr std::array names = {"", "send", "recv", "send (64 messages under way)", "expose", "leave"};
    auto const limit                  = std::chrono::duration_cast<std::chrono::milliseconds>(state_->timeout).count();
    state_->give_up(me_, whom(),
                    {.fault  = Fault::peer_stalled,
                     .rank   = whom(),
                     .reason = "rank " + std::to_string(me_) + " waited " + std::to_string(limit) + " ms for it in " +
                               names[static_cast<std::size_t>(kind_)] + ", tag " + std::to_string(number(tag_))},
                    label());
  }

  Kind kind_                 = Kind::done;
  Tag tag_                   = {};
  Rank me_                   = 0;
  Rank peer_                 = 0;  // of a rendezvous: first rank that may be missing
  unsigned slot_             = 0;
  bool is_open_              = false;  // of an exposure: peers can see it
  std::uint64_t turn_        = 0;      // of a message or a receive: its order
  std::uint64_t number_      = 0;      // of an exposure
  local::SharedState* state_ = nullptr;
  Bytes bytes_;          // to be exposed
  detail::Label about_;  // of an exposure
};

inline LocalEndpoint::pending LocalEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  auto const use = state_->use(rank_);
  state_->check(rank_, peer);
  auto room = pending{pending::Kind::room, *state_, rank_, peer, tag, {}};
  if (!room.has_room()) room.wait_in_call();
  auto sent = pending{pending::Kind::send, *state_, rank_, peer, tag, {}};
  sent.post(out);
  return sent;
}

inline LocalEndpoint::pending LocalEndpoint::recv(Rank peer, Tag tag, Bytes in) {
  expect_rank(peer);
  auto const use = state_->use(rank_);
  auto& mine     = state_->member(rank_);
  mine.expected.push_back({++mine.receives, peer, tag, in, mine.announced.label_of(tag, peer)});
  auto expected  = pending{pending::Kind::recv, *state_, rank_, peer, tag, {}};
  expected.turn_ = mine.receives;
  return expected;
}

inline LocalEndpoint::pending LocalEndpoint::expose(Tag tag, Bytes mine) {
  CHORALE_EXPECTS(!state_->is_apart(), "access in place needs all ranks, and LocalTransport has FailureScope::peer");
  auto const use = state_->use(rank_);
  auto& me       = state_->member(rank_);
  if (!me.exposed.empty() && me.exposures - me.exposed.front().number >= local::SharedState::slots)
    throw BadArgument{"rank " + std::to_string(rank_) + " exposes tag " + std::to_string(pending::number(tag)) +
                          " while tag " + std::to_string(pending::number(me.exposed.front().tag)) +
                          " is exposed, 64 exposures before; no more than 64 may be under way.",
                      "to finish earlier operations before more are started."};
  auto exposed    = pending{pending::Kind::expose, *state_, rank_, 0, tag, mine};
  exposed.number_ = me.exposures++;
  exposed.turn_   = local::SharedState::shown(exposed.number_);
  exposed.about_  = me.announced.label_of(tag, rank_);
  me.exposed.push_back({tag, exposed.number_});
  exposed.look();  // peers see it now, not at the first done()
  return exposed;
}

inline LocalEndpoint::pending LocalEndpoint::leave(Tag tag) {
  auto const use = state_->use(rank_);
  auto const one = exposed(tag);
  auto left      = pending{pending::Kind::leave, *state_, rank_, 0, tag, {}};
  left.number_   = one->number;
  left.turn_     = local::SharedState::left(one->number);
  auto& window   = state_->window(rank_, one->number);
  left.about_    = window.about;
  state_->member(rank_).exposed.erase(one);
  window.turn.store(left.turn_, std::memory_order_release);
  state_->wake_others(rank_);
  return left;
}

/// Connects ranks that are threads of one process and read each other's memory.
///
/// timeout    the longest wait for one message or rendezvous
/// failures   with FailureScope::peer, the loss of a rank affects only operations with it
struct LocalTransport {
  using endpoint = LocalEndpoint;

  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  FailureScope failures            = FailureScope::group;

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  /// Returns an endpoint for each rank. Throws BadArgument when a rank of the group lives in another process.
  std::vector<endpoint> connect(Group const& group) const {
    CHORALE_EXPECTS(group.is_all_local(), "LocalTransport connects threads of one process, but only " +
                                              std::to_string(group.local().size()) + " of " +
                                              std::to_string(group.size()) + " ranks live here");
    auto const state = std::make_shared<local::SharedState>(group.size(), timeout, failures);
    auto endpoints   = std::vector<endpoint>{};
    for (Rank const rank : group.local()) endpoints.emplace_back(state, rank);
    return endpoints;
  }
};

static_assert(Transport<LocalTransport> && DirectAccessEndpoint<LocalEndpoint>);

}  // namespace chorale
