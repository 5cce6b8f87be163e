// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <chorale/reduce/own_thread.hpp>

#include <catch2/catch.hpp>

using namespace chorale;

namespace {

template <class R>
auto trainer_of(int replicas, R reduce) {
  return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                 MirroredStrategy{Cpu::logical(replicas)}, reduce, LocalTransport{}, 7};
}

tiny::Batches<int> some(std::size_t batches) {
  return {tiny::batch<int>(batches * 12, 64, 1), std::vector<std::size_t>(batches, 12)};
}

constexpr auto quietly = FitOptions{.show = Show::nothing};

}  // namespace

TEST_CASE("buckets sent by a thread of their own give the same bits", "[trainer][own_thread]") {
  auto const replicas = GENERATE(1, 2, 3);
  auto with           = trainer_of(replicas, OwnThread<RingAllReduce>{});
  auto without        = trainer_of(replicas, RingAllReduce{});
  with.fit(some(40), quietly);
  without.fit(some(40), quietly);
  CHECK(with.hashes() == without.hashes());
}

TEST_CASE("a replica that fails ends the threads of the others too, and training goes on", "[trainer][own_thread]") {
  auto bad      = some(2);
  bad.rows.y[7] = 3;                                                       // the network has classes 0 to 2
  auto trainer  = trainer_of(3, OwnThread<RingAllReduce>{});
  auto never    = trainer_of(3, RingAllReduce{});
  CHECK_THROWS_AS(trainer.fit(bad, quietly), BadArgument);
  trainer.fit(some(3), quietly);
  never.fit(some(3), quietly);
  CHECK(trainer.hashes() == never.hashes());
}
