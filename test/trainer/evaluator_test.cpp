// SPDX-License-Identifier: Apache-2.0
//
// An evaluator whose job ends early, or whose checkpoints are damaged. resume_test.cpp has jobs that take their course.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/evaluator.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;
using Catch::Contains;
using Lines = std::vector<std::string>;
using Steps = std::vector<std::uint64_t>;

namespace {

auto learner() { return tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]}); }

/// A job of 20 updates an epoch, and an evaluator that follows it.
struct Training {
  chorale::test::Folder folder{};
  Lines lines{};  // of the evaluator's log
  std::function<void()> on_line = [] {};
  decltype(learner()) trainer = learner(), evaluator = learner();

  FitOptions options(int epochs, std::size_t every = 0) const {
    return {.epochs           = epochs,
            .show             = Show::nothing,
            .checkpoints      = {.folder = folder.path, .keep = 3, .log = {}},
            .checkpoint_every = every};
  }
  void train(int epochs) { trainer.fit(tiny::uneven(), options(epochs)); }
  void train_until_stopped(int epochs, std::size_t every = 0) {  // after two of them
    trainer.fit(tiny::uneven(), options(epochs, every), EarlyStopping{.monitor = "loss", .min_delta = 1e9});
  }

  /// Cuts a file of a checkpoint off.
  void damage(std::uint64_t step, char const* file = "variables.safetensors") const {
    std::filesystem::resize_file(folder.path / checkpoint_name(step) / file, 10);
  }

  /// What an evaluator sees until it ends by itself; nothing when it has to be asked to.
  std::vector<CheckpointScores> follow(int epochs, std::function<void(CheckpointScores const&)> const& said = {},
                                       OnDamage on_damage = OnDamage::fall_back) {
    auto asked = std::atomic<bool>{false};
    auto watch = std::optional<NamedThread>{};
    auto over  = std::promise<void>{};
    watch.emplace("watch",
                  [&asked, end = over.get_future()] { asked = end.wait_for(60s) == std::future_status::timeout; });
    auto const log = [this](std::string const& line) {
      lines.push_back(line);
      on_line();
    };
    auto found =
        chorale::evaluate_checkpoints(evaluator, tiny::uneven(),
                                      {.checkpoints  = {.folder = folder.path, .on_damage = on_damage, .log = log},
                                       .epochs       = epochs,
                                       .every        = 1ms,
                                       .asked_to_end = &asked},
                                      said);
    if (asked) found.clear();
    return found;
  }
};

struct CutOff {
  struct Off {};
  void on_epoch_begin(auto const&, int) const { throw Off{}; }
};

Steps steps_of(std::vector<CheckpointScores> const& found) {
  auto steps = Steps{};
  for (auto const& one : found) steps.push_back(one.step);
  return steps;
}

}  // namespace

TEST_CASE("an evaluator ends with a job that ends early", "[trainer][follow]") {
  auto const every = GENERATE(std::size_t{0}, std::size_t{4}, std::size_t{100});
  auto job         = Training{};
  job.train_until_stopped(12, every);
  auto const found = job.follow(12);
  REQUIRE(steps_of(found) == Steps{40});
  CHECK(found[0].epoch == 2);
  CHECK(found[0].scores.loss() == Approx(job.trainer.evaluate(tiny::uneven()).loss()).epsilon(1e-6));
}

TEST_CASE("an evaluator that waits for a job's next checkpoint ends when there is none", "[trainer][follow]") {
  auto job = Training{};
  job.train(1);
  auto const found = job.follow(12, [&](CheckpointScores const& one) {
    if (one.step == 20) job.train_until_stopped(12);
  });
  CHECK(steps_of(found) == Steps{20, 60});  // what came before the fit does not count
}

TEST_CASE("a job that has ended early and goes on has not ended", "[trainer][follow]") {
  auto job = Training{};
  job.train_until_stopped(12);
  auto const found = job.follow(12, [&](CheckpointScores const& one) {
    if (one.step == 40) job.train(3);
    if (one.step == 60) job.train(12);
  });
  CHECK(steps_of(found) == Steps{40, 60, 240});
  job.train_until_stopped(20);
  CHECK(steps_of(job.follow(20)) == Steps{280});
}

TEST_CASE("a job that has ended, goes on and is cut off has not ended", "[trainer][follow]") {
  auto job = Training{};
  job.train_until_stopped(12);
  REQUIRE(CompletionMarker::in(job.folder.path));
  CHECK_THROWS_AS(job.trainer.fit(tiny::uneven(), job.options(12), CutOff{}), CutOff::Off);
  CHECK_FALSE(CompletionMarker::in(job.folder.path));
}

TEST_CASE("a damaged last checkpoint is said once, and is the end", "[trainer][follow]") {
  auto const file = GENERATE("variables.safetensors", "manifest.json");
  auto job        = Training{};
  job.train(2);
  job.damage(40, file);
  CHECK(steps_of(job.follow(2)) == Steps{20});
  REQUIRE(job.lines.size() == 1);
  CHECK_THAT(job.lines[0], Contains(std::string{"ckpt-000040/"} + file) && Contains("Passed over: step 20 is used"));
}

TEST_CASE("an evaluator passes over a damaged checkpoint, and goes on with what comes next", "[trainer][follow]") {
  auto const again = GENERATE(2, 3);  // 2: the damaged one is made again
  auto job         = Training{};
  job.train(2);
  job.damage(40);
  auto const found = job.follow(again, [&](CheckpointScores const& one) {
    if (one.step == 20) job.train(again);
  });
  CHECK(steps_of(found) == (again == 2 ? Steps{20, 40} : Steps{20, 60}));
  CHECK(job.lines.size() == 1);
}

TEST_CASE("of two damaged checkpoints each is said once", "[trainer][follow]") {
  auto job = Training{};
  job.train(2);
  job.damage(40);
  auto const found = job.follow(3, [&](CheckpointScores const& one) {
    if (one.step != 20) return;
    job.train(3);
    job.damage(60), job.damage(40);
  });
  CHECK(steps_of(found) == Steps{20});
  CHECK(job.lines.size() == 2);
}

TEST_CASE("what is saved below a damaged newest one is evaluated", "[trainer][follow]") {
  auto job = Training{};
  job.train(2);
  std::filesystem::copy(job.folder.path / checkpoint_name(40), job.folder.path / checkpoint_name(999));
  job.damage(999);
  auto const found = job.follow(3, [&](CheckpointScores const& one) {
    if (one.step == 40) job.train(3);
  });
  CHECK(steps_of(found) == Steps{40, 60});
}

TEST_CASE("a job without a checkpoint is waited for, though one has ended there before", "[trainer][follow]") {
  auto job = Training{};
  job.train_until_stopped(12);
  for (auto const step : checkpoint_steps(job.folder.path))
    std::filesystem::remove_all(job.folder.path / checkpoint_name(step));
  REQUIRE(CompletionMarker::in(job.folder.path));
  auto const again = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(50ms);
    auto anew = learner();
    anew.fit(tiny::uneven(), job.options(12), EarlyStopping{.monitor = "loss", .min_delta = 1e9});
  });
  auto const found = job.follow(12);
  REQUIRE_FALSE(found.empty());
  CHECK(found.back().step == 40);
}

TEST_CASE("while no checkpoint can be used an evaluator waits, unless the job has ended", "[trainer][follow]") {
  auto job = Training{};
  job.train(1);
  job.damage(20);
  SECTION("the next one can be") {
    job.on_line = [&, n = 0]() mutable {
      if (n++ != 0) return;
      std::filesystem::remove_all(job.folder.path);
      auto anew = learner();
      anew.fit(tiny::uneven(), job.options(2));
    };
    CHECK(steps_of(job.follow(2)) == Steps{40});
    CHECK(job.lines.size() == 1);
    CHECK_THAT(job.lines[0], Contains("none of 1 checkpoints can be used") && Contains("ckpt-000020/variables"));
  }
  SECTION("there will be none") { CHECK_THROWS_AS(job.follow(1), NoValidCheckpoint); }
  SECTION("the first damage is to be the end") {
    CHECK_THROWS_AS(job.follow(2, {}, OnDamage::stop), NoValidCheckpoint);
  }
}
