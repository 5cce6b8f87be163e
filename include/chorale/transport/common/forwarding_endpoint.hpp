// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/transport.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Reports that this rank calls no more operations, and returns when all ranks have reported it. To be called by a
/// program whose last operation only sends on some ranks, as a reduce does on its leaves: such a rank has returned
/// before another rank can have compared the operation.
///
/// keeps   the endpoint may then only be destroyed. Without close(), ranks end one by one, and of two that were in
///         different operations only a rank that still waits throws. Does nothing if the endpoint has no close(), or
///         with FailureScope::peer
/// throws  Disagreement on all ranks when two have not called the same operations; PeerLost
template <Endpoint E> void close(E& at) {
  if constexpr (requires { at.close(); }) at.close();
}

/// Endpoint that forwards every call to an inner one. A decorator inherits it, and hides the calls that it changes.
///
/// keeps   the abilities of the inner endpoint: announcements, access in place, an arena. Its native collectives and
///         the layers of a Layered are not forwarded, because a decorator would not see their messages
template <Endpoint E> class ForwardingEndpoint {
 public:
  using pending = typename E::pending;

  explicit ForwardingEndpoint(E at) : at_{std::move(at)} {}

  Rank rank() const { return at_.rank(); }
  int size() const { return at_.size(); }

  pending send(Rank peer, Tag tag, ConstBytes out) { return at_.send(peer, tag, out); }
  pending recv(Rank peer, Tag tag, Bytes in) { return at_.recv(peer, tag, in); }

  pending expose(Tag tag, Bytes mine) requires DirectAccessEndpoint<E> { return at_.expose(tag, mine); }
  Bytes peer(Rank rank, Tag tag) requires DirectAccessEndpoint<E> { return at_.peer(rank, tag); }
  pending leave(Tag tag) requires DirectAccessEndpoint<E> { return at_.leave(tag); }
  auto hold(std::size_t bytes) requires DirectAccessEndpoint<E> { return at_.hold(bytes); }
  Bytes memory() requires requires(E& at) { at.memory(); } { return at_.memory(); }

  void announce(Operation const& operation) { chorale::announce(at_, operation); }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<E> {
    at_.announce(operation, group);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(at_, step); }
  void close() { chorale::close(at_); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { chorale::fail(at_, why, fault); }
  void listen(bool on) { chorale::listen(at_, on); }
  bool lost(Rank rank) const requires requires(E const& at) { at.lost(rank); } { return at_.lost(rank); }
  bool wait_any(std::chrono::nanoseconds longest) { return chorale::rest(at_, longest); }

  // For ranks that are not threads, whose endpoints are handles.

  void wake_all() requires RunsItsRanks<E> { at_.wake_all(); }
  auto now() const requires RunsItsRanks<E> { return at_.now(); }
  template <std::derived_from<ForwardingEndpoint> D, class Body>
  static std::vector<std::exception_ptr> run(std::vector<D>& all, Body body) requires RunsItsRanks<E> {
    auto inner = std::vector<E>{};
    for (auto const& one : all) inner.push_back(one.at_);
    return E::run(inner, [&](E& at) { body(all[static_cast<std::size_t>(at.rank())]); });
  }

 protected:
  E at_;
};

}  // namespace chorale
