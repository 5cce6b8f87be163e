// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of a training step of a table of a million rows, whose gradients are the rows that came.
//
//   tools/run bench/embedding --json
//
// A table of 1,000,000 x 64, the mean of 20 ids a row, Dense(64), ReLU, Dense(1), 1,024 rows, squared error; one thread
// a process. The peer is PyTorch's EmbeddingBag with sparse gradients, alone and under DistributedDataParallel over
// Gloo; it needs python3-torch, or an interpreter with it that CHORALE_PYTHON names. Each contender in processes of its
// own, in turn, several rounds; medians. `floor_ms` is what must move: each row that came is read by forward, and read
// and written by the update with its slot, at the speed of this machine's copies.
#include "support/ranks.hpp"
#include "support/report.hpp"

#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/transport/tcp.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace chorale;

namespace {

constexpr int width = 64, ids_of_a_row = 20;
constexpr std::size_t rows = 1024, batches = 16;

struct Ids : Field<int, ids_of_a_row> {};
struct Score : Field<float, 1> {};

template <int TableRows> struct Model : nn::Graph<Ids> {
  nn::EmbeddingBag<TableRows, width> table;
  nn::Dense<64> hidden;
  nn::Dense<1> score;

  constexpr auto operator()(auto ids) const { return nn::outputs<Score>(score(nn::relu(hidden(table(ids))))); }
};

/// The median of a step's milliseconds on one of `ranks` processes, which share a batch.
template <int TableRows, class Optimizer>
double step_ms(Optimizer const& rule, Rank rank, std::vector<std::string> const& addresses, int steps) {
  auto const ranks   = static_cast<int>(addresses.size());
  auto const model   = nn::compile<Model<TableRows>>(loss::MeanSquaredError{}, rule);
  auto const cluster = Cluster::at({.workers = addresses, .me = {Role::worker, rank}});
  auto live          = Live{MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}, RingAllReduce{},
                   with_plan(TcpTransport{}, model.plan)};
  auto copies        = live.create(model, 1);
  auto ids           = std::vector<int>(batches * rows * ids_of_a_row);
  auto scores        = std::vector<float>(rows);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(Random{7, 0}.below(i, TableRows));
  for (std::size_t i = 0; i < rows; ++i) scores[i] = Random{7, 1}.uniform(i);
  auto times = std::vector<double>{};
  for (int step = -3; step < steps; ++step) {
    auto const first = static_cast<std::size_t>(step + 3) % batches * rows * ids_of_a_row;
    auto const whole = Rows<Ids, Score>{Span<int const>{ids}.subspan(first, rows * ids_of_a_row), scores};
    auto share       = PerReplica{std::vector{whole.part(rank, ranks)}};
    auto const start = std::chrono::steady_clock::now();
    live.run(
        [](auto& replica, auto& copy, auto const& batch) {
          auto result = replica.value_and_gradient_ahead(copy, batch);
          replica.all_reduce(result.gradients);
          copy.optimizer.apply(copy.net.variables(), result.gradients);
        },
        copies, share);
    if (step >= 0) times.push_back(1e3 * bench::seconds_since(start));
  }
  return bench::median(times);
}

template <int TableRows>
double measure(std::string const& rule, Rank rank, std::vector<std::string> const& addresses, int steps) {
  if (rule == "adagrad") return step_ms<TableRows>(optim::Adagrad{.learning_rate = 0.01F}, rank, addresses, steps);
  return step_ms<TableRows>(optim::SGD{.learning_rate = 0.01F}, rank, addresses, steps);
}

/// Bytes a second that one thread copies, of memory that is larger than its caches, reads and writes counted.
double copied_bytes_per_second() {
  auto from = std::vector<char>(std::size_t{256} << 20, 1), to = from;
  auto best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto const start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    best = std::min(best, bench::seconds_since(start));
  }
  return 2.0 * static_cast<double>(from.size()) / best;
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"Milliseconds of a training step of a table of a million rows."};
  bool json = false, quick = false;
  int rounds = 5, steps = 50, only = 0;
  auto rule = std::string{"sgd"};
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_flag("--quick", quick, "a table of 1,000 rows, without the peer: to see that the program runs");
  flags.add_option("--rounds", rounds, "of every contender in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--steps", steps, "of a contender in a round")
      ->check(CLI::Range(3, 1'000'000))
      ->capture_default_str();
  flags.add_option("--only", only, "measure so many processes, and print ms_per_step")->check(CLI::PositiveNumber);
  flags.add_option("--rule", rule, "for --only")->check(CLI::IsMember({"sgd", "adagrad"}))->capture_default_str();
  CLI11_PARSE(flags, argc, argv);
  if (only > 0) {
    auto const addresses = free_loopback_addresses(only);
    bench::on_processes(only, 0, bench::Cores::one_each, [&](Rank rank) {
      auto const ms =
          quick ? measure<1'000>(rule, rank, addresses, steps) : measure<1'000'000>(rule, rank, addresses, steps);
      if (rank == 0) std::printf("ms_per_step %.4f\n", ms);
      std::fflush(stdout);
      return bench::Times{ms};
    });
    return 0;
  }
  if (!json) std::printf("%s; %d rounds in turn, medians\n", bench::machine().c_str(), rounds);
  auto const peer = !quick && bench::has_torch();
  auto all        = std::map<std::string, std::vector<double>>{};
  auto const one  = [&](std::string const& name, std::string const& command) {
    auto const text = bench::output_of(command + " --steps " + std::to_string(steps));
    all[name].push_back(bench::number_after(text, "ms_per_step"));
  };
  struct Case {
    std::string rule;
    int processes;
  };
  auto const cases = std::vector<Case>{{"sgd", 1}, {"adagrad", 1}, {"sgd", 2}, {"adagrad", 2}};
  auto const name  = [](Case const& c) { return c.rule + "/" + std::to_string(c.processes); };
  for (int round = 0; round < rounds; ++round)
    for (auto const& c : cases) {
      auto const n = std::to_string(c.processes);
      one(name(c), "'" + bench::this_program() + "' --only " + n + " --rule " + c.rule + (quick ? " --quick" : ""));
      if (peer)
        one("torch " + name(c),
            bench::python() + " '" + bench::script("embedding_peer.py") + "' " + c.rule + " --processes " + n);
    }
  auto const speed = copied_bytes_per_second();
  for (auto const& c : cases) {
    auto const ours  = bench::median(all[name(c)]);
    auto const moved = static_cast<double>(rows * ids_of_a_row * width * sizeof(float)) * (c.rule == "sgd" ? 3 : 5);
    auto row         = bench::Row{(quick ? "embedding_quick/" : "embedding/") + name(c)};
    row.add("processes", c.processes, "%.0f").add("ms_per_step", ours).add("floor_ms", 1e3 * moved / speed);
    if (c.processes > 1) row.add("faster_than_one", bench::median(all[c.rule + "/1"]) / ours, "%.2f");
    if (peer) {
      auto const theirs = bench::median(all["torch " + name(c)]);
      row.add("torch_ms_per_step", theirs).add("speedup", theirs / ours, "%.2f");
    }
    row.print(json);
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
