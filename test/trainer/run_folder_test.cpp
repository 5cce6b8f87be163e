// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/local_sgd.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/run_folder.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

using namespace chorale;
using chorale::test::Folder;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

FitOptions epochs(int n) { return {.epochs = n, .show = Show::nothing, .summary_every = 5}; }

/// How many spans each row of a trace has.
std::map<std::string, int> spans(std::filesystem::path const& file) {
  auto rows        = std::map<std::string, int>{};
  auto text        = std::ifstream{file};
  auto const trace = nlohmann::json::parse(text);
  for (auto const& event : trace.at("traceEvents")) rows[event.value("cat", "")] += event.at("ph") == "X" ? 1 : 0;
  return rows;
}

int event_files(std::filesystem::path const& folder) {
  int n = 0;
  for (auto const& file : std::filesystem::directory_iterator{folder})
    n += file.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("of several processes the chief alone writes curves, and each its trace",
          "[trainer][run_folder][processes]") {
  auto const folder    = Folder{};
  auto const addresses = free_loopback_addresses(2);
  auto ended           = Processes{2,
                         [&](int me, Voice) {
                           auto const cluster = Cluster::at(
                               {.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
                           auto trainer = tiny::learner_under(MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)},
                                                                        RingAllReduce{}, TcpTransport{});
                           trainer.fit(tiny::uneven(), epochs(2), validate_on(tiny::uneven()),
                                                 RunFolder{folder.path, {.report = false}}, EarlyStopping{.patience = 5});
                         },
                         60};
  for (int i = 0; i < 2; ++i) CHECK(ended.exit(i) == 0);
  CHECK(read_csv(folder.path / "scalars.csv").columns[0] == std::vector<double>{5, 10, 15, 20, 20, 25, 30, 35, 40, 40});
  CHECK(event_files(folder / "train") == 1);
  CHECK(event_files(folder / "validation") == 1);
  for (auto const* trace : {"trace-0.json", "trace-1.json"})
    CHECK(spans(folder.path / trace).at("communication") == 40);
  auto text        = std::ifstream{folder.path / "trace-1.json"};
  auto const clock = nlohmann::json::parse(text).at("otherData");
  CHECK(clock.at("clock_error_ns").get<std::int64_t>() > 0);  // one clock for both processes of a host
  CHECK(std::abs(clock.at("clock_offset_ns").get<std::int64_t>()) <= clock.at("clock_error_ns").get<std::int64_t>());
}

TEST_CASE("a run that goes on from a checkpoint keeps the curves that were there", "[trainer][run_folder][resume]") {
  auto const folder  = Folder{};
  auto const options = [&](int n) {
    auto o               = epochs(n);
    o.checkpoints.folder = folder / "checkpoints";
    return o;
  };
  for (int n = 1; n <= 2; ++n)  // a trainer of its own, as after a restart
    tiny::learner_under(MirroredStrategy{Cpu::logical(2)})
        .fit(tiny::uneven(), options(n), RunFolder{folder / "run", {.timelines = false, .report = false}});
  CHECK(read_csv(folder / "run" / "scalars.csv").columns[0] ==
        std::vector<double>{5, 10, 15, 20, 20, 25, 30, 35, 40, 40});
  auto starts = std::vector<std::string>{};  // an event that marks a start, and its step
  for (auto const& file : std::filesystem::directory_iterator{folder / "run" / "train"})
    if (file.path().filename().string().starts_with("events.out.tfevents."))
      for (auto const* mark : {"\x3a\x02\x08\x01", "\x10\x15\x3a\x02\x08\x01"})  // of any step, of step 21
        if (read_file(file.path()).find(mark) != std::string::npos) starts.emplace_back(mark);
  CHECK(starts.size() == 3);
}

TEST_CASE("a run and its continuation tell one folder", "[trainer][run_folder]") {
  auto const folder = Folder{};
  auto const data   = tiny::uneven();
  auto trainer      = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  trainer.fit(data, epochs(1), validate_on(data), RunFolder{folder.path, {.report = false}});
  trainer.fit(data, epochs(1), validate_on(data), RunFolder{folder.path, {.histograms = true, .report = false}});
  CHECK(read_file(folder.path / "metrics.prom")
            .find("chorale_operations_total{operation=\"all-reduce\","
                  "category=\"communication\",rank=\"1\"} 20\n") != std::string::npos);
  CHECK(read_file(folder.path / "metrics.prom").find("chorale_step_total 40\n") != std::string::npos);
  auto const curves = read_csv(folder.path / "scalars.csv");
  CHECK(curves.columns[0] == std::vector<double>{5, 10, 15, 20, 20, 25, 30, 35, 40, 40});
  CHECK(curves.names == std::vector<std::string>{"step", "wall_time", "epoch", "loss", "accuracy", "val_loss",
                                                 "val_accuracy", "learning_rate"});
  CHECK(std::isnan(curves.columns[2][0]));
  CHECK(curves.columns[2][4] == 0);
  CHECK(std::isnan(curves.columns[5][0]));
  CHECK(curves.columns[5].back() == Approx(trainer.evaluate(data).loss()));
  CHECK(event_files(folder / "train") == 2);
  CHECK(event_files(folder / "validation") == 2);
  for (auto const* trace : {"trace-0.json", "trace-0-2.json"})
    CHECK(spans(folder.path / trace) ==
          std::map<std::string, int>{{"", 0}, {"step", 40}, {"input", 40}, {"compute", 120}, {"communication", 40}});
}

TEST_CASE("the report at the end has what a step was expected to take beside what it took", "[trainer][run_folder]") {
  CHECK(StepPrediction{0.001, 1}.seconds(0.003) == Approx(0.004));    // one bucket leaves when all is computed
  CHECK(StepPrediction{0.001, 4}.seconds(0.003) == Approx(0.00325));  // of four only the last one shows
  CHECK(StepPrediction{0.008, 2}.seconds(0.003) == Approx(0.010));    // a third forward, a third, then sending
  CHECK(StepPrediction{0, 1}.seconds(0.003) == Approx(0.003));
  auto const report = [](auto trainer) {
    auto const folder = Folder{};
    auto said         = std::ostringstream{};
    auto* const to    = std::cout.rdbuf(said.rdbuf());
    trainer.fit(tiny::uneven(), {.epochs = 1, .show = Show::nothing}, RunFolder{folder.path, {.timelines = false}});
    std::cout.rdbuf(to);
    return said.str();
  };
  auto const text = report(tiny::learner_under(MirroredStrategy{Cpu::logical(2)}));
  CAPTURE(text);
  auto measured = 0.0, predicted = 0.0, ratio = 0.0;
  auto unit       = std::array<std::array<char, 8>, 2>{};
  auto const line = text.find("\nstep: ");
  REQUIRE(line != std::string::npos);
  REQUIRE(std::sscanf(text.c_str() + line, "\nstep: %lf %7s measured, %lf %7s predicted (%lf times)", &measured,
                      unit[0].data(), &predicted, unit[1].data(), &ratio) == 5);
  CHECK(measured > 0);
  CHECK(predicted > 0);
  if (unit[0] == unit[1]) CHECK(ratio == Approx(measured / predicted).epsilon(0.05));
  auto const apart = report(tiny::learner_under(local_sgd<4>(MirroredStrategy{Cpu::logical(2)})));
  CHECK(apart.find("why slow: ") != std::string::npos);
  CHECK(apart.find("predicted") == std::string::npos);  // no step of its own has an all-reduce
}
