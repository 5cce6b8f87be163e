// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds from the start of a process to the end of its first training step.
//
//   CHORALE_PYTHON=interpreter tools/run bench/startup --json
//
// An MLP (784, 256, 10), 64 rows in memory, Adam, one replica on all cores. Each contender is a process of its own, in
// turn, several rounds after one that is not counted, so that its files are in the system's memory; medians. Times
// begin before the process is made, and are those of the system's clock in parent and child.
//
//   started_ms     main() begins; of a peer, its packages are imported
//   first_step_ms  the first step has ended: Trainer::fit of one batch has returned, with what makes the model before
//   step_ms        a later step of that process
//   predicted_ms   started_ms + step_ms: what the first step would take if it had nothing to make
//
// The peers are PyTorch, eager, and Keras on TensorFlow, by train_on_batch.
#include "support/report.hpp"

#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace chorale;

namespace {

constexpr std::size_t rows = 64;
constexpr int later_steps  = 30;

struct Mlp : nn::Sequential<nn::Input<784>, nn::Dense<256>, nn::ReLU, nn::Dense<10>> {};

/// The system's clock, which a parent and its children share, in nanoseconds.
std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1}; }

/// What a child does: the first step, then some more.
void train() {
  auto const started = now();
  auto x             = std::vector<float>(rows * 784);  // (64, 784)
  auto y             = std::vector<int>(rows);          // (64)
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(i % 10);
  auto const data  = data::from_tensors(std::move(x), std::move(y), 784).batch(rows);
  auto const quiet = FitOptions{.show = Show::nothing};
  auto trainer     = Trainer{nn::compile<Mlp>(loss::SparseCrossEntropy{}, optim::Adam{}), OneDeviceStrategy{Cpu{}}};
  trainer.fit(data, quiet);
  auto const stepped = now();
  auto times         = std::vector<double>{};
  for (int step = 0; step < later_steps; ++step) {
    auto const start = std::chrono::steady_clock::now();
    trainer.fit(data, quiet);
    times.push_back(1e3 * bench::seconds_since(start));
  }
  std::printf("started %lld\nstepped %lld\nms_per_step %.4f\n", static_cast<long long>(started),
              static_cast<long long>(stepped), bench::median(times));
}

struct Seen {
  double started_ms = 0, first_step_ms = 0, step_ms = 0;
};

/// True if an interpreter has a package; does not import it.
bool has(std::string const& python, std::string const& package) {
  auto const find = "import importlib.util as u; raise SystemExit(u.find_spec('" + package + "') is None)";
  return std::system(("'" + python + "' -c \"" + find + "\" 2> /dev/null").c_str()) == 0;
}

/// Starts a program, without a shell between, and reads what it says.
Seen run(std::vector<std::string> command) {
  auto arguments = std::vector<char*>{};
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) throw std::runtime_error{"chorale: no pipe for " + command[0]};
  auto actions = posix_spawn_file_actions_t{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 2);
  auto child       = pid_t{};
  auto const start = now();
  auto const wrong = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  auto text  = std::string{};
  auto block = std::array<char, 4096>{};
  for (ssize_t n = 0; wrong == 0; text.append(block.data(), static_cast<std::size_t>(n)))
    if (n = read(pipe[0], block.data(), block.size()); n <= 0) break;
  close(pipe[0]);
  auto status = 0;
  if (wrong == 0) waitpid(child, &status, 0);
  if (wrong != 0 || status != 0) throw std::runtime_error{"chorale: this failed: " + command[0] + "\n" + text};
  auto const ms = [&](std::string const& label) {  // as an integer: a double has 53 bits
    auto const at = text.find("\n" + label + " ") + label.size() + 2;
    return static_cast<double>(std::stoll(text.substr(at)) - start) / 1e6;
  };
  text.insert(0, "\n");
  return Seen{ms("started"), ms("stepped"), bench::number_after(text, "ms_per_step")};
}

void report(bool json, int rounds) {
  auto python      = bench::python();  // in quotes, for a shell
  python           = python.substr(1, python.size() - 2);
  auto commands    = std::map<std::string, std::vector<std::string>>{};
  commands["ours"] = {bench::this_program(), "--only-train"};
  for (auto const& [name, package, way] : {std::array{"pytorch", "torch", "torch"}, {"keras", "tensorflow", "keras"}})
    if (has(python, package)) commands[name] = {python, bench::script("startup_peer.py"), way};
    else
      std::fprintf(stderr, "SKIPPED: %s: %s has no %s. Try: CHORALE_PYTHON=interpreter\n", name, python.c_str(),
                   package);
  auto all = std::map<std::string, std::vector<Seen>>{};
  for (auto const& [name, command] : commands) run(command);  // its files come into the system's memory
  for (int round = 0; round < rounds; ++round)
    for (auto const& [name, command] : commands) all[name].push_back(run(command));
  if (!json) std::printf("%s; %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  auto const median = [&](std::string const& name, double Seen::* part) {
    auto values = std::vector<double>{};
    for (auto const& one : all.at(name)) values.push_back(one.*part);
    return bench::median(values);
  };
  for (auto const* const name : {"ours", "pytorch", "keras"}) {
    if (!all.contains(name)) continue;
    auto const first     = median(name, &Seen::first_step_ms);
    auto const predicted = median(name, &Seen::started_ms) + median(name, &Seen::step_ms);
    bench::Row{std::string{"startup/"} + name}
        .add("rows", rows, "%.0f")
        .add("started_ms", median(name, &Seen::started_ms))
        .add("first_step_ms", first)
        .add("step_ms", median(name, &Seen::step_ms))
        .add("predicted_ms", predicted)
        .add("of_predicted", first / predicted)
        .add("times_ours", first / median("ours", &Seen::first_step_ms))
        .print(json);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags      = CLI::App{"Milliseconds from the start of a process to the end of its first training step."};
  int rounds      = 7;
  bool json       = false;
  bool only_train = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--rounds", rounds, "of every contender in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_flag("--only-train", only_train, "what a child does: trains, and prints when");
  CLI11_PARSE(flags, argc, argv);
  if (only_train) train();
  else report(json, rounds);
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
