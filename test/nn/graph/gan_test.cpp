// SPDX-License-Identifier: Apache-2.0
//
// A small GAN, in a loop of one's own, comes to make points with the statistics of its data.
#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gan_test {

using namespace chorale;

namespace {

struct Noise : Field<float, 1> {};
struct Point : Field<float, 1> {};
struct IsReal : Field<float, 1> {};

struct Maker : nn::Graph<Noise> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Point>(layers(noise)); }
};
struct Critic : nn::Graph<nn::Differentiable<Point>> {
  nn::Block<nn::Dense<24>, nn::Tanh, nn::Dense<24>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layers(point)); }
};

constexpr float wanted_mean = 3, wanted_deviation = 1.25F;

struct Statistics {
  float mean = 0, deviation = 0;
  std::uint64_t hash = 0;
};

/// What 4,096 made points are like after some steps of a number of replicas.
Statistics made_after(int steps, int replicas) {
  constexpr std::size_t rows = 128, points = 4'096;
  auto const rule = optim::Adam{.learning_rate = optim::cosine(1'500, 4e-3F, 1e-5F), .beta_1 = 0.5F};
  auto strategy   = Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}};
  auto makers     = strategy.create(nn::compile<Maker>(loss::Given{}, rule), 1);
  auto critics    = strategy.create(nn::compile<Critic>(loss::BinaryCrossEntropy{}, rule), 2);
  auto now        = std::uint64_t{0};
  auto const step = [&](auto& replica, auto& maker, auto& critic) {
    auto const learn = [&](auto& model, auto const& batch) {
      auto [loss, gradients] = replica.value_and_gradient(model, batch);
      strategy.update(replica, model, gradients);
    };
    auto const mine = share(rows, replica.id(), replica.num_replicas());
    auto const draw = Random{Seed{7}, now};
    auto noise = std::vector<float>{}, values = noise;  // (2 B): real, then made
    for (auto i = mine.begin; i < mine.end; ++i) {
      values.push_back(wanted_mean + wanted_deviation * draw.normal(i));
      noise.push_back(draw.normal(rows + i));
    }
    auto const made  = maker.predict(Rows<Noise>{noise});
    auto const fakes = std::vector<float>(made.begin(), made.end());
    values.insert(values.end(), fakes.begin(), fakes.end());
    auto const ones = std::vector<float>(mine.size(), 1.0F);
    auto is_real    = ones;
    is_real.resize(2 * ones.size(), 0.0F);
    learn(critic, Rows<Point, IsReal>{values, is_real});
    critic.value_and_gradient(Rows<Point, IsReal>{fakes, ones}, 0, LooksAtEnd{});
    learn(maker, Rows<Noise, Point>{noise, critic.gradient_by(Point{})});
  };
  for (; now < static_cast<std::uint64_t>(steps); ++now) strategy.run(step, makers, critics);
  auto const statistics = strategy.run(
      [&](auto&, auto& maker) {
        auto noise = std::vector<float>(points);
        for (std::size_t i = 0; i < points; ++i) noise[i] = Random{Seed{8}, 0}.normal(i);
        auto sum = 0.0, squares = 0.0;
        for (auto const y : maker.predict(Rows<Noise>{noise})) sum += y, squares += static_cast<double>(y * y);
        auto const mean = sum / points;
        return Statistics{static_cast<float>(mean), static_cast<float>(std::sqrt(squares / points - mean * mean)),
                          maker.hash()};
      },
      makers);
  for (auto const& one : statistics) CHECK(one.hash == statistics[0].hash);
  return statistics[0];
}

}  // namespace

TEST_CASE("a GAN comes to make points with the mean and the deviation of its data", "[nn][graph][live]") {
  auto const replicas = GENERATE(1, 2);
  auto const before = made_after(0, replicas), after = made_after(1'500, replicas);
  CAPTURE(replicas, before.mean, before.deviation, after.mean, after.deviation);
  CHECK(std::abs(before.mean - wanted_mean) > 1);
  CHECK(std::abs(after.mean - wanted_mean) < 0.1F * wanted_mean);
  CHECK(std::abs(after.deviation - wanted_deviation) < 0.1F * wanted_deviation);
  CHECK(made_after(100, replicas).hash == made_after(100, replicas).hash);
}

}  // namespace gan_test
