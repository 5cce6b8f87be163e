// learner_in_units.cpp   expect: chorale: under ShardedStrategy<Zero::two> and <Zero::three> the layers of a network take turns in a few buffers, and a model without layers reads any variable at any time. Use ShardedStrategy<Zero::one>, or a network of nn
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto create() {
  auto live = Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(custom_model<Batch>(
      {{"slope", {1}}},
      [](auto& step, auto const& batch) {
        for (std::size_t r = 0; r < batch.rows; ++r) step.gradient(0)[0] += batch.x[r];
        return 0.0F;
      },
      optim::Adam{}));
}
