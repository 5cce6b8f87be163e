// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/cluster/cluster.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <future>
#include <limits>
#include <sstream>

using namespace chorale;
using tiny::quietly;
using tiny::some;

namespace {

auto model() { return nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}); }

auto trainer_of(int replicas, Seed seed = 7) {
  return Trainer{model(), MirroredStrategy{Cpu::logical(replicas)}, DirectAllReduce{}, LocalTransport{}, seed};
}

template <class T, class I = int> concept HasElements = requires(T&& x, I i) { std::forward<T>(x)[i]; };
template <class T>
concept HasParts = requires(T&& x) { std::forward<T>(x).variables(); } || requires(T&& x) {
  std::forward<T>(x).model();
} || requires(T&& x) { std::forward<T>(x).copies(); } || requires(T&& x) { std::forward<T>(x).live(); };
template <class T>
concept HasTensors = requires(T&& x) { std::forward<T>(x).tensors(); } || requires(T&& x) {
  std::forward<T>(x).find("x");
} || requires(T&& x) { std::forward<T>(x).at("x"); };

}  // namespace

TEST_CASE("fit lowers the loss and tells what it did", "[trainer]") {
  auto trainer       = trainer_of(2);
  auto const history = trainer.fit(some(), {.epochs = 150, .show = Show::nothing});
  REQUIRE(history.size() == 150);
  CHECK(history.back().scores.loss() < 0.5 * history.front().scores.loss());
  CHECK(history.front().steps == 3);
  CHECK(history.front().scores.rows() == 36);
  CHECK(history.front().learning_rate == 1e-3F);
  CHECK(history.front().seconds > 0);
}

TEST_CASE("the same seed gives the same run, another seed another", "[trainer]") {
  auto a = trainer_of(2), b = trainer_of(2), c = trainer_of(2, 8);
  for (auto* trainer : {&a, &b, &c}) trainer->fit(some(), quietly);
  CHECK(a.hashes() == b.hashes());
  CHECK(a.hashes() != c.hashes());
}

TEST_CASE("NaN in the loss ends fit with one sentence, and no variable was changed", "[trainer]") {
  auto const replicas = GENERATE(1, 3);
  auto trainer        = trainer_of(replicas);
  for (auto& copy : trainer.copies()) copy.net.variables()[5].value[0] = std::numeric_limits<float>::quiet_NaN();
  auto const before = trainer.hashes();
  CHECK_THROWS_AS(trainer.fit(some(1), quietly), NumericFault);
  CHECK_THROWS_WITH(trainer.fit(some(1), quietly), Catch::Contains("the loss of step 0 is ") &&
                                                       Catch::Contains("nan over 12 rows; no variable was changed"));
  CHECK(trainer.hashes() == before);
}

TEST_CASE("a gradient that is not finite is named with its replica, and no variable was changed", "[trainer]") {
  auto const replicas      = GENERATE(1, 3);
  auto const value         = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  auto data                = some(1);
  data.rows.x[7 * 64 + 27] = value;  // row 7 of 12: the second replica's of three
  auto trainer             = trainer_of(replicas);
  auto const before        = trainer.hashes();
  CHECK_THROWS_AS(trainer.fit(data, quietly), NumericFault);
  CHECK_THROWS_WITH(trainer.fit(data, quietly),
                    Catch::Contains("of step 0 is ") &&
                        (Catch::Contains("the loss") ||
                         Catch::Contains("not finite on replica " + std::to_string(replicas == 3 ? 1 : 0))) &&
                        Catch::Contains("no variable was changed"));
  CHECK(trainer.hashes() == before);
}

TEST_CASE("gradients whose sum alone overflows are caught too", "[trainer]") {
  auto trainer = trainer_of(1);
  auto& copy   = trainer.copies()[0];
  auto g       = copy.gradients();
  std::fill(g.values.begin(), g.values.end(), 0.0F);
  g.header().rows()    = 12;
  g.trailer().summed() = 2;
  g[2][5]              = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(copy.optimizer.apply(copy.net.variables(), g),
                    Catch::Contains("the gradient of " + std::string{std::string_view{g.plan[2].name}} +
                                    " of step 0 is finite on every replica, but their sum is not"));
}

TEST_CASE("steps that are not finite can be left out: all replicas leave out the same", "[trainer]") {
  auto const bad = GENERATE(true, false);
  auto data      = some(3);
  if (bad) data.rows.x[19 * 64 + 27] = std::numeric_limits<float>::quiet_NaN();  // in the second batch of twelve
  auto trainer       = trainer_of(3);
  auto const history = trainer.fit(data, {.show = Show::nothing, .on_non_finite = NonFinite::skip});
  auto const hashes  = trainer.hashes();
  CHECK(hashes == std::vector<std::uint64_t>(3, hashes[0]));
  CHECK(history[0].skipped == (bad ? 1 : 0));
  CHECK(history[0].steps == 3);
  CHECK(std::isfinite(history[0].scores.loss()));
}

TEST_CASE("when one replica fails, fit ends with its reason and not with a hang", "[trainer]") {
  auto data      = some(1);
  data.rows.y[7] = 3;  // the network has classes 0 to 2
  auto trainer   = trainer_of(3);
  CHECK_THROWS_AS(trainer.fit(data, quietly), BadArgument);
}

TEST_CASE("after a failure training goes on from the step before", "[trainer]") {
  auto bad      = some(1);
  bad.rows.y[7] = 3;
  auto failed = trainer_of(3), never = trainer_of(3);
  CHECK_THROWS_AS(failed.fit(bad, quietly), BadArgument);
  CHECK(failed.hashes() == never.hashes());
  failed.fit(some(2), quietly);
  never.fit(some(2), quietly);
  CHECK(failed.hashes() == never.hashes());
}

TEST_CASE("a dataset without a batch is refused", "[trainer]") {
  auto trainer = trainer_of(2);
  CHECK_THROWS_WITH(trainer.fit(tiny::Batches<int>{tiny::batch<int>(1, 64, 1), {}}, quietly),
                    Catch::Contains("without a single batch"));
}

TEST_CASE("weights saved under one strategy load under another", "[trainer][checkpoint]") {
  auto const folder = chorale::test::Folder{};
  auto const file   = folder / "weights.safetensors";

  auto four = trainer_of(4);
  four.fit(some(), quietly);
  four.save(file);
  auto one = Trainer{model(), OneDeviceStrategy{Cpu{}}, DirectAllReduce{}, LocalTransport{}, 99};
  CHECK(one.hashes()[0] != four.hashes()[0]);
  one.load(file);
  CHECK(one.hashes()[0] == four.hashes()[0]);
  auto two = trainer_of(2, 55);
  two.load(file);
  CHECK(two.hashes() == std::vector<std::uint64_t>(2, four.hashes()[0]));

  auto other = Trainer{nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const before = other.hashes();
  CHECK_THROWS_WITH(other.load(file), Catch::Contains("conv2d/kernel") && Catch::Contains("(3, 3, 1, 32)") &&
                                          Catch::Contains("(3, 3, 1, 4)"));
  CHECK(other.hashes() == before);
}

TEST_CASE("the learning rate follows its schedule from epoch to epoch", "[trainer]") {
  auto trainer =
      Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = optim::decaying()}),
              MirroredStrategy{Cpu::logical(2)}};
  auto const history = trainer.fit(some(1), {.epochs = 8, .show = Show::nothing});
  CHECK(history[2].learning_rate == 1e-3F);
  CHECK(history[3].learning_rate == 1e-4F);
  CHECK(history[7].learning_rate == 1e-5F);
}

TEST_CASE("views into what is not kept are refused, and single values of it are copies", "[trainer]") {
  STATIC_REQUIRE(HasElements<Predictions const&>);
  STATIC_REQUIRE(!HasElements<Predictions>);
  STATIC_REQUIRE(!HasElements<Predictions const>);
  STATIC_REQUIRE(HasElements<Checkpoint const&, Section>);
  STATIC_REQUIRE(!HasElements<Checkpoint, Section>);
  STATIC_REQUIRE(HasTensors<SafetensorsFile const&>);
  STATIC_REQUIRE(!HasTensors<SafetensorsFile>);
  using Trained = decltype(trainer_of(1));
  STATIC_REQUIRE(HasParts<Trained&>);
  STATIC_REQUIRE(HasParts<Trained const&>);
  STATIC_REQUIRE(!HasParts<Trained>);
  STATIC_REQUIRE(std::is_same_v<decltype(PerReplica<int>{}[0]), int>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Cluster>().tasks()), std::vector<Task>>);
  auto history = History{};
  for (auto const rate : {0.5F, 0.25F}) history.push_back({.learning_rate = rate});
  auto const kept   = [&] { return history; };
  auto const& first = kept()[0];
  auto const& last  = kept().back();
  CHECK(kept().front().learning_rate == 0.5F);
  CHECK(first.learning_rate == 0.5F);
  CHECK(last.learning_rate == 0.25F);
  CHECK(&history.back() == &history[1]);
}

TEST_CASE("scores print as a person reads them", "[trainer]") {
  static constexpr std::array<std::string_view, 1> names{"accuracy"};
  auto scores = Scores{names};
  scores.add(std::array<float, plan::header>{7.46F, 200, 178});
  auto text = std::ostringstream{};
  text << scores;
  CHECK(text.str() == "loss 0.0373  accuracy 0.8900");
  CHECK_THROWS_AS(scores["recall"], BadArgument);
}

TEST_CASE("an epoch of so many steps goes on where the last one stopped", "[trainer]") {
  auto const whole   = tiny::Batches<int>{tiny::batch<int>(40, 64, 1), {8, 8, 8, 8, 8}};
  auto by_steps      = tiny::trainer(2, DirectAllReduce{});
  auto by_passes     = tiny::trainer(2, DirectAllReduce{});
  auto const history = by_steps.fit(whole, {.epochs = 5, .show = Show::nothing, .steps_per_epoch = 3});
  by_passes.fit(whole, {.epochs = 3, .show = Show::nothing});  // 15 steps, in the same order
  REQUIRE(history.size() == 5);
  for (auto const& epoch : history) CHECK(epoch.steps == 3);
  CHECK(by_steps.hashes()[0] == by_passes.hashes()[0]);
  CHECK_THROWS_AS(by_steps.fit(tiny::Batches<int>{whole.rows, {}}, {.show = Show::nothing, .steps_per_epoch = 3}),
                  BadArgument);
}

namespace {

/// Waits in fit, between two steps.
struct Pause {
  std::promise<void>& inside;
  std::promise<void>& go_on;

  void on_epoch_begin(auto& trainer, int) {
    inside.set_value();
    go_on.get_future().wait();
    trainer.evaluate(some());  // which the thread of fit may
  }
};

}  // namespace

TEST_CASE("a trainer is for one thread at a time, and says which one has it", "[trainer]") {
  auto trainer = trainer_of(1);
  auto inside  = std::promise<void>{};
  auto go_on   = std::promise<void>{};
  auto first   = NamedThread{"the first", [&] { trainer.fit(some(), quietly, Pause{inside, go_on}); }};
  inside.get_future().wait();
  CHECK_THROWS_AS(trainer.fit(some(), quietly), BadArgument);
  CHECK_THROWS_WITH(trainer.evaluate(some()), Catch::Contains("(the first)"));
  CHECK_THROWS_WITH(trainer.predict(some()), Catch::Contains("(the first)"));
  go_on.set_value();
  first = NamedThread{};  // joins
  CHECK(trainer.evaluate(some()).rows() == 36);
}
