// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/transport/network_model.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale {

/// The lines between ranks as four numbers, a type for constants: latency, bytes per second, bytes added up per second,
/// and the processor's time for a message.
struct LinkModel {
  double latency               = 10e-6;   // seconds, alpha
  double bytes_per_second      = 12.5e9;  // 1 / beta
  double fold_bytes_per_second = 20e9;    // 1 / gamma
  double overhead              = 0.5e-6;  // seconds, of each end of a message
};

/// The cost of an all-reduce by a flat algorithm: one whose cost does not depend on hosts.
///
/// throws  BadArgument for a hierarchical one; as a constant it does not compile
constexpr Cost cost_of(ReduceKind algorithm, int ranks, std::size_t bytes) {
  switch (algorithm) {
    case ReduceKind::recursive_doubling: return RecursiveDoublingAllReduce::cost(ranks, bytes);
    case ReduceKind::halving_doubling: return HalvingDoublingAllReduce::cost(ranks, bytes);
    case ReduceKind::double_tree: return DoubleTreeAllReduce::cost(ranks, bytes);
    case ReduceKind::ring: return RingAllReduce::cost(ranks, bytes);
    case ReduceKind::hierarchical: break;
  }
  throw BadArgument{"the cost of a hierarchical all-reduce depends on how many ranks a host has.", "predicted_time()."};
}

/// Estimates the seconds of an all-reduce among ranks with equal links, from the cost of its algorithm: a constant where
/// its arguments are. predicted_time() is closer, follows each message, and knows hosts and racks.
///
///   static_assert(estimated_choice(64, 1'000) == ReduceKind::recursive_doubling);
///
/// throws  BadArgument for a hierarchical one; as a constant it does not compile
/// source  Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005
constexpr double estimated_seconds(ReduceKind algorithm, int ranks, std::size_t bytes, LinkModel const& link = {}) {
  if (ranks == 1) return 0;
  auto const cost = cost_of(algorithm, ranks, bytes);
  auto const sent = static_cast<double>(cost.bytes);
  return cost.steps * (link.latency + 2 * link.overhead) + sent / link.bytes_per_second +
         sent / link.fold_bytes_per_second;  // what arrives is added up, or copied
}

/// The flat algorithm with the shortest estimate; of equal ones the first in all_advised.
constexpr ReduceKind estimated_choice(int ranks, std::size_t bytes, LinkModel const& link = {}) {
  auto best = ReduceKind::recursive_doubling;
  for (auto const one : all_advised)
    if (one != ReduceKind::hierarchical &&
        estimated_seconds(one, ranks, bytes, link) < estimated_seconds(best, ranks, bytes, link))
      best = one;
  return best;
}

/// The bytes in which the rank that needs most keeps messages of schedule S until it has added them up, for an x of
/// `bytes` bytes in elements of `element`: the memory that an all-reduce has beside x.
template <Schedule S>
constexpr std::size_t scratch_of(int ranks, std::size_t bytes, std::size_t element = sizeof(float)) {
  auto most = std::size_t{0};
  for (Rank rank = 0; rank < ranks; ++rank)
    most = std::max(most, scratch_bytes<S>(rank, ranks, bytes / element, element));
  return most;
}

}  // namespace chorale
