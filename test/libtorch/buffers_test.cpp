// SPDX-License-Identifier: Apache-2.0
//
// Buffers of modules: what batch normalization remembers, counts, and what stays in the module.
#include "test/libtorch/nets.hpp"

#ifdef CHORALE_HAVE_LIBTORCH

#include <chorale/strategy/parameter_server.hpp>

#include <catch2/catch.hpp>

#include <stdexcept>
#include <vector>

using namespace chorale;
using nets::difference;

namespace {

/// A frozen layer behind which one is trained.
struct FrozenImpl : torch::nn::Module {
  torch::nn::Linear first{64, 8}, second{8, 3};
  explicit FrozenImpl(float value = 0.5F) {
    register_module("first", first), register_module("second", second);
    register_buffer("order", torch::arange(3));
    first->weight.set_requires_grad(false).fill_(value);
    first->bias.set_requires_grad(false).zero_();
  }
  torch::Tensor forward(torch::Tensor x) { return second(first(x.flatten(1))); }
};
TORCH_MODULE(Frozen);

auto norm_trainer(int replicas) {
  return Trainer{nets::model_of<nets::Norm>(), MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{},
                 LocalTransport{}, 3};
}

}  // namespace

TEST_CASE("one replica moves the buffers of batch normalization as libtorch alone does", "[libtorch]") {
  auto const rows = nets::rows();
  auto pure       = nets::Pure<nets::Norm>{};
  auto trainer    = norm_trainer(1);
  REQUIRE(difference(pure.net, trainer.variables()) == 0);
  for (auto const& batch : nets::batches(rows)) {
    pure.step(batch);
    trainer.fit(data::from_tensors(batch.x, batch.y, 64).batch(8), {.show = Show::nothing});
    CHECK(difference(pure.net, trainer.variables()) < 2e-6);
  }
  auto const v = trainer.variables();
  REQUIRE(v[v.size() - 1].name == "norm.num_batches_tracked");
  CHECK(v[v.size() - 1].value[0] == 5);
}

TEST_CASE("buffers move to the mean of the replicas' statistics, weighted by rows", "[libtorch]") {
  auto const rows     = nets::rows(7);  // 7 rows: shares of 4 and 3, of 3, 2 and 2
  auto const whole    = nets::batches(rows)[0];
  auto const replicas = GENERATE(2, 3, 9);  // of nine, two are empty
  auto mean = torch::zeros({4}, torch::kFloat64), variance = mean.clone();
  for (int i = 0; i < replicas; ++i) {
    auto const share = whole.part(i, replicas);
    if (share.rows == 0) continue;
    auto pure        = nets::Pure<nets::Norm>{};
    auto const guard = torch::NoGradGuard{};
    pure.net->train();
    pure.net(nets::Classify<nets::Norm>::images(share));
    mean += pure.net->norm->running_mean.to(torch::kFloat64) * static_cast<double>(share.rows) / 7;
    variance += pure.net->norm->running_var.to(torch::kFloat64) * static_cast<double>(share.rows) / 7;
  }
  auto trainer = norm_trainer(replicas);
  trainer.fit(nets::data(rows), {.show = Show::nothing, .compare_every = 1});
  for (auto& copy : trainer.copies()) {
    auto const& norm = copy.learner().module()->norm;
    CHECK(torch::allclose(norm->running_mean.to(torch::kFloat64), mean, 1e-5, 1e-7));
    CHECK(torch::allclose(norm->running_var.to(torch::kFloat64), variance, 1e-5, 1e-7));
    CHECK(norm->num_batches_tracked.item<std::int64_t>() == 1);
    CHECK(copy.hash() == trainer.hashes()[0]);
  }
}

TEST_CASE("copies of a module with buffers stay equal, and servers refuse them", "[libtorch]") {
  auto trainer = norm_trainer(3);
  trainer.fit(nets::data(), {.epochs = 3, .show = Show::nothing, .compare_every = 1});
  CHECK(trainer.hashes() == std::vector<std::uint64_t>(3, trainer.hashes()[0]));
  CHECK(trainer.copies()[2].learner().module()->norm->num_batches_tracked.item<std::int64_t>() == 15);
  CHECK_THROWS_WITH(
      (Trainer{nets::model_of<nets::Norm>(), ParameterServerStrategy{Cluster::local(1, 1), Synchronous{}}}),
      Catch::Contains("does not move norm.running_mean, a tracked variable"));
}

TEST_CASE("a loss that throws leaves the buffers as they were", "[libtorch]") {
  auto const rows   = nets::rows(8);
  auto const throws = [](nets::Norm& net, Batch const& batch) -> torch::Tensor {
    nets::loss_of(net, batch);  // moves the statistics
    throw std::runtime_error{"the loss is not to be had"};
  };
  auto const model = libtorch::model<Batch>([] { return nets::Norm{}; }, throws, nets::rule());
  auto copy        = model.instantiate(Cpu::logical(1)[0], Seed{3});
  auto const hash  = copy.hash();
  CHECK_THROWS_WITH(copy.value_and_gradient(nets::batches(rows)[0], 0, LooksAtEnd{}), Catch::Contains("not to be had"));
  CHECK(copy.hash() == hash);
}

TEST_CASE("evaluation moves no buffer", "[libtorch]") {
  auto trainer      = norm_trainer(2);
  auto const before = trainer.hashes();
  trainer.evaluate(nets::data());
  CHECK(trainer.hashes() == before);
}

TEST_CASE("what is frozen stays in the module, and ranks compare it", "[libtorch]") {
  auto const of = [](float value) {
    return libtorch::model<Batch>([value] { return Frozen{value}; }, nets::loss_of<Frozen>, nets::rule());
  };
  auto const model = of(0.5F);
  CHECK(PlanView{model.plan}.parameters == 8 * 3 + 3);
  CHECK(PlanView{model.plan}.variables.size() == 2);
  CHECK(model.lines() == of(0.5F).lines());
  CHECK(model.lines() != of(0.25F).lines());
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
  trainer.fit(nets::data(), {.show = Show::nothing});
  CHECK(trainer.copies()[1].learner().module()->first->weight.eq(0.5F).all().item<bool>());
}

#endif
