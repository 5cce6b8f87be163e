// SPDX-License-Identifier: Apache-2.0
//
// Two networks that train each other in a loop of one's own, as examples/12_gan.cpp, on several replicas and on one.
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

struct Noise : Field<float, 2> {};
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};

struct Maker : nn::Graph<Noise> {
  nn::Block<nn::Dense<16>, nn::Tanh, nn::Dense<2>> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Point>(layers(noise)); }
};
struct Critic : nn::Graph<nn::Differentiable<Point>> {
  nn::Block<nn::Dense<24>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layers(point)); }
};

/// Points on a circle beside noise, in batches of 64 and one of 40.
auto circle() {
  constexpr std::size_t rows = 5 * 64 + 40;
  auto numbers               = std::vector<float>(rows);
  for (std::size_t i = 0; i < rows; ++i) numbers[i] = static_cast<float>(i);
  return data::from_tensors(numbers, numbers, 1)
      .map<Noise, Point>([](auto const& row, auto& to) {
        auto const draw  = Random{Seed{9}, static_cast<std::uint64_t>(row.x[0])};
        auto const angle = 2 * std::numbers::pi_v<float> * draw.uniform(0);
        to[Point{}]      = {2 * std::cos(angle), 2 * std::sin(angle)};
        to[Noise{}]      = {draw.normal(1), draw.normal(2)};
      })
      .batch(64);
}

struct Played {
  std::vector<float> values;                   // of both networks, of the first replica
  std::vector<std::uint64_t> makers, critics;  // hashes of all replicas
};

/// Both networks after some epochs.
///
/// by_rows   points, and the gradients by them, are computed row by row, so that their bits do not depend on the share
template <class S, class R = RingAllReduce, class T = LocalTransport>
Played played(S strategy_of, R reduce = {}, T transport = {}, int epochs = 3, bool by_rows = false) {
  auto const rule = optim::Adam{.learning_rate = 2e-3F, .beta_1 = 0.5F};
  auto strategy   = Live{std::move(strategy_of), reduce, transport};
  auto makers     = strategy.create(nn::compile<Maker>(loss::Given{}, rule), 1);
  auto critics    = strategy.create(nn::compile<Critic>(loss::BinaryCrossEntropy{}, rule), 2);
  auto const step = [&](auto& replica, auto& maker, auto& critic, Rows<Noise, Point> const& batch) {
    auto const learn = [&](auto& model, auto of_model, std::size_t times) {
      of_model.first_row     = times * batch.first_row;
      of_model.global_rows   = times * batch.global_rows;
      auto [loss, gradients] = replica.value_and_gradient(model, of_model);
      strategy.update(replica, model, gradients);
      return loss;
    };
    auto const parts   = by_rows ? static_cast<int>(batch.rows) : 1;
    auto const collect = [&](std::vector<float>& all, Span<float const> some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    auto fakes = std::vector<float>{}, towards = fakes;
    for (int k = 0; k < parts; ++k) collect(fakes, maker.predict(batch.part(k, parts)));
    auto points  = std::vector<float>{};  // (2 B, 2): a real one, then one that was made
    auto is_real = std::vector<float>{};  // (2 B, 1)
    for (std::size_t i = 0; i < batch.rows; ++i) {
      points.insert(points.end(), {batch[Point{}][2 * i], batch[Point{}][2 * i + 1], fakes[2 * i], fakes[2 * i + 1]});
      is_real.insert(is_real.end(), {1, 0});
    }
    auto const loss = learn(critic, Rows<Point, IsReal>{points, is_real}, 2);
    auto const ones = std::vector<float>(batch.rows, 1.0F);
    auto const made = Rows<Point, IsReal>{fakes, ones};
    for (int k = 0; k < parts; ++k) {
      critic.value_and_gradient(made.part(k, parts), batch.first_row, LooksAtEnd{});
      collect(towards, critic.gradient_by(Point{}));
    }
    learn(maker, Rows<Noise, Point>{batch[Noise{}], towards}, 1);
    return loss;
  };
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& batch : strategy.distribute(circle(), epoch))
      strategy.reduce(strategy.run(step, makers, critics, batch));
  auto got        = Played{};
  auto const take = [&](auto& models, auto& hashes) {
    for (std::size_t i = 0; i < models.size(); ++i) hashes.push_back(models[i].hash());
    auto const variables = models[0].net.variables();
    for (std::size_t i = 0; i < variables.size(); ++i)
      got.values.insert(got.values.end(), variables[i].value.begin(), variables[i].value.end());
  };
  take(makers, got.makers), take(critics, got.critics);
  return got;
}

double difference(Played const& got, Played const& wanted) {
  REQUIRE(got.values.size() == wanted.values.size());
  auto apart = 0.0;
  for (std::size_t i = 0; i < got.values.size(); ++i)
    apart = std::max(apart, std::abs(static_cast<double>(got.values[i] - wanted.values[i])));
  return apart;
}

}  // namespace

TEST_CASE("replicas of two rivals learn what one replica learns", "[nn][graph][live]") {
  auto const replicas = GENERATE(1, 2, 3);
  auto const one      = played(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const check    = [&](Played const& got) {
    CHECK(difference(got, one) < 1e-5);
    CHECK(std::ranges::count(got.makers, got.makers[0]) == std::ssize(got.makers));
    CHECK(std::ranges::count(got.critics, got.critics[0]) == std::ssize(got.critics));
  };
  check(played(MirroredStrategy{Cpu::logical(replicas)}));
  check(played(MirroredStrategy{Cpu::logical(replicas)}, TreeAllReduce{}, TcpTransport{}));
  check(played(MultiWorkerMirroredStrategy{Cluster::local(replicas)}, RingAllReduce{}, SharedMemoryTransport{}));
  check(played(CentralStorageStrategy{Cpu::logical(replicas), Cpu::logical(1)[0]}));
  CHECK(difference(played(OneDeviceStrategy{Cpu::logical(1)[0]}, {}, {}, 1), one) > 1e-2);  // they do learn
}

TEST_CASE("under Reproducible any number of replicas of two rivals has the bits of one", "[nn][graph][reproducible]") {
  auto const replicas = GENERATE(2, 3, 4);
  auto const one      = played(MirroredStrategy{Cpu::logical(1)}, Reproducible{}, LocalTransport{}, 3, true);
  auto const many     = played(MirroredStrategy{Cpu::logical(replicas)}, Reproducible{}, LocalTransport{}, 3, true);
  for (auto const hash : many.makers) CHECK(hash == one.makers[0]);
  for (auto const hash : many.critics) CHECK(hash == one.critics[0]);
}

TEST_CASE("servers hold the variables of one model, and say so for two rivals", "[nn][graph][servers]") {
  CHECK_THROWS_WITH(played(ParameterServerStrategy{Cluster::local(1, 1), Synchronous{}}),
                    Catch::Matchers::Contains("servers hold the variables of one model"));
}
