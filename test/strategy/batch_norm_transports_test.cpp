// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization over all replicas, where ranks are connected in other ways, and with gradients in many buckets.
#include "test/strategy/batch_norm.hpp"

#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using norm::check_like_one, norm::learner, norm::SyncNet, norm::uneven, norm::watched;

TEST_CASE("replicas normalize together over any transport, and when another thread sends", "[strategy][batch_norm]") {
  auto const devices = Cpu::logical(3);
  check_like_one(learner<SyncNet>(MultiWorkerMirroredStrategy{Cluster::local(2), Cpu::logical(2)}));
  check_like_one(learner<SyncNet>(MirroredStrategy{devices}, OwnThread<RingAllReduce>{}));
  check_like_one(learner<SyncNet>(MirroredStrategy{devices}, RingAllReduce{}, TcpTransport{}));
  check_like_one(learner<SyncNet>(MirroredStrategy{devices}, OwnThread<TreeAllReduce>{}, TcpTransport{}));
  check_like_one(learner<SyncNet>(MirroredStrategy{devices}, DirectAllReduce{}, SharedMemoryTransport{}));
}

namespace {

/// Gradients of several buckets in front of, between and behind two normalizations.
struct Buckets : nn::Sequential<nn::Input<64>, nn::Dense<320>, nn::Tanh, nn::Dense<320>, nn::SyncBatchNorm<>, nn::Tanh,
                                nn::Dense<320>, nn::SyncBatchNorm<>, nn::Tanh, nn::Dense<320>, nn::Tanh, nn::Dense<3>> {
};

}  // namespace

TEST_CASE("buckets of gradients and sums of layers have one order on all replicas", "[strategy][batch_norm]") {
  static_assert(Buckets::plan.buckets >= 4);
  auto data  = uneven();
  data.sizes = {16, 13, 16, 1, 17};
  auto one   = learner<Buckets>(MirroredStrategy{Cpu::logical(1)});
  one.fit(data, watched);
  auto const check = [&](auto trainer) {
    trainer.fit(data, watched);
    for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
    CHECK(norm::difference(Buckets::plan.variables, tiny::values_of(trainer), tiny::values_of(one)) < 1e-5);
  };
  auto const three = MirroredStrategy{Cpu::logical(3)};
  check(learner<Buckets>(three));
  check(learner<Buckets>(three, DirectAllReduce{}));
  check(learner<Buckets>(three, RingAllReduce{}, TcpTransport{}));
  check(learner<Buckets>(three, OwnThread<RingAllReduce>{}, TcpTransport{}));
}
