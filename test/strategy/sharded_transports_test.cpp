// SPDX-License-Identifier: Apache-2.0
//
// ShardedStrategy over transports that reach other processes, ranks as threads; and over workers with several devices.
#include "test/strategy/sharded.hpp"

#include <chorale/strategy/sharded.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace sharded_test;

TEST_CASE("over messages shards learn the bits of one replica", "[strategy][sharded][tcp]") {
  auto const model = odd(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.5F});
  auto const one   = on_one(model, Reproducible<8>{});
  for (int const world : {1, 2, 3, 4, 5, 7}) {
    CAPTURE(world);
    auto const strategy = ShardedStrategy<Zero::one>{Cluster::local(world), Cpu::logical(1)};
    CHECK(learned(model, strategy, Reproducible<8>{}, SharedMemoryTransport{}) == one);
    CHECK(learned(model, strategy, Reproducible<8>{}, TcpTransport{}) == one);
    CHECK(apart(learned(model, strategy, DirectAllReduce{}, SharedMemoryTransport{}), one) < 1e-5);
  }
  auto const two_each = ShardedStrategy<Zero::one>{Cluster::local(2), Cpu::logical(2)};
  REQUIRE(two_each.num_replicas() == 4);
  CHECK(learned(model, two_each, Reproducible<8>{}, LocalTransport{}) == one);
  CHECK(apart(learned(model, two_each, OwnThread<RingAllReduce>{}, TcpTransport{}), one) < 1e-5);
  CHECK(apart(learned(model, two_each, RingAllReduce{}, Layered<LocalTransport, LocalTransport>{.ranks_per_node = 2}),
              one) < 1e-5);
}
