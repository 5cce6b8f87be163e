// SPDX-License-Identifier: Apache-2.0
#include "test/support/count_allocations.hpp"
#include "test/support/on_ranks.hpp"
#include "test/support/tiny.hpp"

#include <chorale/strategy/sharded.hpp>
#include <chorale/trainer/online.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace online_tests {

using namespace chorale;
using chorale::test::same_bits;
using Catch::Matchers::Contains;
using Points = BasicBatch<float, float>;

struct Line : nn::Sequential<nn::Input<3>, nn::Dense<5>, nn::Tanh, nn::Dense<2>> {};

auto line() { return nn::compile<Line>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 1e-2F}); }
auto small() { return nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::Accuracy{}); }

template <class S, class R = RingAllReduce> auto trainer_of(auto const& model, S strategy, R reduce = {}) {
  return Trainer{model, strategy, reduce, LocalTransport{}, 7};
}

/// Numbers of rows that the ranks of one job find for theirs.
std::vector<detail::RowNumbers> numbered(int replicas, std::vector<std::uint64_t> const& rows) {
  auto live  = Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}};
  auto ranks = PerReplica<std::size_t>(rows.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  auto numbers = live.run([&](auto& replica, std::size_t i) { return detail::number_rows(replica, rows[i]); }, ranks);
  return {numbers.begin(), numbers.end()};
}

/// A model that notes where its numbers lie: the loss is their sum, the outputs are the numbers themselves.
struct Seen {
  static constexpr std::size_t output_width = 6;

  std::vector<float const*>* x;
  std::vector<float const*>* y;

  float learn(auto& step, Points const& batch) const {
    step.gradient(0)[0] += 1;
    auto const part = batch.global_rows == 0 ? 0 : batch.first_row / 4;
    x->at(part) = batch.x.data(), y->at(part) = batch.y.data();
    return std::accumulate(batch.x.begin(), batch.x.end(), 0.0F);
  }
  Span<float const> predict(Variables const&, Points const& batch) const { return batch.x; }
};

TEST_CASE("ranks number their rows, those of rank 0 first", "[trainer][online]") {
  for (int replicas = 1; replicas <= 9; ++replicas) {
    auto rows = std::vector<std::uint64_t>{};
    for (int i = 0; i < replicas; ++i) rows.push_back(static_cast<std::uint64_t>((i * 7 + 3) % 5));
    auto const numbers = numbered(replicas, rows);
    auto before        = std::uint64_t{0};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      INFO("rank " << i << " of " << replicas);
      CHECK(numbers[i].first == before);
      CHECK(numbers[i].all == std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}));
      before += rows[i];
    }
  }
}

TEST_CASE("a model reads the program's arrays where they lie", "[trainer][online]") {
  auto x = std::vector<float const*>(3), y = x;
  auto const model   = custom_model<Points>({{"offset"}}, Seen{&x, &y}, optim::SGD{});
  auto const numbers = tiny::batch<float>(12, 6, 2);
  auto alone         = trainer_of(model, OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const scores  = OnlineTraining{alone}.train(numbers.view());
  CHECK(x[0] == numbers.x.data());
  CHECK(y[0] == numbers.y.data());
  CHECK(scores.rows() == 12);
  CHECK(scores.loss() == Approx(std::accumulate(numbers.x.begin(), numbers.x.end(), 0.0) / 12).margin(1e-5));
  auto three = trainer_of(model, MirroredStrategy{Cpu::logical(3)});
  OnlineTraining{three}.train(numbers.view());
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(x[i] == numbers.x.data() + i * 4 * 6);
    CHECK(y[i] == numbers.y.data() + i * 4 * 2);
  }
}

TEST_CASE("steps online are those of fit, with the same bits", "[trainer][online]") {
  auto const rows  = tiny::batch<int>(48, 64, 1);
  auto const data  = tiny::Batches<int>{rows, {20, 20, 8}};
  auto fitted      = trainer_of(small(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible{});
  auto const epoch = fitted.fit(data, {.show = Show::nothing}).front();
  auto const check = [&](auto strategy) {
    auto trainer = trainer_of(small(), strategy, Reproducible{});
    auto online  = OnlineTraining{trainer};
    auto loss = 0.0, right = 0.0;
    for (auto stream = data.stream(0);;) {
      auto batch = Batch{};
      if (!stream.next(batch)) break;
      auto const scores = online.train(batch);
      loss += scores.loss() * static_cast<double>(scores.rows());
      right += scores["accuracy"] * static_cast<double>(scores.rows());
    }
    CHECK(trainer.step() == 3);
    CHECK(loss / 48 == Approx(epoch.scores.loss()).epsilon(1e-12));
    CHECK(right / 48 == Approx(epoch.scores["accuracy"]).epsilon(1e-12));
    auto const wanted = trainer.evaluate(tiny::Batches<int>{rows, {48}});
    CHECK(online.evaluate(rows.view()).loss() == Approx(wanted.loss()).epsilon(1e-6));
    CHECK(online.evaluate(rows.view())["accuracy"] == wanted["accuracy"]);
    CHECK(same_bits(trainer.variables().values, fitted.variables().values));  // Dropout: by number of row
  };
  check(OneDeviceStrategy{Cpu::logical(1)[0]});
  check(MirroredStrategy{Cpu::logical(3)});
  check(ShardedStrategy<Zero::three>{Cpu::logical(2)});
}

TEST_CASE("a step online allocates nothing", "[trainer][online]") {
  auto x = std::vector<float const*>(3), y = x;
  auto trainer       = trainer_of(custom_model<Points>({{"offset"}}, Seen{&x, &y}, optim::Adam{}),
                                  OneDeviceStrategy{Cpu::logical(1)[0]});
  auto online        = OnlineTraining{trainer};
  auto const numbers = tiny::batch<float>(12, 6, 2);
  auto const wide = std::vector<double>(72, 0.5), targets = std::vector<double>(24, 0.25);
  auto out        = std::vector<double>(72);
  auto const step = [&] {
    online.train(numbers.view());
    online.predict(BasicBatch<double, double>{.x = wide, .rows = 12}, Span<double>{out});
    return online.train(BasicBatch<double, double>{.x = wide, .y = targets, .rows = 12}).loss();
  };
  CHECK(step() == 3);
  CHECK(out == wide);
  auto const before = test::allocations;
  for (int i = 0; i < 20; ++i) step();
  CHECK(test::allocations == before);
}

TEST_CASE("doubles are rounded, and integers are labels", "[trainer][online]") {
  auto const numbers = tiny::batch<float>(9, 3, 2);
  auto const x       = std::vector<double>(numbers.x.begin(), numbers.x.end()),
             y       = std::vector<double>(numbers.y.begin(), numbers.y.end());
  auto const exact   = BasicBatch<double, double>{.x = x, .y = y, .rows = 9};
  auto floats        = trainer_of(line(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto doubles       = trainer_of(line(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto one           = OnlineTraining{floats};
  auto two           = OnlineTraining{doubles};
  auto out           = std::vector<float>(18);
  auto wide          = std::vector<double>(18);
  auto const step    = [&] {
    auto const a = one.train(numbers.view()).loss(), b = two.train(exact).loss();
    one.predict(numbers.view(), Span<float>{out});
    two.predict(BasicBatch<double, double>{.x = x, .rows = 9}, Span<double>{wide});
    return a == b;
  };
  auto same = true;
  for (int i = 0; i < 20; ++i) same = step() && same;
  CHECK(same);
  CHECK(floats.hashes() == doubles.hashes());
  CHECK(std::vector<double>(out.begin(), out.end()) == wide);
  auto const predicted = floats.predict(tiny::Batches<float>{numbers, {9}});
  CHECK(predicted.values == out);
  auto classes           = trainer_of(small(), MirroredStrategy{Cpu::logical(2)});
  auto images            = tiny::batch<int>(5, 64, 1);
  auto labels            = std::vector<std::int64_t>(images.y.begin(), images.y.end());
  auto online            = OnlineTraining{classes};
  auto const wide_labels = BasicBatch<float, std::int64_t>{.x = images.x, .y = labels, .rows = 5};
  CHECK(online.evaluate(wide_labels).loss() == online.evaluate(images.view()).loss());
  labels[3] = std::int64_t{1} << 40;
  CHECK_THROWS_WITH(online.train(wide_labels), Contains("label 1099511627776 is beyond what an int has"));
}

TEST_CASE("what does not fit online is refused in a sentence, and training goes on", "[trainer][online]") {
  auto const numbers = tiny::batch<float>(8, 3, 2);
  for (int replicas = 1; replicas <= 3; ++replicas) {
    auto trainer       = trainer_of(line(), MirroredStrategy{Cpu::logical(replicas)});
    auto online        = OnlineTraining{trainer};
    auto out           = std::vector<float>(15);
    auto const refuses = [&](Points batch, std::string const& text) {
      CHECK_THROWS_WITH(online.train(batch), Contains(text));
      CHECK_THROWS_AS(online.train(batch), BadArgument);
    };
    auto const x = Span<float const>{numbers.x}, y = Span<float const>{numbers.y};
    refuses({.x = x.first(23), .y = y, .rows = 8}, "23 numbers and 16 targets are not 8 rows");
    refuses({.x = x, .y = y.first(15), .rows = 8}, "24 numbers and 15 targets are not 8 rows");
    refuses({.x = x.first(16), .y = y, .rows = 8}, "the network takes rows of (3,), ");
    refuses({.x = x, .y = y.first(8), .rows = 8}, "the loss takes 2 targets a row");
    refuses({}, "a step of " + std::to_string(replicas) + " replicas has 0 rows in all of them");
    CHECK_THROWS_WITH(online.predict(numbers.view(), Span<float>{out}),
                      Contains("predict writes 2 outputs for each of 8 rows, 16 in all, but there is room for 15"));
    CHECK(online.train(numbers.view()).rows() == 8);
    CHECK(trainer.step() == 1);
  }
  auto trainer      = trainer_of(line(), MirroredStrategy{Cpu::logical(2)}, Reproducible{});
  auto online       = OnlineTraining{trainer};
  auto batch        = numbers.view();
  batch.global_rows = 40, batch.first_row = 3;
  CHECK_THROWS_WITH(online.train(batch),
                    Contains("under Reproducible rank 0 of 2 has rows 0 to 20 of the 40 rows of a step"));
}

}  // namespace online_tests
