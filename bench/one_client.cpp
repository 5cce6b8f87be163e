// SPDX-License-Identifier: Apache-2.0
//
// How many replicas one process carries: a thread for each, connected by memory or by TCP within the process, with a
// model so small that a step is nothing but its all-reduce and the hand-over between threads.
//
//   tools/run bench/one_client --json
//
// Every row is a process of its own. From a number of replicas to the next one: threads and file descriptors of the
// process, its memory (VmHWM), the time until all are connected and have a copy of the model, and the median of a step.
// A number that the process does not carry ends the rows of its transport with the error.
#include "support/report.hpp"

#include <chorale/core/error.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/tcp.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace chorale;

namespace {

struct Few : nn::Sequential<nn::Input<4>, nn::Dense<4>, nn::Dense<2>> {};

double entries(char const* folder) {
  auto n = 0;
  for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator{folder}) ++n;
  return n;
}

double peak_mib() {
  auto from = std::ifstream{"/proc/self/status"};
  for (std::string line; std::getline(from, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

template <class Transport> void carry(int replicas, int steps, Transport const& transport) {
  auto const begin = std::chrono::steady_clock::now();
  auto live        = Live{MirroredStrategy{Cpu::logical(replicas)}, TreeAllReduce{}, transport};
  auto copies      = live.create(nn::compile<Few>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.01F}), 1);
  auto const x     = std::vector<float>(4 * static_cast<std::size_t>(replicas), 1.0F);
  auto const y     = std::vector<int>(static_cast<std::size_t>(replicas), 1);
  auto const rows  = Batch{.x = x, .y = y, .rows = static_cast<std::size_t>(replicas)};
  auto const one   = [&] {
    live.run(
        [&](auto& replica, auto& copy) {
          auto [loss, gradients] = replica.value_and_gradient(copy, rows.part(replica.id(), replicas));
          live.update(replica, copy, gradients);
        },
        copies);
  };
  one();
  auto const ready = bench::seconds_since(begin);
  auto times       = std::vector<double>{};
  for (int step = 0; step < steps; ++step) {
    auto const start = std::chrono::steady_clock::now();
    one();
    times.push_back(bench::seconds_since(start));
  }
  std::printf("threads %.0f\nfiles %.0f\nmib %.1f\nready_s %.3f\nstep_ms %.3f\n", entries("/proc/self/task"),
              entries("/proc/self/fd"), peak_mib(), ready, 1e3 * bench::median(times));
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags    = CLI::App{"How many replicas one process carries."};
  auto replicas = std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  auto over     = std::vector<std::string>{"memory", "tcp"};
  int steps = 20, only = 0;
  bool json = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--replicas", replicas, "numbers to try, ascending")->check(CLI::PositiveNumber);
  flags.add_option("--over", over, "transports")->check(CLI::IsMember({"memory", "tcp"}));
  flags.add_option("--steps", steps, "that are timed")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--only", only, "measure one number over the first transport and print it")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(flags, argc, argv);
  if (only > 0) {
    if (over[0] == "memory") carry(only, steps, LocalTransport{});
    else carry(only, steps, TcpTransport{});
    return 0;
  }
  if (!json) std::printf("%s; 4 numbers, Dense<4>, Dense<2>, a row each; TreeAllReduce\n", bench::machine().c_str());
  for (auto const& transport : over)
    for (int const n : replicas) {
      auto const command = "'" + bench::this_program() + "' --over " + transport + " --steps " + std::to_string(steps) +
                           " --only " + std::to_string(n);
      auto said = std::string{};
      try {
        said = bench::output_of(command);
      } catch (std::runtime_error const& error) {
        std::fprintf(stderr, "%d replicas over %s: %s\n", n, transport.c_str(), error.what());
        break;
      }
      auto row = bench::Row{"one_client/" + transport};
      row.add("replicas", static_cast<double>(n), "%.0f");
      for (std::string const name : {"threads", "files", "mib", "ready_s", "step_ms"})
        row.add(name, bench::number_after(said, name), name == "step_ms" || name == "ready_s" ? "%.3f" : "%.0f");
      row.print(json);
    }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
