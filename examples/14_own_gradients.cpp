// SPDX-License-Identifier: Apache-2.0
//
// A model without a network: a sum of exponentials is fitted to a curve, and its gradients are written by hand. The
// strategy, the reduce and the transport are those of all other examples.
//
//   tools/run 14_own_gradients
//
// Expect a line for 1, 2, 3 and 4 replicas, with the same losses and the same hash of the variables, such as
//   3 replicas: loss 0.0231 -> 0.0000, hash 675d1fd42f7c6fbc
#include <chorale/chorale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

using namespace chorale;
using Points = BasicBatch<float, float>;  // x (B, 1), y (B, 1)

constexpr std::size_t terms = 2;

/// y = sum of a[t] exp(-b[t] x): adds up the squared errors, and their derivatives by a and b, over the rows.
auto const squared_error = [](auto& step, Points const& batch) {
  auto const a = step.value(0), b = step.value(1);  // (terms), (terms)
  auto const da = step.gradient(0), db = step.gradient(1);
  auto loss = 0.0F;
  for (std::size_t r = 0; r < batch.rows; ++r) {
    auto error = -batch.y[r];
    for (std::size_t t = 0; t < terms; ++t) error += a[t] * std::exp(-b[t] * batch.x[r]);
    for (std::size_t t = 0; t < terms; ++t) {
      da[t] += 2 * error * std::exp(-b[t] * batch.x[r]);
      db[t] -= 2 * error * std::exp(-b[t] * batch.x[r]) * a[t] * batch.x[r];
    }
    loss += error * error;
  }
  return loss;
};

int main() try {
  auto x = std::vector<float>(1'000), y = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.005F * static_cast<float>(i);
    y[i] = std::exp(-0.3F * x[i]) + std::exp(-2 * x[i]);
  }
  auto const curve = data::from_tensors(x, y, 1).shuffle(1'000).batch(50);
  auto const model = custom_model<Points>({{"amplitude", {terms}, Init::glorot_uniform}, {"rate", {terms}, Init::ones}},
                                          squared_error, optim::Adam{.learning_rate = 0.05F});
  auto hash        = std::uint64_t{0};
  for (int replicas = 1; replicas <= 4; ++replicas) {
    auto trainer       = Trainer{model, MirroredStrategy{Cpu::logical(replicas)}, Reproducible{}, LocalTransport{}, 1};
    auto const history = trainer.fit(curve, {.epochs = 30, .show = Show::nothing});
    std::printf("%d replica%s: loss %.4f -> %.4f, hash %016llx\n", replicas, replicas == 1 ? "" : "s",
                history.front().scores.loss(), history.back().scores.loss(),
                static_cast<unsigned long long>(trainer.hashes()[0]));
    if (replicas == 1) hash = trainer.hashes()[0];
    if (trainer.hashes()[0] != hash || history.back().scores.loss() > 0.001) return 1;
  }
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
