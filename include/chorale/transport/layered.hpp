// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/layered/state.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// The ranks of one node as a separate endpoint: rank() is the local index. See TwoLayerEndpoint::near().
template <class State>
class NearEndpoint {
  using E = typename State::near_endpoint;

 public:
  using pending = TablePending<State>;

  explicit NearEndpoint(State& state) : state_{&state} {}

  Rank rank() const { return state_->near.rank(); }
  int  size() const { return state_->near.size(); }

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

  template <class T>
  void all_reduce(Span<T> x, Op op) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.all_reduce(x, op); });
  }
  template <class T>
  void reduce_scatter(Span<T const> x, Span<T> mine, Op op) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.reduce_scatter(x, mine, op); });
  }
  template <class T>
  void all_gather(Span<T const> mine, Span<T> all) requires CollectiveEndpoint<E, T> {
    state_->in_near([&] { state_->near.all_gather(mine, all); });
  }

  void announce(Operation const& operation) { chorale::announce(state_->near, operation); }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<E> {
    state_->near.announce(operation, group);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(state_->near, step); }
  void fail(std::string const& why) { state_->fail(why); }

 private:
  State* state_;
};

/// The ranks with one local index on all nodes, as a separate endpoint: rank() is the node. See
/// TwoLayerEndpoint::far().
template <class State>
class FarEndpoint {
  using E = typename State::far_endpoint;

 public:
  using pending = TablePending<State>;

  explicit FarEndpoint(State& state) : state_{&state} {
    for (Rank node = 0; node < size(); ++node) ranks_.push_back(in_group(node));
  }

  Rank rank() const { return state_->node(); }
  int  size() const { return state_->nodes(); }

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
  void fail(std::string const& why) { state_->fail(why); }

 private:
  Rank in_group(Rank node) const {
    CHORALE_EXPECTS(node >= 0 && node < size(), "no node " + std::to_string(node) + " in a group of " +
                                                    std::to_string(size()));
    return node * state_->near.size() + state_->near.rank();
  }

  State* state_;
  std::vector<Rank> ranks_;                                           // [node]: its rank in the whole group
};

/// One rank of a Layered transport: near() within its node, far() between nodes, and both at once.
///
/// keeps   it may be moved, but not destroyed, while operations are in flight; near() and far() live as long as it. A
///         wait in one layer also drives the other layer
/// throws  PeerLost with ranks of the whole group, whichever layer lost the peer; the other layer has failed by then
template <Endpoint Near, Endpoint Far>
class TwoLayerEndpoint {
  using State = detail::LayeredState<Near, Far>;

 public:
  using pending       = TablePending<State>;
  using near_endpoint = NearEndpoint<State>;
  using far_endpoint  = FarEndpoint<State>;

  TwoLayerEndpoint(Near near, Far far, std::chrono::nanoseconds timeout)
      : parts_{std::make_unique<Parts>(std::move(near), std::move(far), timeout)} {}

  Rank rank() const { return state().far.rank(); }
  int  size() const { return state().far.size(); }

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
  far_endpoint&  far() { return parts_->far; }
  Bytes memory() requires requires(Near& near) { near.memory(); } { return state().near.memory(); }

  void announce(Operation const& operation) {
    near().announce(operation);
    chorale::announce(state().far, operation);
  }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<Near> && KnowsSubGroups<Far> {
    auto const n = near().size();
    auto here    = std::vector<Rank>{};                               // those on this node
    for (auto const rank : group.ranks)
      if (state().is_near(rank)) here.push_back(rank % n);
    near().announce(operation, SubGroup{here, group.id});
    state().far.announce(operation, group);
  }
  void begin_step(std::uint64_t step) {
    near().begin_step(step);
    far().begin_step(step);
  }
  void fail(std::string const& why) { state().fail(why); }

 private:
  struct Parts {
    Parts(Near a, Far b, std::chrono::nanoseconds timeout) : state{std::move(a), std::move(b), timeout} {}

    State state;
    near_endpoint near{state};
    far_endpoint far{state};
  };

  State& state() const { return parts_->state; }

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(), "no rank " + std::to_string(peer) + " in a group of " +
                                                    std::to_string(size()));
  }

  std::unique_ptr<Parts> parts_;                                      // views and operations point into it
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
/// `far`, also those that differ in node and in number. far() is a view of it. `near` connects each node separately, as
/// a group of n; if its options have a name, of a shared memory file for example, the name must differ between nodes.
///
/// ranks_per_node   0: as many as the group has in each process
/// timeout          the longest wait for one message while the other layer has messages in flight; otherwise the
///                  layer's own timeout applies
template <Transport Near, Transport Far>
struct Layered {
  using endpoint = TwoLayerEndpoint<typename Near::endpoint, typename Far::endpoint>;

  Near near{};
  Far far{};
  int ranks_per_node = 0;
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
