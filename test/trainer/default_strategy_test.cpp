// SPDX-License-Identifier: Apache-2.0
//
// The strategy of programs that name no distribution.
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <type_traits>

using namespace chorale;

static_assert(Strategy<DefaultStrategy> && ReducesEveryStep<DefaultStrategy> && AppliesSums<DefaultStrategy>);
static_assert(std::is_same_v<DefaultStrategy::device, DefaultDevice>);

TEST_CASE("DefaultStrategy is one replica on the first device, and learns what OneDeviceStrategy does there",
          "[trainer][strategy]") {
  auto const strategy = DefaultStrategy{};
  CHECK(strategy.num_replicas() == 1);
  CHECK(strategy.group().size() == 1);
  REQUIRE(strategy.local_devices().size() == 1);
  CHECK(strategy.local_devices()[0].cores() == DefaultDevice::visible().front().cores());

  auto const data  = tiny::Batches<int>{tiny::batch<int>(61, 64, 1), {16, 17, 2, 14, 12}};
  auto const learn = [&](auto where) {
    auto trainer      = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                           where, DirectAllReduce{}, LocalTransport{}, 7};
    auto const before = trainer.hashes()[0];
    auto const history = trainer.fit(data, {.epochs = 3, .show = Show::nothing});
    REQUIRE(trainer.hashes().size() == 1);
    CHECK(trainer.hashes()[0] != before);
    CHECK(history.back().scores.loss() < history.front().scores.loss());
    CHECK(history.back().scores.rows() == 61);
    return trainer.hashes()[0];
  };
  CHECK(learn(strategy) == learn(OneDeviceStrategy{DefaultDevice::visible().front()}));
}
