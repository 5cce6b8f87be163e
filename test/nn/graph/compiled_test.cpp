// SPDX-License-Identifier: Apache-2.0
//
// Networks of several inputs and outputs under the strategies, reduces and transports of all others.
#include "test/nn/graph/tickets.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/folder.hpp"

#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test::tickets;
using chorale::test::allocations;

TEST_CASE("replicas of a network of many inputs learn what one replica learns", "[nn][graph]") {
  auto const replicas = GENERATE(1, 2, 3);
  auto const one      = trained(model(), OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const check    = [&](Trained const& got) {
    CHECK(difference(got, one) < 1e-5);
    CHECK(std::ranges::count(got.hashes, got.hashes[0]) == std::ssize(got.hashes));
    CHECK(got.loss == Approx(one.loss).epsilon(1e-4));
  };
  check(trained(model(), MirroredStrategy{Cpu::logical(replicas)}));
  check(trained(model(), MirroredStrategy{Cpu::logical(replicas)}, TreeAllReduce{}, TcpTransport{}));
  check(trained(model(), MultiWorkerMirroredStrategy{Cluster::local(replicas)}, DirectAllReduce{},
                SharedMemoryTransport{}));
  check(trained(model(), CentralStorageStrategy{Cpu::logical(replicas), Cpu::logical(1)[0]}));
}

TEST_CASE("workers of servers learn a network of many inputs", "[nn][graph][servers]") {
  auto const workers = GENERATE(1, 2);
  auto const dense   = model<Dense>();
  auto const one     = trained(dense, OneDeviceStrategy{Cpu::logical(1)[0]});
  CHECK(difference(trained(dense, ParameterServerStrategy{Cluster::local(workers, 1), Synchronous{}}), one) < 1e-5);
  auto const last = trained(dense, ParameterServerStrategy{Cluster::local(workers, 1), Asynchronous{}});
  CHECK(last.loss < 2 * one.loss);
}

TEST_CASE("under Reproducible any number of replicas of a network has the bits of one", "[nn][graph][reproducible]") {
  auto const replicas = GENERATE(2, 3, 4);
  auto const one      = trained(model(), MirroredStrategy{Cpu::logical(1)}, Reproducible{});
  auto const many     = trained(model(), MirroredStrategy{Cpu::logical(replicas)}, Reproducible{});
  for (auto const hash : many.hashes) CHECK(hash == one.hashes[0]);
}

TEST_CASE("a network with two outputs shows each loss, predicts, is saved, and goes on", "[nn][graph]") {
  auto const folder  = test::Folder{};
  auto const options = [&](int epochs) {
    return FitOptions{.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder / "all"}};
  };
  auto trainer       = Trainer{model(), MirroredStrategy{Cpu::logical(2)}};
  auto const history = trainer.fit(batches(), options(3));
  auto const scores  = history[2].scores;
  CHECK(scores.loss() < 0.8 * history[0].scores.loss());
  CHECK(scores.rows() == 101);
  CHECK(scores.loss() == Approx(scores["priority_loss"] + scores["department_loss"]));
  CHECK(scores["department_accuracy"] > history[0].scores["department_accuracy"]);
  CHECK(trainer.evaluate(batches()).loss() < scores.loss());  // without dropout
  auto const predicted = trainer.predict(batches());
  CHECK(predicted.rows() == 101);
  CHECK(predicted.width == 4);  // one priority, three departments
  trainer.save(folder / "w.safetensors");
  auto other = Trainer{model(), MirroredStrategy{Cpu::logical(3)}};
  other.load(folder / "w.safetensors");
  CHECK(other.hashes()[0] == trainer.hashes()[0]);
  CHECK(std::ranges::equal(other.predict(batches()).values, predicted.values,
                           [](float a, float b) { return std::abs(a - b) < 1e-6F; }));
  auto again = Trainer{model(), MirroredStrategy{Cpu::logical(2)}};
  CHECK(again.fit(batches(), options(5)).size() == 2);
}

TEST_CASE("predictions need no targets", "[nn][graph]") {
  auto const tags   = std::vector<float>(8);
  auto const inputs = data::from_tensors(tags, tags, 4)
                          .map<Body, Title, Tags>([](auto const& row, auto& to) {
                            to[Title{}].assign(6, 1), to[Body{}].assign(9, 2),
                                to[Tags{}].assign(row.x.begin(), row.x.end());
                          })
                          .batch(2);
  auto trainer = Trainer{model(), OneDeviceStrategy{Cpu::logical(1)[0]}};
  CHECK(trainer.predict(inputs).values.size() == 8);
}

TEST_CASE("a weight of zero takes rows out of the loss, and not out of the count", "[nn][graph][loss]") {
  auto const weighted =
      nn::compile<Network>(nn::of<Priority>(loss::MeanSquaredError{}).weighted_by(Importance{}), optim::SGD{});
  auto const plain   = nn::compile<Network>(nn::of<Priority>(loss::MeanSquaredError{}), optim::SGD{});
  auto one           = weighted.instantiate(Cpu::logical(1)[0], 1);
  auto two           = plain.instantiate(Cpu::logical(1)[0], 1);
  auto const words   = std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  auto const numbers = std::vector<float>{1, -1, 0.5F, 0, 0.3F, 0.2F, 0.1F, 0.7F};
  auto const weights = std::vector<float>{0, 1}, wanted = std::vector<float>{3, 2};
  auto const batch =
      Rows<Title, Body, Tags, Priority, Importance>{Span<int const>{words}.first(12), words, numbers, wanted, weights};
  auto first = std::array<float, plan::header>{}, second = first;
  one.evaluate(batch, first);
  two.evaluate(batch.rows_in({1, 2}), second);
  CHECK(first[0] == Approx(second[0]));
  CHECK(first[1] == 2);
}

namespace {

struct Wanted : Field<float, 28> {};

/// A network without a matrix product, as oneDNN's allocate in each call.
struct WordsAndTags : nn::Graph<Title, Tags> {
  nn::Embedding<50, 4> words;
  nn::LayerNorm norm;

  constexpr auto operator()(auto title, auto tags) const {
    return nn::outputs<Wanted>(norm(nn::concatenate(nn::reshape<24>(words(title)), tags)));
  }
};

}  // namespace

TEST_CASE("a step of a network of many inputs and its update allocate nothing", "[nn][graph]") {
  auto const compiled = nn::compile<WordsAndTags>(loss::MeanSquaredError{}, optim::Adam{});
  auto copy           = compiled.instantiate(Cpu::logical(1)[0], 1);
  auto const words    = std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2};
  auto const numbers  = std::vector<float>(56, 0.5F);
  auto const batch    = Rows<Title, Tags, Wanted>{words, Span<float const>{numbers}.first(8), numbers};
  auto header         = std::array<float, plan::header>{};
  auto const step     = [&] {
    copy.value_and_gradient(batch, 0, LooksAtEnd{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    copy.evaluate(batch, header);
    copy.predict(batch);
  };
  step();
  auto const before = allocations;
  for (int i = 0; i < 50; ++i) step();
  CHECK(allocations == before);
}

namespace {

struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};

struct Listed : nn::Sequential<nn::Input<12>, nn::Dense<8>, nn::BatchNorm<>, nn::ReLU, nn::Dense<3>> {};
struct Called : nn::Graph<Pixels> {
  nn::Dense<8> hidden;
  nn::BatchNorm<> norm;
  nn::Dense<3> label;

  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(nn::relu(norm(hidden(x))))); }
};

}  // namespace

TEST_CASE("batch normalization in a graph has the bits of that in a list of layers", "[nn][graph]") {
  auto const device = Cpu::logical(1)[0];
  auto listed       = nn::compile<Listed>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 3);
  auto called       = nn::compile<Called>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 3);
  auto x            = std::vector<float>(7 * 12);
  auto const labels = std::vector<int>{0, 1, 2, 2, 1, 0, 1};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{4, 0}.uniform(i, -1, 2);
  CHECK(called.hash() == listed.hash());
  for (int step = 0; step < 4; ++step) {
    listed.value_and_gradient(Batch{.x = x, .y = labels, .rows = 7}, 0, LooksAtEnd{}, Together{});
    called.value_and_gradient(Rows<Pixels, Label>{x, labels}, 0, LooksAtEnd{});
    listed.optimizer.apply(listed.net.variables(), listed.gradients());
    called.optimizer.apply(called.net.variables(), called.gradients());
  }
  CHECK(called.net.variables()[4].value[0] != 0);  // a moving mean has moved
  CHECK(called.hash() == listed.hash());
  CHECK(std::ranges::equal(called.predict(Rows<Pixels, Label>{x, labels}),
                           listed.predict(Batch{.x = x, .y = labels, .rows = 7})));
}

TEST_CASE("gradients of a network leave while backward computes, in the order of the plan", "[nn][graph]") {
  auto copy   = model().instantiate(Cpu::logical(1)[0], 1);
  auto stream = batches().stream(0);
  auto batch  = decltype(batches())::element{};
  REQUIRE(stream.next(batch));
  auto ends = std::vector<std::size_t>{};
  copy.value_and_gradient(batch, 0, [&](std::size_t end) { ends.push_back(end); });
  CHECK(ends.size() > 4);
  CHECK(std::ranges::is_sorted(ends));
  CHECK(ends.front() == plan::header);
  CHECK(ends.back() == copy.gradients().values.size());
}

TEST_CASE("an id outside a table is named by row, field and both numbers, and changes nothing", "[nn][graph]") {
  auto copy         = model().instantiate(Cpu::logical(1)[0], 1);
  auto titles       = std::vector<int>(12, 3);
  auto const bodies = std::vector<int>(18, 4);
  auto const tags = std::vector<float>(8), wanted = std::vector<float>(2);
  auto const labels = std::vector<int>(2);
  titles[7]         = 50;
  auto const before = copy.hash();
  auto const batch  = Rows<Title, Body, Tags, Priority, Department>{titles, bodies, tags, wanted, labels};
  CHECK_THROWS_WITH(copy.value_and_gradient(batch, 0, LooksAtEnd{}),
                    Catch::Contains("row 1 of the batch has id 50 at position 1 of field test::tickets::Title, but the "
                                    "nn::Embedding that takes it has 50 rows, 0 to 49"));
  CHECK(copy.hash() == before);
}

TEST_CASE("ranks compare losses, weights, calls and variables of a network", "[nn][graph]") {
  auto const lines = model().lines();
  for (auto const* line :
       {"loss of test::tickets::Department SparseCrossEntropy", "loss of test::tickets::Department weight 0.2",
        "optimizer Adam", "metric of test::tickets::Department Accuracy", "embedding/embeddings f32[50,5]",
        "call 0 Embedding<50,5> 0 -> 3 layer 0", "priority/kernel f32[25,1]"})
    CHECK(std::ranges::count(lines, std::string{line}) == 1);
}
