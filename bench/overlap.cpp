// SPDX-License-Identifier: Apache-2.0
//
// Step time with and without sending gradients while backward still computes, and how much of the sending that hides.
//
//   tools/run bench/overlap --json
//
// Two processes over loopback TCP, RingAllReduce, 64 rows each; one core each, where there are two. Every way runs in
// processes of its own, in turn, several rounds; medians over blocks of 10 steps of the slower process.
//
//   compute      no gradient is sent: what a step takes at least
//   after        the gradients are sent when backward is over
//   during       each bucket leaves when it is complete, and moves on at the next ones
//   own_thread   the same, and a thread of its own moves them meanwhile
//
// hidden = (after - during) / (after - compute): of the time that sending takes, the part that costs nothing.
#include "support/ranks.hpp"

#include <chorale/chorale.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/transport/tcp.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <functional>
#include <iostream>
#include <map>

using namespace chorale;

namespace {

struct Cnn : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Mlp : nn::Sequential<nn::Input<784>, nn::Dense<1024>, nn::ReLU, nn::Dense<1024>, nn::ReLU, nn::Dense<10>> {};

constexpr std::size_t rows = 64;
constexpr int ranks = 2, block = 10;

enum class Way { compute, after, during };

/// One replica in this process, the others elsewhere.
struct OneHere {
  using device                             = Cpu;
  using placement                          = placement::Mirrored;
  static constexpr bool reduces_every_step = true;

  Rank rank;

  int num_replicas() const { return ranks; }
  Group group() const { return Group{ranks, {rank}}; }
  std::vector<Cpu> local_devices() const { return Cpu::logical(1); }  // on the core that the process was given
  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);
    model.optimizer.apply(model.net.variables(), gradients);
  }
};

template <class Net, class R> bench::Times steps_of(Rank rank, TcpTransport const& transport, Way way, int blocks) {
  auto live   = Live{OneHere{rank}, R{}, transport};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}), 1);
  auto x      = std::vector<float>(rows * 784);
  auto y      = std::vector<int>(rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, static_cast<std::uint64_t>(rank)}.uniform(i);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(i % 10);
  auto share = PerReplica{std::vector{Batch{.x = x, .y = y, .rows = rows}}};
  auto times = bench::Times{};
  for (int b = -3; b < blocks; ++b) {  // three blocks of warm-up
    auto const start = std::chrono::steady_clock::now();
    for (int step = 0; step < block; ++step)
      live.run(
          [&](auto& replica, auto& copy, Batch const& batch) {
            auto result = way == Way::during ? replica.value_and_gradient_ahead(copy, batch)
                                             : replica.value_and_gradient(copy, batch);
            if (way != Way::compute) replica.all_reduce(result.gradients);
            copy.optimizer.apply(copy.net.variables(), result.gradients);
          },
          copies, share);
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (b >= 0) times.push_back(seconds * 1e6 / block);
  }
  return times;
}

template <class Net> double measure(std::string const& way, bool quick) {
  auto const transport = TcpTransport{.addresses = free_loopback_addresses(ranks)};
  auto const size      = std::size_t{quick ? 64U : 1U} << 20;  // as many blocks as for this many bytes
  return bench::on_processes(ranks, size, bench::Cores::one_each, [&](Rank rank) {
    auto const blocks = bench::Repeats{size}.blocks;
    if (way == "compute") return steps_of<Net, RingAllReduce>(rank, transport, Way::compute, blocks);
    if (way == "after") return steps_of<Net, RingAllReduce>(rank, transport, Way::after, blocks);
    if (way == "during") return steps_of<Net, RingAllReduce>(rank, transport, Way::during, blocks);
    return steps_of<Net, OwnThread<RingAllReduce>>(rank, transport, Way::during, blocks);
  });
}

double measure(std::string const& model, std::string const& way, bool quick) {
  return model == "cnn" ? measure<Cnn>(way, quick) : measure<Mlp>(way, quick);
}

}  // namespace

int main(int argc, char** argv) try {
  auto app  = CLI::App{"Step time with and without sending gradients during backward, two processes over TCP."};
  bool json = false, quick = false;
  int rounds = 5;
  std::string only, only_model = "cnn";
  auto const ways = std::vector<std::string>{"compute", "after", "during", "own_thread"};
  app.add_flag("--json", json, "one JSON object a line");
  app.add_flag("--quick", quick, "a quarter of the steps: no time to compare");
  app.add_option("--rounds", rounds, "of every way in turn")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--only", only, "measure one way and print microseconds per step")->check(CLI::IsMember(ways));
  app.add_option("--model", only_model, "for --only")->check(CLI::IsMember({"cnn", "mlp"}));
  CLI11_PARSE(app, argc, argv);
  if (!only.empty()) {
    std::printf("us_per_step %.1f\n", measure(only_model, only, quick));
    return 0;
  }

  if (!json) std::printf("%s; two processes over TCP; %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  for (std::string const model : {"cnn", "mlp"}) {
    auto all = std::map<std::string, std::vector<double>>{};
    for (int round = 0; round < rounds; ++round)
      for (auto const& way : ways) {
        auto const text = bench::output_of(bench::this_program() + " --only " + way + " --model " + model +
                                           (quick ? " --quick" : ""));
        all[way].push_back(bench::number_after(text, "us_per_step"));
      }
    auto const us      = [&](std::string const& way) { return bench::median(all[way]); };
    auto const sending = us("after") - us("compute");
    auto const bytes   = model == "cnn" ? Cnn::plan.bytes_per_step() : Mlp::plan.bytes_per_step();
    for (auto const& way : ways) {
      auto row = bench::Row{"overlap/" + model};
      row.add("way", way).add("bytes", static_cast<double>(bytes), "%.0f").add("us_per_step", us(way), "%.1f");
      if (way == "during" || way == "own_thread")
        row.add("sending_us", sending, "%.1f").add("hidden", (us("after") - us(way)) / sending, "%.2f");
      row.print(json);
    }
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
