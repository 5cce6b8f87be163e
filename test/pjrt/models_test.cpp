// SPDX-License-Identifier: Apache-2.0
#include "test/support/reference_nets.hpp"

#include <chorale/nn/networks/resnet.hpp>
#include <chorale/pjrt/device/topology.hpp>
#include <chorale/pjrt/pjrt.hpp>
#include <chorale/pjrt/tpu.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

// The models that people know on PJRT devices: on a plug-in for CPUs, which CHORALE_PJRT_PLUGIN names, beside Cpu; and
// compiled for TPUs by libtpu, which TPU_LIBRARY_PATH names.

namespace pjrt_models {

using namespace chorale;
using namespace chorale::test::reference_nets;

std::string path_in(char const* variable, char const* test) {
  auto const* path = std::getenv(variable);
  if (path != nullptr && *path != '\0') return path;
  std::printf("SKIPPED: %s: %s names no plug-in\n", test, variable);
  return {};
}

/// The largest number of a span.
double largest_of(Span<float const> all) {
  auto largest = 0.0;
  for (auto const x : all) largest = std::max(largest, static_cast<double>(std::abs(x)));
  return largest;
}

/// The largest difference of two spans, relative to the largest number of the second, if that is at least `least`: a
/// gradient may be 0 but for what is rounded, as that of a bias of keys is.
double apart(Span<float const> a, Span<float const> b, double least) {
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
  return worst / std::max(least, largest_of(b));
}

/// Compares loss and gradients of a step.
///
/// there, here   copies of a model on PJRT devices and on Cpu
void compare_gradients(auto& there, auto& here, auto const& batch) {
  auto const ours   = there.value_and_gradient(batch, 0, LooksAtEnd{}, Together{});
  auto const theirs = here.value_and_gradient(batch, 0, LooksAtEnd{}, Together{});
  CHECK(ours.value == Approx(theirs.value).epsilon(1e-5));
  auto const g = there.gradients(), wanted = here.gradients();
  auto const least = 1e-2 * largest_of(wanted.body());
  for (std::size_t i = 0; i < wanted.plan.size(); ++i) {
    INFO(std::string_view{wanted.plan[i].name});
    CHECK(apart(g[i], wanted[i], least) < 1e-4);
  }
  for (std::size_t t = 0; t < wanted.tables.size(); ++t) {
    auto const &mine = g.tables[t], &other = wanted.tables[t];
    REQUIRE(mine.size() == other.size());
    for (std::size_t i = 0; i < other.size(); ++i)
      CHECK(apart(mine[mine.find(other.rows()[i])], other[i], least) < 1e-4);
  }
}

/// Compares loss and gradients of a step, then variables and loss after five with their updates.
void compare(auto& there, auto& here, auto const& batch) {
  compare_gradients(there, here, batch);
  for (int step = 0; step < 5; ++step) {
    there.step_ahead(batch);
    here.value_and_gradient(batch, 0, LooksAtEnd{}, Together{});
    here.optimizer.apply(here.net.variables(), here.gradients());
  }
  there.finish_ahead();
  CHECK(there.cores_agree());
  auto const after    = there.net.variables();
  auto const expected = here.net.variables();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    CHECK(apart(after[i].value, expected[i].value, 1e-2) < 1e-4);
  }
  auto evaluated = std::array<float, plan::header>{}, wanted_loss = evaluated;
  there.evaluate(batch, evaluated);
  here.evaluate(batch, wanted_loss);
  CHECK(evaluated[0] == Approx(wanted_loss[0]).epsilon(1e-4));
}

template <class Net> void compare(Pjrt const& device) {
  auto const model = model_of<Net>(optim::SGD{.learning_rate = 1e-2F, .momentum = 0.9F});
  auto there       = model.instantiate(device, 3);
  auto here        = model.instantiate(Cpu{}, 3);
  auto data        = batches(29);
  auto rows        = data.stream(0);
  auto batch       = typename decltype(data)::element{};
  while (rows.next(batch)) compare(there, here, batch);  // 16 rows, then 13
}

using ResNet20 = nn::resnet::ResNet20<>;

/// Compares gradients of ResNet-20, but no updates: where one of a million numbers before a ReLU is rounded to the other
/// side of 0, all gradients before it change, so the rows are some of which none is.
void compare_resnet(Pjrt const& device) {
  auto const model =
      nn::compile<ResNet20>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 1e-2F, .momentum = 0.9F});
  auto there = model.instantiate(device, 3);
  auto here  = model.instantiate(Cpu{}, 3);
  auto x     = std::vector<float>(4 * ResNet20::input::size);
  auto y     = std::vector<int>{3, 1, 4, 1};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{Seed{7}, 0}.uniform(i, -1, 1);
  compare_gradients(there, here, BasicBatch<float, int>{.x = x, .y = y, .rows = 4});
}

TEST_CASE("models learn on PJRT devices what they learn on Cpu", "[pjrt][models]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "models learn on PJRT devices what they learn on Cpu");
  if (path.empty()) return;
  auto const devices = Pjrt::open(path, {.devices = 8});
  auto const on      = [&](auto const& device) {
    compare<LeNet>(device);
    compare<Residual<nn::SyncBatchNorm>>(device);
    compare<CharacterGpt>(device);
    compare<Tickets>(device);
    compare<Dlrm>(device);
    compare<Encoder>(device);
  };
  SECTION("one device") {
    on(devices.first(1));
    compare<Residual<nn::BatchNorm>>(devices.first(1));
    compare_resnet(devices.first(1));
  }
  SECTION("three devices, whose rows are not equally many") { on(devices.first(3)); }
}

TEST_CASE("a network of several inputs and outputs trains under TPUStrategy", "[pjrt][models]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "a network of several inputs and outputs trains under TPUStrategy");
  if (path.empty()) return;
  auto const fitted = [](auto strategy) {
    auto const model = nn::compile<Tickets>(loss_of<Tickets>(), optim::AdamW{}, nn::of<Kind>(metric::Accuracy{}));
    auto trainer     = Trainer{model, strategy, DirectAllReduce{}, LocalTransport{}, 3};
    trainer.fit(batches(45), {.epochs = 2, .show = Show::nothing});
    return trainer.evaluate(batches(29));
  };
  auto const ours   = fitted(TPUStrategy<3>{Pjrt::open(path, {.devices = 8})});
  auto const theirs = fitted(OneDeviceStrategy{Cpu{}});
  CHECK(ours.rows() == theirs.rows());
  CHECK(ours.loss() == Approx(theirs.loss()).epsilon(1e-4));
  CHECK(ours["priority_loss"] == Approx(theirs["priority_loss"]).epsilon(1e-4));
  CHECK(ours["kind_accuracy"] == Approx(theirs["kind_accuracy"]));
}

/// Compiles a training step for eight TPUs, and checks that its sums over replicas and its donated memory are kept.
///
/// Traced   the network as it is traced, with losses as OfOutput
template <class Traced, class Losses> void compile_for_tpus(pjrt::Plugin const& plugin, Losses const& losses) {
  using namespace nn::stablehlo;
  auto step =
      StepWriter<Traced, Losses, optim::Adam>{losses, optim::Adam{}, {.replicas = 8, .rows = 16, .checked = true}}
          .write(StepKind::update);
  auto donated = std::int64_t{0};
  for (auto const a : step.donated) donated += 4 * count(step.arguments[a].dims);
  auto const program = pjrt::compile_for(plugin, "v5e:2x4", step.text, 8);
  CHECK(program.replicas() == 8);
  CHECK(program.memory().aliased >= donated);
  CHECK(program.optimized().bytes.find("all-reduce") != std::string::npos);
}
template <class Net> void compile_for_tpus(pjrt::Plugin const& plugin) {
  compile_for_tpus<Net>(plugin, model_of<Net>(optim::Adam{}).losses);
}

TEST_CASE("training steps of models compile for eight TPUs", "[pjrt][models][tpu]") {
  auto const path = path_in("TPU_LIBRARY_PATH", "training steps of models compile for eight TPUs");
  if (path.empty()) return;
  auto const plugin = pjrt::Plugin::open(path);
  compile_for_tpus<LeNet>(plugin);
  using Sequential = nn::stablehlo::SequentialOf<ResNet20, loss::SparseCrossEntropy>;
  compile_for_tpus<Sequential>(plugin, std::tuple{nn::of<Sequential::Y>(loss::SparseCrossEntropy{})});
  compile_for_tpus<CharacterGpt>(plugin);
  compile_for_tpus<Tickets>(plugin);
  compile_for_tpus<Dlrm>(plugin);
}

}  // namespace pjrt_models
