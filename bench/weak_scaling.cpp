// SPDX-License-Identifier: Apache-2.0
//
// Weak scaling: 64 rows of the CNN on each of 1, 2 and 4 processes, and where the time of a step goes.
//
//   tools/run bench/weak_scaling --json
//
// MultiWorkerMirroredStrategy, Adam; RingAllReduce over loopback TCP, and DirectAllReduce over shared memory, in which the
// gradients lie. A core for each process while there are enough.
// The gradients leave when backward is over, so that the parts are apart; each is the median over steps of rank 0.
//
//   compute         forward, loss, backward and the update
//   wait            for the slowest process, in a barrier before the gradients leave
//   communication   of the gradients
//
// predicted: images/s of one process times the processes, while there are cores for them; efficiency is measured over it.
#include "support/ranks.hpp"

#include <chorale/chorale.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

struct Cnn : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

constexpr std::size_t rows = 64;

/// Microseconds of one step.
struct Parts {
  double compute = 0, wait = 0, communication = 0;
  double all() const { return compute + wait + communication; }
};

template <class R, class T> Parts one_worker(Rank rank, std::vector<std::string> const& addresses, int steps) {
  using clock        = std::chrono::steady_clock;
  auto const cluster = Cluster::at({.workers = addresses, .me = {Role::worker, rank}});
  auto live          = Live{MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}, R{}, with_plan(T{}, Cnn::plan)};
  auto copies        = live.create(nn::compile<Cnn>(loss::SparseCrossEntropy{}, optim::Adam{}), 1);
  auto x             = std::vector<float>(rows * 784);
  auto y             = std::vector<int>(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, static_cast<std::uint64_t>(rank)}.uniform(i);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(i % 10);
  auto share   = PerReplica{std::vector{Batch{.x = x, .y = y, .rows = rows}}};
  auto compute = std::vector<double>{}, wait = std::vector<double>{}, communication = std::vector<double>{};
  for (int step = -steps / 10; step < steps; ++step)
    live.run(
        [&](auto& replica, auto& copy, Batch const& batch) {
          auto const t0 = clock::now();
          auto result   = replica.value_and_gradient(copy, batch);
          auto const t1 = clock::now();
          replica.barrier();
          auto const t2 = clock::now();
          replica.all_reduce(result.gradients);
          auto const t3 = clock::now();
          copy.optimizer.apply(copy.net.variables(), result.gradients);
          auto const t4 = clock::now();
          if (step < 0) return;
          auto const us = [](auto span) { return std::chrono::duration<double, std::micro>(span).count(); };
          compute.push_back(us(t1 - t0 + (t4 - t3)));
          wait.push_back(us(t2 - t1));
          communication.push_back(us(t3 - t2));
        },
        copies, share);
  return {bench::median(compute), bench::median(wait), bench::median(communication)};
}

}  // namespace

int main(int argc, char** argv) try {
  auto app   = CLI::App{"Images per second of 1, 2 and 4 processes with 64 rows each, and where a step's time goes."};
  bool json  = false;
  int rounds = 5, steps = 300, only = 0;
  auto const transports = std::vector<std::string>{"tcp", "shared_memory"};
  std::string transport = "tcp";
  app.add_flag("--json", json, "one JSON object a line");
  app.add_option("--rounds", rounds, "of every number of processes in turn")->capture_default_str();
  app.add_option("--steps", steps, "in each")->capture_default_str()->check(CLI::Range(10, 1'000'000));
  app.add_option("--only", only, "measure so many processes, and print what rank 0 saw")->check(CLI::PositiveNumber);
  app.add_option("--transport", transport, "for --only")->check(CLI::IsMember(transports));
  CLI11_PARSE(app, argc, argv);
  if (only > 0) {
    auto const addresses = free_loopback_addresses(only);
    bench::on_processes(only, 0, bench::Cores::one_each, [&](Rank rank) {
      auto const step = transport == "tcp" ? one_worker<RingAllReduce, TcpTransport>(rank, addresses, steps)
                                           : one_worker<DirectAllReduce, SharedMemoryTransport>(rank, addresses, steps);
      if (rank == 0) {
        std::printf("compute %.1f\nwait %.1f\ncommunication %.1f\n", step.compute, step.wait, step.communication);
        std::fflush(stdout);
      }
      return bench::Times{step.all()};
    });
    return 0;
  }

  if (!json) std::printf("%s; %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  auto const counts = std::vector<int>{1, 2, 4};
  auto all          = std::map<std::pair<std::string, int>, std::vector<Parts>>{};
  for (int round = 0; round < rounds; ++round)
    for (auto const n : counts)
      for (auto const& one : transports) {
        auto const text = bench::output_of(bench::this_program() + " --steps " + std::to_string(steps) +
                                           " --transport " + one + " --only " + std::to_string(n));
        all[{one, n}].push_back({bench::number_after(text, "compute"), bench::number_after(text, "wait"),
                                 bench::number_after(text, "communication")});
      }
  auto const cores = static_cast<int>(Cpu{}.cores().size());
  for (auto const& one : transports) {
    auto alone = 0.0;
    for (auto const n : counts) {
      auto const of = [&](auto part) {
        auto values = std::vector<double>{};
        for (auto const& step : all[{one, n}]) values.push_back(part(step));
        return bench::median(values);
      };
      auto const us     = of([](Parts const& p) { return p.all(); });
      auto const images = n * static_cast<double>(rows) / us * 1e6;
      if (n == 1) alone = images;
      auto const predicted = alone * std::min(n, cores);
      auto row             = bench::Row{"weak_scaling"};
      row.add("transport", one).add("processes", n, "%.0f").add("images_per_s", images, "%.0f");
      row.add("predicted", predicted, "%.0f")
          .add("efficiency", images / predicted, "%.2f")
          .add("us_per_step", us, "%.0f");
      row.add("compute_us", of([](Parts const& p) { return p.compute; }), "%.0f");
      row.add("wait_us", of([](Parts const& p) { return p.wait; }), "%.0f");
      row.add("communication_us", of([](Parts const& p) { return p.communication; }), "%.0f");
      row.print(json);
    }
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
