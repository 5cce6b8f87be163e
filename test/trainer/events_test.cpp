// SPDX-License-Identifier: Apache-2.0
//
// What a step does under each strategy is told by the name of the operation.
#include "test/support/reference.hpp"

#include <chorale/observe/tally.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <map>
#include <string>

using namespace chorale;
using tiny::quietly;

namespace {

/// How often each operation that sends was told, by the ranks of a run of 20 steps.
std::map<std::string, std::uint64_t> operations(auto strategy) {
  auto trainer = tiny::learner_under(std::move(strategy));
  auto tally   = Tally{};
  trainer.fit(tiny::uneven(), quietly, tally);
  auto all = std::map<std::string, std::uint64_t>{};
  for (auto const& line : tally.lines())
    if (line.category == Category::communication) all[std::string{line.name.text()}] += line.events;
  for (Rank rank = 0; rank < trainer.num_replicas(); ++rank) CHECK(tally.spent(rank).steps == 20);
  return all;
}

}  // namespace

TEST_CASE("the operations of each strategy are told", "[trainer][callbacks]") {
  using Operations = std::map<std::string, std::uint64_t>;
  auto const two   = MirroredStrategy{Cpu::logical(2)};
  CHECK(operations(OneDeviceStrategy{Cpu::logical(1)[0]}) == Operations{{"all-reduce", 20}});
  CHECK(operations(CentralStorageStrategy{Cpu::logical(2)}) == Operations{{"all-reduce", 40}, {"barrier", 40}});
  CHECK(operations(local_sgd<4>(two)) == Operations{{"average", 10}});
  CHECK(operations(Gossip{two}) == Operations{{"exchange", 40}});
  CHECK(operations(ParameterServerStrategy{Cluster::local(2, 1)}) == Operations{{"push and pull", 40}});
}

TEST_CASE("bytes and messages of an operation are those that its algorithm promises", "[trainer][callbacks]") {
  auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(3)}, RingAllReduce{}, Counting<LocalTransport>{});
  auto tally   = Tally{};
  trainer.fit(tiny::uneven(), quietly, tally);
  auto const elements = trainer.copies()[0].gradients().values.size();
  auto const reducing = EventName{"all-reduce"};
  auto sent           = std::size_t{0};
  for (auto const& line : tally.lines()) {
    sent += line.bytes;
    CHECK((line.bytes != 0) == (line.name == reducing));
    CHECK(line.messages % 20 == 0);
  }
  CHECK(sent == 20 * 2 * (3 - 1) * elements * sizeof(float));  // around a ring, of all three ranks
}
