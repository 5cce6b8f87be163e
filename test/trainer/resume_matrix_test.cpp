// SPDX-License-Identifier: Apache-2.0
//
// What any strategy saved, with any number of ranks and any placement, every other one has: the same bits. Under fixed
// trees it goes on with the same bits, too.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/sharded.hpp>

#include <catch2/catch.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

using namespace chorale;
using chorale::test::Folder;

namespace {

/// A strategy with some ranks: goes on from a folder until an epoch, and says the bits of the variables.
struct Run {
  std::string name;
  std::function<std::vector<float>(Folder const&, int epochs)> until;
};

template <class R, class S> Run run(std::string name, S strategy) {
  return {
      std::move(name), [strategy](Folder const& folder, int epochs) {
        auto trainer = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                               strategy, R{}, LocalTransport{}, 7};
        trainer.fit(tiny::uneven(), {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}});
        return tiny::values_of(trainer);
      }};
}

template <class R> std::vector<Run> in_step() {
  auto all = std::vector<Run>{run<R>("one", OneDeviceStrategy{Cpu::logical(1)[0]})};
  for (int n = 1; n <= 4; ++n) {
    all.push_back(run<R>("mirrored " + std::to_string(n), MirroredStrategy{Cpu::logical(n)}));
    all.push_back(run<R>("central " + std::to_string(n), CentralStorageStrategy{Cpu::logical(n)}));
    if (n == 2 || n == 3)
      all.push_back(run<R>("sharded " + std::to_string(n), ShardedStrategy<Zero::one>{Cpu::logical(n)}));
  }
  return all;
}

template <class R, class P> Run servers(int workers, int n, P placement) {
  return run<R>("servers " + std::to_string(workers) + " " + std::to_string(n),
                ParameterServerStrategy{Cluster::local(workers, n), Synchronous{}, placement});
}

}  // namespace

TEST_CASE("what one saved every other one has", "[trainer][resume][matrix]") {
  using placement::FixedShards, placement::Partitioned;
  auto all = in_step<RingAllReduce>();
  for (int n = 1; n <= 4; ++n) {
    all.push_back(
        run<RingAllReduce>("local sgd " + std::to_string(n), local_sgd<4>(MirroredStrategy{Cpu::logical(n)})));
    all.push_back(servers<RingAllReduce>(n, 2, placement::GreedyByBytes{}));
  }
  all.push_back(run<RingAllReduce>("gossip 3", Gossip{MirroredStrategy{Cpu::logical(3)}}));
  all.push_back(servers<RingAllReduce>(2, 3, Partitioned<FixedShards<2>>{}));
  all.push_back(servers<RingAllReduce>(2, 2, placement::RoundRobin{}));
  for (auto const& saves : all) {
    auto const folder = Folder{};
    auto const saved  = saves.until(folder, 1);
    for (auto const& loads : all) {
      INFO(saves.name << " saved, " << loads.name << " loads");
      CHECK(loads.until(folder, 1) == saved);
    }
  }
}

TEST_CASE("what one saved every other one goes on with, bit for bit", "[trainer][resume][matrix]") {
  auto all = in_step<Reproducible<8>>();
  all.push_back(servers<Reproducible<8>>(2, 2, placement::GreedyByBytes{}));
  all.push_back(servers<Reproducible<8>>(4, 1, placement::GreedyByBytes{}));
  auto const one         = Folder{};
  auto const undisturbed = all[0].until(one, 2);
  for (auto const& saves : all) {
    auto const saved = Folder{};
    saves.until(saved, 1);
    for (auto const& goes_on : all) {
      auto const folder = Folder{};
      INFO(saves.name << " saved, " << goes_on.name << " goes on");
      std::filesystem::copy(saved.path, folder.path, std::filesystem::copy_options::recursive);
      CHECK(goes_on.until(folder, 2) == undisturbed);
    }
  }
}
