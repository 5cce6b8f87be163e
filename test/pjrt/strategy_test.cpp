// SPDX-License-Identifier: Apache-2.0
#include "test/pjrt/interpreting_plugin.hpp"
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"
#include "test/support/tiny.hpp"

#include <chorale/pjrt/tpu.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

// Training on PJRT devices beside one replica on Cpu: on the interpreter, and on the plug-in for CPUs that
// CHORALE_PJRT_PLUGIN names.

namespace pjrt_strategy {

using namespace chorale;
using Catch::Contains;
using chorale::test::Folder;

/// Eight devices of each plug-in in turn: a test runs once for each.
Pjrt eight_devices() { return GENERATE(from_range(test::fake::computing_devices(8))); }

FitOptions saving(Folder const& folder, int epochs) {
  return {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
}

TEST_CASE("any number of devices learns what one Cpu does, from uneven batches", "[pjrt][strategy]") {
  auto const all      = eight_devices();
  auto const data     = tiny::uneven();
  auto const expected = tiny::reference(data);
  auto const compare  = [&](auto trainer) {
    auto const history = trainer.fit(data, tiny::quietly);
    CHECK(tiny::difference(tiny::values_of(trainer), expected) < 1e-4);
    auto cpu = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
    cpu.fit(data, tiny::quietly);
    auto const ours = trainer.evaluate(data), theirs = cpu.evaluate(data);
    CHECK(ours.loss() == Approx(theirs.loss()).epsilon(1e-4));
    CHECK(ours["accuracy"] == Approx(theirs["accuracy"]));
    auto const y = trainer.predict(data).values, wanted = cpu.predict(data).values;
    REQUIRE(y.size() == wanted.size());
    auto worst = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::abs(y[i] - wanted[i]));
    CHECK(worst < 1e-3F);
  };
  SECTION("one device") { compare(tiny::learner_under(OneDeviceStrategy{all.first(1)})); }
  SECTION("one core") { compare(tiny::learner_under(TPUStrategy<1>{all})); }
  SECTION("three cores") { compare(tiny::learner_under(TPUStrategy<3>{all})); }
  SECTION("eight cores, some without rows") { compare(tiny::learner_under(TPUStrategy<8>{all})); }
  SECTION("cores with shards of the optimizer's state") {
    compare(tiny::learner_under(TPUStrategy<3, Zero::one>{all}));
  }
  SECTION("replicas of two cores that the host adds up") {
    compare(tiny::learner_under(MirroredStrategy{std::vector{all.first(2), all.first(2), all.first(2)}}));
  }
  SECTION("two workers") {
    compare(tiny::learner_under(MultiWorkerMirroredStrategy{Cluster::local(2), std::vector{all.first(2)}}));
  }
}

TEST_CASE("each core of a device counts as a replica", "[pjrt][strategy]") {
  auto const all      = eight_devices();
  auto const strategy = TPUStrategy<8>{all};
  CHECK(strategy.num_replicas() == 8);
  CHECK((LocalBatch{64} * strategy.num_replicas()).rows == 512);
  CHECK(num_ranks(strategy) == 1);
  auto trainer = tiny::learner_under(strategy);
  CHECK(trainer.num_replicas() == 8);
  auto told       = std::ostringstream{};
  auto* const out = std::cout.rdbuf(told.rdbuf());
  trainer.fit(tiny::uneven(), {.steps_per_epoch = 1});
  std::cout.rdbuf(out);
  CHECK_THAT(told.str(), Contains("8 replicas of 2 rows: "));
  CHECK(OneDeviceStrategy{all.first(3)}.num_replicas() == 3);
  auto const two = std::vector{all.first(2), all.first(2)};
  CHECK(MirroredStrategy{two}.num_replicas() == 4);
  CHECK(local_sgd<2>(MirroredStrategy{two}).num_replicas() == 4);
  CHECK(MultiWorkerMirroredStrategy{Cluster::local(3), two}.num_replicas() == 12);
  CHECK(num_ranks(MultiWorkerMirroredStrategy{Cluster::local(3), two}) == 6);
  auto live = Live{MirroredStrategy{two}, RingAllReduce{}, LocalTransport{}};
  CHECK(live.num_replicas() == 4);
  CHECK(live.gather(live.run([](auto& replica) { return replica.id(); })) == std::vector<Rank>{0, 1});
  auto const model = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{});
  CHECK(step_operations(model, strategy, DirectAllReduce{}).all.empty());  // the cores' sums are in the program
}

TEST_CASE("devices have equal bits after every step, and every run has the same", "[pjrt][strategy]") {
  auto const all   = eight_devices();
  auto const model = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto const data  = tiny::batch<int>(29, 64, 1);
  auto const run   = [&](Pjrt const& device) {
    auto copy = model.instantiate(device, 7);
    for (int step = 0; step < 12; ++step) {
      copy.step_ahead(data.view(0, step % 3 == 2 ? 29 : 24));
      if (step % 4 == 3) static_cast<void>(copy.hash());  // which only reads: cores keep what they have
      REQUIRE(copy.cores_agree());
    }
    copy.finish_ahead();
    return copy.hash();
  };
  CHECK(run(all) == run(all));
  CHECK(run(all.sharding_slots()) == run(all.sharding_slots()));
}

TEST_CASE("a run on devices goes on from its checkpoint as if it had not ended", "[pjrt][strategy][resume]") {
  auto const all  = eight_devices();
  auto const data = tiny::uneven();
  auto const with = [&](auto strategy) {
    auto const made = [&] {
      return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                     RingAllReduce{}, LocalTransport{}, 7};
    };
    auto undisturbed = made();
    undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
    auto const folder = Folder{};
    made().fit(data, saving(folder, 1));
    auto resumed = made();
    resumed.fit(data, saving(folder, 2));
    CHECK(tiny::values_of(resumed) == tiny::values_of(undisturbed));

    auto on_cpu = tiny::trainer(2, RingAllReduce{});  // a file of devices is a file of any strategy
    on_cpu.fit(data, saving(folder, 2));
    CHECK(tiny::values_of(on_cpu) == tiny::values_of(undisturbed));
  };
  SECTION("each core has all of the optimizer's state") { with(TPUStrategy<4>{all}); }
  SECTION("each has a shard") { with(TPUStrategy<4, Zero::one>{all}); }
}

TEST_CASE("a gradient that is not finite stops a step on devices, which changes nothing", "[pjrt][strategy]") {
  auto const all       = eight_devices();
  auto const model     = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto const in_shards = GENERATE(false, true);
  auto const three     = all.first(3);
  auto copy            = model.instantiate(in_shards ? three.sharding_slots() : three, 7);
  auto const good      = tiny::batch<int>(24, 64, 1);
  auto bad             = good;
  bad.x[100]           = std::numeric_limits<float>::quiet_NaN();
  copy.step_ahead(good.view());
  copy.finish_ahead();
  auto const before = copy.hash();
  copy.step_ahead(bad.view());
  CHECK_THROWS_WITH(copy.finish_ahead(), Contains("the loss of step 1 is") || Contains("is not finite"));
  CHECK(copy.hash() == before);

  copy.step_ahead(bad.view());
  CHECK_THROWS_WITH(copy.step_ahead(good.view()), Contains("the loss of step 1 is") || Contains("is not finite"));
  CHECK(copy.hash() == before);  // also the second step was started

  copy.optimizer.on_non_finite = NonFinite::skip;
  copy.step_ahead(bad.view());
  copy.finish_ahead();
  CHECK(copy.optimizer.skipped == 1);
  CHECK(copy.hash() == before);
  copy.step_ahead(bad.view());
  copy.step_ahead(good.view());
  copy.finish_ahead();
  CHECK(copy.optimizer.skipped == 2);
  CHECK(copy.hash() != before);
}

TEST_CASE("a loss is scaled on devices, and gradients are divided by its scale", "[pjrt][strategy]") {
  auto const all    = eight_devices();
  auto const values = [&](auto strategy, auto const& rule) {
    auto trainer = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, rule), strategy};
    trainer.fit(tiny::uneven(), {.show = Show::nothing, .steps_per_epoch = 4});
    return tiny::values_of(trainer);
  };
  auto const rule   = optim::SGD{.learning_rate = 0.05F, .global_clipnorm = 1};
  auto const plain  = values(OneDeviceStrategy{Cpu::logical(1)[0]}, rule);
  auto const scaled = optim::LossScaled{rule, 1'024, 2};  // it doubles
  CHECK(tiny::difference(values(TPUStrategy<3>{all}, scaled), plain) < 1e-5);
  CHECK(tiny::difference(values(MirroredStrategy{std::vector{all.first(2), all.first(1)}}, scaled), plain) < 1e-5);
}

TEST_CASE("a network rounds on devices as its Precision says", "[pjrt][strategy]") {
  auto const all  = eight_devices().first(2);
  auto const data = tiny::batch<int>(16, 64, 1);
  auto const step = [&]<class P>(P, auto const& rule) {
    auto copy       = nn::compile<tiny::Small, P>(loss::SparseCrossEntropy{}, rule).instantiate(all, 7);
    auto const loss = copy.value_and_gradient(data.view(), 0, LooksAtEnd{}, Together{}).mean();
    auto const g    = copy.gradients().body();
    auto gradient   = std::vector<float>{g.begin(), g.end()};
    for (auto& x : gradient) x /= copy.optimizer.loss_scale.value;
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    return std::tuple{loss, gradient, copy.optimizer.skipped, copy.optimizer.loss_scale.value};
  };
  auto const exact    = step(nn::Precision<float>{}, optim::SGD{});
  auto const loss     = std::get<0>(exact);
  auto const gradient = std::get<1>(exact);
  auto const apart    = [&](std::vector<float> const& other) {  // as a part of the largest
    auto largest = 0.0F, off = 0.0F;
    for (std::size_t i = 0; i < other.size(); ++i)
      largest = std::max(largest, std::abs(gradient[i])), off = std::max(off, std::abs(gradient[i] - other[i]));
    return off / largest;
  };
  auto const bf = step(nn::Precision<bf16>{}, optim::SGD{});
  CHECK(std::abs(std::get<0>(bf) - loss) < 0x1p-7);  // 8 bits
  CHECK(std::get<0>(bf) != loss);
  CHECK(apart(std::get<1>(bf)) > 1e-4F);
  CHECK(apart(std::get<1>(bf)) < 0x1p-4F);  // rounded in each layer, both ways
  auto const fp = step(nn::Precision<fp16>{}, optim::LossScaled{optim::SGD{}, 1'024});
  CHECK(std::abs(std::get<0>(fp) - loss) < 0x1p-10);  // 11 bits
  CHECK(apart(std::get<1>(fp)) > 1e-6F);
  CHECK(apart(std::get<1>(fp)) < 0x1p-8F);
  auto const large = step(nn::Precision<fp16>{}, optim::LossScaled{optim::SGD{}, 0x1p22F});
  CHECK(std::get<2>(large) == 1);  // no half is as large as these gradients
  CHECK(std::get<3>(large) == 0x1p21F);
}

TEST_CASE("what does not fit on devices is a sentence", "[pjrt][strategy]") {
  auto const all = eight_devices();
  CHECK_THROWS_WITH((TPUStrategy<9>{all}), Contains("9 devices are asked for, of 8"));
  auto const model = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::Accuracy{});
  auto copy        = model.instantiate(all.first(2), 7);
  auto const data  = tiny::batch<int>(8, 63, 1);
  CHECK_THROWS_WITH(copy.step_ahead(data.view()), Contains("64 numbers a row") && Contains("has 504"));
  auto labels = tiny::batch<int>(8, 64, 1);
  labels.y[3] = 7;
  CHECK_THROWS_WITH(copy.step_ahead(labels.view()), Contains("row 3 of the batch has label 7"));
}

}  // namespace pjrt_strategy
