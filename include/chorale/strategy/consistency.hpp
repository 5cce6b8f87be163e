// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace chorale {

/// Consistency of a parameter server: when it applies pushes, and for which other workers a worker waits.
///
///   rounds      clock c of a worker is its c-th push. Round c sums the pushes of clock c of all workers, in pairs in
///               their order, and is one update; rounds are applied in order
///   staleness   a worker begins clock c when round c - 1 - staleness has been applied
///   spares      workers that a round does not wait for
///
/// keeps   when a worker is lost or leaves, rounds use what it had pushed in full, and then go on without it
/// source  one core for all: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
///         server", NIPS 2013
template <class C>
concept Consistency = requires {
  { C::rounds } -> std::convertible_to<bool>;
  { C::staleness } -> std::convertible_to<int>;
  { C::spares } -> std::convertible_to<int>;
};

/// No rounds: every push is an update by itself, as soon as it has arrived in full. No worker waits for another.
///
/// source  Dean et al., "Large scale distributed deep networks", NIPS 2012
struct Asynchronous {
  static constexpr bool rounds   = false;
  static constexpr int staleness = 0, spares = 0;
};

/// Rounds; a worker computes on values that lack at most k of them. BoundedStaleness<0> gives the bits of Synchronous.
template <int k> struct BoundedStaleness {
  static_assert(k >= 0, "chorale: BoundedStaleness<k> needs k of at least 0");
  static constexpr bool rounds   = true;
  static constexpr int staleness = k, spares = 0;
};

/// Rounds; every worker computes on the values after the last one.
///
/// order   the bits depend on the number of workers, not on the number of servers, nor on which worker is faster
struct Synchronous {
  static constexpr bool rounds   = true;
  static constexpr int staleness = 0, spares = 0;
};

/// Rounds that close with the first W - b of W workers. A push that comes later for a round is dropped and counted, and
/// the mean is over the rows that came in time.
///
/// keeps   at least one worker is waited for, else the server refuses to start
/// source  Chen et al., "Revisiting distributed synchronous SGD", 2016
template <int b> struct BackupWorkers {
  static_assert(b >= 0, "chorale: BackupWorkers<b> needs b of at least 0");
  static constexpr bool rounds   = true;
  static constexpr int staleness = 0, spares = b;
};

static_assert(Consistency<Asynchronous> && Consistency<BoundedStaleness<3>> && Consistency<Synchronous> &&
              Consistency<BackupWorkers<1>>);

}  // namespace chorale
