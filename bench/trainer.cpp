// SPDX-License-Identifier: Apache-2.0
//
// What Trainer costs over a loop written by hand on the same kernels: instructions (counted by valgrind) and
// allocations.
//
//   tools/run bench/trainer --json
//
// The CNN of the examples, batch 64, Adam, one core. Instructions of one step are the difference of two runs of
// different length, so that start-up does not count.
#include "support/count_allocations.hpp"
#include "support/report.hpp"
#include "support/same_kernels.hpp"

#include <chorale/chorale.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <iostream>
#include <optional>

using namespace chorale;

namespace {

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

constexpr std::size_t rows = 64;

/// Fixed batches in memory, so that only the loop is measured; notes what was allocated after the first step.
struct Batches {
  using element = Batch;

  std::vector<float> x = std::vector<float>(8 * rows * 784);
  std::vector<int> y   = std::vector<int>(8 * rows);
  std::size_t steps;

  explicit Batches(std::size_t n) : steps{n} {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(Random{1, 1}.below(i, 10));
  }
  Batch at(std::size_t step) const {
    auto const first = step % 8 * rows;
    return {.x    = Span<float const>{x}.subspan(first * 784, rows * 784),
            .y    = Span<int const>{y}.subspan(first, rows),
            .rows = rows};
  }

  struct Stream {
    Batches const* from;
    std::size_t step = 0;

    bool next(Batch& batch) {
      if (step == 1) mark(1);
      if (step == from->steps) {
        mark(-1);
        return false;
      }
      batch = from->at(step++);
      return true;
    }
    static void mark(int sign) {
      ours -= sign * bench::allocations.ours.load();
      onednn -= sign * bench::allocations.onednn.load();
    }
  };
  static inline long ours = 0, onednn = 0;  // between the end of step 1 and the last

  Stream stream(std::size_t) const { return {this}; }
  std::optional<std::size_t> size() const { return steps; }
};

int run_loop(std::string const& loop, std::size_t steps) {
  auto const data = Batches{steps};
  auto const core = Cpu{std::vector<int>{Cpu{}.cores().front()}};
  bench::watch_onednn();
  double loss = 0;
  if (loop == "trainer") {
    auto trainer = Trainer{nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                           OneDeviceStrategy{core}, DirectAllReduce{}, LocalTransport{}, 1};
    loss         = trainer.fit(data)[0].scores.loss();
  } else {
    auto const scope = Cpu::Scope{core};
    auto by_hand     = bench::SameKernels{static_cast<int>(rows), 1};
    auto stream      = data.stream(0);
    for (auto batch = Batch{}; stream.next(batch);)
      loss += static_cast<double>(by_hand.step(batch.x.data(), batch.y.data()));
    loss /= static_cast<double>(steps);
  }
  std::printf("loss %.6f\nallocations ours %ld\nallocations onednn %ld\n", loss, Batches::ours, Batches::onednn);
  return 0;
}

void report(bool json) {
  auto const command = [](std::string const& loop, int steps) {
    return "'" + bench::this_program() + "' --loop " + loop + " --steps " + std::to_string(steps);
  };
  constexpr int few = 2, many = 5;  // valgrind takes seconds for each
  auto const instructions = [&](std::string const& loop) {
    auto const count = [&](int steps) {
      return bench::number_after(
          bench::output_of("valgrind --tool=callgrind --callgrind-out-file=/dev/null " + command(loop, steps)),
          "Collected");
    };
    return (count(many) - count(few)) / (many - few);
  };
  if (!json)
    std::printf("%s; CNN, batch %zu, Adam, one core; valgrind presents AVX2\n", bench::machine().c_str(), rows);
  if (std::system("command -v valgrind > /dev/null") == 0) {
    auto const trainer = instructions("trainer"), by_hand = instructions("hand");
    bench::Row{"trainer/instructions per step"}
        .add("measured", trainer, "%.0f")
        .add("by_hand", by_hand, "%.0f")
        .add("ratio", trainer / by_hand, "%.6f")
        .add("extra", trainer - by_hand, "%.0f")
        .add("predicted", 1.0, "%.1f")
        .print(json);
  } else {
    std::fprintf(stderr, "SKIPPED: instructions per step: valgrind is not installed. Try: apt-get install valgrind\n");
  }

  constexpr int steps = 201;
  auto const a = bench::output_of(command("trainer", steps)), b = bench::output_of(command("hand", steps));
  auto const per_step = [&](std::string const& text, char const* whose) {
    return bench::number_after(text, whose) / (steps - 1);
  };
  bench::Row{"trainer/allocations per step"}
      .add("measured", per_step(a, "allocations ours"))
      .add("by_hand", per_step(b, "allocations ours"))
      .add("predicted", 0.0, "%.0f")
      .add("inside_onednn", per_step(a, "allocations onednn"))
      .add("inside_onednn_by_hand", per_step(b, "allocations onednn"))
      .print(json);
  bench::Row{"trainer/mean loss"}
      .add("measured", bench::number_after(a, "loss"), "%.6f")
      .add("by_hand", bench::number_after(b, "loss"), "%.6f")
      .print(json);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"What Trainer costs over a loop written by hand on the same kernels."};
  auto loop  = std::string{};
  auto steps = std::size_t{100};
  bool json  = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--loop", loop, "run one loop only: trainer or hand")->check(CLI::IsMember({"trainer", "hand"}));
  flags.add_option("--steps", steps, "of that loop")->check(CLI::PositiveNumber);
  CLI11_PARSE(flags, argc, argv);
  if (!loop.empty()) return run_loop(loop, steps);
  report(json);
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
