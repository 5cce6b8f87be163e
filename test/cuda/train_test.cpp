// SPDX-License-Identifier: Apache-2.0
//
// A Trainer on GPUs: the same program as on the CPU but for the devices. It is compiled and linked everywhere, and
// trains where there is a GPU.
#include "test/cuda/device.hpp"
#include "test/support/tiny.hpp"

#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/nccl.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

using namespace chorale;
using test::gpu_or_skip, test::through_host;

namespace {

/// The mean loss of the fourth epoch over 48 rows that can be learned by heart.
template <class P = nn::Precision<float>, class S, class R, class T, class Optimizer = optim::Adam>
double learned(S strategy, R reduce, T transport, Optimizer optimizer = {}) {
  auto trainer       = Trainer{nn::compile<tiny::LeNet, P>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{}),
                         std::move(strategy), reduce, std::move(transport), 7};
  auto const data    = tiny::Batches<int>{tiny::batch<int>(48, 784, 1), {16, 16, 16}};
  auto const history = trainer.fit(data, {.epochs = 4, .show = Show::nothing});
  CHECK(trainer.evaluate(data).rows() == 48);
  CHECK(trainer.predict(data).values.size() == 480);
  return history.back().scores.loss();
}

}  // namespace

TEST_CASE("a Trainer on a GPU learns what one on the CPU does", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("a Trainer on a GPU learns what one on the CPU does");
  if (!gpu) return;
  auto const gpus = std::vector{*gpu};
  auto const cpu  = learned(MirroredStrategy{Cpu::logical(1)}, RingAllReduce{}, LocalTransport{});
  CHECK(cpu < 1.2);  // of log 10 at first
  CHECK(learned(MirroredStrategy{gpus}, RingAllReduce{}, through_host()) == Approx(cpu).margin(0.05));
  CHECK(learned(MirroredStrategy{gpus}, NativeAllReduce{}, NcclTransport<>{.devices = gpus}) ==
        Approx(cpu).margin(0.05));
}

TEST_CASE("a Trainer on a GPU that keeps halves learns what one in float does", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("a Trainer on a GPU that keeps halves learns what one in float does");
  if (!gpu) return;
  auto const gpus = std::vector{gpu->replaying(), *gpu};
  auto const cpu  = learned(MirroredStrategy{Cpu::logical(1)}, RingAllReduce{}, LocalTransport{});
  CHECK(learned<nn::Precision<bf16>>(MirroredStrategy{gpus}, RingAllReduce{}, through_host()) ==
        Approx(cpu).margin(0.05));
  CHECK(learned<nn::Precision<fp16>>(MirroredStrategy{gpus}, RingAllReduce{}, through_host(),
                                     optim::LossScaled{optim::Adam{}}) == Approx(cpu).margin(0.05));
}

TEST_CASE("two replicas that share a GPU learn what one does", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("two replicas that share a GPU learn what one does");
  if (!gpu) return;
  auto const one = learned(MirroredStrategy{std::vector{*gpu}}, RingAllReduce{}, through_host());
  auto const two = learned(MirroredStrategy{std::vector{*gpu, *gpu}}, RingAllReduce{}, through_host());
  CHECK(two == Approx(one).margin(0.05));
}

TEST_CASE("a metric with a state is counted on the host of a GPU", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("a metric with a state is counted on the host of a GPU");
  if (!gpu) return;
  auto const model   = nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{},
                                                metric::ConfusionMatrix<10>{});
  auto trainer       = Trainer{model, MirroredStrategy{std::vector{*gpu, *gpu}}, RingAllReduce{}, through_host(), 7};
  auto const data    = tiny::Batches<int>{tiny::batch<int>(43, 784, 1), {16, 16, 10, 1}};
  auto const history = trainer.fit(data, {.epochs = 2, .show = Show::nothing});
  for (auto const& scores : {history.back().scores, trainer.evaluate(data)}) {
    auto rows = 0.0;
    for (auto const count : scores.counts("confusion_matrix")) rows += count;
    CHECK(rows == 43);
    CHECK(scores["confusion_matrix"] == Approx(scores["accuracy"]));
  }
}

TEST_CASE("a Trainer for GPUs that has none says so instead of training", "[trainer][cuda]") {
  if (!Cuda::visible().empty()) {
    CHECK(Cuda::missing().empty());
    return;
  }
  CHECK_THROWS_AS(learned(MirroredStrategy{Cuda::visible()}, RingAllReduce{}, through_host()), BadArgument);
}
