// learner_in_shards.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto create() {
  auto live = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(custom_model<Batch>(
      {{"slope", {1}}},
      [](auto& step, auto const& batch) {
        for (std::size_t r = 0; r < batch.rows; ++r) step.gradient(0)[0] += batch.x[r];
        return 0.0F;
      },
      optim::Adam{}));
}
