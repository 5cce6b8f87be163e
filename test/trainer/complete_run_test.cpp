// SPDX-License-Identifier: Apache-2.0
//
// A run that is started again after its last epoch, and options that no fit can work with.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/optim/schedule.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/evaluator.hpp>
#include <chorale/trainer/loggers.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace complete_run_test {

using namespace chorale;
using Catch::Matchers::Contains;
using chorale::test::Folder;

namespace {

auto two() { return tiny::learner_under(MirroredStrategy{Cpu::logical(2)}); }

/// Gets worse from the first epoch on.
struct Worse {
  void on_epoch_end(auto&, int epoch, Epoch& done) const {
    done.validation = Scores{{}, Totals{{static_cast<double>(epoch), 1}}};
  }
};

/// What fit says about its checkpoints, and what it returns.
struct Run {
  Folder const& folder;
  std::vector<std::string> said{};

  History fit(int epochs, auto&&... callbacks) {
    said.clear();
    auto trainer = two();
    auto options = FitOptions{.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
    options.checkpoints.log = [this](std::string const& line) { said.push_back(line); };
    return trainer.fit(tiny::some(), options, callbacks...);
  }
};

}  // namespace

TEST_CASE("a complete run that is started again says so, and how to go on", "[trainer][resume]") {
  auto const folder = Folder{};
  auto run          = Run{folder};
  CHECK(run.fit(2).size() == 2);
  CHECK(run.said.empty());
  CHECK(run.fit(2).empty());
  CHECK(run.said ==
        std::vector<std::string>{"the run in " + folder.path.string() +
                                 " is complete: epoch 2 of 2, so "
                                 "nothing is trained. Try: more epochs to go on, or another folder to begin "
                                 "again."});
  CHECK(run.fit(3).size() == 1);
  CHECK(run.said.empty());
}

TEST_CASE("a run that a callback had stopped says so when it is started again", "[trainer][resume]") {
  auto const folder = Folder{};
  auto run          = Run{folder};
  CHECK(run.fit(9, Worse{}, EarlyStopping{.patience = 1}).size() == 2);
  CHECK(run.said.empty());
  CHECK(run.fit(9, Worse{}, EarlyStopping{.patience = 1}).empty());
  CHECK(run.said ==
        std::vector<std::string>{"the run in " + folder.path.string() +
                                 " was stopped by a callback after "
                                 "epoch 2 of 9, so nothing is trained. Try: fit without that callback to go "
                                 "on, or another folder to begin again."});
}

TEST_CASE("an epoch that a History does not have is an error in a sentence", "[trainer]") {
  auto history = History{};
  CHECK_THROWS_AS(history.back(), BadArgument);
  CHECK_THROWS_WITH(history.back(), Contains("epoch 0 of a History is asked for, and it has 0: fit had nothing left to "
                                             "train here.") &&
                                        Contains("Try: asking empty() first"));
  CHECK_THROWS_AS(std::as_const(history).front(), BadArgument);
  CHECK_THROWS_AS(history[0], BadArgument);
  history = two().fit(tiny::some(), {.epochs = 2, .show = Show::nothing});
  CHECK(history.front().steps == 3);
  CHECK(&history.back() == &history[1]);
  CHECK_THROWS_WITH(history[2], Contains("epoch 2 of a History is asked for, and it has 2.") && Contains("below 2"));
}

TEST_CASE("options below 0 are refused with their name and value", "[trainer]") {
  auto trainer   = two();
  auto const fit = [&](FitOptions options) {
    options.show = Show::nothing;
    trainer.fit(tiny::some(), options);
  };
  CHECK_THROWS_WITH(fit({.epochs = -1}),
                    Contains("FitOptions::epochs is -1, and must be 0 or more") && Contains("Try: "));
  CHECK_THROWS_WITH(fit({.initial_epoch = -2}), Contains("FitOptions::initial_epoch is -2, and must be 0 or more"));
  CHECK_THROWS_WITH(fit({.compare_every = -3}), Contains("FitOptions::compare_every is -3, and must be 0 or more"));
  CHECK_THROWS_WITH(fit({.accumulate = -4}), Contains("FitOptions::accumulate -4"));
  CHECK_THROWS_WITH(fit({.epochs = 3, .initial_epoch = 4}),
                    Contains("FitOptions::initial_epoch is 4, and epochs is 3") && Contains("Try: epochs above"));
  CHECK(trainer.step() == 0);
  CHECK_THROWS_WITH(evaluate_checkpoints(trainer, tiny::some(), {.epochs = -1}), Contains("EvaluatorOptions::epochs"));

  auto const with = [&](auto&& callback) { trainer.fit(tiny::some(), {.show = Show::nothing}, callback); };
  CHECK_THROWS_WITH(with(ReduceLROnPlateau{.patience = -1}), Contains("got patience -1 and cooldown 0"));
  CHECK_THROWS_WITH(with(ReduceLROnPlateau{.cooldown = -1}), Contains("got patience 10 and cooldown -1"));
  CHECK_THROWS_WITH(with(ReduceLROnPlateau{.min_lr = -1}), Contains("min_lr -1"));
  CHECK_THROWS_WITH(with(EarlyStopping{.patience = -1}), Contains("got patience -1 and start_from_epoch 0"));
  CHECK_THROWS_WITH(with(ModelCheckpoint{.filepath = ""}), Contains("the name of a file"));
  CHECK_THROWS_WITH(with(ModelCheckpoint{.filepath = "m_{epoch:%n}"}), Contains("a file name with {epoch:%n}"));
  CHECK_THROWS_WITH(with(ModelCheckpoint{.filepath = "m_{epoch"}), Contains("a file name with {epoch}"));
  CHECK_THROWS_WITH(with(TensorBoard{.histogram_freq = -1}), Contains("histogram_freq -1"));
  CHECK_THROWS_WITH(with(CSVLogger{""}), Contains("the name of a file"));
}

TEST_CASE("learning rates below 0 and schedules without steps are refused", "[optim]") {
  CHECK_THROWS_WITH(optim::SGD{.learning_rate = -0.1F}, Contains("a learning rate is 0 or more, got -0.1"));
  CHECK_THROWS_WITH(optim::Adam{.learning_rate = std::nanf("")}, Contains("nan"));
  CHECK_THROWS_WITH((optim::Rate{optim::ExponentialDecay{0.1F, 0, 0.5F}}),
                    Contains("ExponentialDecay takes 1 steps or more, got 0"));
  CHECK_THROWS_WITH((optim::Rate{optim::CosineDecay{0.1F, -1}}), Contains("CosineDecay takes 1 steps or more, got -1"));
  CHECK_THROWS_WITH((optim::Rate{optim::LinearWarmup{0, 0.1F, -1}}), Contains("LinearWarmup takes 0 steps or more"));
  CHECK(optim::Rate{0.0F}({}) == 0);
}

TEST_CASE("numbers of passes and parts below 0 are refused", "[data]") {
  auto const rows = data::digits(8, 1);
  CHECK_THROWS_WITH(rows.shard(static_cast<std::size_t>(-2), 0), Contains("at least one part, got -2"));
  CHECK_THROWS_WITH(rows.batch(-3), Contains("a batch needs at least one row, got -3"));
  CHECK_THROWS_WITH(rows.prefetch(0), Contains("prefetch needs room for at least one element"));
}

}  // namespace complete_run_test
