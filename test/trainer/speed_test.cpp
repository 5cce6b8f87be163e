// SPDX-License-Identifier: Apache-2.0
//
// What a run tells of itself: memory before its first step, speed and percent of the floor after each epoch.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/run_config.hpp>
#include <chorale/trainer/run_folder.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using chorale::test::Folder;
using Catch::Contains;

namespace speed_test {

/// What `work` writes to standard output.
template <class Work> std::string said(Work&& work) {
  auto text      = std::ostringstream{};
  auto* const to = std::cout.rdbuf(text.rdbuf());
  try {
    work();
  } catch (...) {
    std::cout.rdbuf(to);
    throw;
  }
  std::cout.rdbuf(to);
  return text.str();
}

std::size_t times(std::string const& text, std::string const& part) {
  auto n = std::size_t{0};
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Title : Field<int, 6> {};
struct Words : Field<int, ragged> {};
struct Value : Field<float, 1> {};

struct Reader : nn::Graph<Title> {
  nn::Embedding<50, 4> words;
  nn::LSTM<5> reader;
  nn::Dense<1> value;
  constexpr auto operator()(auto title) const { return nn::outputs<Value>(value(reader(words(title)))); }
};
struct RaggedReader : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::LSTM<5> reader;
  nn::Dense<1> value;
  constexpr auto operator()(auto title) const { return nn::outputs<Value>(value(reader(words(title)))); }
};

/// 10 rows of 1 to 4 ids, in batches of 4.
auto ragged_rows() {
  auto x = std::vector<float>(10);
  for (std::size_t r = 0; r < x.size(); ++r) x[r] = static_cast<float>(r);
  return data::from_tensors(x, x, 1)
      .map<Words, Value>([](auto const& row, auto& to) {
        to[Words{}].assign(1 + static_cast<std::size_t>(row.x[0]) % 4, 7);
        to[Value{}].assign(1, 0.5F);
      })
      .batch(4);
}

}  // namespace speed_test

using namespace speed_test;

TEST_CASE("a run tells its parameters and its memory before its first step, once", "[trainer][memory]") {
  auto trainer    = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  auto const text = said([&] {
    trainer.fit(tiny::some(), {.epochs = 2});
    trainer.fit(tiny::some(), {.epochs = 1});
  });
  CAPTURE(text);
  auto const memory = memory_plan<MirroredStrategy<>>(tiny::learner(), RingAllReduce{}, Cpu::logical(1)[0], 6, {0, 2});
  auto const lines  = text_of(memory, 2);
  CHECK(times(text, lines) == 1);
  CHECK(text.find(lines) < text.find("3/3"));
  CHECK(text.find("per second") == text.npos);
  CHECK(times(text, " rows/s") + times(text, " images/s") == 3);  // after each epoch
  CHECK(times(text, "of floor") == 0);
  CHECK_THAT(lines,
             Contains("683 parameters: variables 2.94 KiB, gradients 2.94 KiB, optimizer slots 2.94 KiB\n2 replicas of "
                      "6 rows: activations ") &&
                 Contains(" each, received messages ") && Contains(" each, peak "));
}

TEST_CASE("a run whose replicas take more than their budget is refused before it begins", "[trainer][memory]") {
  auto const strategy = MirroredStrategy{Cpu::logical(2)};
  auto const memory  = memory_plan<MirroredStrategy<>>(tiny::learner(), RingAllReduce{}, Cpu::logical(1)[0], 6, {0, 2});
  auto const refused = Contains("a replica takes " + text_of_bytes(memory.peak()));
  auto const with    = [&](MemoryBudget budget) {
    return Trainer{tiny::learner(), strategy, RingAllReduce{}, LocalTransport{}, 7, budget};
  };
  CHECK_NOTHROW(with({.bytes = memory.peak(), .rows = 6}));
  CHECK_THROWS_WITH(with({.bytes = memory.peak() - 1, .rows = 6}), refused);
  CHECK_NOTHROW(with({.bytes = memory.peak() - 1}));  // without rows: activations come later
  CHECK_THROWS_WITH(with({.bytes = memory.variables}), Contains("a replica takes "));
  auto trainer = with({});
  auto before  = trainer.hashes();
  CHECK_THROWS_WITH(trainer.fit(tiny::some(), {.show = Show::nothing, .memory_budget = memory.peak() - 1}), refused);
  CHECK(trainer.hashes() == before);
  CHECK_NOTHROW(trainer.fit(tiny::some(), {.show = Show::nothing, .memory_budget = memory.peak()}));
  CHECK(trainer.hashes() != before);
}

TEST_CASE("all replicas of a task have one budget, beside that of each", "[trainer][memory]") {
  auto const memory = memory_plan<MirroredStrategy<>>(tiny::learner(), RingAllReduce{}, Cpu::logical(1)[0], 6, {0, 2});
  auto trainer      = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  auto const with   = [&](std::size_t budget) {
    trainer.fit(tiny::some(), {.show = Show::nothing, .task_memory_budget = budget});
  };
  CHECK_THROWS_WITH(with(2 * memory.peak() - 1),
                    Contains("the 2 replicas of this task take ") && Contains("together, and its memory budget is "));
  CHECK_NOTHROW(with(2 * memory.peak()));
  CHECK_NOTHROW(check_task_budget(memory, 3, memory.variables, 3 * memory.peak() - 2 * memory.variables));
}

TEST_CASE("a run says what a CPU does with products in bf16, and its learning rate", "[trainer]") {
  using Net = tiny::Small;
  auto const model =
      nn::compile<Net, nn::Precision<bf16>>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.25F});
  auto trainer    = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 7};
  auto const text = said([&] { trainer.fit(tiny::some(), {.epochs = 2}); });
  CAPTURE(text);
  CHECK(times(text, onednn::text_of_products(Products::bf16)) == 1);
  CHECK(onednn::text_of_products(Products::bf16, false) == "products: in float, as this CPU has no AMX for bf16\n");
  CHECK(onednn::text_of_products(Products::f32).empty());
  CHECK(times(text, " - learning_rate: 0.2500 - ") == 2);
}

TEST_CASE("one configuration of a run says where it writes, how often, and goes on there", "[trainer][run]") {
  auto const folder = Folder{};
  auto run          = RunConfig{.folder                 = folder.path / "run",
                                .epochs                 = 2,
                                .save_checkpoints_steps = 2,
                                .keep_checkpoint_max    = 3,
                                .save_summary_steps     = 1};
  auto const made   = run.options();
  CHECK(made.epochs == 2);
  CHECK(made.checkpoint_every == 2);
  CHECK(made.summary_every == 1);
  CHECK(made.checkpoints.keep == 3);
  auto first = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  said([&] { first.fit(tiny::some(), run.options(), run.records()); });
  CHECK(std::filesystem::exists(folder.path / "run" / "scalars.csv"));
  CHECK(std::filesystem::exists(folder.path / "run" / "checkpoints"));
  run.epochs  = 4;
  auto second = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  said([&] { second.fit(tiny::some(), run.options(), run.records()); });
  auto whole = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  whole.fit(tiny::some(), {.epochs = 4, .show = Show::nothing});
  CHECK(second.hashes() == whole.hashes());
}

TEST_CASE("ranks compare the operations of their steps as they connect", "[trainer][operations]") {
  auto const lines = plan_lines(tiny::learner(), 7, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{});
  auto const model = plan_lines(tiny::learner(), 7);
  REQUIRE(lines.size() == model.size() + 3);
  CHECK(lines[model.size()] == "strategy MirroredStrategy");
  CHECK(lines[model.size() + 1] == "reduce RingAllReduce");
  CHECK(lines.back() == "operation 0: all_reduce float[752] of 2 ranks by RingAllReduce: gradients");
  CHECK(plan_lines(tiny::learner(), 7, MirroredStrategy{Cpu::logical(1)}, RingAllReduce{}) == model);
  CHECK(plan_lines(tiny::learner(), 7, MirroredStrategy{Cpu::logical(2)}, TreeAllReduce{}).back() != lines.back());
}

TEST_CASE("a run that shows nothing tells nothing", "[trainer][memory]") {
  auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  CHECK(said([&] { trainer.fit(tiny::some(), {.show = Show::nothing, .floor = true}); }).empty());
}

TEST_CASE("the texts of memory", "[model][memory]") {
  CHECK(text_of_bytes(0) == "0 bytes");
  CHECK(text_of_bytes(999) == "999 bytes");
  CHECK(text_of_bytes(1'000) == "0.98 KiB");
  CHECK(text_of_bytes(347'146 * 4) == "1.32 MiB");
  CHECK(text_of_bytes(std::size_t{5} << 38) == "1.25 TiB");
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1'000) == "1,000");
  CHECK(with_commas(124'439'808) == "124,439,808");
  auto memory = ReplicaMemory{.parameters = 1'000, .variables = 4'096, .gradients = 4'096, .slots = 8'192, .rows = 1};
  CHECK(text_of(memory, 1) ==
        "1,000 parameters: variables 4.00 KiB, gradients 4.00 KiB, optimizer slots 8.00 KiB\n"
        "1 replica of 1 row: activations are not known before a step, without them peak 16.0 KiB\n");
  memory.activations = 1'024;
  memory.has_tables  = true;
  auto gathers       = memory;
  gathers.gathered   = 2'048;
  CHECK(
      text_of(gathers, 3).ends_with("activations 1.00 KiB each, gathered layers 2.00 KiB each, peak 19.0 KiB each\n"));
  CHECK(text_of(memory, 3) ==
        "1,000 parameters: variables 4.00 KiB, gradients 4.00 KiB and rows of tables, optimizer slots "
        "8.00 KiB\n3 replicas of 1 row: activations 1.00 KiB each, peak 17.0 KiB each\n");
}

TEST_CASE("an epoch has its speed, in what the first input is counted in", "[trainer][speed]") {
  auto images      = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  auto const epoch = images.fit(tiny::uneven(), tiny::quietly).back();
  CHECK(epoch.speed.counted == CountedAs{"images", "images_per_second", 1});
  CHECK(epoch.speed.amount == static_cast<double>(epoch.scores.rows()));
  CHECK(epoch["images_per_second"] == epoch.speed.amount / epoch.speed.seconds);
  CHECK(epoch.speed.seconds <= epoch.seconds);
  CHECK_FALSE(epoch.speed.floor_seconds);
  CHECK_THROWS_WITH(epoch["percent_of_floor"],
                    Contains("fit does not measure it. Try: FitOptions::floor.") ||
                        Contains("fit does not measure it.\n         Try: FitOptions::floor."));
  auto const tokens = nn::compile<Reader>(loss::MeanSquaredError{}, optim::SGD{});
  CHECK(decltype(tokens)::counted == CountedAs{"tokens", "tokens_per_second", 6});
  STATIC_REQUIRE(counted_as(std::array{28, 28, 1}, false).name == "images");
  STATIC_REQUIRE(counted_as(std::array{1}, true).name == "rows");
  STATIC_REQUIRE(counted_as(std::array{13}, false).name == "rows");
  auto of_ragged =
      Trainer{nn::compile<RaggedReader>(loss::MeanSquaredError{}, optim::SGD{}), MirroredStrategy{Cpu::logical(2)}};
  auto const last = of_ragged.fit(ragged_rows(), {.show = Show::nothing, .floor = true}).back().speed;
  CHECK(last.counted.name == "tokens");
  CHECK(last.amount == 1 + 2 + 3 + 4 + 1 + 2 + 3 + 4 + 1 + 2);
  CHECK(last.percent_of_floor() > 0.0);
}

TEST_CASE("the floor of a step is that of its products, or of its bytes", "[trainer][speed]") {
  constexpr auto& plan = tiny::LeNet::plan;
  auto const work      = NetworkWork{.of_row = {.forward = 100, .backward = 150, .activations = 40, .lookups = 10}};
  auto const floor     = StepFloor{work, plan, 2};
  auto const dense     = 4.0 * static_cast<double>(plan.elements - plan::header - plan::trailer);
  CHECK(floor.bytes(64) == dense * 8 + 64 * 200);
  CHECK(floor.seconds({.products = 1e3, .bytes = 1e12}, 1, 64) == Approx(64 * 250 / 1e3));
  CHECK(floor.seconds({.products = 1e12, .bytes = 1e3}, 2, 64) == Approx((2 * dense * 8 + 64 * 200) / 1e3));
  auto const speed = [] {
    auto const scope = Cpu::Scope{Cpu::logical(1)[0]};
    return cpu::measure_speed(Cpu::logical(1)[0], 1 << 20);
  }();
  CHECK(speed.products > 1e8);  // of any machine, also of a busy one
  CHECK(speed.bytes > 1e8);
}

TEST_CASE("percent of floor is shown, and reaches sinks with the speed, where fit measures it", "[trainer][speed]") {
  auto const folder = Folder{};
  auto trainer      = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  auto history      = History{};
  auto const text   = said([&] {
    history = trainer.fit(tiny::some(40), {.epochs = 2, .floor = true}, RunFolder{folder.path, {.timelines = false}});
  });
  CAPTURE(text);
  CHECK(times(text, "% of floor\n") == 2);
  CHECK(times(text, "floor: ") == 2);  // measured, and the report at the end
  CHECK_THAT(text, Contains("G multiplications/s and ") && Contains(" GB/s on 2 replicas here\n"));
  CHECK_THAT(text, Contains("by this machine's arithmetic or memory: "));
  auto const curves = read_csv(folder.path / "scalars.csv");
  REQUIRE(curves.names == std::vector<std::string>{"step", "wall_time", "epoch", "loss", "accuracy", "val_loss",
                                                   "val_accuracy", "learning_rate", "images_per_second",
                                                   "percent_of_floor"});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(curves.columns[8][i] == history[i].speed.per_second());
    CHECK(curves.columns[9][i] == history[i].speed.percent_of_floor());
    CHECK(curves.columns[9][i] > 0);
  }
  CHECK_THAT(read_file(folder.path / "metrics.prom"),
             Contains("chorale_images_per_second ") && Contains("chorale_percent_of_floor "));
  auto found = 0;
  for (auto const& file : std::filesystem::directory_iterator{folder.path / "train"})
    if (file.path().filename().string().starts_with("events.out.tfevents."))
      found += read_file(file.path()).find("percent_of_floor") != std::string::npos ? 1 : 0;
  CHECK(found == 1);
}

TEST_CASE("workers of servers, and replicas of shared variables, tell the same", "[trainer][speed]") {
  auto const tells = [](auto strategy) {
    auto trainer    = tiny::learner_under(std::move(strategy), DirectAllReduce{});
    auto const text = said([&] { trainer.fit(tiny::some(), {.floor = true}); });
    CAPTURE(text);
    CHECK(times(text, text_of(memory_of(tiny::learner(), 6, Cpu::logical(1)[0]), 2)) == 1);
    CHECK(times(text, "floor: ") == 1);
    CHECK(times(text, "% of floor\n") == 1);
  };
  tells(ParameterServerStrategy{Cluster::local(2, 1), Synchronous{}});
  tells(CentralStorageStrategy{Cpu::logical(2), Cpu::logical(1)[0]});
}

TEST_CASE("neither activations nor a floor of a custom model are known, and a run says so", "[trainer][speed]") {
  using Line       = BasicBatch<float, float>;
  auto const model = custom_model<Line>(
      {{"slope", {1}}},
      [](auto& step, auto const& batch) {
        auto loss = 0.0F;
        for (std::size_t r = 0; r < batch.rows; ++r) {
          auto const e = step.value(0)[0] * batch.x[r] - batch.y[r];
          loss += e * e;
          step.gradient(0)[0] += 2 * e * batch.x[r];
        }
        return loss;
      },
      optim::SGD{.learning_rate = 0.01F});
  auto trainer    = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}};
  auto history    = History{};
  auto const data = tiny::Batches<float>{tiny::batch<float>(8, 1, 1), {8}};
  auto const text = said([&] { history = trainer.fit(data, {.floor = true}); });
  CAPTURE(text);
  CHECK_THAT(text, Contains("1 parameter: "));
  CHECK_THAT(text, Contains("activations are not known before a step") && Contains(detail::no_floor_of_model.data()));
  CHECK_FALSE(history.back().speed.percent_of_floor());
  CHECK(history.back().speed.counted.name == "rows");
}
