// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace chorale {

/// How long to wait for what, on every transport between processes. All on the steady clock of each host; no clock is
/// ever compared with another host's.
///
///   silence       no heartbeat and no byte from a rank: a warning after warn_silent, a fault after dead
///   no progress   heartbeats come, but the operation moves no byte: a warning after warn_stuck, a fault after stuck.
///                 With FailureScope::peer, a rank that waits itself gets twice the time; one that only polls, no limit
struct Timeouts {
  std::chrono::nanoseconds heartbeat   = std::chrono::seconds{1};          // sent this often, by a thread of its own
  std::chrono::nanoseconds warn_silent = std::chrono::seconds{2};
  std::chrono::nanoseconds dead        = std::chrono::seconds{5};
  std::chrono::nanoseconds warn_stuck  = std::chrono::seconds{10};
  std::chrono::nanoseconds stuck       = std::chrono::seconds{60};
  std::chrono::nanoseconds handshake   = std::chrono::seconds{5};          // from a connection to an accepted rank
  std::chrono::nanoseconds join        = std::chrono::seconds{600};        // from connect() until all ranks are there
};

/// Whom the loss of a rank concerns.
///
///   group   all: every operation of every rank then throws the same first cause. For collectives, which need all
///   peer    who talks to it: only operations with that rank throw, all others go on. For servers and their workers
enum class FailureScope { group, peer };

}  // namespace chorale
