// SPDX-License-Identifier: Apache-2.0
//
// A CNN of libtorch on two processes: trained by this library, and by PyTorch's DistributedDataParallel over gloo.
//
//   CHORALE_PYTHON=interpreter tools/run bench/libtorch --json
//
// One thread that computes in each process, on any core, over loopback TCP; SGD with momentum; 2.4 million parameters in
// 8 buckets. Both compute with the same libtorch, whose version is printed, if it is that of the interpreter's torch
// package. Each way runs in processes of its own, in turn, several rounds; medians over blocks of 5 steps of the slower
// process, and then over rounds.
//
//   ours             libtorch::model, RingAllReduce, TcpTransport
//   own_thread       the same, and a thread of its own moves the gradients
//   ddp_as_written   DistributedDataParallel as the tutorial has it
//   ddp_tuned        gradients in their buckets, a static graph, a fused optimizer
//
// left_early: of the bytes of gradients, those that were reduced before backward had ended. Without libtorch the
// program says so and ends.
#include "support/libtorch_net.hpp"
#include "support/ranks.hpp"

#include <cstdio>

#ifdef CHORALE_HAVE_LIBTORCH

#include <chorale/chorale.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/transport/tcp.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace chorale;

namespace {

constexpr int ranks = 2, block = 5, blocks = 20, warm_up = 3;

/// The rows of all processes, the same everywhere: image r, label r % 10.
struct Images {
  explicit Images(std::size_t n) : x(n * 784), y(n) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i);
    for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<int>(i % 10);
  }
  Batch all() const { return {.x = x, .y = y, .rows = y.size()}; }

  std::vector<float> x;
  std::vector<int> y;
};

/// One replica in this process, the others elsewhere.
struct OneHere {
  using device                             = Cpu;
  using placement                          = placement::Mirrored;
  static constexpr bool reduces_every_step = true;

  Rank rank;
  int all;

  int num_replicas() const { return all; }
  Group group() const { return Group{all, {rank}}; }
  std::vector<Cpu> local_devices() const { return Cpu::logical(1); }
  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);
    model.optimizer.apply(model.net.variables(), gradients);
  }
};

/// What one process has seen and has in the end.
struct Seen {
  bench::Times us;  // a step, of each block
  ReduceStatistics traffic;
  std::vector<float> values;
};

template <class R> Seen steps_of(Rank rank, int of, TcpTransport const& transport, std::size_t rows, int timed) {
  auto live         = Live{OneHere{rank, of}, R{}, transport};
  auto copies       = live.create(bench::libtorch_model(), 1);
  auto const images = Images{rows * static_cast<std::size_t>(of)};
  auto share        = PerReplica{std::vector{images.all().part(rank, of)}};
  auto seen         = Seen{};
  for (int b = -warm_up; b < timed; ++b) {
    auto const start = std::chrono::steady_clock::now();
    for (int step = 0; step < block; ++step)
      live.run(
          [](auto& replica, auto& copy, Batch const& batch) {
            auto result = replica.value_and_gradient_ahead(copy, batch);
            replica.all_reduce(result.gradients);
            copy.optimizer.apply(copy.net.variables(), result.gradients);
          },
          copies, share);
    if (b >= 0) seen.us.push_back(bench::seconds_since(start) * 1e6 / block);
  }
  seen.traffic    = live.local_replica(0).traffic();
  auto const body = copies[0].net.variables().body();
  seen.values.assign(body.begin(), body.end());
  return seen;
}

template <class R> void measure(std::size_t rows) {
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(ranks)};
  auto const shared    = bench::SharedBytes{2 * sizeof(double)};
  auto* const bytes    = shared.as<double>();
  auto const us        = bench::on_processes(ranks, 1 << 20, bench::Cores::any, [&](Rank rank) {
    auto const seen = steps_of<R>(rank, ranks, transport, rows, blocks);
    if (rank == 0) {
      bytes[0] = static_cast<double>(seen.traffic.early_bytes);
      bytes[1] = static_cast<double>(seen.traffic.bytes);
    }
    return seen.us;
  });
  std::printf("left_early %.4f\nms_per_step %.4f\n", bytes[0] / bytes[1], us / 1e3);
}

/// Largest difference between the variables of two processes and of one, after 25 steps over the same rows.
double difference(std::size_t rows) {
  constexpr auto room  = std::size_t{4} << 20;
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(ranks)};
  auto const shared    = bench::SharedBytes{2 * room * sizeof(float)};
  auto const keep      = [&](std::size_t at, Seen const& seen) {
    std::copy_n(seen.values.begin(), std::min(room, seen.values.size()), shared.as<float>() + at * room);
    return bench::Times(static_cast<std::size_t>(bench::Repeats{1 << 20}.blocks));
  };
  bench::on_processes(ranks, 1 << 20, bench::Cores::any, [&](Rank rank) {
    auto const seen = steps_of<RingAllReduce>(rank, ranks, transport, rows, 2);
    return rank == 0 ? keep(0, seen) : bench::Times(static_cast<std::size_t>(bench::Repeats{1 << 20}.blocks));
  });
  bench::on_processes(1, 1 << 20, bench::Cores::any, [&](Rank) {
    return keep(1, steps_of<RingAllReduce>(0, 1, TcpTransport{.addresses = free_loopback_addresses(1)}, 2 * rows, 2));
  });
  auto largest = 0.0;
  for (std::size_t i = 0; i < room; ++i)
    largest = std::max(largest, std::abs(static_cast<double>(shared.as<float>()[i]) - shared.as<float>()[room + i]));
  return largest;
}

std::string version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

/// True if the interpreter's torch package is this libtorch; else says what it is.
bool has_peer() {
  auto text = std::string{};
  try {
    text = bench::output_of(bench::python() + " -c 'import torch; print(\"torch\", torch.__version__)'");
  } catch (std::exception const&) {}
  if (text.find("torch " + version()) != std::string::npos) return true;
  std::fprintf(stderr, "SKIPPED: DistributedDataParallel: %s has no torch %s. Try: CHORALE_PYTHON=interpreter\n",
               bench::python().c_str(), version().c_str());
  return false;
}

void report(bool json, int rounds, std::vector<int> const& all_rows) {
  auto ways = std::vector<std::string>{"ours", "own_thread"};
  if (has_peer()) ways.insert(ways.end(), {"ddp_as_written", "ddp_tuned"});
  if (!json)
    std::printf("%s; libtorch %s; two processes over TCP, one thread each; %d rounds in turn, medians\n",
                bench::machine().c_str(), version().c_str(), rounds);
  for (auto const rows : all_rows) {
    auto ms    = std::map<std::string, std::vector<double>>{};
    auto early = std::map<std::string, std::vector<double>>{};
    for (int round = 0; round < rounds; ++round)
      for (auto const& way : ways) {
        auto const of   = " --rows " + std::to_string(rows);
        auto const peer = way.starts_with("ddp_");
        auto const text = bench::output_of(peer ? bench::python() + " '" + bench::script("libtorch_peer.py") + "' " +
                                                      way.substr(4) + of
                                                : "'" + bench::this_program() + "' --only " + way + of);
        ms[way].push_back(bench::number_after(text, "ms_per_step"));
        if (!peer) early[way].push_back(bench::number_after(text, "left_early"));
      }
    for (auto const& way : ways) {
      auto const median = bench::median(ms[way]);
      auto row          = bench::Row{"libtorch/" + way};
      row.add("libtorch", version()).add("rows", rows, "%.0f").add("ms_per_step", median);
      row.add("images_per_s", ranks * rows / median * 1e3, "%.0f");
      if (early.contains(way)) row.add("left_early", bench::median(early[way]), "%.3f");
      else row.add("ours_is_faster_by", median / bench::median(ms["ours"]), "%.2f").add("to_reach", 1.2, "%.1f");
      row.print(json);
    }
  }
  auto const network = bench::libtorch_model();
  auto const plan    = PlanView{network.plan};
  auto row           = bench::Row{"libtorch/two_processes_and_one"};
  row.add("libtorch", version()).add("parameters", static_cast<double>(plan.parameters), "%.0f");
  row.add("buckets", static_cast<double>(plan.buckets), "%.0f").add("steps", block * (warm_up + 2), "%.0f");
  row.add("largest_difference",
          bench::number_after(bench::output_of("'" + bench::this_program() + "' --only difference --rows 16"),
                              "difference"));
  row.add("to_reach", 1e-5, "%.0e").print(json);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"A CNN of libtorch on two processes, beside DistributedDataParallel."};
  auto only  = std::string{};
  auto rows  = std::vector<int>{8, 32};
  int rounds = 5;
  bool json  = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--rounds", rounds, "of every way in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--rows", rows, "of each process, one or several numbers")->check(CLI::PositiveNumber);
  flags.add_option("--only", only, "measure one way and print ms_per_step")
      ->check(CLI::IsMember({"ours", "own_thread", "difference"}));
  CLI11_PARSE(flags, argc, argv);
  auto const first = static_cast<std::size_t>(rows.at(0));
  if (only.empty()) report(json, rounds, rows);
  else if (only == "ours") measure<RingAllReduce>(first);
  else if (only == "own_thread") measure<OwnThread<RingAllReduce>>(first);
  else std::printf("difference %.3e\n", difference(first));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}

#else

int main(int, char**) {
  std::fputs(
      "SKIPPED: libtorch: it was absent when this was built. Try: apt-get install libtorch-dev, or "
      "CHORALE_LIBTORCH=FOLDER\n",
      stderr);
  return 0;
}

#endif
