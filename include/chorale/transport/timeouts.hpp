// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace chorale {

/// Timeouts of every transport between processes. All are measured by the steady clock of each host; no clock is ever
/// compared with another host's.
///
///   silence       no heartbeat and no byte from a rank: a warning after warn_silent, a fault after dead
///   no progress   heartbeats come, but the operation moves no byte: a warning after warn_stuck, a fault after stuck.
///                 With FailureScope::peer, a rank gets twice the time while it waits, and no limit while it only polls
struct Timeouts {
  std::chrono::nanoseconds heartbeat   = std::chrono::seconds{1};  // sent this often, by a separate thread
  std::chrono::nanoseconds warn_silent = std::chrono::seconds{2};
  std::chrono::nanoseconds dead        = std::chrono::seconds{5};
  std::chrono::nanoseconds warn_stuck  = std::chrono::seconds{10};
  std::chrono::nanoseconds stuck       = std::chrono::seconds{60};
  std::chrono::nanoseconds handshake   = std::chrono::seconds{5};    // from a connection to an accepted rank
  std::chrono::nanoseconds join        = std::chrono::seconds{600};  // from connect() until all have joined
};

/// The operations that fail when a rank is lost.
///
///   group   all: every operation of every rank then throws the same root cause. For collectives, which need all
///   peer    those with that rank: only these throw, all others go on. For servers and their workers
enum class FailureScope { group, peer };

}  // namespace chorale
