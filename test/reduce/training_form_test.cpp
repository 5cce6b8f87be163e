// SPDX-License-Identifier: Apache-2.0
//
// What forms of training cost, against formulas by hand and against simulations of their messages.
#include "bench/support/simulated_forms.hpp"

#include <chorale/advice/training_form.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstddef>

namespace training_form_test {

using namespace chorale;
using namespace std::chrono_literals;
using enum TrainingForm;

constexpr auto sizes = ModelSizes{.variables     = 12'000'000,
                                  .slots         = 2,
                                  .activations   = 6'000'000,
                                  .blocks        = 12,
                                  .boundary      = 400'000,
                                  .compute       = 60ms,
                                  .micro_batches = 8};

static_assert(memory_of_form(mirrored, sizes, 4) == 4 * 12'000'000 + 6'000'000);
static_assert(memory_of_form(one_device, sizes, 4) == memory_of_form(mirrored, sizes, 4));
static_assert(memory_of_form(zero_one, sizes, 4) == 2 * 12'000'000 + 6'000'000 + 6'000'000);          // 8 + 8/N
static_assert(memory_of_form(zero_two, sizes, 4) == 12'000'000 + 9'000'000 + 1'000'000 + 6'000'000);  // 4 + 12/N
static_assert(memory_of_form(zero_three, sizes, 4) == 12'000'000 + 2'000'000 + 6'000'000);            // 16/N
static_assert(memory_of_form(tensor_split, sizes, 4) == 12'000'000 + 6'000'000);
static_assert(memory_of_form(pipeline, sizes, 4) == 12'000'000 + 4 * 6'000'000 / 8);
static_assert(sent_by_form(mirrored, sizes, 4) == 18'000'000 && sent_by_form(zero_one, sizes, 4) == 18'000'000);
static_assert(sent_by_form(zero_three, sizes, 4) == 27'000'000);
static_assert(sent_by_form(tensor_split, sizes, 4) == 4 * 12 * 2 * 3 * 400'000);
static_assert(sent_by_form(mirrored, sizes, 1) == 0);

}  // namespace training_form_test

using namespace training_form_test;

TEST_CASE("a pipeline that sends in no time is idle as the formula says", "[reduce][forms]") {
  for (int const stages : {1, 2, 3, 4, 8})
    for (int const m : {1, 2, 4, 8, 32}) {
      if (m < stages && stages > 1 && m != 1) continue;
      auto const step = chorale::detail::pipelined_step(
          stages, m, [](int) { return VirtualTime{1ms}; }, [](int) { return VirtualTime{2ms}; }, VirtualTime{},
          VirtualTime{});
      CAPTURE(stages, m);
      CHECK(step == (m + stages - 1) * VirtualTime{3ms});  // (p - 1) / (m + p - 1) of it idle
    }
}

TEST_CASE("gathering that is shorter than computing is hidden, but for the first block", "[reduce][forms]") {
  using chorale::detail::gathered_step;
  CHECK(gathered_step(36ms, 3, VirtualTime{}, VirtualTime{}) == VirtualTime{36ms});
  CHECK(gathered_step(36ms, 3, VirtualTime{1ms}, VirtualTime{}) == VirtualTime{37ms});
  CHECK(gathered_step(36ms, 3, VirtualTime{1ms}, VirtualTime{1ms}) == VirtualTime{38ms});
  CHECK(gathered_step(VirtualTime{}, 3, VirtualTime{2ms}, VirtualTime{1ms}) ==
        VirtualTime{15ms});  // 6 gathers, 3 scatters
}

TEST_CASE("predicted steps are simulated steps, within a twentieth", "[reduce][forms]") {
  for (auto const& network :
       {NetworkModel{}, NetworkModel{.overhead = 2us, .far = {.latency = 50us, .bytes_per_second = 2e9}}})
    for (int const ranks : {1, 2, 3, 4, 8}) {
      auto const predicted = PredictedTimes{ranks, network};
      auto const simulated = bench::SimulatedTimes{ranks, network};
      for (auto const form : {mirrored, zero_one, zero_two, zero_three, tensor_split, pipeline}) {
        CAPTURE(name(form), ranks);
        CHECK(seconds(step_of_form(form, sizes, ranks, predicted)) ==
              Approx(seconds(step_of_form(form, sizes, ranks, simulated))).epsilon(0.05));
      }
    }
}

TEST_CASE("a step on a mesh takes what is predicted, message by message", "[reduce][forms]") {
  auto const hosts = NetworkModel{.near           = {.latency = 3us, .bytes_per_second = 150e9},
                                  .far            = {.latency = 8us, .bytes_per_second = 25e9},
                                  .ranks_per_host = 2};
  for (auto const& network : {NetworkModel{}, hosts})
    for (auto const& mesh : {bench::FormMesh{2, 1, 1}, {1, 5, 1}, {1, 1, 2}, {2, 2, 2}}) {
      CAPTURE(mesh.data, mesh.stages, mesh.parts, network.ranks_per_host);
      auto const run = bench::simulated_mesh_step(mesh, sizes, network);
      CHECK(seconds(run.check().time) ==
            Approx(seconds(bench::predicted_mesh_step(mesh, sizes, network))).epsilon(0.05));
    }
}
