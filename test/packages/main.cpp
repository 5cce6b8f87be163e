// SPDX-License-Identifier: Apache-2.0
// A program that is small to compile, and trains a step: packages_test.py builds it with each build system.
#include <chorale/data/dataset.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

using namespace chorale;
using Points = BasicBatch<float, float>;  // x (B, 1), y (B, 1)

/// y = w x + b: adds up the squared errors, and their derivatives.
auto const squared_error = [](auto& step, Points const& batch) {
  auto loss = 0.0F;
  for (std::size_t r = 0; r < batch.rows; ++r) {
    auto const error = step.value(0)[0] * batch.x[r] + step.value(1)[0] - batch.y[r];
    step.gradient(0)[0] += 2 * error * batch.x[r];
    step.gradient(1)[0] += 2 * error;
    loss += error * error;
  }
  return loss;
};

// From w = b = 0 the loss is (9 + 1 + 9 + 25) / 4 = 11. Its gradient by w is 2 (-6 - 1 - 3 - 10) / 4 = -10, by b -2.
// With w = 1.25 and b = 0.25 the loss is (0.5625 + 0 + 2.25 + 5.0625) / 4 = 1.96875.
int main() {
  auto const x = std::vector<float>{-2, -1, 1, 2}, y = std::vector<float>{-3, -1, 3, 5};  // y = 2 x + 1
  auto const rows   = data::from_tensors(x, y, 1).batch(4);
  auto const model  = custom_model<Points>({{"w", {1}, Init::zeros}, {"b", {1}, Init::zeros}}, squared_error,
                                           optim::SGD{.learning_rate = 0.125F});
  auto trainer      = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}};
  auto const before = trainer.evaluate(rows).loss();
  trainer.fit(rows, {.show = Show::nothing});
  auto const after = trainer.evaluate(rows).loss();
  std::printf("loss %g, after a step %g\n", static_cast<double>(before), static_cast<double>(after));
  return before == 11.0 && after == 1.96875 ? 0 : 1;
}
