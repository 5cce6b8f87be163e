// SPDX-License-Identifier: Apache-2.0
//
// Advice about forms of training: memory first, then time, each with a reason.
#include <chorale/advice/advise_forms.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace advise_forms_test {

using namespace chorale;
using namespace std::chrono_literals;

struct Net : nn::Sequential<nn::Input<64>, nn::Dense<512>, nn::ReLU, nn::Dense<512>, nn::ReLU, nn::Dense<8>> {};

auto model() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}); }

/// 1 GB of variables in 10 blocks of which each takes 10 ms, and 2 GB of activations.
constexpr auto sizes = ModelSizes{.variables     = 1'000'000'000,
                                  .slots         = 2,
                                  .activations   = 2'000'000'000,
                                  .blocks        = 10,
                                  .boundary      = 10'000'000,
                                  .compute       = 100ms,
                                  .micro_batches = 16};

TrainingForm form_for(TrainingCluster const& cluster, ModelSizes const& what = sizes) {
  return advise(what, cluster).chosen().cost.form;
}

struct Ids : Field<int, 4> {};
struct Kind : Field<int, 1> {};

/// Layers of very different sizes, and a value that is read twice, on both sides of a cut.
struct Uneven : nn::Graph<Ids> {
  nn::Embedding<100, 8, nn::DenseGradient> table;
  nn::Dense<32> a, b;
  nn::Dense<96> c;
  nn::Dense<10> last;

  constexpr auto operator()(auto ids) const {
    auto const x = nn::reshape<32>(table(ids));
    auto const y = nn::tanh(a(x));
    return nn::outputs<Kind>(last(c(b(y) + y)));
  }
};

}  // namespace advise_forms_test

using namespace advise_forms_test;

TEST_CASE("of forms that fit, the one with the shortest step is advised", "[strategy][advise]") {
  using enum TrainingForm;
  auto const fast = NetworkModel{.far = {.latency = 5us, .bytes_per_second = 100e9}};
  CHECK(form_for({.ranks = 1}) == one_device);
  CHECK(form_for({.ranks = 4, .network = fast}) == mirrored);
  // 6 GB when mirrored; 4.5 GB, 4 GB or less in shards of state, of gradients, and of variables
  CHECK(form_for({.ranks = 4, .memory = 6'000'000'000, .network = fast}) == mirrored);
  auto const three = form_for({.ranks = 4, .memory = 5'999'999'999, .network = fast});
  CHECK(three != mirrored);
  auto no_boundary     = sizes;
  no_boundary.boundary = 0;  // so neither split nor pipeline
  auto const advice    = advise(no_boundary, {.ranks = 4, .memory = 3'500'000'000, .network = fast});
  CHECK(advice.forms.size() == 5);
  CHECK(advice.chosen().cost.form == zero_three);
  CHECK(std::ranges::count_if(advice.forms, [](auto const& one) { return one.fits; }) == 1);
  // where nothing fits, the smallest
  auto const none = advise(no_boundary, {.ranks = 4, .memory = 1, .network = fast});
  CHECK(none.chosen().cost.form == zero_three);
  CHECK_FALSE(none.chosen().fits);
  CHECK_THAT(none.chosen().why, Catch::Contains(" too much, and the least of all"));
  // on a network of 10 MB/s, one device is faster than any four
  CHECK(form_for({.ranks = 4, .network = {.far = {.latency = 1ms, .bytes_per_second = 1e7}}}) == one_device);
}

TEST_CASE("a table of advice has a row for each form, and its reason", "[strategy][advise]") {
  auto const advice = advise(sizes, {.ranks = 4, .memory = 5'000'000'000, .servers = 2});
  auto const text   = advice.text();
  CAPTURE(text);
  for (auto const& one : advice.forms) CHECK_THAT(text, Catch::Contains(std::string{name(one.cost.form)}));
  CHECK(std::ranges::count(text, '\n') == 9);  // 8 forms and their head
  CHECK_THAT(text, Catch::Contains("954 MiB too much") && Catch::Contains("chosen: "));
  CHECK(std::ranges::count_if(advice.forms, [](auto const& one) { return one.why.starts_with("chosen"); }) == 1);
  CHECK_THROWS_WITH(advise(sizes, {.ranks = 0}), Catch::Contains("not for 0 ranks"));
}

TEST_CASE("the costs of forms are those of strategies that have them", "[strategy][advise]") {
  auto const device  = Cpu::logical(1)[0];
  auto const cluster = TrainingCluster{.ranks = 4, .products_per_second = 1e9, .rows = 16};
  auto const what    = sizes_of(model(), cluster, device);
  auto const advice  = advise(model(), cluster, device);
  CHECK(what.blocks == 3);
  CHECK(seconds(what.compute) == Approx(3 * 16 * (64 * 512 + 512 * 512 + 512 * 8) / 1e9));
  auto const check = [&]<class S>(std::type_identity<S>, TrainingForm form) {
    auto const plan  = memory_plan<S>(model(), RingAllReduce{}, device, 16, {0, 4});
    auto const sent  = *step_operations<S>(model(), RingAllReduce{}, 4).sent(0);
    auto const& said = *std::ranges::find(advice.forms, form, [](auto const& one) { return one.cost.form; });
    CAPTURE(name(form));
    CHECK(static_cast<double>(said.cost.memory) ==
          Approx(static_cast<double>(plan.peak() - plan.received)).epsilon(0.001));
    CHECK(static_cast<double>(said.cost.sent) == Approx(static_cast<double>(sent.bytes)).epsilon(0.001));
  };
  check(std::type_identity<MirroredStrategy<>>{}, TrainingForm::mirrored);
  check(std::type_identity<ShardedStrategy<Zero::one>>{}, TrainingForm::zero_one);
}

TEST_CASE("the stages of an advised pipeline are those that a pipeline cuts", "[strategy][advise][pipeline]") {
  auto const uneven  = nn::compile<Uneven>(loss::SparseCrossEntropy{}, optim::Adam{});
  auto const cluster = TrainingCluster{.ranks = 2, .products_per_second = 1e9, .rows = 4, .micro_batches = 2};
  auto const advice  = advise(uneven, cluster, Cpu::logical(1)[0]);
  auto const& said =
      *std::ranges::find(advice.forms, TrainingForm::pipeline, [](auto const& one) { return one.cost.form; });

  auto const stages = Mesh<Axis<"stage", 2>>{Cpu::logical(2)};
  auto live =
      Live{MeshStrategy{stages, pipelined<OneForwardOneBackward<2>>()}, RingAllReduce{}, Counting<LocalTransport>{}};
  auto copies    = live.create(uneven, 7);
  auto sent      = PerReplica<std::size_t>(2);
  auto rows      = PerReplica<Rows<Ids, Kind>>(2);
  auto const ids = std::vector<int>(8 * 4, 3), kinds = std::vector<int>(8, 2);
  for (auto& one : rows) one = Rows<Ids, Kind>{Span<int const>{ids}, Span<int const>{kinds}};  // of both ranks
  live.run(
      [](auto& replica, auto& copy, auto& batch, std::size_t& bytes) {
        auto const before = replica.sent().bytes;
        replica.value_and_gradient(copy, batch);
        bytes = replica.sent().bytes - before;
      },
      copies, rows, sent);
  CHECK(said.cost.sent == std::max(sent[0], sent[1]));
  auto most = std::size_t{0};
  for (auto& copy : copies) most = std::max(most, copy.net.variables().body().size_bytes());
  auto const what = sizes_of(uneven, cluster, Cpu::logical(1)[0]);
  CHECK(said.cost.memory >= 4 * most);  // with gradients and two slots, then activations
  CHECK(said.cost.memory <= 4 * most + 2 * what.activations);
  // The sum of both stages is what two ranks compute; the slower one is on the way of each micro-batch.
  CHECK(seconds(said.cost.step) > seconds(what.compute));
  CHECK(seconds(said.cost.step) < 2 * seconds(what.compute) + 1e-3);
  auto three          = what;
  auto const of_three = std::vector<StageSizes>(3);
  three.stages        = of_three;
  CHECK_THROWS_WITH(advise(three, cluster), Catch::Contains("a stage on each rank, not for 3 stages on 2 ranks"));
  auto const many = advise(uneven, {.ranks = 8, .rows = 4, .boundary_per_row = 128}, Cpu::logical(1)[0]);
  CHECK(std::ranges::count(many.forms, TrainingForm::pipeline, [](auto const& one) { return one.cost.form; }) == 0);
}
