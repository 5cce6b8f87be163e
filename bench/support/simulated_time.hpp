// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/support/weightless.hpp"

#include <chorale/advice/advise.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/simulated/two_level_endpoint.hpp>

#include <cstddef>

namespace bench {

/// Time of one all-reduce of float by this algorithm, as the simulator measures it; no memory is touched.
///
/// bytes    of each rank
/// model    of the network; for ReduceKind::hierarchical also the ranks of a host
/// throws   what the simulation found
inline chorale::VirtualTime simulated_time(chorale::ReduceKind algorithm, int ranks, std::size_t bytes,
                                           chorale::NetworkModel const& model) {
  using namespace chorale;
  auto const nowhere = UnmappedMemory{bytes / 4};
  auto const x       = nowhere.span();
  return simulate(ranks,
                  [&](SimulatedEndpoint& at) {
                    switch (algorithm) {
                      case ReduceKind::recursive_doubling:
                        return RecursiveDoublingAllReduce{}.all_reduce(at, x, Op::sum);
                      case ReduceKind::halving_doubling: return HalvingDoublingAllReduce{}.all_reduce(at, x, Op::sum);
                      case ReduceKind::double_tree: return DoubleTreeAllReduce{}.all_reduce(at, x, Op::sum);
                      case ReduceKind::ring: return RingAllReduce{}.all_reduce(at, x, Op::sum);
                      case ReduceKind::hierarchical: break;
                    }
                    auto layers = TwoLevelEndpoint{at, model.ranks_per_host};
                    HierarchicalAllReduce{}.all_reduce(layers, x, Op::sum);
                  },
                  {.model = model, .payload = SimulatedPayload::sizes})
      .check()
      .time;
}

}  // namespace bench
