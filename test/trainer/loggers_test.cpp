// SPDX-License-Identifier: Apache-2.0
//
// What callbacks with Keras' names write: the columns, the runs and the curves that Keras writes.
#include "test/support/event_file.hpp"
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/core/text.hpp>
#include <chorale/observe/csv.hpp>
#include <chorale/observe/run_file.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/loggers.hpp>

#include <catch2/catch.hpp>

#include <gsl/util>

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace chorale;
using chorale::test::Folder;

namespace {

auto two() { return tiny::learner_under(MirroredStrategy{Cpu::logical(2)}); }
FitOptions epochs(int n) { return {.epochs = n, .show = Show::nothing}; }

/// The lines of a file.
std::vector<std::string> lines_of(std::filesystem::path const& file) {
  auto lines = std::vector<std::string>{{}};
  for (auto const c : read_file(file)) {
    if (c == '\n') lines.emplace_back();
    else lines.back() += c;
  }
  CHECK(lines.back().empty());  // the last line has its end
  lines.pop_back();
  return lines;
}

/// How often a text is in the event files of a folder.
std::size_t count(std::filesystem::path const& folder, std::string const& text) {
  auto n = std::size_t{0};
  for (auto const& file : std::filesystem::directory_iterator{folder}) {
    auto const content = read_file(file.path());
    for (auto at = content.find(text); at != content.npos; at = content.find(text, at + 1)) ++n;
  }
  return n;
}
/// A tag as it stands in an event, with its length before it.
std::string tag(std::string const& name) { return std::string{'\x0a', static_cast<char>(name.size())} + name; }

/// Has a loss of its own in each epoch.
struct Validated {
  static constexpr bool comes_first = true;
  std::vector<double> losses;
  void on_epoch_end(auto&, int epoch, Epoch& done) const {
    done.validation = Scores{{}, Totals{{losses.at(static_cast<std::size_t>(epoch)), 1}}};
  }
};

/// Is killed after an update.
struct Killed {
  std::uint64_t after;
  void on_step_end(auto& trainer, StepEnd const&) const {
    if (trainer.step() == after) ::raise(SIGKILL);
  }
};

/// The steps of a tag as TensorBoard shows them: it reads files by name, and a start drops what is at its step or later.
std::vector<std::uint64_t> steps_of(std::filesystem::path const& folder, std::string const& tag) {
  auto files = std::vector<std::filesystem::path>{};
  for (auto const& file : std::filesystem::directory_iterator{folder}) files.push_back(file.path());
  std::ranges::sort(files);
  auto steps = std::vector<std::uint64_t>{};
  for (auto const& file : files)
    for (auto const& event : observe::events_of(read_file(file))) {
      if (event.session == 1) std::erase_if(steps, [&](std::uint64_t step) { return step >= event.step; });
      for (auto const& value : event.values)
        if (value.tag == tag) steps.push_back(event.step);
    }
  return steps;
}

/// Options of callbacks are members, in the order and with the defaults of Keras.
static_assert(std::is_aggregate_v<EarlyStopping> && std::is_aggregate_v<ReduceLROnPlateau> &&
              std::is_aggregate_v<ModelCheckpoint> && std::is_aggregate_v<CSVLogger> &&
              std::is_aggregate_v<TensorBoard>);

}  // namespace

TEST_CASE("CSVLogger writes an epoch and the columns of Keras, by name", "[trainer][loggers]") {
  auto const folder = Folder{};
  auto trainer      = two();
  auto const data   = tiny::uneven();
  auto const done   = trainer.fit(data, epochs(2), CSVLogger{folder / "plain.csv"}, CSVLogger{folder / "late.csv"},
                                  LearningRateScheduler{[](int, float) { return 0.5F; }},
                                  CSVLogger{.filename = folder / "rate.csv", .separator = ';'}, validation_data(data));
  auto const plain  = lines_of(folder / "plain.csv");
  REQUIRE(plain.size() == 3);
  CHECK(plain[0] == "epoch,accuracy,loss,val_accuracy,val_loss");
  CHECK(plain[2] == "1," + number_text(done[1]["accuracy"]) + "," + number_text(done[1]["loss"]) + "," +
                        number_text(done[1]["val_accuracy"]) + "," + number_text(done[1]["val_loss"]));
  CHECK(lines_of(folder / "rate.csv")[0] == "epoch;accuracy;learning_rate;loss;val_accuracy;val_loss");
  CHECK(lines_of(folder / "rate.csv")[1].find(";0.5;") != std::string::npos);

  trainer.fit(data, epochs(1), CSVLogger{folder / "plain.csv"});  // begins again
  CHECK(lines_of(folder / "plain.csv")[0] == "epoch,accuracy,loss,val_accuracy,val_loss");
  CHECK(lines_of(folder / "plain.csv")[1].ends_with(",NA,NA"));
  CHECK(lines_of(folder / "plain.csv").size() == 2);
  trainer.fit(data, epochs(1), CSVLogger{.filename = folder / "plain.csv", .append = true});
  CHECK(lines_of(folder / "plain.csv").size() == 3);
  CHECK_THROWS_WITH(trainer.fit(data, epochs(1), CSVLogger{.filename = folder / "rate.csv", .append = true}),
                    Catch::Contains("has the columns \"epoch;accuracy;learning_rate"));
}

TEST_CASE("numbers have points in every file and line, whatever locale a program has chosen", "[trainer][loggers]") {
  auto const folder = Folder{};
  auto const german = "localedef -i de_DE -f UTF-8 " + (folder / "de_DE.UTF-8").string() + " > /dev/null 2>&1";
  auto const made   = std::system(german.c_str());
  ::setenv("LOCPATH", folder.path.c_str(), 1);
  auto const* const found = made == 0 ? std::setlocale(LC_ALL, "de_DE.UTF-8") : nullptr;
  ::unsetenv("LOCPATH");
  if (found == nullptr) {
    std::cout << "SKIPPED: numbers under a German locale: localedef cannot make one here" << std::endl;
    return;
  }
  auto here = std::array<char, 16>{};
  std::snprintf(here.data(), here.size(), "%.1f", 0.5);
  auto shown  = std::ostringstream{};
  auto errors = std::string{};
  {
    auto const back = gsl::finally([] { std::setlocale(LC_ALL, "C"); });
    REQUIRE(std::string_view{here.data()} == "0,5");  // printf of a program has a comma
    auto trainer    = two();
    auto const data = tiny::uneven();
    auto log        = CsvLog{folder / "log.csv", {"loss"}};
    auto loss       = std::array{MetricValue{"loss", 0.25}};
    log.take(Scalars{.step = 1, .values = loss});
    trainer.fit(data, epochs(1), CSVLogger{folder / "rate.csv"}, validation_data(data),
                ModelCheckpoint{.filepath = folder / "{epoch:02d}-{val_loss:.4f}.safetensors"});
    shown << trainer.evaluate(data) << '\n' << formatted("%.2f", 0.5) << number_text(0.5F);
    try {
      trainer.set_learning_rate(-0.5F);
    } catch (BadArgument const& error) { errors = error.what(); }
  }
  CHECK(shown.str().find(',') == std::string::npos);
  CHECK(errors.find("got -0.5") != std::string::npos);
  auto names = std::string{};
  for (auto const& file : std::filesystem::directory_iterator{folder.path}) names += file.path().filename().string();
  CHECK(names.find("01-0.") != std::string::npos);
  CHECK(names.find(',') == std::string::npos);
  auto const lines = lines_of(folder / "log.csv");  // step, seconds, loss: two commas a line
  CHECK(std::ranges::count(lines.at(1), ',') == 2);
}

TEST_CASE("a run that resumes goes on in its CSV file, without the epochs that it repeats",
          "[trainer][loggers][resume]") {
  auto const folder = Folder{};
  auto const data   = tiny::uneven();
  auto const fit    = [&](int until) {
    auto options               = epochs(until);
    options.checkpoints.folder = folder / "checkpoints";
    auto trainer               = two();
    trainer.fit(data, options, CSVLogger{folder / "log.csv"});
  };
  fit(2);
  auto const two_epochs = read_file(folder / "log.csv");
  RunFile{folder / "log.csv", RunFile::Open::append}.append("2,0.1,0.2,NA,NA\n3,0");  // that no checkpoint has
  fit(3);
  CHECK(read_file(folder / "log.csv").starts_with(two_epochs));
  CHECK(lines_of(folder / "log.csv").size() == 4);
  CHECK(lines_of(folder / "log.csv")[3].find("2,0.1,") == std::string::npos);
  CHECK(lines_of(folder / "log.csv")[3].starts_with("2,"));
}

TEST_CASE("a run that resumes leaves the epochs of an earlier run in a file that both append to",
          "[trainer][loggers][resume]") {
  auto const folder = Folder{};
  auto const data   = tiny::uneven();
  auto const fit    = [&](std::string const& run, int until) {
    auto options               = epochs(until);
    options.checkpoints.folder = folder / run;
    auto trainer               = two();
    trainer.fit(data, options, CSVLogger{.filename = folder / "log.csv", .append = true});
  };
  fit("first", 3);
  fit("second", 2);
  RunFile{folder / "log.csv", RunFile::Open::append}.append("2,0.1,0.2,NA,NA\n3,0");  // that no checkpoint has
  fit("second", 3);
  auto seen = std::string{};
  for (auto const& line : lines_of(folder / "log.csv")) seen += line.substr(0, line.find(',') + 1);
  CHECK(seen == "epoch,0,1,2,0,1,2,");
  CHECK(lines_of(folder / "log.csv").back().find("2,0.1,") == std::string::npos);
}

TEST_CASE("TensorBoard gets the runs and the curves that Keras writes", "[trainer][loggers]") {
  auto const folder     = Folder{};
  auto const data       = tiny::uneven();
  auto options          = epochs(3);
  options.summary_every = 8;
  auto trainer          = two();
  trainer.fit(data, options, TensorBoard{.log_dir = folder / "logs", .histogram_freq = 2}, validate_on(data));
  auto const train = folder / "logs" / "train", validation = folder / "logs" / "validation";
  for (auto const* both : {"epoch_loss", "epoch_accuracy"}) {
    CHECK(count(train, tag(both)) == 3);
    CHECK(count(validation, tag(both)) == 3);
  }
  CHECK(count(train, tag("epoch_learning_rate")) == 3);
  CHECK(count(train, tag("batch_loss")) == 7);  // updates 8, 16, .., 56 of 60
  CHECK(count(validation, tag("evaluation_loss_vs_iterations")) == 3);
  CHECK(count(validation, tag("evaluation_accuracy_vs_iterations")) == 3);
  CHECK(count(validation, "learning_rate") == 0);
  CHECK(count(train, "val_") == 0);
  CHECK(count(train, "/histogram") == 2 * trainer.variables().size());  // epochs 0 and 2
}

TEST_CASE("curves of a run that is killed after a checkpoint, and goes on, have each step once",
          "[trainer][loggers][resume][processes]") {
  auto const folder = Folder{};
  auto const train  = [&](std::uint64_t killed) {
    return chorale::test::Processes{1,
                                    [&folder, killed](int, chorale::test::Voice) {
                                      auto options               = epochs(2);  // of 20 updates
                                      options.checkpoints.folder = folder / "checkpoints";
                                      options.checkpoint_every   = 5;
                                      options.summary_every      = 1;
                                      auto trainer = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
                                      trainer.fit(tiny::uneven(), options, TensorBoard{folder / "logs"},
                                                   Killed{killed});
                                    },
                                    60}
        .exit(0);
  };
  auto const logs = folder / "logs" / "train";
  CHECK(train(28) == 128 + SIGKILL);
  CHECK(steps_of(logs, "batch_loss").size() >= 25);  // those of the last checkpoint are there
  CHECK(steps_of(logs, "epoch_loss") == std::vector<std::uint64_t>{0});
  CHECK(train(1000) == 0);
  auto steps = std::vector<std::uint64_t>(40);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = i + 1;
  CHECK(steps_of(logs, "batch_loss") == steps);
  CHECK(steps_of(logs, "epoch_loss") == std::vector<std::uint64_t>{0, 1});
}

TEST_CASE("a value has to beat the baseline, and the first epochs are not looked at", "[trainer][callbacks]") {
  auto trainer   = two();
  auto const fit = [&](std::vector<double> losses, auto&& callback) {
    return trainer.fit(tiny::uneven(), epochs(static_cast<int>(losses.size())), callback, Validated{losses}).size();
  };
  CHECK(fit({5, 4, 3, 3, 3, 3}, EarlyStopping{.patience = 2}) == 5);
  CHECK(fit({5, 4, 3, 3, 3, 3}, EarlyStopping{.patience = 2, .baseline = 4.5}) == 5);
  CHECK(fit({5, 4, 4, 2, 1, 0}, EarlyStopping{.patience = 2, .baseline = 1.5}) == 3);
  CHECK(fit({5, 4, 3, 2, 1, 0}, EarlyStopping{.patience = 2, .baseline = 1.5}) == 6);  // as long as it improves
  CHECK(fit({1, 2, 3, 3, 3, 3, 3}, EarlyStopping{.patience = 2, .start_from_epoch = 3}) == 6);
}

TEST_CASE("files of epochs have the epoch and values in their names", "[trainer][callbacks]") {
  auto const folder = Folder{};
  auto trainer      = two();
  trainer.fit(tiny::uneven(), epochs(2), Validated{{0.5, 0.25}},
              ModelCheckpoint{(folder / "{epoch:02d}-{val_loss:.3f}.safetensors").string()});
  CHECK(std::filesystem::exists(folder / "01-0.500.safetensors"));
  CHECK(std::filesystem::exists(folder / "02-0.250.safetensors"));
}

TEST_CASE("variables are gone over one by one", "[trainer]") {
  auto trainer   = two();
  auto names     = std::map<std::string_view, std::size_t>{};
  auto numbers   = std::size_t{0};
  auto const all = trainer.variables();
  for (auto const& variable : trainer.variables()) {
    CHECK(variable.value.data() == all[names.size()].value.data());
    CHECK(variable.name == all[names.size()].name);
    names[variable.name] = variable.value.size();
    numbers += variable.value.size();
  }
  CHECK(names.size() == all.size());
  CHECK(numbers > 0);
}
