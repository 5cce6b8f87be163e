// SPDX-License-Identifier: Apache-2.0
//
// Metrics with a state under every strategy, over TCP, of several outputs, and in runs that go on.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/trainer/counting_models.hpp"

#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/transport/tcp.hpp>

#include <array>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace metric_strategies_test {

using namespace chorale;
using namespace counting;
using Catch::Contains;
using tiny::quietly;

TEST_CASE("every strategy counts each row once", "[trainer][metric]") {
  auto const data  = binary_rows();
  auto reference   = trainer_of(binary(), OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{});
  auto const check = [&](auto trainer) {
    auto const history = trainer.fit(data, {.epochs = 2, .show = Show::nothing});
    for (auto const& epoch : history) {
      CHECK(counted(epoch.scores, "spread")[0] == 279);
      CHECK(sum_of(counted(epoch.scores, "auc")) == 279);
      CHECK(counted(epoch.scores, "root_mean_squared_error").back() == 279);
    }
    auto const scores = trainer.evaluate(data);
    CHECK(scores.rows() == 279);
    reference.set_variables(trainer.variables().values);
    auto const expected = reference.evaluate(data);
    CHECK(counted(scores, "auc") == counted(expected, "auc"));
    for (auto const* name : {"precision", "recall", "f1", "auc"}) CHECK(scores[name] == expected[name]);
    CHECK(scores["root_mean_squared_error"] == Approx(expected["root_mean_squared_error"]).epsilon(1e-6));
  };
  check(trainer_of(binary(), MirroredStrategy{Cpu::logical(3)}, RingAllReduce{}));
  check(trainer_of(binary(), CentralStorageStrategy{Cpu::logical(3)}, RingAllReduce{}));
  check(trainer_of(binary(), local_sgd<4>(MirroredStrategy{Cpu::logical(3)}), RingAllReduce{}));
  check(trainer_of(binary(), Gossip{MirroredStrategy{Cpu::logical(2)}}, RingAllReduce{}));
  check(trainer_of(binary(), ParameterServerStrategy{Cluster::local(3, 2), Synchronous{}}, RingAllReduce{}));
}

TEST_CASE("workers over TCP have the results of one process", "[trainer][metric][processes]") {
  auto const data      = tiny::uneven();
  auto const addresses = free_loopback_addresses(2);
  auto const report    = [&](auto& trainer) {
    auto const epoch = trainer.fit(data, {.epochs = 2, .show = Show::nothing}).back();
    auto const after = trainer.evaluate(data);
    auto text        = std::ostringstream{};
    for (auto const* scores : {&epoch.scores, &after}) {
      text.precision(scores == &after ? 6 : 17);  // products of fewer rows may add otherwise
      for (auto const x : {(*scores)["perplexity"], (*scores)["class_1_f1"], (*scores)["mean_iou"], (*scores)["spread"],
                           scores->counts("confusion_matrix")[4]})
        text << x << ' ';
    }
    return text.str();
  };
  auto workers = test::Processes{
      2,
      [&](int me, test::Voice voice) {
        auto const cluster =
            Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
        auto trainer = trainer_of(classes(), MultiWorkerMirroredStrategy{cluster, Cpu::logical(2)}, Reproducible<8>{},
                                  TcpTransport{});
        voice.say(report(trainer));
      },
      60};
  auto const lines = std::vector{workers.line(0), workers.line(1)};
  auto alone       = trainer_of(classes(), OneDeviceStrategy{Cpu::logical(1)[0]});
  CHECK(lines[0] == report(alone));
  CHECK(lines[1] == lines[0]);
}

TEST_CASE("a run that goes on in the middle of an epoch has results of all of it", "[trainer][metric][resume]") {
  struct CutOff : tiny::Batches<int> {
    struct Stream {
      tiny::Batches<int>::Stream from;
      int left;
      bool next(element& batch) {
        if (left-- == 0) throw std::runtime_error{"cut off"};
        return from.next(batch);
      }
    };
    Stream stream(std::size_t epoch) const { return {tiny::Batches<int>::stream(epoch), 13}; }
  };
  auto const data  = tiny::uneven();  // 20 batches
  auto const check = [&](auto first_strategy, auto second_strategy) {
    auto const folder = chorale::test::Folder{};
    auto const options =
        FitOptions{.epochs = 2, .show = Show::nothing, .checkpoints = {.folder = folder.path}, .checkpoint_every = 5};
    auto undisturbed = trainer_of(classes(), MirroredStrategy{Cpu::logical(2)});
    auto const whole = undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
    auto first       = trainer_of(classes(), first_strategy);
    CHECK_THROWS_AS(first.fit(CutOff{data}, options), std::runtime_error);
    auto second     = trainer_of(classes(), second_strategy);
    auto const rest = second.fit(data, options);  // from step 10 of epoch 0
    REQUIRE(rest.size() == 2);
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      CHECK(rest[epoch].scores.rows() == 279);
      for (auto const* name : {"confusion_matrix", "class_1_f1", "mean_iou", "perplexity", "spread"})
        CHECK(rest[epoch].scores[name] == whole[epoch].scores[name]);
      CHECK(counted(rest[epoch].scores, "confusion_matrix") == counted(whole[epoch].scores, "confusion_matrix"));
    }
  };
  check(MirroredStrategy{Cpu::logical(3)}, CentralStorageStrategy{Cpu::logical(2)});
  check(ParameterServerStrategy{Cluster::local(2, 1), Synchronous{}},
        ParameterServerStrategy{Cluster::local(4, 2), Synchronous{}});
}

TEST_CASE("a run that goes on after an epoch begins the next one with no counts", "[trainer][metric][resume]") {
  auto const folder  = chorale::test::Folder{};
  auto const options = [&](int epochs) {
    return FitOptions{.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
  };
  auto trainer = trainer_of(classes(), MirroredStrategy{Cpu::logical(2)});
  trainer.fit(tiny::some(), options(1));
  auto const next = trainer.fit(tiny::some(), options(2));  // its copies have counts of the epoch before
  REQUIRE(next.size() == 1);
  CHECK(sum_of(counted(next[0].scores, "confusion_matrix")) == 36);
}

TEST_CASE("a callback stops by a metric with a state, of which more is better", "[trainer][metric]") {
  auto trainer       = trainer_of(binary(), MirroredStrategy{Cpu::logical(2)});
  auto const data    = binary_rows();
  auto const history = trainer.fit(data, {.epochs = 4, .show = Show::nothing}, validate_on(data),
                                   EarlyStopping{.monitor = "val_auc", .patience = 3});
  CHECK(history.back()["val_auc"] == trainer.evaluate(data)["auc"]);
  CHECK(history.back()["val_auc"] > history.front()["val_auc"]);
}

TEST_CASE("labels and widths that do not fit a table are told in one sentence", "[trainer][metric]") {
  auto trainer = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::MeanIoU<4>{}),
                         MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
  CHECK_THROWS_WITH(trainer.fit(tiny::some(), quietly),
                    Contains("metric::MeanIoU<4> counts 4 classes, but the network has 3 outputs for each"));
  auto counts    = metric::Counts<metric::ConfusionMatrix<2>>{};
  auto const y   = std::array{1.0F, 2.0F};
  auto const bad = std::array{-1};
  CHECK_THROWS_WITH(counts.add({}, 1, 2, y.data(), bad.data()), Contains("ConfusionMatrix<2> got the label -1"));
  auto entropy      = metric::Counts<metric::Perplexity>{};
  auto const beyond = std::array{2};
  CHECK_THROWS_WITH(entropy.add({}, 1, 2, y.data(), beyond.data()),
                    Contains("metric::Perplexity got the label 2, but the network has outputs for 0 to 1"));
}

namespace {

struct Words : Field<int, 5> {};
struct Kind : Field<int, 1> {};
struct Marks : Field<int, 5> {};

/// Two outputs: a class of the row, and one for each of its positions.
struct Tagger : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<3> kind;
  nn::Dense<2> mark;
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Kind, Marks>(kind(nn::Flatten{}(x)), mark(x));
  }
};

}  // namespace

TEST_CASE("metrics of several outputs, and of positions, count what each names", "[trainer][metric][graph]") {
  auto const made = [](std::size_t i, int n) {
    return static_cast<int>(Random{9, 0}.uniform(i, 0, 1) * static_cast<float>(n));
  };
  auto rows       = data::from_tensors(std::vector<float>(23), std::vector<int>(23), 1);
  auto next       = std::make_shared<std::size_t>(0);
  auto const data = rows.map<Words, Kind, Marks>([made](auto const&, auto& row) {
                          static thread_local auto i = std::size_t{0};
                          row[Words{}].clear(), row[Marks{}].clear();
                          for (std::size_t t = 0; t < 5; ++t) row[Words{}].push_back(made(i + 31 * t, 50));
                          for (auto const word : row[Words{}]) row[Marks{}].push_back(word % 2);
                          row[Kind{}].assign(1, row[Words{}][0] % 3);
                          i = (i + 1) % 23;
                        })
                        .cache()
                        .batch(6);
  auto const make = [](int replicas) {
    return Trainer{nn::compile<Tagger>(
                       nn::of<Kind>(loss::SparseCrossEntropy{}) + nn::of<Marks>(loss::SparseCrossEntropy{}),
                       optim::Adam{}, nn::of<Kind>(metric::Accuracy{}), nn::of<Marks>(metric::ConfusionMatrix<2>{}),
                       nn::of<Kind>(metric::MeanIoU<3>{}), nn::of<Marks>(metric::Perplexity{})),
                   MirroredStrategy{Cpu::logical(replicas)}, Reproducible<8>{}, LocalTransport{}, 7};
  };
  check_replicas(data, make, {"marks_confusion_matrix", "kind_mean_iou"});
  auto trainer      = make(2);
  auto const epoch  = trainer.fit(data, quietly).front();
  auto const scores = trainer.evaluate(data);
  CHECK(sum_of(counted(epoch.scores, "marks_confusion_matrix")) == 23 * 5);
  CHECK(sum_of(counted(scores, "kind_mean_iou")) == 23);
  CHECK(scores["marks_perplexity"] == Approx(std::exp(scores["marks_loss"])).epsilon(1e-5));
  CHECK(scores["kind_accuracy"] > 0);
}

}  // namespace metric_strategies_test
