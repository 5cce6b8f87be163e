// SPDX-License-Identifier: Apache-2.0
#include "test/support/reference.hpp"

#include <chorale/reduce/own_thread.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using tiny::quietly;
using tiny::some;

TEST_CASE("buckets sent by a thread of their own give the same bits", "[trainer][own_thread]") {
  auto const replicas = GENERATE(1, 2, 3);
  auto with           = tiny::trainer(replicas, OwnThread<RingAllReduce>{});
  auto without        = tiny::trainer(replicas, RingAllReduce{});
  with.fit(some(40), quietly);
  without.fit(some(40), quietly);
  CHECK(with.hashes() == without.hashes());
}

TEST_CASE("a replica that fails ends the threads of the others too, and training goes on", "[trainer][own_thread]") {
  auto bad      = some(2);
  bad.rows.y[7] = 3;  // the network has classes 0 to 2
  auto trainer  = tiny::trainer(3, OwnThread<RingAllReduce>{});
  auto never    = tiny::trainer(3, RingAllReduce{});
  CHECK_THROWS_AS(trainer.fit(bad, quietly), BadArgument);
  trainer.fit(some(3), quietly);
  never.fit(some(3), quietly);
  CHECK(trainer.hashes() == never.hashes());
}
