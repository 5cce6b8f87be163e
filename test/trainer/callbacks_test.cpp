// SPDX-License-Identifier: Apache-2.0
//
// Who is told what and when, what callbacks decide, and that a run that goes on decides the same.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/observe/tally.hpp>
#include <chorale/trainer/callbacks.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace chorale;
using chorale::test::Folder;
using tiny::quietly;

namespace {

auto two() { return tiny::learner_under(MirroredStrategy{Cpu::logical(2)}); }

FitOptions epochs(int n) { return {.epochs = n, .show = Show::nothing}; }

/// Writes down each call.
struct Diary {
  std::vector<std::string>* lines;
  void on_fit_begin(auto& trainer) { lines->push_back("fit " + std::to_string(trainer.step())); }
  void on_epoch_begin(auto&, int epoch) { lines->push_back("epoch " + std::to_string(epoch)); }
  void on_epoch_end(auto& trainer, int epoch, Epoch& done) {
    lines->push_back("end " + std::to_string(epoch) + " after " + std::to_string(done.steps) + ", " +
                     std::to_string(trainer.step()));
  }
  void on_fit_end(auto&, History const& all) { lines->push_back("done " + std::to_string(all.size())); }
};

/// Says which losses validation is to have had.
struct Validated {
  std::vector<double> losses;
  void on_epoch_end(auto&, int epoch, Epoch& done) const {
    done.validation = Scores{{}, Totals{{losses.at(static_cast<std::size_t>(epoch)), 1}}};
  }
};

struct StepsSeen {
  std::size_t steps = 0, rows = 0;
  void on_step_end(auto&, StepEnd const& end) {
    CHECK(end.step == ++steps);
    CHECK(end.scores.rows() > rows);
    rows = end.scores.rows();
  }
};

/// Looks at other data after each step.
struct Looks {
  tiny::Batches<int> data = tiny::uneven();
  void on_step_end(auto& trainer, StepEnd const&) const { CHECK(trainer.evaluate(data).rows() == 279); }
};

struct Hashes {
  std::vector<std::uint64_t>* all;
  void on_epoch_end(auto& trainer, int, Epoch&) { all->push_back(trainer.hashes()[1]); }
};

struct Rates {
  std::vector<float>* all;
  void on_epoch_begin(auto& trainer, int) { all->push_back(trainer.learning_rate()); }
};

struct ScalarsSeen {
  std::vector<std::uint64_t> steps;
  std::vector<std::string> names;
  void take(Scalars const& scalars) {
    steps.push_back(scalars.step);
    names.clear();
    for (auto const& value : scalars.values) names.emplace_back(value.name);
  }
  void flush() {}
};

/// The parts of each step of rank 1: whether they lie within it, and how much of it they are.
struct StepTrace {
  std::vector<Event> open;
  std::vector<double> shares;
  int outside = 0;
  void take(Event const& event) noexcept {
    if (event.rank != 1) return;
    if (event.category != Category::step) return open.push_back(event);
    auto parts = 0.0;
    for (auto const& part : open) {
      outside += part.begin < event.begin || part.end > event.end || part.step != event.step;
      parts += static_cast<double>(part.duration().count());
    }
    shares.push_back(parts / static_cast<double>(event.duration().count()));
    open.clear();
  }
  void flush() {}
};

}  // namespace

TEST_CASE("callbacks are told in order", "[trainer][callbacks]") {
  auto trainer = two();
  auto lines   = std::vector<std::string>{};
  auto absent  = std::optional<Diary>{};
  trainer.fit(tiny::uneven(), epochs(2), Diary{&lines}, absent);
  CHECK(lines ==
        std::vector<std::string>{"fit 0", "epoch 0", "end 0 after 20, 20", "epoch 1", "end 1 after 20, 40", "done 2"});
}

TEST_CASE("each step is told, with the scores of the epoch so far", "[trainer][callbacks]") {
  auto trainer = two();
  auto seen    = StepsSeen{};
  trainer.fit(tiny::uneven(), quietly, seen);
  CHECK(seen.steps == 20);
  CHECK(seen.rows == 279);
}

TEST_CASE("an evaluation in the middle of an epoch leaves its scores alone", "[trainer][callbacks]") {
  auto trainer = two(), looked = two();
  auto const plain = trainer.fit(tiny::uneven(), quietly), with = looked.fit(tiny::uneven(), quietly, Looks{});
  CHECK(with.back().scores.rows() == plain.back().scores.rows());
  CHECK(with.back().scores.loss() == plain.back().scores.loss());
}

TEST_CASE("scalars are those of updates, not of batches that are held for one", "[trainer][callbacks]") {
  auto trainer          = two();
  auto seen             = ScalarsSeen{};
  auto options          = epochs(1);
  options.accumulate    = 2;
  options.summary_every = 2;
  trainer.fit(tiny::uneven(), options, seen);
  CHECK(seen.steps == std::vector<std::uint64_t>{2, 4, 6, 8, 10, 10});
}

TEST_CASE("fit ends when the value is not better any more, and has the best variables", "[trainer][callbacks]") {
  auto trainer = two();
  auto stop    = EarlyStopping{.patience = 2, .restore_best_weights = true};
  auto hash    = std::vector<std::uint64_t>{};
  auto const history =
      trainer.fit(tiny::uneven(), epochs(9), Validated{{3, 2, 1, 1.5, 1, 0.5, 0, 0, 0}}, stop, Hashes{&hash});
  CHECK(history.size() == 5);
  CHECK(stop.best_epoch() == 2);
  CHECK(trainer.hashes()[0] == hash.at(2));
  CHECK(trainer.hashes()[1] == hash.at(2));
  CHECK(trainer.fit(tiny::uneven(), epochs(9), Validated{{3, 2, 1, 1.5, 1, 0.5, 0, 0, 0}}, stop).size() == 5);  // anew
}

TEST_CASE("patience 0 waits for one epoch that is not better, as in Keras", "[trainer][callbacks]") {
  auto trainer = two();
  CHECK(trainer.fit(tiny::uneven(), epochs(5), Validated{{3, 2, 2, 1, 0}}, EarlyStopping{}).size() == 3);
  CHECK(trainer.fit(tiny::uneven(), epochs(5), Validated{{3, 4, 5, 6, 7}}, EarlyStopping{.mode = Better::larger})
            .size() == 5);
}

TEST_CASE("the rate falls on a plateau, rests, and stays above its floor", "[trainer][callbacks]") {
  auto const rates_of = [](int cooldown) {
    auto trainer = two();
    auto rates   = std::vector<float>{};
    trainer.set_learning_rate(0.08F);
    trainer.fit(tiny::uneven(), epochs(9), Validated{{1, 1, 1, 1, 1, 1, 1, 1, 1}},
                ReduceLROnPlateau{.factor = 0.5F, .patience = 2, .cooldown = cooldown, .min_lr = 0.03F}, Rates{&rates});
    return rates;
  };
  // What Keras 3.15 does: a cooldown of one epoch is none, as its last epoch counts.
  CHECK(rates_of(0) == std::vector<float>{0.08F, 0.08F, 0.08F, 0.04F, 0.04F, 0.03F, 0.03F, 0.03F, 0.03F});
  CHECK(rates_of(1) == rates_of(0));
  CHECK(rates_of(2) == std::vector<float>{0.08F, 0.08F, 0.08F, 0.04F, 0.04F, 0.04F, 0.03F, 0.03F, 0.03F});
  CHECK(rates_of(3) == std::vector<float>{0.08F, 0.08F, 0.08F, 0.04F, 0.04F, 0.04F, 0.04F, 0.03F, 0.03F});
}

TEST_CASE("a schedule by a function is the schedule of the optimizer, bit for bit", "[trainer][callbacks]") {
  auto const data = tiny::uneven();
  auto const with = [&](optim::Rate rate) {
    return Trainer{
        nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = rate}, metric::Accuracy{}),
        MirroredStrategy{Cpu::logical(2)}};
  };
  auto one = with(optim::PiecewiseEpochs{{0, 1e-3F}, {1, 1e-4F}});
  auto two = with(7.0F);
  one.fit(data, epochs(3));
  two.fit(data, epochs(3), LearningRateScheduler{[](int epoch, float) { return epoch < 1 ? 1e-3F : 1e-4F; }});
  CHECK(one.hashes() == two.hashes());
}

TEST_CASE("files of the variables: of each epoch, or of the best ones", "[trainer][callbacks]") {
  auto const folder = Folder{};
  auto const file   = [&](std::string const& name) { return folder.path / name; };
  auto trainer      = two();
  auto fresh        = two();
  trainer.fit(tiny::uneven(), epochs(3), Validated{{3, 4, 2}},
              ModelCheckpoint{.filepath = file("all_{epoch}").string()},
              ModelCheckpoint{.filepath = file("best_{epoch}").string(), .save_best_only = true});
  for (auto const* name : {"all_1", "all_2", "all_3", "best_1", "best_3"}) CHECK(std::filesystem::exists(file(name)));
  CHECK(!std::filesystem::exists(file("best_2")));
  fresh.load(file("best_3"));
  CHECK(fresh.hashes()[0] == trainer.hashes()[0]);
}

TEST_CASE("validation scores each row once, and the chief's sinks get all of it", "[trainer][callbacks]") {
  auto trainer          = two();
  auto const data       = tiny::uneven();
  auto seen             = ScalarsSeen{};
  auto options          = epochs(2);
  options.summary_every = 8;
  auto const history    = trainer.fit(data, options, validate_on(data), seen);
  CHECK(seen.steps == std::vector<std::uint64_t>{8, 16, 20, 24, 32, 40, 40});
  CHECK(seen.names == std::vector<std::string>{"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"});
  REQUIRE(history[1].validation);
  CHECK(history[1].validation->rows() == 279);
  CHECK(history[1]["val_loss"] == trainer.evaluate(data).loss());
  CHECK_THROWS_WITH(history[1]["val_f1"], Catch::Contains("no metric f1"));
  CHECK_THROWS_WITH(trainer.fit(data, quietly, EarlyStopping{}), Catch::Contains("val_loss is asked for"));
}

TEST_CASE("what each rank did in each step is told, and where nobody looks nothing is", "[trainer][callbacks]") {
  auto trainer = two();
  auto tally   = Tally{};
  auto parts   = StepTrace{};
  trainer.fit(tiny::uneven(), quietly, tally, parts);
  auto events = std::map<std::string, std::uint64_t>{};
  for (auto const& line : tally.lines())
    if (line.rank == 1) events[std::string{line.name.text()}] += line.events;
  CHECK(events == std::map<std::string, std::uint64_t>{
                      {"next batch", 20}, {"gradients", 20}, {"update", 40}, {"all-reduce", 20}, {"step", 20}});
  REQUIRE(parts.shares.size() == 20);
  CHECK(parts.outside == 0);
  std::ranges::sort(parts.shares);
  CHECK(parts.shares.back() <= 1);
  CHECK(parts.shares[10] >= 0.9);  // the median: the system may stop a thread between two parts

  using Quiet = CallbackList<decltype(trainer), EarlyStopping, std::optional<ScalarsSeen>>;
  static_assert(!observed<Quiet>);
  static_assert(sizeof(detail::StepTrace<Quiet>) == 1);
}

TEST_CASE("callbacks that decide go on as if the run had not been cut off", "[trainer][callbacks][resume]") {
  auto const data    = tiny::uneven();
  auto const options = [](Folder const& folder, int n) {
    return FitOptions{.epochs = n, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
  };
  auto const losses = Validated{{5, 4, 4, 4, 4, 4, 3, 3, 3, 3}};
  auto const slower = [] { return ReduceLROnPlateau{.factor = 0.5F, .patience = 2}; };
  auto const stop   = [] { return EarlyStopping{.patience = 5}; };
  auto undisturbed  = two();
  CHECK(undisturbed.fit(data, epochs(8), losses, slower(), stop()).size() == 8);

  auto const folder = Folder{};
  auto const cut    = GENERATE(1, 2, 3, 4, 6);
  auto first        = two();
  first.fit(data, options(folder, cut), losses, slower(), stop());
  auto second = tiny::learner_under(CentralStorageStrategy{Cpu::logical(2)});
  second.fit(data, options(folder, 8), losses, slower(), stop());
  CHECK(second.learning_rate() == undisturbed.learning_rate());
  CHECK(tiny::difference(tiny::values_of(second), tiny::values_of(undisturbed)) < 1e-5);
}

TEST_CASE("the best variables outlive the run that had them", "[trainer][callbacks][resume]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto best         = std::vector<float>{};
  for (int const until : {1, 2, 3, 5, 5}) {  // the last one has nothing left to do
    auto trainer   = two();
    auto stop      = EarlyStopping{.patience = 9, .restore_best_weights = true};
    auto const fit = FitOptions{.epochs = until, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
    trainer.fit(data, fit, Validated{{3, 1, 2, 2, 2}}, stop);
    CHECK(stop.best_epoch() == std::min(until - 1, 1));
    if (until == 2) best = tiny::values_of(trainer);
    if (until > 2) CHECK(tiny::values_of(trainer) == best);
  }
}

TEST_CASE("a run that had stopped early does not begin again, and one without the callback goes on",
          "[trainer][callbacks][resume]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto const fit    = [&](auto&&... callbacks) {
    auto trainer = two();
    return trainer.fit(data, {.epochs = 6, .show = Show::nothing, .checkpoints = {.folder = folder.path}}, callbacks...)
        .size();
  };
  auto const worse = Validated{{1, 2, 3, 4, 5, 6}};
  CHECK(fit(worse, EarlyStopping{.patience = 2}) == 3);
  CHECK(fit(worse, EarlyStopping{.patience = 2}) == 0);
  auto maybe = std::optional{EarlyStopping{.patience = 2}};
  CHECK(fit(worse, maybe) == 0);
  CHECK(fit() == 3);
}
