// SPDX-License-Identifier: Apache-2.0
//
// The memory that is planned for each model that people know is the memory that it takes, and its steps take no more.
#include "test/support/count_memory.hpp"
#include "test/support/reference_nets.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <string>

using namespace chorale;
using namespace chorale::test::reference_nets;

namespace planned_memory_test {

/// The first batch of reference_nets::batches.
auto first_batch() {
  static auto const data  = batches(16);
  static auto stream      = data.stream(0);
  static auto const batch = [] {
    auto made = typename decltype(data)::element{};
    REQUIRE(stream.next(made));
    return made;
  }();
  return batch;
}

/// Makes a copy of a model and some steps. `planned` is what its first step has taken, to the byte.
template <class Model, class Batch>
void check(std::string const& name, Model const& model, Batch const& batch, int threads) {
  CAPTURE(name, threads);
  auto const device  = Cpu::with_threads(threads);
  auto const scope   = Cpu::Scope{device};
  auto const planned = memory_of(model, batch.rows, device);
  REQUIRE(planned.activations);
  auto& memory     = test::memory;
  auto const bytes = memory.block_bytes.load();
  auto copy        = model.instantiate(device, 1);
  CHECK(memory.block_bytes - bytes ==
        planned.peak() - *planned.activations - (planned.gradients - PlanView{model.plan}.bytes_per_step()));
  auto header     = std::array<float, plan::header>{};
  auto const step = [&] {
    copy.value_and_gradient(batch, 0, LooksAtEnd{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    copy.evaluate(batch, header);
    copy.predict(batch);
  };
  step();
  CHECK(memory.block_bytes - bytes == planned.peak());
  step();  // as many rows of tables as come have come
  auto const before = memory.blocks + memory.ours;
  for (int i = 0; i < 10; ++i) step();
  auto const more = memory.blocks + memory.ours - before;
  CHECK(more == 0);
  CHECK(header[0] > -1e9F);  // and no NaN
}

template <class Net> void check(std::string const& name) {
  for (auto const threads : {1, 2}) check(name, model_of<Net>(optim::Adam{}), first_batch(), threads);
}

}  // namespace planned_memory_test

using namespace planned_memory_test;

TEST_CASE("planned bytes are allocated bytes, and a step allocates nothing, for pictures", "[nn][memory]") {
  check<LeNet>("LeNet");
  check<Residual<nn::BatchNorm>>("residual");
  auto const rows = tiny::batch<int>(16, 64, 1);
  for (auto const threads : {1, 2})
    check("Sequential", nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{}), rows.view(), threads);
}

TEST_CASE("planned bytes are allocated bytes, and a step allocates nothing, for texts", "[nn][memory]") {
  check<CharacterGpt>("character GPT");
  check<Encoder>("encoder");
  check<Tickets>("tickets");
}

TEST_CASE("planned bytes are allocated bytes, and a step allocates nothing, for tables and rivals", "[nn][memory]") {
  check<Dlrm>("DLRM");
  check<Critic>("critic");
  check(
      "generator", model_of<Generator>(optim::Adam{}),
      [] {
        auto const batch = first_batch();
        return Rows<Noise, Picture>{batch[Noise{}], batch[Picture{}]};
      }(),
      1);
}

TEST_CASE("a plan allocates no block", "[nn][memory]") {
  auto const blocks = test::memory.blocks.load();
  auto const one    = memory_of(model_of<CharacterGpt>(optim::SGD{}), 16, Cpu::logical(1)[0]);
  auto const eight  = memory_of(model_of<CharacterGpt>(optim::Adam{}), 128, Cpu::logical(1)[0]);
  CHECK(test::memory.blocks == blocks);
  CHECK(eight.slots == 2 * one.variables);
  CHECK(*eight.activations > 7 * *one.activations);
  CHECK(memory_of(model_of<CharacterGpt>(optim::SGD{}), 0, Cpu::logical(1)[0]).activations == 0);
}
