// SPDX-License-Identifier: Apache-2.0
//
// run_folder FOLDER [FIRST_STEP]: a small training run that tells every sink, for run_folder_test.py to look at with
// the readers of others. Three ranks share each batch: a line that separates two clouds of points is found by descent.
#include <chorale/observe/csv.hpp>
#include <chorale/observe/prometheus.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/observe/tensorboard.hpp>
#include <chorale/observe/timeline.hpp>

#include <chorale/core/random.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

using namespace chorale;

namespace {

constexpr int ranks = 3, steps = 120;
constexpr std::size_t batch = 24, validation = 400;

using Weights = std::array<double, 3>;  // two coordinates and a constant

struct Point {
  double x, y;
  bool is_right;
};

/// A point of one of two clouds that overlap.
Point point(std::uint64_t i) {
  auto const random = Random{Seed{11}, i};
  auto const right  = random.uniform(0) < 0.5F;
  auto const normal = [&](std::uint64_t from) {  // nearly
    auto sum = -6.0;
    for (std::uint64_t k = from; k < from + 12; ++k) sum += random.uniform(k);
    return sum;
  };
  return {normal(1) + (right ? 1.2 : -1.2), normal(20) + (right ? 0.7 : -0.7), right};
}

struct Sums {
  double loss = 0, right = 0, rows = 0;
  Weights gradient{};

  void add(Weights const& w, Point const& p) {
    auto const chance = 1 / (1 + std::exp(-(w[0] * p.x + w[1] * p.y + w[2])));
    auto const error  = chance - (p.is_right ? 1 : 0);
    loss -= std::log(std::max(p.is_right ? chance : 1 - chance, 1e-12));
    right += (chance > 0.5) == p.is_right;
    ++rows;
    gradient[0] += error * p.x;
    gradient[1] += error * p.y;
    gradient[2] += error;
  }
};

}  // namespace

int main(int argc, char** argv) {
  auto const folder = std::filesystem::path{argc > 1 ? argv[1] : "run"};
  auto const first  = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  auto tally        = Tally{};
  auto timelines    = std::deque<Timeline>{};
  for (int rank = 0; rank < ranks; ++rank)
    timelines.emplace_back(folder / ("trace-" + std::to_string(rank) + ".json"),
                           ClockOffset{.offset = {}, .error = std::chrono::nanoseconds{rank * 40}});
  auto log     = CsvLog{folder / "scalars.csv", {"loss", "accuracy", "val_loss", "val_accuracy"}};
  auto board   = TensorBoardRun{folder / "train", {.first_step = first}};
  auto checked = TensorBoardRun{folder / "validation", {.first_step = first}};
  auto page    = Prometheus{};
  auto w       = Weights{-0.8, 0.9, 0.5};

  for (auto step = first; step < steps; ++step) {
    auto sums     = Sums{};
    auto one_rank = [&](Rank rank) {
      auto sink        = Fanout{timelines[static_cast<std::size_t>(rank)], tally};
      auto const whole = Timed{sink, {.name = "step", .category = Category::step, .rank = rank, .step = step}};
      auto points      = std::vector<Point>{};
      {
        auto const timed = Timed{sink, {.name = "next batch", .category = Category::input, .rank = rank, .step = step}};
        auto const mine  = share(batch, rank, ranks);
        for (auto i = mine.begin; i < mine.end; ++i) points.push_back(point(step * batch + i));
      }
      {
        auto const timed = Timed{sink, {.name = "gradient <\"w\">", .rank = rank, .step = step}};
        for (auto const& p : points) sums.add(w, p);
      }
      auto timed = Timed{sink, {.name = "sum", .category = Category::communication, .rank = rank, .step = step}};
      if (rank != 0) timed.sent(sizeof(Weights));
    };
    for (Rank rank = 0; rank < ranks; ++rank) one_rank(rank);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * sums.gradient[i] / sums.rows;

    auto values = std::vector<MetricValue>{{"loss", sums.loss / sums.rows}, {"accuracy", sums.right / sums.rows}};
    board.take({.step = step, .values = values});
    if (step % 10 == 0) {
      auto test = Sums{};
      for (std::size_t i = 0; i < validation; ++i) test.add(w, point(1'000'000 + i));
      auto const seen =
          std::array{MetricValue{"loss", test.loss / test.rows}, MetricValue{"accuracy", test.right / test.rows}};
      checked.take({.step = step, .values = seen});
      values.push_back({"val_loss", seen[0].value});
      values.push_back({"val_accuracy", seen[1].value});
      auto const weights = std::array{static_cast<float>(w[0]), static_cast<float>(w[1]), static_cast<float>(w[2])};
      board.histogram("weights", step, weights);
    }
    log.take({.step = step, .values = values});
    page.gauge("chorale_loss", "Loss of the last step.", sums.loss / sums.rows);
    page.counter("chorale_step_total", "Steps done.", static_cast<double>(step + 1));
  }
  // One pixel, white.
  auto const pixel = std::array<unsigned char, 69>{
      0x89, 'P',  'N',  'G', 0x0D, 0x0A, 0x1A, 0x0A, 0,    0,    0,    0x0D, 'I',  'H',  'D',  'R',  0,    0,
      0,    1,    0,    0,   0,    1,    8,    2,    0,    0,    0,    0x90, 0x77, 0x53, 0xDE, 0,    0,    0,
      0x0C, 'I',  'D',  'A', 'T',  0x08, 0xD7, 0x63, 0xF8, 0xFF, 0xFF, 0x3F, 0,    0x05, 0xFE, 0x02, 0xFE, 0xDC,
      0xCC, 0x59, 0xE7, 0,   0,    0,    0,    'I',  'E',  'N',  'D',  0xAE, 0x42, 0x60, 0x82};
  board.image("pixel", steps, {.height = 1, .width = 1, .channels = 3, .png = std::as_bytes(std::span{pixel})});
  page.counters(tally);
  page.write(folder / "metrics.prom");
  for (auto& timeline : timelines) timeline.flush();
  std::fputs(why_slow(tally.spent(0)).c_str(), stdout);
  std::fputs(straggler_line(tally.paces()).c_str(), stdout);
}
