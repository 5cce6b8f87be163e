// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace chorale {

/// Which pairs of ranks have a connection for data. For control all pairs have one, whatever this says.
///
///   TcpTransport{.topology = Topology::ring()}                    rank r with r - 1 and r + 1
///   TcpTransport{.topology = topology_of<TreeAllReduce>()}        what a schedule uses: see reduce/topology.hpp
///
/// keeps   the same on all ranks of a job: they compare it when they meet
struct Topology {
  /// Asked for two different ranks, in either order; one yes is enough.
  bool (*between)(Rank a, Rank b, int ranks) = [](Rank, Rank, int) { return true; };

  static constexpr Topology all_pairs() { return {}; }
  static constexpr Topology ring() {
    return {[](Rank a, Rank b, int ranks) { return (a + 1) % ranks == b; }};
  }

  constexpr bool connects(Rank a, Rank b, int ranks) const {
    return a != b && (between(a, b, ranks) || between(b, a, ranks));
  }

  /// Pairs that are connected, of the P (P-1) / 2 that there are.
  constexpr std::size_t pairs(int ranks) const {
    auto n = std::size_t{0};
    for (Rank a = 0; a < ranks; ++a)
      for (Rank b = 0; b < a; ++b) n += connects(a, b, ranks) ? 1 : 0;
    return n;
  }

  /// links 8 of 28 pairs, number 2166136261: other links have other numbers.
  std::string text(int ranks) const {
    auto hash = Fnv1a<std::uint32_t>{};
    for (Rank a = 0; a < ranks; ++a)
      for (Rank b = 0; b < a; ++b) hash.add(connects(a, b, ranks) ? 1 : 0, 1);
    return "links " + std::to_string(pairs(ranks)) + " of " + std::to_string(of(ranks)) + " pairs, number " +
           std::to_string(hash.value());
  }

  /// All pairs of so many ranks.
  static constexpr std::size_t of(int ranks) {
    return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1) / 2;
  }
};

}  // namespace chorale
