// SPDX-License-Identifier: Apache-2.0
// Two models for c_test.c, trained by the program alone.
#include <chorale/c/library.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>

#include <cstdint>

using namespace chorale;

struct Plane : nn::Sequential<nn::Input<3>, nn::Dense<8>, nn::Tanh, nn::Dense<2>> {};
struct Kinds : nn::Sequential<nn::Input<2>, nn::Dense<3>> {};

extern "C" int chorale_create(char const* name, int communicator, std::uint64_t seed, chorale_trainer** trainer) {
  return c::create(
      {name, communicator, Seed{seed}}, trainer,
      c::Model{"plane",
               [](c::Job const& job) {
                 return c::alone(nn::compile<Plane>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 1e-2F}),
                                 job);
               }},
      c::Model{"kinds", [](c::Job const& job) {
                 auto const sgd = optim::SGD{.learning_rate = 0.5F};
                 return c::alone(nn::compile<Kinds>(loss::SparseCrossEntropy{}, sgd, metric::Accuracy{}), job);
               }});
}
