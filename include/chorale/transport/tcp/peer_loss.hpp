// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/abort_consensus.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Loses peers one by one, with FailureScope::peer. See Membership, which fails all ranks at once.
///
///   alive ──its connections end──▶ closed ──all that it had sent is received, or after Timeouts::dead──▶ lost
///     └────────────silent, stuck, damaged, or it reported that it failed────────────────────────────────▲
///
/// keeps   runs on one thread, that of the io_context. The loss is reported only to the lost rank, so that it stops
///         waiting if it lives; each of the two ranks then throws a PeerLost that names the other
class PeerLossPolicy {
 public:
  struct Host {
    std::function<void(Rank)> forget;  // stops watching the rank
    std::function<void(Rank, Loss const&)> tell;
    std::function<bool(Rank)> hears;        // true if its control connection is open
    std::function<std::string(Rank)> name;  // of its host
  };

  PeerLossPolicy(asio::io_context& io, Setup const& setup, ThreadSharedState& shared, Host host)
      : io_{io}, setup_{setup}, shared_{shared}, host_{std::move(host)},
        drained_(static_cast<std::size_t>(setup.size())) {}

  /// Closes a rank that sends nothing more; it is lost at once if all that it had sent was received.
  void end(Rank rank, std::string const& reason) {
    settle(rank, drained_[static_cast<std::size_t>(rank)] ? PeerState::lost : PeerState::closed, Fault::peer_lost,
           reason);
  }

  /// Loses a rank, and reports the loss to it unless its connections have ended.
  void part(Rank rank, Fault fault, std::string const& reason) {
    if (shared_.fate(rank) == PeerState::lost) return;
    auto const known = shared_.fate(rank) == PeerState::closed;
    settle(rank, PeerState::lost, fault, reason);
    if (!known) host_.tell(rank, AbortConsensus::as_sent(shared_.loss_of(rank)));
  }

  /// Reports that the working thread could not use its connection to a rank.
  ///
  /// fate    closed: messages that the rank had sent may still be received
  void suspect(Rank rank, detail::ConnectionFault const& fault, PeerState fate) {
    auto const give_up = [this, rank, fault, fate] {
      if (fate == PeerState::closed) end(rank, fault.reason);
      else part(rank, fault.fault, fault.reason);
    };
    if (fate == PeerState::lost) drained_[static_cast<std::size_t>(rank)] = true;
    if (fault.fault != Fault::peer_lost || !host_.hears(rank) || shared_.fate(rank) != PeerState::alive) give_up();
    else later(for_evidence, give_up);
  }

  /// Receives a rank's report that it has failed, or has lost this rank.
  void hear(Rank rank, Loss const& loss) {
    auto const about_me = loss.rank == setup_.me() && loss.fault != Fault::collective_mismatch;
    settle(rank, PeerState::lost, about_me ? Fault::evicted : loss.fault,
           about_me ? "it went on without rank " + std::to_string(setup_.me()) + ": " + loss.reason : loss.reason);
  }

 private:
  static constexpr auto for_evidence = std::chrono::milliseconds{50};  // a report of that rank, or its end

  void settle(Rank rank, PeerState fate, Fault fault, std::string const& reason) {
    host_.forget(rank);
    shared_.decide(rank, fate, shared_.loss(fault, rank, host_.name(rank), reason));
    if (fate == PeerState::closed)
      later(setup_.timeouts.dead, [this, rank] { shared_.decide(rank, PeerState::lost, {}); });
  }

  template <class F> void later(std::chrono::nanoseconds duration, F f) {
    auto const timer = std::make_shared<asio::steady_timer>(io_, duration);
    timer->async_wait([timer, f = std::move(f)](auto stopped) {
      if (!stopped) f();
    });
  }

  asio::io_context& io_;
  Setup const& setup_;
  ThreadSharedState& shared_;
  Host host_;
  std::vector<bool> drained_;  // [rank]: all that it had sent is received
};

}  // namespace chorale::tcp
