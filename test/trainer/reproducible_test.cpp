// SPDX-License-Identifier: Apache-2.0
//
// The same bits after training, however the work is dealt out.
#include "test/support/tiny.hpp"

#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>
#include <cstdio>
#include <string>

using namespace chorale;

namespace {

/// The hash of all variables after 50 steps of Adam on batches of 70 rows, which 64 shards do not divide.
template <class R, class T = LocalTransport> std::uint64_t trained(int replicas, R reduce, T transport = {}) {
  auto trainer = tiny::trainer(replicas, reduce, transport);
  trainer.fit(tiny::Batches<int>{tiny::batch<int>(50 * 70, 64, 1), std::vector<std::size_t>(50, 70)},
              {.show = Show::nothing});
  auto const hashes = trainer.hashes();
  for (auto const hash : hashes) CHECK(hash == hashes[0]);
  return hashes[0];
}

/// What everything below must come to.
std::uint64_t on_one() {
  static auto const hash = trained(1, Reproducible<64>{});
  return hash;
}

}  // namespace

TEMPLATE_TEST_CASE("the variables after 50 steps have the same bits for any number of replicas and any buckets",
                   "[trainer][reproducible]", RingAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce) {
  auto const replicas = GENERATE(2, 3, 4, 5, 7, 8, 16);
  for (auto const bucket : {std::size_t{512}, std::size_t{4'000}, std::size_t{1} << 20})
    CHECK(trained(replicas, Reproducible<64, TestType>{bucket}) == on_one());
  std::printf("%d replicas: %.2f times the bytes of the algorithm alone\n", replicas,
              Reproducible<64, TestType>::traffic_factor(replicas));
}

TEST_CASE("the same bits over shared memory and over TCP", "[trainer][reproducible]") {
  auto const replicas = GENERATE(2, 3, 5, 16);
  auto const job      = "reproducible-" + std::to_string(getpid()) + "-" + std::to_string(replicas);
  CHECK(trained(replicas, Reproducible<64>{}, SharedMemoryTransport{.name = job}) == on_one());
  CHECK(trained(replicas, Reproducible<64, HalvingDoublingAllReduce>{}, TcpTransport{}) == on_one());
}

TEST_CASE("without it, another number of replicas gives other bits", "[trainer][reproducible]") {
  CHECK(trained(2, RingAllReduce{}) != trained(3, RingAllReduce{}));
}
