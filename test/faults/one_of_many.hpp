// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/chorale.hpp>

#include <vector>

namespace chorale::test {

/// Synchronous data parallelism, of which this process is one rank.
struct OneOfMany {
  using device                             = Cpu;
  using placement                          = chorale::placement::Mirrored;
  static constexpr bool reduces_every_step = true;

  int ranks;
  Rank rank;

  int num_replicas() const { return ranks; }
  Group group() const { return {ranks, {rank}}; }
  std::vector<Cpu> local_devices() const { return Cpu::logical(1); }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);
    model.optimizer.apply(model.net.variables(), gradients);
  }
};

}  // namespace chorale::test
