// SPDX-License-Identifier: Apache-2.0
//
// Models whose gradients a program writes itself, under the strategies, reduces and transports of all others.
#include "test/model/decay.hpp"
#include "test/support/folder.hpp"

#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using decay::difference;
using decay::trained;

namespace {

/// A Fit that does not report which gradients are final.
struct Quiet : decay::Fit {
  void learn(auto& step, decay::Row const& batch) {
    step.loss(decay::function(step, batch), static_cast<float>(batch.rows));
  }
};

}  // namespace

TEST_CASE("replicas of a custom model learn what one replica learns", "[model]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  auto const one      = trained(decay::model(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const check    = [&](decay::Trained const& got) {
    CHECK(difference(got, one) < 1e-4);
    CHECK(std::ranges::count(got.hashes, got.hashes[0]) == std::ssize(got.hashes));
  };
  check(trained(decay::model(), MirroredStrategy{Cpu::logical(replicas)}));
  check(trained(decay::model(), MirroredStrategy{Cpu::logical(replicas)}, DirectAllReduce{}));
  check(trained(decay::model(), MirroredStrategy{Cpu::logical(replicas)}, OwnThread<TreeAllReduce>{}));
  check(trained(decay::model(), MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, TcpTransport{}));
  check(trained(decay::model(), MultiWorkerMirroredStrategy{Cluster::local(replicas)}));
}

TEST_CASE("a learner that reports gradients in any order has the bits of one that never does", "[model]") {
  auto const quiet    = custom_model<decay::Row>(decay::variables(), Quiet{}, optim::Adam{.learning_rate = 2e-2F});
  auto const replicas = GENERATE(1, 3);
  CHECK(trained(decay::fit_model(), MirroredStrategy{Cpu::logical(replicas)}).hashes ==
        trained(quiet, MirroredStrategy{Cpu::logical(replicas)}).hashes);
}

TEST_CASE("under Reproducible any number of replicas of a custom model has the bits of one", "[model][reproducible]") {
  auto const replicas = GENERATE(2, 3, 4);
  auto const one      = trained(decay::model(), MirroredStrategy{Cpu::logical(1)}, Reproducible{});
  auto const many     = trained(decay::model(), MirroredStrategy{Cpu::logical(replicas)}, Reproducible{});
  for (auto const hash : many.hashes) CHECK(hash == one.hashes[0]);
}

TEST_CASE("workers of servers learn a custom model", "[model][servers]") {
  auto const workers = GENERATE(1, 2);
  auto const one     = trained(decay::model(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const got     = trained(decay::model(), ParameterServerStrategy{Cluster::local(workers, 1), Synchronous{}});
  CHECK(difference(got, one) < 1e-4);
  auto const nothing = [](auto&, decay::Row const&) { return 0.0F; };
  auto const moving = custom_model<decay::Row>({{"offset"}, {.name = "mean", .momentum = 0.9F}}, nothing, optim::SGD{});
  CHECK_THROWS_WITH((Trainer{moving, ParameterServerStrategy{Cluster::local(1, 1), Synchronous{}}}),
                    Catch::Contains("does not move mean, a moving average with momentum 0.9"));
  auto const counts = custom_model<decay::Row>({{"offset"}, {.name = "count", .tracked = true}}, nothing, optim::SGD{});
  CHECK_THROWS_WITH((Trainer{counts, ParameterServerStrategy{Cluster::local(1, 1), Synchronous{}}}),
                    Catch::Contains("does not move count, a tracked variable"));
}

TEST_CASE("replicas add the mean of their changes to a tracked variable", "[model]") {
  // `count` changes by 1 in each step, and `mean` moves a tenth of the way to the mean x of the rows: of 203 rows in
  // batches of 16, the last share has 11, 6 or 3 rows. With 16 replicas some shares have none.
  auto const learn = [](auto& step, decay::Row const& batch) {
    auto sum = 0.0F;
    for (std::size_t r = 0; r < batch.rows; ++r) sum += batch.x[r];
    auto const rows = static_cast<float>(batch.rows);
    step.gradient(2)[0] += 1 * rows;
    step.gradient(1)[0] += (0.1F * (sum / rows - step.value(1)[0])) * rows;
    step.gradient(0)[0] += rows;
    return 0.0F;
  };
  auto const replicas = GENERATE(1, 2, 3, 16);
  auto const model    = custom_model<decay::Row>(
      {{"offset"}, {.name = "mean", .tracked = true}, {.name = "count", .tracked = true}}, learn,
      optim::AdamW{.learning_rate = 1e-2F, .weight_decay = 0.5F});  // decay is not for what is not trained
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}, 3};
  auto wanted  = 0.0;
  auto stream  = decay::data().stream(0);
  for (auto batch = decay::Row{}; stream.next(batch);) {
    auto sum = 0.0;
    for (auto const x : batch.x) sum += static_cast<double>(x);
    wanted += 0.1 * (sum / static_cast<double>(batch.rows) - wanted);
  }
  trainer.fit(decay::data(), {.show = Show::nothing, .compare_every = 1});
  CHECK(trainer.variables()[1].value[0] == Approx(wanted).epsilon(1e-5));
  CHECK(trainer.variables()[2].value[0] == 13);    // steps, whatever the shares
  CHECK(trainer.variables()[0].value[0] < -0.1F);  // is trained
  CHECK(std::ranges::count(trainer.hashes(), trainer.hashes()[0]) == replicas);
}

TEST_CASE("what moves, but is not trained, is no part of the norm to which gradients are clipped", "[model]") {
  auto const values_after = [](NamedShape const& other, float change) {
    auto const learn = [change](auto& step, decay::Row const& batch) {
      auto const rows = static_cast<float>(batch.rows);
      step.gradient(0)[0] += 3 * rows;
      step.gradient(1)[0] += change * rows;
      return 0.0F;
    };
    auto const model =
        custom_model<decay::Row>({{"offset"}, other}, learn, optim::SGD{.learning_rate = 1, .global_clipnorm = 1});
    auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
    trainer.fit(decay::data(16), {.show = Show::nothing});
    return std::vector<float>{trainer.variables()[0].value[0], trainer.variables()[1].value[0]};
  };
  auto const tracked = values_after({.name = "count", .tracked = true}, 1'000);
  CHECK(tracked[0] == Approx(-1));
  CHECK(tracked[1] == 1'000);
  auto const average = values_after({.name = "mean", .momentum = 0.5F}, 1'000);
  CHECK(average[0] == Approx(-1));
  CHECK(average[1] == 500);
}

TEST_CASE("gradients of a custom model may lie in memory that ranks share", "[model]") {
  auto trainer =
      Trainer{decay::fit_model(), MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, SharedMemoryTransport{}, 3};
  trainer.fit(decay::data(), {.epochs = 2, .show = Show::nothing});
  auto const one  = trained(decay::fit_model(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const body = trainer.variables().body();
  CHECK(difference({{body.begin(), body.end()}, {}}, one) < 1e-4);
  for (auto& copy : trainer.copies()) {
    CHECK(copy.learner().placed == 2);
    CHECK(copy.learner().where[0] == copy.net.variables().values.data());
    CHECK(copy.learner().where[1] == copy.gradients().values.data());
  }
}

TEST_CASE("a custom model learns, evaluates, predicts, is saved, and goes on from a checkpoint", "[model]") {
  auto const folder  = test::Folder{};
  auto const options = [&](int epochs) {
    return FitOptions{.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder / "all"}};
  };
  auto trainer       = Trainer{decay::fit_model(), MirroredStrategy{Cpu::logical(2)}};
  auto const history = trainer.fit(decay::data(), options(3));
  CHECK(history[2].scores.loss() < 0.5 * history[0].scores.loss());
  CHECK(history[2].scores.rows() == 203);
  CHECK(history[2].scores["rows"] == 1);
  CHECK(trainer.evaluate(decay::data()).loss() < history[0].scores.loss());
  CHECK(trainer.copies()[0].learner().evaluated > 0);
  CHECK(trainer.predict(decay::data()).rows() == 203);
  trainer.save(folder / "w.safetensors");
  auto other = Trainer{decay::fit_model(), MirroredStrategy{Cpu::logical(3)}};
  other.load(folder / "w.safetensors");
  CHECK(other.hashes()[0] == trainer.hashes()[0]);
  auto again = Trainer{decay::fit_model(), MirroredStrategy{Cpu::logical(2)}};
  CHECK(again.fit(decay::data(), options(5)).size() == 2);
}

TEST_CASE("without evaluate, a custom model is evaluated by its gradients' loss", "[model]") {
  auto trainer = Trainer{decay::model(), MirroredStrategy{Cpu::logical(2)}};
  auto fitted  = Trainer{custom_model<decay::Row>(decay::variables(), decay::function, optim::SGD{}),
                        OneDeviceStrategy{Cpu::logical(1)[0]}};
  CHECK(trainer.evaluate(decay::data()).loss() == Approx(fitted.evaluate(decay::data()).loss()));
  CHECK(trainer.evaluate(decay::data()).rows() == 203);
}

TEST_CASE("a gradient of a custom model that is not finite is named, and changes nothing", "[model]") {
  auto const model = custom_model<decay::Row>(
      decay::variables(),
      [](auto& step, decay::Row const& batch) {
        auto const loss = decay::function(step, batch);
        if (step.pass.now.step == 2) step.gradient(1)[1] = std::numeric_limits<float>::infinity();
        return loss;
      },
      optim::SGD{.learning_rate = 1e-3F});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
  CHECK_THROWS_WITH(trainer.fit(decay::data(), {.show = Show::nothing}),
                    Catch::Contains("of step 2 are not finite on 2 replicas; no variable was changed"));
  CHECK(trainer.hashes()[0] == trainer.hashes()[1]);
  CHECK(trainer.step() == 2);
}

TEST_CASE("ranks compare the variables and the optimizer of a custom model", "[model]") {
  auto const lines = decay::fit_model().lines();
  for (auto const* line : {"learner decay::Fit", "optimizer Adam", "amplitude f32[3]", "offset f32[]"})
    CHECK(std::ranges::count(lines, std::string{line}) == 1);
}
