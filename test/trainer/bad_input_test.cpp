// SPDX-License-Identifier: Apache-2.0
//
// What a program gets wrong is one sentence in fit, on several replicas, and the trainer goes on with its variables.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/nn/losses/weighted_loss.hpp>
#include <chorale/trainer/callbacks.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Contains;

namespace bad_input_test {

struct Title : Field<int, 3> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Title> {
  nn::Embedding<10, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto title) const { return nn::outputs<Kind>(kind(nn::reshape<12>(words(title)))); }
};

/// 12 rows in batches of 8, of which `spoil` may change each.
auto rows(std::function<void(std::size_t row, std::vector<int>& title, std::vector<int>& kind)> spoil = {}) {
  auto x = std::vector<float>(12);
  for (std::size_t r = 0; r < x.size(); ++r) x[r] = static_cast<float>(r);
  return data::from_tensors(x, x, 1)
      .map<Title, Kind>([spoil](auto const& row, auto& to) {
        to[Title{}].assign(3, 7);
        to[Kind{}].assign(1, 2);
        if (spoil) spoil(static_cast<std::size_t>(row.x[0]), to[Title{}], to[Kind{}]);
      })
      .batch(8);
}

/// Both replicas refuse the data with a sentence, in which no variable changes; then they learn from good data.
template <class Trainer, class Data> void refused(Trainer& trainer, Data const& data, std::string const& sentence) {
  auto const before = trainer.hashes();
  CHECK_THROWS_WITH(trainer.fit(data, tiny::quietly), Contains(sentence));
  CHECK_THROWS_AS(trainer.fit(data, tiny::quietly), BadArgument);
  CHECK(trainer.hashes() == before);
}

auto trainer_of(auto loss) {
  return Trainer{nn::compile<Net>(loss, optim::Adam{}), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{},
                 LocalTransport{}, 1};
}

}  // namespace bad_input_test

using namespace bad_input_test;

TEST_CASE("ids and labels that are none, and rows that are too wide, are refused in fit", "[trainer][mistakes]") {
  auto trainer  = trainer_of(loss::SparseCrossEntropy{});
  auto const at = [](std::size_t bad, auto change) {
    return rows([bad, change](std::size_t row, auto& title, auto& kind) {
      if (row == bad) change(title, kind);
    });
  };
  refused(
      trainer, at(5, [](auto& title, auto&) { title[1] = 10; }),
      "has id 10 at position 1 of field bad_input_test::Title, but the nn::Embedding that takes it has 10 rows, 0 to 9");
  refused(trainer, at(5, [](auto& title, auto&) { title[2] = -1; }),
          "has id -1 at position 2 of field bad_input_test::Title");
  refused(trainer, at(2, [](auto&, auto& kind) { kind[0] = 3; }),
          "row 2 of the batch has label 3, but the network has outputs for 0 to 2");
  refused(trainer, at(2, [](auto&, auto& kind) { kind[0] = -7; }), "row 2 of the batch has label -7");
  refused(trainer, at(6, [](auto& title, auto&) { title.push_back(1); }),
          "row 6: field bad_input_test::Title has 4 numbers, but 3 are needed.");
  refused(trainer, at(6, [](auto&, auto& kind) { kind.clear(); }),
          "field bad_input_test::Kind has 0 numbers, but 1 are");
  CHECK(trainer.fit(rows(), tiny::quietly).back().steps == 2);  // and goes on
  auto const ids = std::vector<int>(8), kinds = std::vector<int>(2);
  CHECK_THROWS_WITH((Rows<Kind, Title>{kinds, ids}),
                    Contains("a batch of 2 rows needs 6 numbers for field bad_input_test::Title, got 8"));
}

TEST_CASE("weights for another number of classes are refused in fit", "[trainer][mistakes]") {
  auto two = trainer_of(loss::Weighted{loss::SparseCrossEntropy{}, {1, 2}});
  refused(two, rows(), "loss::Weighted has 2 weights, but the network tells 3 classes apart with 3 outputs");
  CHECK_THROWS_WITH((loss::Weighted{loss::SparseCrossEntropy{}, {1, -2, 1}}), Contains("but that of class 1 is -2"));
  CHECK_THROWS_WITH((loss::Weighted{loss::SparseCrossEntropy{}, {std::numeric_limits<float>::quiet_NaN()}}),
                    Contains("but that of class 0 is nan"));
}

TEST_CASE("a learning rate that is none is refused, however it is set", "[trainer][mistakes]") {
  auto trainer = trainer_of(loss::SparseCrossEntropy{});
  for (auto const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.5F}) {
    auto const sentence = "a learning rate is 0 or more, got " + number_text(bad);
    CHECK_THROWS_WITH(trainer.set_learning_rate(bad), Contains(sentence));
    CHECK_THROWS_WITH(trainer.fit(rows(), tiny::quietly, LearningRateScheduler{[bad](int, float) { return bad; }}),
                      Contains(sentence));
    auto const by_function = [bad] {
      auto const model = nn::compile<Net>(loss::SparseCrossEntropy{},
                                          optim::SGD{.learning_rate = [bad](optim::Moment) { return bad; }});
      Trainer{model, MirroredStrategy{Cpu::logical(2)}}.fit(rows(), tiny::quietly);
    };
    CHECK_THROWS_WITH(by_function(),
                      Contains("a learning rate is 0 or more, but the function gives " + number_text(bad)));
  }
  CHECK(trainer.learning_rate() == 1e-3F);
  CHECK(trainer.fit(rows(), tiny::quietly).size() == 1);
}

TEST_CASE("a weight file of another network is refused with three differences", "[trainer][mistakes]") {
  auto const folder = chorale::test::Folder{};
  tiny::learner_under(MirroredStrategy{Cpu::logical(1)}).save(folder / "other.safetensors");
  auto trainer      = trainer_of(loss::SparseCrossEntropy{});
  auto const before = trainer.hashes();
  CHECK_THROWS_WITH(trainer.load(folder / "other.safetensors"),
                    Contains("differences from the network: ") && Contains("; and ") && Contains(" more."));
  CHECK_THROWS_AS(trainer.load(folder / "other.safetensors"), BadFile);
  CHECK(trainer.hashes() == before);
  CHECK(trainer.fit(rows(), tiny::quietly).size() == 1);
}
