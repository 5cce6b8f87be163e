// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/trainer/whole_state.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::detail {

/// Compares variables that replicas have in parts: replicas with the same part have the same bits. Every process calls
/// it.
///
/// throws  NumericFault if they differ, the same on all ranks: it names replica and variable
/// cost    one pass over the variables, and one all_gather of 8 bytes for each variable and replica
template <class S, class L, class Copy> void expect_equal_parts(L& live, PerReplica<Copy>& copies) {
  auto const variables = copies[0].net.variables();
  auto const n         = variables.size();
  auto const replicas  = static_cast<std::size_t>(live.num_ranks());
  auto all             = std::vector<std::uint64_t>(replicas * n);  // 0: as most replicas with this part have it
  auto alike           = true;
  for (std::size_t i = 0; i < n; ++i) {
    auto hashes = PerReplica<std::uint64_t>(copies.size());
    live.run([&](auto&, Copy& copy, std::uint64_t& to) { to = hash_of(copy.net.variables()[i].value); }, copies,
             hashes);
    auto const each = live.gather(hashes);
    auto const part = [&](std::size_t r) { return part_of<S>(variables.plan[i].spec, static_cast<Rank>(r)); };
    for (std::size_t r = 0; r < replicas; ++r) {
      auto const like = [&](std::size_t one) {
        auto count = 0;
        for (std::size_t s = 0; s < replicas; ++s) count += part(s) == part(r) && each[s] == each[one] ? 1 : 0;
        return count;
      };
      auto most = replicas;  // the first one with the most frequent bits
      for (std::size_t s = 0; s < replicas; ++s)
        if (part(s) == part(r) && (most == replicas || like(s) > like(most))) most = s;
      all[r * n + i] = each[r] == each[most] ? 0 : each[r] | 1U;
      alike          = alike && all[r * n + i] == 0;
    }
  }
  if (!alike) throw_diverged(variables, all);
}

}  // namespace chorale::detail
