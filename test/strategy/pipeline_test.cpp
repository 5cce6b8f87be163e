// SPDX-License-Identifier: Apache-2.0
//
// Stages of a pipeline under a Trainer, against the whole network on one device. Ranks are threads.
#include "test/strategy/pipeline.hpp"

#include <chorale/trainer/callbacks.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;
using namespace pipeline_test;

TEST_CASE("a trainer over stages learns the bits of one device, clipped or not", "[strategy][pipeline]") {
  for (auto const clipnorm : {0.0F, 0.05F}) {
    CAPTURE(clipnorm);
    auto const one = on_one(clipnorm);
    CHECK(one.accuracy > 0);
    auto const cut = MeshStrategy{stages<2>(), pipelined<OneForwardOneBackward<8>>()};
    auto const two = under(cut, Reproducible<8>{}, clipnorm);
    CHECK((two.values == one.values));
    CHECK(two.loss == one.loss);
    CHECK(two.accuracy == one.accuracy);
    CHECK(two.evaluated == Approx(one.evaluated));  // added up over micro-batches
    CHECK(apart(two.outputs, one.outputs) < 1e-6);
  }
}

TEST_CASE("stages with frozen moving averages learn the bits of one device", "[strategy][pipeline]") {
  auto one  = Trainer{frozen_model(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<4>{}, LocalTransport{}, 7};
  auto cut  = MeshStrategy{stages<2>(), pipelined<ZeroBubbleV<4>>()};
  auto two  = Trainer{frozen_model(), cut, Reproducible<4>{}, LocalTransport{}, 7};
  auto free = Trainer{model(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<4>{}, LocalTransport{}, 7};
  auto const want = learned(one), got = learned(two);
  CHECK((got.values == want.values));
  CHECK(got.loss == want.loss);
  CHECK(apart(want.values, learned(free).values) > 1e-3);
}

TEST_CASE("batches are dealt out along the data axis, and each share goes through its stages", "[strategy][pipeline]") {
  using Data2     = Axis<"data", 2>;
  auto const one  = on_one(0.05F);
  auto const mesh = Mesh<Data2, Axis<"stage", 2>>{Cpu::logical(4)};
  auto const many = under(MeshStrategy{mesh, pipelined<ZeroBubbleV<4>>()}, Reproducible<8>{}, 0.05F);
  CHECK((many.values == one.values));
  CHECK(many.loss == one.loss);
  CHECK(apart(many.outputs, one.outputs) < 1e-6);
  CHECK_THROWS_WITH(under(MeshStrategy{mesh, pipelined<ZeroBubbleV<4>>()}, Reproducible<16>{}),
                    Catch::Contains("micro-batches are the logical shards of Reproducible<16>, of which each of 2 "
                                    "shares has 8, but the schedule of the pipeline has 4 micro-batches"));
}

TEST_CASE("stages without logical shards learn what one device learns", "[strategy][pipeline]") {
  auto const mesh = Mesh<Axis<"stage", 2>, Axis<"data", 2>>{Cpu::logical(4)};
  for (auto const clipnorm : {0.0F, 0.05F})
    CHECK(apart(without_moving(MeshStrategy{mesh, pipelined<OneForwardOneBackward<2>>()}, clipnorm),
                without_moving(OneDeviceStrategy{Cpu::logical(1)[0]}, clipnorm)) < 1e-5);
}

TEST_CASE("a checkpoint of stages is one of the whole network", "[strategy][pipeline]") {
  auto const one  = on_one(0.05F);
  auto const half = [](auto const& folder, int epochs) {
    auto options               = quietly;
    options.epochs             = epochs;
    options.checkpoints.folder = folder / "checkpoints";
    return options;
  };
  auto const pipeline = MeshStrategy{stages<3>(), pipelined<ZeroBubbleH1<8>>()};
  auto const alone    = OneDeviceStrategy{Cpu::logical(1)[0]};
  auto const resumed  = [&](auto first, auto then) {
    auto const folder = chorale::test::Folder{};
    {
      auto trainer = Trainer{model(0.05F), first, Reproducible<8>{}, LocalTransport{}, 7};
      trainer.fit(Data{}, half(folder, 2));
    }
    auto trainer = Trainer{model(0.05F), then, Reproducible<8>{}, LocalTransport{}, 7};
    return learned(trainer, half(folder, 4), 2);  // two epochs more
  };
  CHECK((resumed(pipeline, alone).values == one.values));
  CHECK((resumed(alone, pipeline).values == one.values));
  CHECK((resumed(pipeline, pipeline).values == one.values));
}

TEST_CASE("a gradient that is not finite stops all stages, and they go on afterwards", "[strategy][pipeline]") {
  auto const folder = chorale::test::Folder{};
  auto trainer =
      Trainer{model(), MeshStrategy{stages<3>(), pipelined<ZeroBubbleH1<8>>()}, Reproducible<8>{}, LocalTransport{}, 7};
  trainer.save(folder / "first");
  auto const before = trainer.evaluate(Data{}).loss();
  for (std::size_t i = 0; i < 3; ++i) {  // in a variable of each stage in turn
    auto const first = trainer.copies()[i].net.variables()[0];
    CAPTURE(first.name);
    first.value[0] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_AS(trainer.fit(Data{}, quietly), NumericFault);
    trainer.load(folder / "first");
    CHECK(trainer.evaluate(Data{}).loss() == before);  // over new connections
  }
}

namespace {

struct Numbers : Field<float, 2> {};
struct Wanted : Field<float, 2> {};
struct Two : nn::Graph<Numbers> {
  nn::Dense<2> a{"a"}, b{"b"};
  constexpr auto operator()(auto x) const { return nn::outputs<Wanted>(b(a(x))); }
};

/// One batch, in which all numbers of a field are alike.
struct Alike {
  using element = Rows<Numbers, Wanted>;

  std::vector<float> x, y;

  Alike(float each_x, float each_y) : x(32, each_x), y(32, each_y) {}
  struct Stream {
    Alike const* from;
    bool is_over = false;

    bool next(element& batch) {
      if (std::exchange(is_over, true)) return false;
      batch = element{Span<float const>{from->x}, Span<float const>{from->y}};
      return true;
    }
  };
  Stream stream(std::size_t) const { return {this}; }
  std::optional<std::size_t> size() const { return 1; }
};

}  // namespace

TEST_CASE("a gradient that is not finite is found where the loss is finite", "[strategy][pipeline]") {
  auto const model = nn::compile<Two>(loss::MeanSquaredError{}, optim::Adam{});
  auto trainer     = Trainer{model, MeshStrategy{stages<2>(), pipelined<OneForwardOneBackward<4>>()}, Reproducible<4>{},
                         LocalTransport{}, 7};
  auto const all   = [&](std::size_t stage) { return trainer.copies()[stage].net.variables().body(); };
  std::ranges::fill(all(0), 1e-20F);                            // a(x) is about 2
  std::ranges::fill(all(1), 1.0F);                              // dy/da is 1
  CHECK_THROWS_WITH(trainer.fit(Alike{1e20F, 1e18F}, quietly),  // by a/kernel: 2e38 of each row
                    Catch::Contains("the gradient of a/kernel of step 0 is not finite on replica 0"));
  CHECK(std::ranges::count(all(0), 1e-20F) == std::ssize(all(0)));
}

TEST_CASE("stages do not take all variables at once", "[strategy][pipeline]") {
  auto trainer =
      Trainer{nn::compile<Two>(loss::MeanSquaredError{}, optim::Adam{}),
              MeshStrategy{stages<2>(), pipelined<OneForwardOneBackward<4>>()}, Reproducible<4>{}, LocalTransport{}, 7};
  CHECK_FALSE(trainer.has_whole_variables());
  CHECK_THROWS_WITH(trainer.set_variables(std::vector<float>(PlanView{trainer.model().plan}.values())),
                    Catch::Contains("set_variables gives each of 2 replicas the same numbers"));
  auto stop = EarlyStopping{.monitor = "loss", .restore_best_weights = true};
  CHECK_THROWS_WITH(trainer.fit(Alike{0.5F, 1}, quietly, stop),
                    Catch::Contains("EarlyStopping cannot restore the best variables where each of 2 replicas"));
}

TEST_CASE("planned bytes of a stage are allocated bytes, and a budget below them is refused", "[strategy][pipeline]") {
  auto const check = [](auto schedule, auto reduce, auto mesh) {
    auto const strategy = MeshStrategy{mesh, schedule};
    using S             = std::remove_cvref_t<decltype(strategy)>;
    auto trainer        = Trainer{model(), strategy, reduce, LocalTransport{}, 7};
    auto data           = Data{};
    data.sizes          = {14, 14, 14};  // micro-batches of two sizes
    trainer.fit(data, quietly);
    auto most = std::size_t{0};
    for (Rank rank = 0; rank < strategy.num_replicas(); ++rank) {
      CAPTURE(rank);
      auto const& copy = trainer.copies()[static_cast<std::size_t>(rank)];
      auto const rows  = share(14, strategy.share_of(rank), strategy.num_shares()).size();
      auto const planned =
          memory_plan<S>(trainer.model(), reduce, Cpu::logical(1)[0], rows, {rank, strategy.num_replicas()});
      CHECK(planned.variables + planned.gradients + planned.slots == copy.arena_bytes());
      CHECK(planned.activations == copy.learner().activation_bytes());
      most = std::max(most, planned.peak());
    }
    auto const with = [&](std::size_t bytes) {
      return Trainer{model(), strategy, reduce, LocalTransport{}, 7, MemoryBudget{bytes, 14}};
    };
    CHECK_THROWS_WITH(with(most / 2), Catch::Contains("a replica takes") && Catch::Contains("its memory budget is"));
    auto options          = quietly;
    options.memory_budget = most - 1;
    CHECK_THROWS_WITH(trainer.fit(data, options), Catch::Contains("its memory budget is"));
    options.memory_budget = most;
    CHECK_NOTHROW(trainer.fit(data, options));
  };
  check(pipelined<OneForwardOneBackward<4>>(), RingAllReduce{}, stages<3>());
  check(pipelined<ZeroBubbleV<4>>(), RingAllReduce{}, stages<2>());
  check(pipelined<ZeroBubbleH1<4>>(), Reproducible<4>{}, stages<3>());
  check(pipelined<OneForwardOneBackward<2>>(), RingAllReduce{},
        Mesh<Axis<"data", 2>, Axis<"stage", 2>>{Cpu::logical(4)});
}

TEST_CASE("copies of a stage that have drifted apart are told", "[strategy][pipeline]") {
  auto const check = [](auto mesh, auto schedule, auto reduce, std::size_t replica) {
    auto trainer = Trainer{nn::compile<Two>(loss::MeanSquaredError{}, optim::Adam{}), MeshStrategy{mesh, schedule},
                           reduce, LocalTransport{}, 7};
    trainer.copies()[replica].net.variables()[0].value[0] += 1;
    auto options          = quietly;
    options.compare_every = 1;
    CHECK_THROWS_WITH(trainer.fit(Alike{0.5F, 1}, options), Catch::Contains("replicas have drifted apart: a/kernel"));
  };
  using Data2 = Axis<"data", 2>;
  using Stage = Axis<"stage", 2>;
  check(Mesh<Data2, Stage>{Cpu::logical(4)}, pipelined<OneForwardOneBackward<4>>(), Reproducible<8>{}, 2);
  check(Mesh<Stage, Data2>{Cpu::logical(4)}, pipelined<OneForwardOneBackward<4>>(), RingAllReduce{}, 1);
}
