// SPDX-License-Identifier: Apache-2.0
//
// Images per second of one replica with a thread on each core, beside one replica on each core, on a machine that does
// nothing else and beside a program that keeps one core busy.
//
//   tools/run bench/one_process --json
//
// The CNN of the examples, batch 64, Adam, over drawn digits that are shuffled, batched and prefetched, as an example
// has it. Every run is a process of its own; the two take turns. To reach: threads at least 0.95 of replicas, and all
// runs alone within 10 % of each other; beside a busy core at least 0.45 of alone.
#include "support/report.hpp"

#include <chorale/chorale.hpp>

#include <CLI/CLI.hpp>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>

using namespace chorale;

namespace {

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

constexpr int digits = 6'400;

template <class Strategy> double images_per_s(Strategy const& strategy, int epochs) {
  auto const train = data::digits(digits, 1).map(data::scale).cache().shuffle(10'000, 1).batch(64).prefetch(2);
  auto trainer = Trainer{nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                         DirectAllReduce{}, LocalTransport{}, 1};
  trainer.fit(train, {.epochs = 2, .show = Show::nothing});  // fills the cache, makes the kernels
  auto const start = std::chrono::steady_clock::now();
  trainer.fit(train, {.epochs = epochs, .show = Show::nothing});
  return digits * epochs / bench::seconds_since(start);
}

double measure(std::string const& who, int epochs) {
  auto const all = Cpu{};
  if (who == "threads") return images_per_s(OneDeviceStrategy{all}, epochs);
  return images_per_s(MirroredStrategy{Cpu::split(all.threads())}, epochs);
}

/// A process that computes for as long as the object lives.
class BusyCore {
 public:
  explicit BusyCore(bool pinned) : child_{fork()} {
    if (child_ < 0) throw std::runtime_error{"chorale: cannot start a process that keeps a core busy"};
    if (child_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when this program is killed
    auto first = cpu_set_t{};
    CPU_SET(static_cast<std::size_t>(Cpu{}.cores().front()), &first);
    if (pinned) sched_setaffinity(0, sizeof first, &first);
    for (auto volatile turns = 0UL;;) turns = turns + 1;
  }
  ~BusyCore() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  BusyCore(BusyCore const&)            = delete;
  BusyCore& operator=(BusyCore const&) = delete;

 private:
  pid_t child_;
};

using Runs = std::map<std::string, std::vector<double>>;

Runs in_turn(int runs, int epochs) {
  auto speeds = Runs{};
  for (int run = 0; run < runs; ++run)
    for (std::string const who : {"threads", "replicas"})
      speeds[who].push_back(bench::number_after(
          bench::output_of("'" + bench::this_program() + "' --only " + who + " --epochs " + std::to_string(epochs)),
          "images_per_s"));
  return speeds;
}

void print(Runs& runs, Runs& alone, std::string const& beside, bool json) {
  for (auto const& [who, speeds] : runs) {
    auto const [least, most] = std::minmax_element(speeds.begin(), speeds.end());
    auto row                 = bench::Row{"one_process/" + who};
    row.add("beside", beside)
        .add("runs", static_cast<double>(speeds.size()), "%.0f")
        .add("min", *least, "%.0f")
        .add("median", bench::median(speeds), "%.0f")
        .add("max", *most, "%.0f")
        .add("min_of_max", *least / *most, "%.3f");
    auto const ratio = [&](std::vector<double> const& to) { return bench::median(speeds) / bench::median(to); };
    if (&runs != &alone) row.add("of_alone", ratio(alone[who]), "%.3f").add("to_reach", 0.45);
    else if (who == "threads") row.add("of_replicas", ratio(alone["replicas"]), "%.3f").add("to_reach", 0.95);
    row.print(json);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"Images per second of one replica with several threads, and of several replicas."};
  auto only  = std::string{};
  int runs = 10, busy_runs = 5, epochs = 12;
  bool json = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--runs", runs, "of each, alone")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--busy-runs", busy_runs, "of each, beside a busy core; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  flags.add_option("--epochs", epochs, "that are timed in a run")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--only", only, "measure one and print images_per_s")->check(CLI::IsMember({"threads", "replicas"}));
  CLI11_PARSE(flags, argc, argv);
  if (!only.empty()) {
    std::printf("images_per_s %.0f\n", measure(only, epochs));
    return 0;
  }
  if (!json) std::printf("%s; CNN, batch 64, Adam, prefetch(2); in turn\n", bench::machine().c_str());
  auto alone = in_turn(runs, epochs);
  print(alone, alone, "nothing", json);
  for (bool const pinned : {false, true}) {
    if (busy_runs == 0) break;
    auto const busy = BusyCore{pinned};
    auto beside     = in_turn(busy_runs, epochs);
    print(beside, alone, pinned ? "a loop on the first core" : "a loop on any core", json);
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
