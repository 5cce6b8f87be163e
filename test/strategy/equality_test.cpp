// SPDX-License-Identifier: Apache-2.0
//
// Every synchronous strategy against the same program on one replica with the whole batch, ranks as threads.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <limits>
#include <set>

using namespace chorale;
using tiny::quietly;

namespace {

/// Trains, and says how far it is from the reference; all local copies must have the same bits.
template <class Trainer> double apart(Trainer trainer) {
  auto const data = tiny::uneven();
  auto const loss = trainer.fit(data, quietly)[0].scores;
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  CHECK(loss.rows() == 279);
  return tiny::difference(tiny::values_of(trainer), tiny::reference(data));
}

}  // namespace

TEST_CASE("workers as threads learn what one replica learns", "[strategy][multi_worker]") {
  auto const [workers, devices] = GENERATE(table<int, int>({{2, 1}, {2, 2}, {4, 1}, {3, 1}, {1, 2}}));
  auto const strategy           = MultiWorkerMirroredStrategy{Cluster::local(workers), Cpu::logical(devices)};
  REQUIRE(strategy.num_replicas() == workers * devices);
  CHECK(apart(tiny::learner_under(strategy)) < 1e-5);
}

TEST_CASE("replicas that read one copy learn what one replica learns", "[strategy][central]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  auto const devices  = Cpu::logical(replicas);
  CHECK(apart(tiny::learner_under(CentralStorageStrategy{devices})) < 1e-5);
  CHECK(apart(tiny::learner_under(CentralStorageStrategy{devices, Cpu{}})) < 1e-5);

  auto central  = tiny::learner_under(CentralStorageStrategy{devices});
  auto mirrored = tiny::learner_under(MirroredStrategy{devices});
  central.fit(tiny::uneven(), quietly);
  mirrored.fit(tiny::uneven(), quietly);
  CHECK(central.hashes()[0] == mirrored.hashes()[0]);
  auto const first = central.copies()[0].net.variables().values.data();
  for (auto& copy : central.copies()) CHECK(copy.net.variables().values.data() == first);
}

TEST_CASE("one copy is saved, loaded and evaluated as many are", "[strategy][central]") {
  auto const folder = chorale::test::Folder{};
  auto const file   = folder / "weights";
  auto const data   = tiny::uneven();
  auto from         = tiny::learner_under(CentralStorageStrategy{Cpu::logical(3)});
  auto to           = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  from.fit(data, quietly);
  from.save(file);
  to.load(file);
  CHECK(to.hashes()[0] == from.hashes()[0]);
  CHECK(to.evaluate(data).loss() == Approx(from.evaluate(data).loss()));
  auto back = tiny::learner_under(CentralStorageStrategy{Cpu::logical(3)});
  back.load(file);
  CHECK(back.hashes()[0] == from.hashes()[0]);
}

TEST_CASE("averaging after every step of SGD is what one replica does", "[strategy][local_sgd]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  CHECK(apart(tiny::learner_under(local_sgd<1>(MirroredStrategy{Cpu::logical(replicas)}))) < 1e-5);
}

TEST_CASE("replicas that learn apart are together again after an epoch, and count every row", "[strategy][local_sgd]") {
  auto const data     = tiny::uneven();
  auto eight          = tiny::learner_under(local_sgd<8>(MirroredStrategy{Cpu::logical(3)}));
  auto pairs          = tiny::learner_under(Gossip{MirroredStrategy{Cpu::logical(3)}});
  auto const of_eight = eight.fit(data, {.epochs = 4, .show = Show::nothing});
  auto const of_pairs = pairs.fit(data, {.epochs = 4, .show = Show::nothing});
  for (auto const* history : {&of_eight, &of_pairs}) {
    CHECK(history->front().scores.rows() == 279);
    CHECK(history->back().scores.loss() < history->front().scores.loss());
  }
  for (auto const hash : eight.hashes()) CHECK(hash == eight.hashes()[0]);
  for (auto const hash : pairs.hashes()) CHECK(hash == pairs.hashes()[0]);
  CHECK(eight.hashes()[0] != pairs.hashes()[0]);
  CHECK(tiny::difference(tiny::values_of(eight), tiny::reference(data)) > 1e-4);  // so they did learn apart
}

TEST_CASE("in a tournament each meets all others, nobody two at once", "[strategy][gossip]") {
  using Pairs = Gossip<MirroredStrategy<>>;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    auto const rounds = ranks + ranks % 2 - 1;
    for (Rank me = 0; me < ranks; ++me) {
      auto met = std::set<Rank>{};
      for (int round = 0; round < rounds; ++round) {
        auto const other = Pairs::partner(me, ranks, round);
        CHECK(Pairs::partner(other, ranks, round) == me);
        met.insert(other);
      }
      CHECK(met.size() == static_cast<std::size_t>(rounds));
    }
  }
}

TEST_CASE("gradients of several batches are one update, as of one batch with all their rows",
          "[strategy][accumulate]") {
  auto const rows      = tiny::batch<int>(72, 64, 1);
  auto const small     = tiny::Batches<int>{rows, {8, 5, 8, 3, 8, 8, 8, 8, 8, 8}};  // in threes, and one is left
  auto const large     = tiny::Batches<int>{rows, {21, 19, 24, 8}};
  auto const in_threes = FitOptions{.show = Show::nothing, .accumulate = 3};
  auto one             = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(large, quietly);
  auto const check = [&](auto trainer) {
    auto const history = trainer.fit(small, in_threes);
    CHECK(history[0].scores.rows() == 72);
    CHECK(history[0].steps == 10);
    CHECK(trainer.copies()[0].optimizer.now.step == 4);
    CHECK(tiny::difference(tiny::values_of(trainer), tiny::values_of(one)) < 1e-5);
  };
  check(tiny::learner_under(MirroredStrategy{Cpu::logical(1)}));
  check(tiny::learner_under(MirroredStrategy{Cpu::logical(3)}));
  check(tiny::learner_under(CentralStorageStrategy{Cpu::logical(2)}));
  CHECK_THROWS_AS(one.fit(small, {.accumulate = 0}), BadArgument);
  auto ordered = tiny::learner_under(MirroredStrategy{Cpu::logical(2)}, Reproducible<8>{});
  CHECK_THROWS_WITH(ordered.fit(small, in_threes), Catch::Contains("of one under a Reduce that rounds"));
}

TEST_CASE("after a failure, gradients in shared memory are still there, and steps say who is lost", "[strategy][shm]") {
  auto trainer  = tiny::learner_under(MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, SharedMemoryTransport{});
  auto bad      = tiny::uneven();
  bad.rows.x[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(trainer.fit(bad, quietly), NumericFault);
  for (int again = 0; again < 3; ++again) CHECK_THROWS_AS(trainer.fit(tiny::uneven(), quietly), PeerLost);
  for (auto& copy : trainer.copies()) copy.gradients().values[0] = 1;  // their memory has not gone
}

TEST_CASE("a flipped bit names its replica and its variable", "[strategy][divergence]") {
  auto const data = tiny::uneven();
  auto three      = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  three.fit(data, {.show = Show::nothing, .compare_every = 1});
  auto& value = three.copies()[1].net.variables()[2].value[5];
  value       = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U);
  CHECK_THROWS_WITH(three.fit(data, {.show = Show::nothing, .compare_every = 1}),
                    Catch::Contains("dense/kernel of replica 1 is not that of 2 of the 3 replicas"));

  auto two = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  two.copies()[0].net.variables()[0].value[0] += 1;
  CHECK_THROWS_WITH(two.fit(data, {.show = Show::nothing, .compare_every = 1}),
                    Catch::Contains("conv2d/kernel is not the same on all 2 replicas, and no majority"));

  auto unseen = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  unseen.copies()[0].net.variables()[0].value[0] += 1;
  CHECK_NOTHROW(unseen.fit(data, {.show = Show::nothing, .compare_every = 0}));
}
