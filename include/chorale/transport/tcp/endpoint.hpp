// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/tcp/progress_engine.hpp>
#include <chorale/transport/transport.hpp>
#include <chorale/transport/wire/encryption.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace chorale {

/// Endpoint of one rank of a TcpTransport or a SealedTcpTransport.
///
/// The thread that uses it moves the bytes, whenever it sends, polls or waits; one thread at a time, see OwnerThread. A
/// control thread sends heartbeats to the other ranks, and detects their failures.
///
/// keeps   64 messages to each rank may wait for the socket before send() waits; 1024 receives from each rank may be
///         posted before recv() waits; 1024 operations may be in flight. A message is sent from the caller's memory and
///         received into it without another copy, and is done when the system has taken all of it; nothing is allocated
///         after connect(), unless more than 64 receives are posted for the first time. Only an unexpected message that
///         another overtakes is copied, up to 64 MiB from each rank. An endpoint may be moved while operations are in
///         flight
/// cost    a header of 64 bytes for every 256 KiB of a message, and a checksum of all bytes
/// throws  BadArgument when another thread uses it while operations are in flight; PeerLost when a rank has ended, is
///         silent or stuck for too long, or sends damaged bytes; Disagreement when ranks are in different operations.
///         The root cause is the same on all live ranks, and every operation throws it from then on. With
///         FailureScope::peer, only operations with that rank throw it, and it is reported to that rank; messages that
///         the rank had sent before it ended are still received
template <wire::Protection P> class BasicTcpEndpoint {
 public:
  class pending;

  explicit BasicTcpEndpoint(std::unique_ptr<tcp::ProgressEngine<P>> node) : node_{std::move(node)} {}

  Rank rank() const { return node_->rank(); }
  int size() const { return node_->size(); }

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);

  /// See chorale::announce().
  void announce(Operation const& operation) {
    auto const use = node_->use();
    node_->announce(operation);
  }
  void announce(Operation const& operation, SubGroup const& group) {
    auto const use = node_->use();
    node_->announce(operation, group);
  }

  /// See chorale::begin_step().
  void begin_step(std::uint64_t step) { node_->begin_step(step); }

  /// Ends every wait of every rank, with FailureScope::peer every wait for this rank, with a PeerLost that names this
  /// rank and the reason. Its own operations throw it, too.
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { node_->fail(why, fault); }

  /// See chorale::listen().
  void listen(bool on) { node_->listen(on); }

  /// See chorale::close().
  void close() {
    auto const use = node_->use();
    node_->close();
  }

  /// True if nothing can be received from that rank any more, or from any rank. Does not throw.
  bool lost(Rank peer) const {
    expect_rank(peer);
    return node_->lost(peer);
  }

  /// Waits until any message has moved since the last call, or a rank is lost; false if the time is over first. For a
  /// thread that serves many ranks: meanwhile, this rank reports no other as stuck.
  bool wait_any(std::chrono::nanoseconds longest) {
    auto const use = node_->use();
    return node_->wait_any(longest);
  }

 private:
  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }

  std::unique_ptr<tcp::ProgressEngine<P>> node_;
};

/// A message in flight.
template <wire::Protection P> class BasicTcpEndpoint<P>::pending {
 public:
  pending() = default;

  /// True if the message is done. Throws PeerLost, Disagreement, BadArgument.
  bool done() {
    if (kind_ == Kind::done) return true;
    auto const use = node_->use();
    if (!node_->look(peer_, way(), operation(), [this] { return over(); })) return false;
    kind_ = Kind::done;
    return true;
  }

  void wait() {
    if (kind_ == Kind::done) return;
    auto const use = node_->use();
    node_->wait_until(peer_, way(), operation(), [this] { return over(); });
    kind_ = Kind::done;
  }

 private:
  friend BasicTcpEndpoint;
  enum class Kind { done, send, recv, send_to_self, recv_from_self };

  pending(Kind kind, tcp::ProgressEngine<P>& node, Rank peer, int place, std::uint64_t turn)
      : kind_{kind}, peer_{peer}, place_{place}, turn_{turn}, node_{&node} {}

  tcp::Direction way() const {
    return kind_ == Kind::send || kind_ == Kind::send_to_self ? tcp::Direction::out : tcp::Direction::in;
  }

  /// Number of the operation that the message waits in, while it is not over; 0 for none.
  std::uint64_t operation() const {
    if (kind_ == Kind::recv) return node_->inbox(peer_).operation(place_);
    return kind_ == Kind::send && !over() ? node_->outbox(peer_).operation() : 0;
  }

  bool over() const {
    switch (kind_) {
      case Kind::send: return node_->outbox(peer_).sent(turn_);
      case Kind::recv: return node_->inbox(peer_).received(place_, turn_);
      case Kind::send_to_self: return node_->self().sends.is_over(place_, turn_);
      case Kind::recv_from_self: return node_->self().recvs.is_over(place_, turn_);
      case Kind::done: break;
    }
    return true;
  }

  Kind kind_                    = Kind::done;
  Rank peer_                    = 0;
  int place_                    = 0;
  std::uint64_t turn_           = 0;  // of the place; for a send, its number
  tcp::ProgressEngine<P>* node_ = nullptr;
};

template <wire::Protection P> auto BasicTcpEndpoint<P>::send(Rank peer, Tag tag, ConstBytes out) -> pending {
  expect_rank(peer);
  auto const use = node_->use();
  if (peer != rank()) return {pending::Kind::send, *node_, peer, 0, node_->send(peer, tag, out)};
  auto const place = node_->send_to_self(tag, out);
  return {pending::Kind::send_to_self, *node_, peer, place, node_->self().sends[place].turn};
}

template <wire::Protection P> auto BasicTcpEndpoint<P>::recv(Rank peer, Tag tag, Bytes in) -> pending {
  expect_rank(peer);
  auto const use = node_->use();
  if (peer == rank()) {
    auto const place = node_->recv_from_self(tag, in);
    return {pending::Kind::recv_from_self, *node_, peer, place, node_->self().recvs[place].turn};
  }
  auto const place = node_->recv(peer, tag, in);
  return {pending::Kind::recv, *node_, peer, place, node_->inbox(peer).turn(place)};
}

using TcpEndpoint = BasicTcpEndpoint<wire::Plain>;

}  // namespace chorale
