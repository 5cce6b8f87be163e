// SPDX-License-Identifier: Apache-2.0
//
// Two models that train each other, in a loop of one's own: a generator makes points of noise, a discriminator tells
// them from points on a circle, and the gradient by its input is what the generator learns from. On two replicas; the
// strategy, the reduce and the transport are those of all other examples.
//
//   tools/run 12_gan
//
// Expect the mean radius of the points that are made to come near 2, that of the circle, and the loss of the
// discriminator near ln 2 = 0.69: it can no longer tell them apart.
#include <chorale/chorale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <numbers>
#include <vector>

using namespace chorale;

struct Noise : Field<float, 2> {};
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};

struct Generator : nn::Graph<Noise> {
  nn::Block<nn::Dense<16>, nn::Tanh, nn::Dense<16>, nn::Tanh, nn::Dense<2>> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Point>(layers(noise)); }
};
struct Discriminator : nn::Graph<nn::Differentiable<Point, nn::OnRequest>> {
  nn::Block<nn::Dense<24>, nn::Tanh, nn::Dense<24>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layers(point)); }
};

int main() try {
  constexpr std::size_t rows = 4'096;
  auto numbers               = std::vector<float>(rows);
  for (std::size_t i = 0; i < rows; ++i) numbers[i] = static_cast<float>(i);
  auto const circle = data::from_tensors(numbers, numbers, 1)
                          .map<Noise, Point>([](auto const& row, auto& to) {
                            auto const draw  = Random{Seed{9}, static_cast<std::uint64_t>(row.x[0])};
                            auto const angle = 2 * std::numbers::pi_v<float> * draw.uniform(0);
                            to[Point{}]      = {2 * std::cos(angle), 2 * std::sin(angle)};
                            to[Noise{}]      = {draw.normal(1), draw.normal(2)};
                          })
                          .cache()
                          .shuffle(rows)
                          .batch(64);

  auto const rule = optim::Adam{.learning_rate = 2e-3F, .beta_1 = 0.5F};
  auto strategy   = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto generators = strategy.create(nn::compile<Generator>(loss::Given{}, rule), 1);
  auto critics    = strategy.create(nn::compile<Discriminator>(loss::BinaryCrossEntropy{}, rule), 2);

  auto const step = [&](auto& replica, auto& generator, auto& critic, Rows<Noise, Point> const& batch, float& radius) {
    auto const learn = [&](auto& model, auto const& batch_of_model) {
      auto [loss, gradients] = replica.value_and_gradient(model, batch_of_model);
      strategy.update(replica, model, gradients);
      return loss;
    };
    auto const fakes = generator.outputs(batch);  // (B, 2), until the generator computes again
    auto points      = std::vector<float>(batch[Point{}].begin(), batch[Point{}].end());  // (2 B, 2): real, made
    auto is_real     = std::vector<float>(batch.rows, 1.0F);                              // (2 B, 1)
    points.insert(points.end(), fakes.begin(), fakes.end());
    is_real.resize(2 * batch.rows, 0.0F);
    auto const loss = learn(critic, Rows<Point, IsReal>{points, is_real});

    radius = 0;
    for (std::size_t i = 0; i < batch.rows; ++i)
      radius += std::hypot(fakes[2 * i], fakes[2 * i + 1]) / static_cast<float>(batch.rows);

    auto const ones = std::vector<float>(batch.rows, 1.0F);  // as if they were real
    learn(generator, Rows<Point>{critic.gradient_by(Point{}, Rows<Point, IsReal>{fakes, ones})});
    return loss;
  };

  auto radii  = PerReplica<float>(generators.size());
  auto loss   = metric::Mean{};
  auto radius = metric::Mean{};
  for (int epoch = 0; epoch < 60; ++epoch) {
    loss.reset(), radius.reset();
    for (auto& batch : strategy.distribute(circle, epoch)) {
      loss.update(strategy.reduce(strategy.run(step, generators, critics, batch, radii)));
      radius.update({radii[0], 1});
    }
    if (epoch % 20 == 19)
      std::printf("epoch %d: loss of the discriminator %.3f, mean radius %.3f\n", epoch + 1, loss.result(),
                  radius.result());
  }
  auto const equal = generators[0].hash() == generators[1].hash() && critics[0].hash() == critics[1].hash();
  return equal && std::abs(radius.result() - 2) < 0.2 && std::abs(loss.result() - std::numbers::ln2) < 0.1 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
