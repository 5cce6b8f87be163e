// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/simulated/simulator.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// One rank of a SimulatedTransport: a handle, which may be copied.
///
/// keeps   used by the body that simulate() runs on its rank; a message is copied once, at the latest moment at which
///         its sender may not change it yet. The number of messages in flight has no bound
/// throws  Disagreement, on all ranks, when two are in different operations, or the ends of a message differ in size:
///         detected when an operation is announced, or a message arrives. PeerLost when a rank is lost, or a wait takes
///         longer than the timeout in virtual time, then from every operation; with FailureScope::peer from those with
///         that rank. BadArgument when it is used outside its body
class SimulatedEndpoint {
 public:
  class pending;

  SimulatedEndpoint(std::shared_ptr<Simulator> world, Rank rank) : world_{std::move(world)}, rank_{rank} {}

  Rank rank() const { return rank_; }
  int size() const { return world_->size(); }

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);

  /// Keeps this rank's processor busy for that time; messages move on meanwhile.
  void work(VirtualTime duration) { world_->work(rank_, duration); }

  /// The time on this rank's clock.
  VirtualTime now() const { return world_->clock(rank_); }

  void announce(Operation const& operation) { world_->announce(rank_, operation, nullptr); }
  void announce(Operation const& operation, SubGroup const& group) { world_->announce(rank_, operation, &group); }
  void begin_step(std::uint64_t step) { world_->begin_step(rank_, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { world_->fail(rank_, why, fault); }

  /// True if that rank is lost to this one, or this rank can use no operation any more. Throws no PeerLost.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return world_->lost(rank_, peer);
  }

  /// Waits until a message of this rank has moved since its last such wait, or a rank is lost; false if the time is
  /// over first. For a rank that serves many. If nothing is in flight and all others wait, it ends with the deadlock.
  bool wait_any(std::chrono::nanoseconds longest) {
    return world_->wait_any(rank_, std::min<std::chrono::nanoseconds>(longest, std::chrono::hours{24}));
  }

  /// Wakes all ranks that are in wait_any(), as a message would.
  void wake_all() { world_->wake_all(); }

  Simulator& world() const { return *world_; }

  /// See RunsItsRanks, and simulate().
  template <class Body> static std::vector<std::exception_ptr> run(std::vector<SimulatedEndpoint>& all, Body body);

 private:
  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }

  std::shared_ptr<Simulator> world_;
  Rank rank_;
};

/// A message in flight in a simulation. A wait lets other ranks run.
class SimulatedEndpoint::pending {
 public:
  pending() = default;

  bool done() {
    if (world_ == nullptr) return true;
    if (!(sends_ ? world_->is_sent(me_, handle_) : world_->is_received(me_, peer_, handle_))) return false;
    world_ = nullptr;
    return true;
  }

  void wait() {
    if (world_ == nullptr) return;
    if (sends_) world_->wait_sent(me_, handle_);
    else world_->wait_received(me_, peer_, handle_);
    world_ = nullptr;
  }

 private:
  friend SimulatedEndpoint;

  pending(Simulator& world, Rank me, Rank peer, simulation::Handle handle, bool sends)
      : world_{&world}, me_{me}, peer_{peer}, handle_{handle}, sends_{sends} {}

  Simulator* world_ = nullptr;
  Rank me_ = 0, peer_ = 0;
  simulation::Handle handle_{};
  bool sends_ = false;
};

inline SimulatedEndpoint::pending SimulatedEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  return {*world_, rank_, peer, world_->send(rank_, peer, tag, out), true};
}

inline SimulatedEndpoint::pending SimulatedEndpoint::recv(Rank peer, Tag tag, Bytes in) {
  expect_rank(peer);
  return {*world_, rank_, peer, world_->receive(rank_, peer, tag, in), false};
}

/// throws  BadArgument when a rank of the group is in another process, or an option makes no sense
inline std::vector<SimulatedEndpoint> SimulatedTransport::connect(Group const& group) const {
  CHORALE_EXPECTS(group.is_all_local(), "SimulatedTransport has all ranks in one thread, but only " +
                                            std::to_string(group.local().size()) + " of " +
                                            std::to_string(group.size()) + " ranks live here");
  auto const world = std::make_shared<Simulator>(*this, group.size());
  auto endpoints   = std::vector<endpoint>{};
  for (Rank const rank : group.local()) endpoints.emplace_back(world, rank);
  return endpoints;
}

static_assert(Transport<SimulatedTransport>);

/// Runs body(at) on every rank of a simulation, from the current time of its clock, until all have ended.
///
/// endpoints   all that one SimulatedTransport has connected, in the order of ranks
template <class Body> SimulatedRun simulate(std::vector<SimulatedEndpoint>& endpoints, Body body) {
  CHORALE_EXPECTS(!endpoints.empty() && endpoints.size() == static_cast<std::size_t>(endpoints[0].size()),
                  "simulate() got " + std::to_string(endpoints.size()) + " endpoints; all of a group are needed");
  return endpoints[0].world().run([&](Rank rank) { body(endpoints[static_cast<std::size_t>(rank)]); });
}

/// Runs body(at) on every rank of a new simulation.
template <class Body> SimulatedRun simulate(int ranks, Body body, SimulatedTransport const& transport = {}) {
  auto endpoints = transport.connect(Group::all_local(ranks));
  return simulate(endpoints, std::move(body));
}

template <class Body>
std::vector<std::exception_ptr> SimulatedEndpoint::run(std::vector<SimulatedEndpoint>& all, Body body) {
  auto thrown = std::vector<std::exception_ptr>{};
  for (auto& end : simulate(all, std::move(body)).ranks) thrown.push_back(std::move(end.error));
  return thrown;
}

static_assert(RunsItsRanks<SimulatedEndpoint>);

}  // namespace chorale
