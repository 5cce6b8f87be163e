// SPDX-License-Identifier: Apache-2.0
//
// One transport in one piece: its two endpoints and the state that they share.
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace chorale::detail {

/// State shared by the views of one TwoLayerEndpoint: both layers, and the operations under way in them.
///
/// A transport may move bytes only while its rank calls it. So a wait in one layer also polls the operations of the
/// other: else rank A could wait near for B, B far for C, and C far for bytes that A has not moved yet.
template <Endpoint Near, Endpoint Far> class LayeredState {
 public:
  using near_endpoint = Near;
  using far_endpoint  = Far;

  LayeredState(Near n, Far f, std::chrono::nanoseconds limit)
      : near{std::move(n)}, far{std::move(f)}, timeout_{limit} {}

  int node() const { return far.rank() / near.size(); }
  int nodes() const { return far.size() / near.size(); }
  bool is_near(Rank rank) const { return rank / near.size() == node(); }

  /// peer    in the near group
  template <class Begin> TablePending<LayeredState> start_near(Rank peer, Tag tag, Begin begin) {
    auto const in_group = node() * near.size() + peer;
    return start(in_group, tag, Pending{std::in_place_index<0>, in_near([&] { return begin(near); })});
  }
  template <class Begin> TablePending<LayeredState> start_far(Rank peer, Tag tag, Begin begin) {
    return start(peer, tag, Pending{std::in_place_index<1>, in_far([&] { return begin(far); })});
  }

  bool done(Ticket ticket) {
    if (under_way_.is_over(ticket)) return true;
    if (!poll(under_way_[ticket])) return false;
    under_way_.finish(ticket);
    return true;
  }

  void wait(Ticket ticket) {
    auto patience = Backoff{200};  // perhaps the ranks share cores
    auto deadline = Deadline::never();
    while (!done(ticket)) {
      if (!move_on(1 - under_way_[ticket].pending.index())) return wait_alone(ticket);
      patience.pause();
      if (!patience.slow()) continue;
      if (deadline.at == Deadline::never().at) deadline = Deadline::after(timeout_);
      if (deadline.passed()) give_up(under_way_[ticket]);
    }
  }

  /// Reports a failure to both layers. The far layer first: it has all ranks, which report the first cause it gets.
  void fail(std::string const& why, Fault fault = Fault::peer_lost) {
    chorale::fail(far, why, fault);
    chorale::fail(near, why, fault);
  }

  template <class F> auto in_near(F f) {
    try {
      return f();
    } catch (PeerLost const& lost) { lost_in_node(lost); } catch (BadArgument const&) {
      throw;
    } catch (Error const& error) {
      chorale::fail(far, error);
      throw;
    }
  }

  template <class F> auto in_far(F f) {
    try {
      return f();
    } catch (BadArgument const&) { throw; } catch (Error const& error) {
      chorale::fail(near, error);
      throw;
    }
  }

  Near near;
  Far far;

 private:
  using Pending = std::variant<typename Near::pending, typename Far::pending>;

  struct Item {
    Pending pending;
    Rank peer = 0;  // in the whole group
    Tag tag{};
    LayeredState* state = nullptr;

    bool done() { return state->poll(*this); }
  };

  TablePending<LayeredState> start(Rank peer, Tag tag, Pending pending) {
    auto const ticket  = under_way_.take();
    under_way_[ticket] = {std::move(pending), peer, tag, this};
    return {*this, ticket};
  }

  bool poll(Item& item) {
    if (item.pending.index() == 0) return in_near([&] { return std::get<0>(item.pending).done(); });
    return in_far([&] { return std::get<1>(item.pending).done(); });
  }

  /// Polls the operations of one layer; true if some are still under way.
  bool move_on(std::size_t layer) {
    auto some = false;
    under_way_.each([&](Item& item) {
      if (item.pending.index() != layer) return false;
      auto const over = poll(item);
      some |= !over;
      return over;
    });
    return some;
  }

  void wait_alone(Ticket ticket) {
    auto& item = under_way_[ticket];
    if (item.pending.index() == 0) in_near([&] { std::get<0>(item.pending).wait(); });
    else in_far([&] { std::get<1>(item.pending).wait(); });
    under_way_.finish(ticket);
  }

  /// Throws the root cause that the far layer decides on, as all survivors do; without one, the loss this rank saw.
  [[noreturn]] void lost_in_node(PeerLost const& lost) {
    auto seen = lost.loss();
    seen.rank += node() * near.size();
    seen.reason     = "in node " + std::to_string(node()) + ", " + plain(lost.what());
    auto const mine = PeerLost{far.rank(), seen};
    if constexpr (requires { far.fail(seen.reason); }) {
      far.fail(plain(mine.what()));
      far.recv(far.rank(), Tag{}, {}).done();  // throws the root cause
    }
    throw mine;
  }

  static std::string plain(std::string_view text) { return told_text(text, Fault::collective_mismatch); }

  [[noreturn]] void give_up(Item const& item) {
    auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    auto const lost =
        PeerLost{far.rank(), Loss{.fault  = Fault::peer_stalled,
                                  .rank   = item.peer,
                                  .reason = "rank " + std::to_string(far.rank()) + " waited " + std::to_string(limit) +
                                            " ms for it, tag " + std::to_string(static_cast<std::uint32_t>(item.tag)) +
                                            ", while the other layer had messages under way"}};
    fail(plain(lost.what()));
    throw lost;
  }

  std::chrono::nanoseconds timeout_;
  PendingTable<Item> under_way_;
};

}  // namespace chorale::detail

namespace chorale {

/// The ranks of one node as a separate endpoint: rank() is the local index. See TwoLayerEndpoint::near().
template <class State> class NearEndpoint {
  using E = typename State::near_endpoint;

 public:
  using pending = TablePending<State>;

  explicit NearEndpoint(State& state) : state_{&state} {}

  Rank rank() const { return state_->near.rank(); }
  int size() const { return state_->near.size(); }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    return state_->start_near(peer, tag, [&](E& near) { return near.send(peer, tag, out); });
  }
  pending recv(Rank peer, Tag tag, Bytes in) {
    return state_->start_near(peer, tag, [&](E& near) { return near.recv(peer, tag, in); });
  }

  pending expose(Tag tag, Bytes mine) requires DirectAccessEndpoint<E> {
    return state_->start_near(rank(), tag, [&](E& near) { return near.expose(tag, mine); });
  }
  Bytes peer(Rank rank, Tag tag) requires DirectAccessEndpoint<E> { return state_->near.peer(rank, tag); }
  pending leave(Tag tag) requires DirectAccessEndpoint<E> {
    return state_->start_near(rank(), tag, [&](E& near) { return near.leave(tag); });
  }
  auto hold(std::size_t bytes) requires DirectAccessEndpoint<E> {
    return state_->in_near([&] { return state_->near.hold(bytes); });
  }
  Bytes memory() requires requires(E& near) { near.memory(); } { return state_->near.memory(); }

  // For a transport with native collectives. While one runs, no other operation makes progress.

  template <class T> void all_reduce(Span<T> x, Op op) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.all_reduce(x, op); });
  }
  template <class T> void reduce_scatter(Span<T const> x, Span<T> mine, Op op) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.reduce_scatter(x, mine, op); });
  }
  template <class T> void all_gather(Span<T const> mine, Span<T> all) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.all_gather(mine, all); });
  }

  void announce(Operation const& operation) { chorale::announce(state_->near, operation); }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<E> {
    state_->near.announce(operation, group);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(state_->near, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { state_->fail(why, fault); }

 private:
  State* state_;
};

/// The ranks with one local index on all nodes, as a separate endpoint: rank() is the node. See
/// TwoLayerEndpoint::far().
template <class State> class FarEndpoint {
  using E = typename State::far_endpoint;

 public:
  using pending = TablePending<State>;

  explicit FarEndpoint(State& state) : state_{&state} {
    for (Rank node = 0; node < size(); ++node) ranks_.push_back(in_group(node));
  }

  Rank rank() const { return state_->node(); }
  int size() const { return state_->nodes(); }

  pending send(Rank node, Tag tag, ConstBytes out) {
    auto const peer = in_group(node);
    return state_->start_far(peer, tag, [&](E& far) { return far.send(peer, tag, out); });
  }
  pending recv(Rank node, Tag tag, Bytes in) {
    auto const peer = in_group(node);
    return state_->start_far(peer, tag, [&](E& far) { return far.recv(peer, tag, in); });
  }

  /// Announces an operation of a sub-group, if the transport has them: ranks with another local index do not take part.
  void announce(Operation const& operation) {
    auto const group = SubGroup{ranks_, fingerprint_of(ranks_)};
    if constexpr (KnowsSubGroups<E>) state_->far.announce(within(group, operation), group);
    else chorale::announce(state_->far, operation);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(state_->far, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { state_->fail(why, fault); }

 private:
  Rank in_group(Rank node) const {
    CHORALE_EXPECTS(node >= 0 && node < size(),
                    "no node " + std::to_string(node) + " in a group of " + std::to_string(size()));
    return node * state_->near.size() + state_->near.rank();
  }

  State* state_;
  std::vector<Rank> ranks_;  // [node]: its rank in the whole group
};

/// One rank of a Layered transport: near() within its node, far() between nodes, and both at once.
///
/// keeps   it may be moved, but not destroyed, while operations are in flight; near() and far() live as long as it. A
///         wait in one layer also drives the other layer
/// throws  PeerLost with ranks of the whole group, whichever layer lost the peer; the other layer has failed by then
template <Endpoint Near, Endpoint Far> class TwoLayerEndpoint {
  using State = detail::LayeredState<Near, Far>;

 public:
  using pending       = TablePending<State>;
  using near_endpoint = NearEndpoint<State>;
  using far_endpoint  = FarEndpoint<State>;

  TwoLayerEndpoint(Near near, Far far, std::chrono::nanoseconds timeout)
      : parts_{std::make_unique<Parts>(std::move(near), std::move(far), timeout)} {}

  Rank rank() const { return state().far.rank(); }
  int size() const { return state().far.size(); }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    expect_rank(peer);
    if (state().is_near(peer)) return near().send(peer % near().size(), tag, out);
    return state().start_far(peer, tag, [&](Far& far) { return far.send(peer, tag, out); });
  }
  pending recv(Rank peer, Tag tag, Bytes in) {
    expect_rank(peer);
    if (state().is_near(peer)) return near().recv(peer % near().size(), tag, in);
    return state().start_far(peer, tag, [&](Far& far) { return far.recv(peer, tag, in); });
  }

  near_endpoint& near() { return parts_->near; }
  far_endpoint& far() { return parts_->far; }
  Bytes memory() requires requires(Near& near) { near.memory(); } { return state().near.memory(); }

  void announce(Operation const& operation) {
    near().announce(operation);
    chorale::announce(state().far, operation);
  }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<Near> && KnowsSubGroups<Far>
  {
    auto const n = near().size();
    auto here    = std::vector<Rank>{};  // those on this node
    for (auto const rank : group.ranks)
      if (state().is_near(rank)) here.push_back(rank % n);
    near().announce(operation, SubGroup{here, group.id});
    state().far.announce(operation, group);
  }
  void begin_step(std::uint64_t step) {
    near().begin_step(step);
    far().begin_step(step);
  }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { state().fail(why, fault); }
  void listen(bool on) {
    chorale::listen(state().near, on);
    chorale::listen(state().far, on);
  }

 private:
  struct Parts {
    Parts(Near a, Far b, std::chrono::nanoseconds timeout) : state{std::move(a), std::move(b), timeout} {}

    State state;
    near_endpoint near{state};
    far_endpoint far{state};
  };

  State& state() const { return parts_->state; }

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }

  std::unique_ptr<Parts> parts_;  // views and operations point into it
};

/// One transport within a node, another between nodes: rank r is number r % n of node r / n, with n ranks per node.
///
///   n = 2        node 0        node 1        node 2
///   number 0       0             2             4        far() of ranks 0, 2 and 4
///   number 1       1             3             5        far() of ranks 1, 3 and 5
///                  near() of     near() of     near() of
///                  0 and 1       2 and 3       4 and 5
///
/// `far` connects all ranks of the group. Any two can exchange messages: ranks of one node over `near`, all others over
/// `far`, also ranks that differ in node and in number. far() is a view of it. `near` connects each node separately, as
/// a group of n; if its options have a name, of a shared memory file for example, the name must differ between nodes.
///
/// ranks_per_node   0: as many as the group has in each process
/// timeout          the longest wait for one message while the other layer has messages in flight; otherwise the
///                  layer's own timeout applies
template <Transport Near, Transport Far> struct Layered {
  using endpoint = TwoLayerEndpoint<typename Near::endpoint, typename Far::endpoint>;

  Near near{};
  Far far{};
  int ranks_per_node               = 0;
  std::chrono::nanoseconds timeout = std::chrono::seconds{60};

  static constexpr bool reaches(Memory memory) { return Near::reaches(memory) && Far::reaches(memory); }

  /// throws  BadArgument when the last node would have fewer ranks than the others
  std::vector<endpoint> connect(Group const& group) const {
    auto const n = ranks_per_node != 0 ? ranks_per_node : group.meeting().ranks_per_process;
    CHORALE_EXPECTS(n >= 1 && group.size() % n == 0,
                    std::to_string(group.size()) + " ranks do not fill nodes of " + std::to_string(n) + " ranks");
    auto endpoints = std::vector<endpoint>{};
    auto fars      = far.connect(group);
    auto next      = fars.begin();
    for (int node = 0; node < group.size() / n; ++node) {
      auto numbers = std::vector<Rank>{};
      for (Rank const rank : group.local())
        if (rank / n == node) numbers.push_back(rank % n);
      if (numbers.empty()) continue;
      for (auto& at : near.connect(Group{n, std::move(numbers)}))
        endpoints.emplace_back(std::move(at), std::move(*next++), timeout);
    }
    return endpoints;
  }
};

}  // namespace chorale
