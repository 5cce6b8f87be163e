// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace chorale {

/// The pairs of ranks that have a data connection. Every pair has a control connection, whatever the topology.
///
///   TcpTransport{.topology = Topology::ring()}                    rank r with r - 1 and r + 1
///   TcpTransport{.topology = topology_of<TreeAllReduce>()}        what a schedule uses: see reduce/topology.hpp
///
/// keeps   the same on all ranks of a job: they compare it at the rendezvous
struct Topology {
  /// Called with two different ranks: they are connected if it is true in either order.
  bool (*between)(Rank a, Rank b, int ranks) = [](Rank, Rank, int) { return true; };

  static constexpr Topology all_pairs() { return {}; }
  static constexpr Topology ring() {
    return {[](Rank a, Rank b, int ranks) { return (a + 1) % ranks == b; }};
  }

  constexpr bool connects(Rank a, Rank b, int ranks) const {
    return a != b && (between(a, b, ranks) || between(b, a, ranks));
  }

  /// Number of connected pairs, of P (P-1) / 2 in all.
  constexpr std::size_t pairs(int ranks) const {
    auto n = std::size_t{0};
    for (Rank a = 0; a < ranks; ++a)
      for (Rank b = 0; b < a; ++b) n += connects(a, b, ranks) ? 1 : 0;
    return n;
  }

  /// Returns a text such as "links 8 of 28 pairs, number 2166136261"; the number is a hash of the connected pairs.
  std::string text(int ranks) const {
    auto hash = Fnv1a<std::uint32_t>{};
    for (Rank a = 0; a < ranks; ++a)
      for (Rank b = 0; b < a; ++b) hash.add(connects(a, b, ranks) ? 1 : 0, 1);
    return "links " + std::to_string(pairs(ranks)) + " of " + std::to_string(of(ranks)) + " pairs, number " +
           std::to_string(hash.value());
  }

  /// Number of all pairs of that many ranks.
  static constexpr std::size_t of(int ranks) {
    return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1) / 2;
  }
};

}  // namespace chorale
