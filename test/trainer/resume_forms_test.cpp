// SPDX-License-Identifier: Apache-2.0
//
// What any form of training saved, whole, in shards, in split layers or in stages, on 1 to 4 ranks, every other one goes
// on with: the bits of one device that never stopped.
#include "test/support/folder.hpp"

#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/parallel/split_attention.hpp>
#include <chorale/nn/parallel/split_dense.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/evaluator.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace resume_forms_test {

using namespace chorale;
using chorale::test::Folder;

struct Words : Field<int, 4> {};
struct Next : Field<int, 4> {};

/// A GPT of width 8, whose head is tied to its table: the products of its block are split over A.
template <class A> struct Gpt : nn::Graph<Words> {
  nn::Embedding<12, 8, nn::DenseGradient> table{"table"};
  nn::LayerNorm first{"first"}, second{"second"}, last{"last"};
  nn::ColumnDense<A, 24, nn::Blocks<3>> look{"look"};
  nn::ColumnHeads<A, 2, nn::Causal> attend;
  nn::RowDense<A, 8> join{"join"};
  nn::ColumnDense<A, 16> widen{"widen"};
  nn::RowDense<A, 8> narrow{"narrow"};

  constexpr auto operator()(auto words) const {
    auto const x    = table(words);
    auto const seen = x + join(attend(look(first(x))));
    return nn::outputs<Next>(table.logits(last(seen + narrow(nn::tanh(widen(second(seen)))))));
  }
};

/// Batches of 5, 5 and 4 rows: of most worlds some ranks get fewer than others.
auto texts() {
  auto words = std::vector<int>(14 * 4), next = words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<int>(Random{1, 0}.below(i, 12));
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = (words[i] + words[i - i % 4]) % 12;
  return data::from_fields<Words, Next>(words, next).batch(5);
}

/// What a checkpoint has, byte for byte, and the loss of the last epoch.
struct Learned {
  std::string variables{}, slots{};
  double loss = 0;

  friend bool operator==(Learned const&, Learned const&) = default;
};

std::string bytes_of(std::filesystem::path const& file) {
  auto in = std::ifstream{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A form with some ranks: goes on from the checkpoints of a folder until an epoch.
struct Form {
  std::string name;
  std::function<Learned(Folder const&, int epochs)> until;
};

template <int parts = 1, class S> auto trainer_of(S strategy) {
  auto const model = nn::compile<Gpt<Axis<"tensor", parts>>>(
      loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.02F, .global_clipnorm = 0.4F});
  return Trainer{model, strategy, Reproducible<4>{}, LocalTransport{}, 7};
}
template <int parts = 1, class S> Form form(std::string name, S strategy) {
  return {std::move(name), [strategy](Folder const& folder, int epochs) {
            auto trainer = trainer_of<parts>(strategy);
            auto const history =
                trainer.fit(texts(), {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}});
            auto const last = folder / checkpoint_name(trainer.step());
            return Learned{bytes_of(last / "variables.safetensors"), bytes_of(last / "optimizer.safetensors"),
                           history.back().scores.loss()};
          }};
}

using Data   = Axis<"data", 2>;
using Tensor = Axis<"tensor", 2>;

template <int n, int micro_batches = 4, class... Others> auto stages(int devices) {
  return MeshStrategy{Mesh<Others..., Axis<"stage", n>>{Cpu::logical(devices)},
                      pipelined<OneForwardOneBackward<micro_batches>>()};
}

std::vector<Form> all_forms() {
  auto all = std::vector{form("one device", OneDeviceStrategy{Cpu::logical(1)[0]})};
  for (int n = 1; n <= 4; ++n) {
    auto const on = " on " + std::to_string(n);
    all.push_back(form("mirrored" + on, MirroredStrategy{Cpu::logical(n)}));
    all.push_back(form("Zero::one" + on, ShardedStrategy<Zero::one>{Cpu::logical(n)}));
    all.push_back(form("Zero::two" + on, ShardedStrategy<Zero::two>{Cpu::logical(n)}));
    all.push_back(form("Zero::three" + on, ShardedStrategy<Zero::three>{Cpu::logical(n)}));
  }
  all.push_back(form("Zero::three within 2 on 4", HybridStrategy<Zero::three, 2>{Cpu::logical(4)}));
  all.push_back(form<2>("tensor 2", MeshStrategy{Mesh<Tensor>{Cpu::logical(2)}}));
  all.push_back(form<2>("data 2 x tensor 2", MeshStrategy{Mesh<Data, Tensor>{Cpu::logical(4)}}));
  all.push_back(form<2>("data 2 x tensor 2, Zero::one",
                        MeshStrategy{Mesh<Data, Tensor>{Cpu::logical(4)}, sharded<Zero::one>("data")}));
  all.push_back(form("2 stages", stages<2>(2)));
  all.push_back(form("3 stages", stages<3>(3)));
  all.push_back(form("4 stages", stages<4>(4)));
  all.push_back(form("data 2 x 2 stages", stages<2, 2, Data>(4)));
  return all;
}

}  // namespace resume_forms_test

using namespace resume_forms_test;

TEST_CASE("what one form of training saved every other one goes on with, bit for bit", "[trainer][resume][matrix]") {
  auto const all = all_forms();
  REQUIRE(all.size() == 25);
  auto const never       = Folder{};
  auto const undisturbed = all[0].until(never, 2);
  REQUIRE(undisturbed.variables.size() > 4 * 600);
  REQUIRE(undisturbed.slots.size() > 2 * undisturbed.variables.size());
  for (auto const& saves : all) {
    auto const saved  = Folder{};
    auto const before = saves.until(saved, 1);
    CHECK(before.variables != undisturbed.variables);
    for (auto const& goes_on : all) {
      auto const folder = Folder{};
      std::filesystem::copy(saved.path, folder.path, std::filesystem::copy_options::recursive);
      INFO(saves.name << " saved, " << goes_on.name << " goes on");
      CHECK(goes_on.until(folder, 2) == undisturbed);
    }
  }
}

TEST_CASE("an evaluator of any form reads the checkpoints of another", "[trainer][evaluator][matrix]") {
  auto const folder = Folder{};
  auto one          = trainer_of(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(texts(), {.epochs = 1, .show = Show::nothing, .checkpoints = {.folder = folder.path}});
  auto const loss    = one.evaluate(texts()).loss();
  auto const outputs = one.predict(texts()).values;
  auto const follows = [&](auto trainer) {
    CHECK(trainer.evaluate(texts()).loss() != Approx(loss).epsilon(1e-4));
    auto const seen = evaluate_checkpoints(trainer, texts(), {.checkpoints = {.folder = folder.path}, .epochs = 1});
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].step == 3);
    CHECK(seen[0].scores.rows() == 14);
    CHECK(seen[0].scores.loss() == Approx(loss).epsilon(1e-6));  // added up over shares, in another order
    auto const predicted = trainer.predict(texts()).values;
    REQUIRE(predicted.size() == outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) CHECK(predicted[i] == Approx(outputs[i]).margin(1e-5));
  };
  follows(trainer_of(ShardedStrategy<Zero::three>{Cpu::logical(3)}));
  follows(trainer_of<2>(MeshStrategy{Mesh<Data, Tensor>{Cpu::logical(4)}}));
  follows(trainer_of(stages<3>(3)));
  follows(trainer_of(stages<2, 2, Data>(4)));
}

TEST_CASE("forms that do not fit a number of ranks, or the logical shards, are refused", "[trainer][resume][matrix]") {
  CHECK_THROWS_WITH((Mesh<Tensor>{Cpu::logical(1)}), Catch::Contains("the mesh tensor 2 has 2 ranks, but there are 1"));
  CHECK_THROWS_WITH((Mesh<Tensor>{Cpu::logical(3)}), Catch::Contains("the mesh tensor 2 has 2 ranks, but there are 3"));
  CHECK_THROWS_WITH((stages<2, 2, Data>(3)), Catch::Contains("the mesh data 2 x stage 2 has 4 ranks, but there are 3"));
  auto const folder = Folder{};
  CHECK_THROWS_WITH(
      form("", stages<2, 4, Data>(4)).until(folder, 1),
      Catch::Contains("micro-batches are the logical shards of Reproducible<4>, of which each of 2 shares "
                      "has 2, but the schedule of the pipeline has 4"));
}
