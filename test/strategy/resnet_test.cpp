// SPDX-License-Identifier: Apache-2.0
//
// The blocks of ResNet-20 with few channels, over replicas and workers, against one replica with the whole batch.
#include "test/strategy/batch_norm.hpp"

#include <chorale/nn/networks/resnet.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace resnet_test {

using namespace chorale;

namespace {

using Synced  = nn::resnet::ResNet20<10, 4, nn::SyncBatchNorm<nn::Momentum<90>, nn::Epsilon<10>>>;
using Shared  = nn::resnet::ResNet20<10, 4>;
using Learned = std::pair<std::vector<float>, std::vector<std::uint64_t>>;  // variables; a hash for each replica

/// What replicas have after three batches, of which not all can be divided by their number.
template <class Net, class S, class R = RingAllReduce, class T = LocalTransport>
Learned learned(S strategy, R reduce = {}, T transport = {}) {
  auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const rule  = optim::SGD{
       .learning_rate = 0.02F, .momentum = 0.9F, .weight_decay = 1e-4F, .decay = optim::SGD::Decay::in_gradient};
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{},
                                          optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}}),
                         std::move(strategy), reduce, transport, 7};
  trainer.fit(tiny::Batches<int>{tiny::batch<int>(20, 32 * 32 * 3, 1), {8, 7, 5}}, norm::watched);
  return {tiny::values_of(trainer), trainer.hashes()};
}

void check_near(Learned const& many, std::size_t replicas) {
  static auto const one = learned<Synced>(OneDeviceStrategy{Cpu::logical(1)[0]});
  CHECK(many.second == std::vector(replicas, many.second.at(0)));
  CHECK(norm::difference(Synced::plan.variables, many.first, one.first) < 1e-5);
}

}  // namespace

TEST_CASE("replicas of a ResNet-20 that normalize together learn what one learns", "[strategy][batch_norm]") {
  auto const replicas = GENERATE(1, 2, 3);
  check_near(learned<Synced>(MirroredStrategy{Cpu::logical(replicas)}), static_cast<std::size_t>(replicas));
}

TEST_CASE("workers of a ResNet-20 learn what one replica learns, over threads and TCP", "[strategy][batch_norm]") {
  auto const workers  = GENERATE(2, 3);
  auto const strategy = MultiWorkerMirroredStrategy{Cluster::local(workers), Cpu::logical(1)};
  check_near(learned<Synced>(strategy), static_cast<std::size_t>(workers));
  check_near(learned<Synced>(strategy, RingAllReduce{}, TcpTransport{}), static_cast<std::size_t>(workers));
}

TEST_CASE("a ResNet-20 that normalizes shards has the same bits on any replicas", "[strategy][batch_norm]") {
  auto const one = learned<Shared>(MirroredStrategy{Cpu::logical(1)}, Reproducible<4>{});
  for (auto const replicas : {2, 3}) {
    CHECK(learned<Shared>(MirroredStrategy{Cpu::logical(replicas)}, Reproducible<4>{}).first == one.first);
    auto const workers = MultiWorkerMirroredStrategy{Cluster::local(replicas), Cpu::logical(1)};
    CHECK(learned<Shared>(workers, Reproducible<4>{}, TcpTransport{}).first == one.first);
  }
}

}  // namespace resnet_test
