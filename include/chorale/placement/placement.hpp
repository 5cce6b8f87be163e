// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace chorale {

/// Where the copies of one variable are stored, and which replicas write them. See OnOne, Mirrored, Central; over
/// several servers: RoundRobin, GreedyByBytes (sharded.hpp), Partitioned (partitioned.hpp).
template <class P>
concept Placement = requires {
  { P::copies_on(8) } -> std::same_as<int>;               // copies of a variable over 8 replicas
  { P::writes_everywhere } -> std::convertible_to<bool>;  // every replica applies the same update
};

namespace placement {

/// One copy, on the only device.
struct OnOne {
  static constexpr int copies_on(int) { return 1; }
  static constexpr bool writes_everywhere = false;
};

/// One copy on each replica; equal bits, because every replica applies the same update to the same bits.
struct Mirrored {
  static constexpr int copies_on(int replicas) { return replicas; }
  static constexpr bool writes_everywhere = true;
};

/// One copy: its owner alone writes it, all replicas read it.
///
/// source  tf.distribute.experimental.CentralStorageStrategy
struct Central {
  static constexpr int copies_on(int) { return 1; }
  static constexpr bool writes_everywhere = false;
};

}  // namespace placement
}  // namespace chorale
