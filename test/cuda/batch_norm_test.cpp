// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization on a GPU against the CPU's: on one copy, and over replicas.
#include "test/strategy/batch_norm.hpp"
#include "test/cuda/device.hpp"
#include "test/cuda/same.hpp"

#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

using namespace chorale;
using test::check_same, test::gpu_or_skip, test::through_host;

namespace {

using Quick = nn::Momentum<60>;  // so that evaluation sees what has moved
struct RowNet
    : nn::Sequential<nn::Input<20>, nn::BatchNorm<Quick>, nn::Dense<9>, nn::BatchNorm<Quick>, nn::ReLU, nn::Dense<3>> {
};
struct Images : nn::Sequential<nn::Input<9, 7, 3>, nn::Conv2D<5, 3>, nn::BatchNorm<Quick, nn::Epsilon<50000>>, nn::ReLU,
                               nn::Conv2D<4, 2>, nn::SyncBatchNorm<Quick>, nn::Tanh, nn::MaxPool2D<2>, nn::Flatten,
                               nn::Dense<3>> {};

auto on(Cuda const& gpu, std::size_t replicas) { return MirroredStrategy{std::vector<Cuda>(replicas, gpu)}; }
}  // namespace

TEST_CASE("batch normalization on a GPU is the CPU's, in training and in evaluation", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("batch normalization on a GPU is the CPU's, in training and in evaluation");
  if (!gpu) return;
  auto const least = 0.1;  // of a bias in front of a normalization
  check_same<RowNet>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}, least);
  check_same<Images>(*gpu, loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}, least);
}

TEST_CASE("batch normalization on a GPU has the same bits every time", "[tensor][cuda]") {
  auto const gpu = gpu_or_skip("batch normalization on a GPU has the same bits every time");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto const data  = test::Rows<int>{Images::input::size, 1};
  auto const run   = [&] {
    auto copy = nn::compile<Images>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(*gpu, 3);
    for (int step = 0; step < 3; ++step) {
      copy.value_and_gradient(data.batch(), 0, [](std::size_t) {}, Together{});
      copy.optimizer.apply(copy.net.variables(), copy.gradients());
    }
    return copy.hash();
  };
  CHECK(run() == run());
}

TEST_CASE("replicas that share a GPU and normalize together learn what one does", "[strategy][cuda]") {
  auto const gpu = gpu_or_skip("replicas that share a GPU and normalize together learn what one does");
  if (!gpu) return;
  auto const one = norm::reference<norm::SyncNet>();  // on the CPU
  for (std::size_t const replicas : {1U, 2U}) {
    auto trainer = norm::learner<norm::SyncNet>(on(*gpu, replicas), RingAllReduce{}, through_host());
    trainer.fit(norm::uneven(), norm::watched);
    for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
    CHECK(norm::difference(norm::SyncNet::plan.variables, tiny::values_of(trainer), one.first) < 1e-3);
    CHECK(trainer.evaluate(norm::uneven()).loss() == Approx(one.second).epsilon(1e-3));
  }
}

TEST_CASE("replicas that share a GPU and normalize their shares learn what those of the CPU do", "[strategy][cuda]") {
  auto const gpu = gpu_or_skip("replicas that share a GPU and normalize their shares learn what those of the CPU do");
  if (!gpu) return;
  auto here  = norm::learner<norm::LocalNet>(on(*gpu, 2), RingAllReduce{}, through_host());
  auto there = norm::learner<norm::LocalNet>(MirroredStrategy{Cpu::logical(2)});
  here.fit(norm::uneven(), norm::watched);
  there.fit(norm::uneven(), norm::watched);
  CHECK(here.hashes()[0] == here.hashes()[1]);
  CHECK(norm::difference(norm::LocalNet::plan.variables, tiny::values_of(here), tiny::values_of(there)) < 1e-3);
}
