// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>

using namespace chorale;

// expect: compiles
void begin(std::vector<std::filesystem::path> const& files) {
  auto live = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  expect_same_shards(live, files, {.worker = 0, .workers = 1});
}

// expect: chorale: under ParameterServerStrategy workers do not wait for one another, so that they cannot compare
void begin(std::vector<std::filesystem::path> const& files) {
  auto live = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  expect_same_shards(live, files, {.worker = 0, .workers = 1});
}
