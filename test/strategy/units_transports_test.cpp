// SPDX-License-Identifier: Apache-2.0
//
// Units over transports that reach other processes, ranks as threads; and over workers with several devices.
#include "test/strategy/units.hpp"

#include <chorale/strategy/sharded.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace units_test;

TEMPLATE_TEST_CASE_SIG("over messages units learn the bits of one replica", "[strategy][units][tcp]",
                       ((Zero zero), zero), Zero::two, Zero::three) {
  auto const data  = OddBatches{};
  auto const model = odd_net(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F});
  auto const one   = on_one(model, Reproducible<8>{}, data);
  for (int const world : {1, 2, 3, 4, 5, 7}) {
    CAPTURE(world);
    auto const strategy = ShardedStrategy<zero>{Cluster::local(world), Cpu::logical(1)};
    CHECK((learned(model, strategy, Reproducible<8>{}, SharedMemoryTransport{}, data) == one));
    CHECK((learned(model, strategy, Reproducible<8>{}, TcpTransport{}, data) == one));
  }
  auto const two_each = ShardedStrategy<zero>{Cluster::local(2), Cpu::logical(2)};
  REQUIRE(two_each.num_replicas() == 4);
  CHECK(sharded_test::apart(learned(model, two_each, RingAllReduce{}, TcpTransport{}, data), one) < 1e-5);
  CHECK(sharded_test::apart(learned(model, two_each, RingAllReduce{}, SharedMemoryTransport{}, data), one) < 1e-5);
  CHECK(sharded_test::apart(learned(model, two_each, DirectAllReduce{}, SharedMemoryTransport{}, data), one) < 1e-5);
  CHECK(sharded_test::apart(learned(model, two_each, RingAllReduce{},
                                    Layered<LocalTransport, LocalTransport>{.ranks_per_node = 2}, data),
                            one) < 1e-5);
}
