// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorale::detail {

/// Throws NumericFault, which names the variable and, if a majority agrees, the replica whose copy differs.
///
/// hashes  (replicas, variables), of all replicas in the order of ranks
[[noreturn]] inline void throw_diverged(Variables const& variables, Span<std::uint64_t const> hashes) {
  auto const n        = variables.size();
  auto const replicas = hashes.size() / n;
  auto const of       = [&](std::size_t replica, std::size_t i) { return hashes[replica * n + i]; };
  auto const likes    = [&](std::size_t replica, std::size_t i) {
    auto count = std::size_t{0};
    for (std::size_t r = 0; r < replicas; ++r) count += of(r, i) == of(replica, i) ? 1 : 0;
    return count;
  };
  auto const what_to_try = "the memory of that host, or a step of one's own that differs between replicas.";
  for (std::size_t i = 0; i < n; ++i) {
    auto least = std::size_t{0};
    for (std::size_t r = 1; r < replicas; ++r)
      if (likes(r, i) < likes(least, i)) least = r;
    if (likes(least, i) == replicas) continue;
    auto const name = std::string{variables[i].name};
    if (2 * likes(least, i) < replicas)
      throw NumericFault{"replicas have drifted apart: " + name + " of replica " + std::to_string(least) +
                             " is not that of " + std::to_string(replicas - likes(least, i)) + " of the " +
                             std::to_string(replicas) + " replicas.", what_to_try};
    throw NumericFault{"replicas have drifted apart: " + name + " is not the same on all " + std::to_string(replicas) +
                           " replicas, and no majority says whose is right.", what_to_try};
  }
  throw NumericFault{"replicas have drifted apart: they differ between their variables.", what_to_try};
}

}  // namespace chorale::detail
