// SPDX-License-Identifier: Apache-2.0
//
// A run under parameter servers that was cut off goes on from its servers' state, and so does one under another strategy.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/trainer/callbacks.hpp>

#include <catch2/catch.hpp>

#include <vector>

using namespace chorale;
using chorale::test::Folder;

namespace {

template <class S> auto learner(S strategy) {
  return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                 RingAllReduce{}, LocalTransport{}, 7};
}

auto servers(int workers, int n) { return ParameterServerStrategy{Cluster::local(workers, n), Synchronous{}}; }

FitOptions epochs(Folder const& folder, int n) {
  return {.epochs = n, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
}

/// Says that validation becomes worse with each epoch.
struct Worse {
  void on_epoch_end(auto&, int epoch, Epoch& done) const {
    done.validation = Scores{{}, Totals{{static_cast<double>(epoch), 1}}};
  }
};

/// The bits of the variables after a last pull.
auto bits(auto& trainer) { return tiny::values_of(trainer); }

}  // namespace

TEST_CASE("synchronous servers go on with the bits of a run that was not cut off", "[trainer][resume][ps]") {
  auto const data  = tiny::uneven();
  auto undisturbed = learner(servers(2, 2));
  undisturbed.fit(data, {.epochs = 4, .show = Show::nothing});
  auto const folder = Folder{};
  {
    auto first = learner(servers(2, 2));
    first.fit(data, epochs(folder, 2));
  }
  auto second = learner(servers(2, 2));
  CHECK(second.fit(data, epochs(folder, 4)).size() == 2);
  CHECK(bits(second) == bits(undisturbed));
}

TEST_CASE("a trainer that goes on from its own checkpoint counts each row once", "[trainer][resume][ps]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto trainer      = learner(servers(2, 2));
  trainer.fit(data, epochs(folder, 1));
  auto const more = trainer.fit(data, epochs(folder, 3));
  REQUIRE(more.size() == 2);
  CHECK(more[0].scores.rows() == 279);
  CHECK(more[1].scores.rows() == 279);
}

TEST_CASE("what servers saved goes on anywhere, and the other way", "[trainer][resume][ps]") {
  auto const data = tiny::uneven();
  auto one        = learner(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(data, {.epochs = 4, .show = Show::nothing});
  auto const after_two = [&](auto first, auto second) {
    auto const folder = Folder{};
    first.fit(data, epochs(folder, 2));
    CHECK(second.fit(data, epochs(folder, 4)).size() == 2);
    CHECK(tiny::difference(bits(second), bits(one)) < 1e-4);
    CHECK(second.step() == 80);
  };
  after_two(learner(servers(2, 1)), learner(MirroredStrategy{Cpu::logical(2)}));
  after_two(learner(MirroredStrategy{Cpu::logical(3)}), learner(servers(2, 2)));
  after_two(learner(servers(3, 2)), learner(servers(1, 1)));
  after_two(learner(servers(1, 1)),
            learner(ParameterServerStrategy{Cluster::local(2, 3), Synchronous{},
                                            placement::Partitioned<placement::FixedShards<2>>{}}));
}

TEST_CASE("callbacks under servers are told what they had decided", "[trainer][resume][ps]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto const stop   = [] { return EarlyStopping{.patience = 3}; };
  CHECK(learner(servers(2, 1)).fit(data, epochs(folder, 2), Worse{}, stop()).size() == 2);
  CHECK(learner(servers(2, 2)).fit(data, epochs(folder, 9), Worse{}, stop()).size() == 2);
  CHECK(learner(servers(2, 2)).fit(data, epochs(folder, 9), Worse{}, stop()).empty());
}
