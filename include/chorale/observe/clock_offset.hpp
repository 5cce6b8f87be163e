// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>

#include <chrono>

namespace chorale {

/// One exchange of clock times: this process's clock at the request and at the reply, and the peer's when it answered.
struct Ping {
  std::chrono::nanoseconds sent, answered, received;  // since the epochs of the steady clocks
};

/// The offset that, added to the steady clock of this process, gives rank 0's.
///
///   ours      sent ────────── here + offset = answered ────────── received
///   theirs               answered
///
/// keeps   the true offset is within offset ± error, while neither clock drifts
struct ClockOffset {
  std::chrono::nanoseconds offset{0}, error{0};

  /// Computes the offset from the fastest of a few pings: a slow ping was delayed in one direction, unknown which.
  ///
  /// throws  BadArgument without a ping, or when a reply is received before its request was sent
  /// source  Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989
  static ClockOffset of(Span<Ping const> pings) {
    CHORALE_EXPECTS(!pings.empty(), "an offset between clocks needs at least one ping");
    auto best    = ClockOffset{};
    auto fastest = std::chrono::nanoseconds::max();
    for (auto const& ping : pings) {
      auto const trip = ping.received - ping.sent;
      CHORALE_EXPECTS(trip.count() >= 0, "a ping was received before it was sent");
      if (trip >= fastest) continue;
      fastest = trip;
      best    = {ping.answered - ping.sent - trip / 2, (trip + std::chrono::nanoseconds{1}) / 2};
    }
    return best;
  }
};

}  // namespace chorale
