// SPDX-License-Identifier: Apache-2.0
//
// A network whose loss has its derivatives by inputs, as examples/20_heat_equation.cpp, on several replicas and on one.
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

namespace heat_on_replicas_test {

using namespace chorale;

namespace {

constexpr float pi = std::numbers::pi_v<float>, conductivity = 0.1F;

struct Inside : Field<float, 2> {};
struct Edge : Field<float, 2> {};
struct Residual : Field<float, 1> {};
struct Value : Field<float, 1> {};

struct Conducted : nn::Elementwise<Conducted> {
  static constexpr std::string_view name = "conducted";
  static float f(float x) { return conductivity * x; }
  static float df(float, float) { return conductivity; }
};

struct Heat : nn::Graph<Inside, Edge> {
  nn::Block<nn::Dense<16>, nn::Tanh, nn::Dense<16>, nn::Tanh, nn::Dense<1>> net;

  constexpr auto operator()(auto inside, auto edge) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<1>, nn::By<0, 0>>(net, inside);
    return nn::outputs<Residual, Value>(u_t - Conducted{}(u_xx), net(edge));
  }
};

/// Random points, in batches of 64 and one of 40.
auto points() {
  auto numbers = std::vector<float>(5 * 64 + 40);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  return data::from_tensors(numbers, numbers, 1)
      .map<Inside, Edge, Residual, Value>([](auto const& row, auto& to) {
        auto const draw = Random{Seed{2}, static_cast<std::uint64_t>(row.x[0])};
        auto const part = draw.below(0, 4);
        auto const at   = draw.uniform(1);
        to[Inside{}]    = {draw.uniform(2), draw.uniform(3)};
        to[Edge{}]      = {part == 0 ? 0 : part == 1 ? 1 : at, part < 2 ? at : 0};
        to[Residual{}]  = {0};
        to[Value{}]     = {part < 2 ? 0 : std::sin(pi * at)};
      })
      .batch(64);
}

struct Learned {
  std::vector<float> values;          // of the first replica
  std::vector<std::uint64_t> hashes;  // of all replicas
  float loss = 0, largest = 0;        // of the last epoch; error on a grid
};

template <class S, class R = RingAllReduce, class T = LocalTransport>
Learned learned(S strategy_of, R reduce = {}, T transport = {}, int epochs = 3) {
  auto const error = loss::MeanSquaredError{};
  auto const model =
      nn::compile<Heat>(nn::of<Residual>(error) + 10.0F * nn::of<Value>(error), optim::Adam{.learning_rate = 5e-3F});
  auto strategy   = Live{std::move(strategy_of), reduce, transport};
  auto copies     = strategy.create(model, 1);
  auto const step = [&](auto& replica, auto& copy, auto const& batch) {
    auto [loss, gradients] = replica.value_and_gradient(copy, batch);
    strategy.update(replica, copy, gradients);
    return loss;
  };
  auto got = Learned{};
  for (int epoch = 0; epoch < epochs; ++epoch) {
    auto loss = metric::Mean{};
    for (auto& batch : strategy.distribute(points(), epoch))
      loss.update(strategy.reduce(strategy.run(step, copies, batch)));
    got.loss = static_cast<float>(loss.result());
  }
  auto const errors = strategy.run(
      [](auto&, auto& copy) {  // on a grid of 11 x 11 points
        auto places = std::vector<float>{};
        for (int i = 0; i < 121; ++i)
          places.insert(places.end(), {static_cast<float>(i / 11) / 10, static_cast<float>(i % 11) / 10});
        auto const y = copy.predict(Rows<Inside, Edge>{places, places});
        auto largest = 0.0F;
        for (std::size_t i = 0; i < 121; ++i)
          largest = std::max(largest, std::abs(y[2 * i + 1] - std::exp(-conductivity * pi * pi * places[2 * i + 1]) *
                                                                  std::sin(pi * places[2 * i])));
        return largest;
      },
      copies);
  got.largest          = errors[0];
  auto const variables = copies[0].net.variables();
  for (std::size_t i = 0; i < variables.size(); ++i)
    got.values.insert(got.values.end(), variables[i].value.begin(), variables[i].value.end());
  for (auto const& copy : copies) got.hashes.push_back(copy.hash());
  return got;
}

auto one() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }

}  // namespace

TEST_CASE("replicas learn through derivatives what one replica learns", "[nn][graph][derivatives][live]") {
  auto const alone = learned(one());
  auto const check = [&](Learned const& got) {
    auto apart = 0.0F;
    REQUIRE(got.values.size() == alone.values.size());
    for (std::size_t i = 0; i < got.values.size(); ++i)
      apart = std::max(apart, std::abs(got.values[i] - alone.values[i]));
    CHECK(apart < 1e-5F);
    CHECK(std::abs(got.loss - alone.loss) < 1e-5F);
    CHECK(std::ranges::count(got.hashes, got.hashes[0]) == std::ssize(got.hashes));
  };
  auto const replicas = GENERATE(2, 3);
  check(learned(MirroredStrategy{Cpu::logical(replicas)}));
  check(learned(MultiWorkerMirroredStrategy{Cluster::local(replicas)}, TreeAllReduce{}, TcpTransport{}));
  check(learned(MultiWorkerMirroredStrategy{Cluster::local(replicas)}, RingAllReduce{}, SharedMemoryTransport{}));
}

TEST_CASE("under Reproducible the bits of derivatives do not depend on the replicas", "[nn][graph][reproducible]") {
  auto const alone = learned(MirroredStrategy{Cpu::logical(1)}, Reproducible{});
  auto const many  = learned(MirroredStrategy{Cpu::logical(GENERATE(2, 3))}, Reproducible{});
  for (auto const hash : many.hashes) CHECK(hash == alone.hashes[0]);
}

TEST_CASE("a network comes near the solution of a differential equation", "[nn][graph][derivatives]") {
  auto const first = learned(one(), {}, {}, 1), got = learned(one(), {}, {}, 150);
  CHECK(first.largest > 0.2F);  // it has not been told
  CHECK(got.largest < 0.05F);
  CHECK(got.loss < 0.01F);
}

}  // namespace heat_on_replicas_test
