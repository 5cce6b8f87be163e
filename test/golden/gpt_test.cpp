// SPDX-License-Identifier: Apache-2.0
//
// A small GPT with the weights of a PyTorch module, whose names and layouts differ. README.md beside this file has the
// tolerances and where the numbers come from.
#include "test/golden/formula.hpp"
#include "test/support/folder.hpp"
#include "test/support/graph_nets.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt_test {

using namespace chorale;
using test::graph_nets::Next;
using test::graph_nets::Tokens;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t rows = 3, steps = 5, words = 13;

struct Gpt : test::graph_nets::Gpt2<Tokens, Next, 2, 8, 2, words, steps> {};

/// The names of make_gpt.py.
WeightMap of_torch() {
  auto const turned = weights::transposed();
  return {{"words.weight", "wte/embeddings"},
          {"places.weight", "wpe/places"},
          {{"blocks.{i}.q.weight", "blocks.{i}.k.weight", "blocks.{i}.v.weight"}, "dense{_4i}/kernel", turned},
          {{"blocks.{i}.q.bias", "blocks.{i}.k.bias", "blocks.{i}.v.bias"}, "dense{_4i}/bias"},
          {"blocks.{i}.proj.weight", "dense{_4i+1}/kernel", turned},
          {"blocks.{i}.proj.bias", "dense{_4i+1}/bias"},
          {"blocks.{i}.up.weight", "dense{_4i+2}/kernel", turned},
          {"blocks.{i}.up.bias", "dense{_4i+2}/bias"},
          {"blocks.{i}.down.weight", "dense{_4i+3}/kernel", turned},
          {"blocks.{i}.down.bias", "dense{_4i+3}/bias"},
          {"blocks.{i}.norm_1.weight", "layer_normalization{_2i}/gamma"},
          {"blocks.{i}.norm_1.bias", "layer_normalization{_2i}/beta"},
          {"blocks.{i}.norm_2.weight", "layer_normalization{_2i+1}/gamma"},
          {"blocks.{i}.norm_2.bias", "layer_normalization{_2i+1}/beta"},
          {"norm.weight", "ln_f/gamma"},
          {"norm.bias", "ln_f/beta"},
          weights::ignored({"blocks.*.mask", "logits"})};
}

auto batches() {
  auto ids = std::vector<std::vector<int>>(rows), next = ids;
  for (std::uint32_t i = 0; i < rows * steps; ++i) {
    ids[i / steps].push_back(static_cast<int>(golden::value(i, 0x1B873593) * words));
    next[i / steps].push_back(0);
  }
  return data::from_fields<Tokens, Next>(ids, next).batch(rows);
}

template <class S> auto trainer_under(S strategy) {
  return Trainer{nn::compile<Gpt>(loss::SparseCrossEntropy{}, optim::SGD{}), strategy, RingAllReduce{},
                 LocalTransport{}, 3};
}
auto alone() { return trainer_under(OneDeviceStrategy{Cpu::logical(1)[0]}); }

}  // namespace

TEST_CASE("a GPT with weights of PyTorch predicts what PyTorch predicts", "[golden][weights]") {
  auto const name = GENERATE("gpt", "gpt_halves");  // halves: bfloat16, float16 and float64
  auto const file = "test/golden/" + std::string{name} + ".safetensors";
  auto trainer    = alone();
  trainer.load(file, of_torch());
  auto const all  = trainer.predict(batches());
  auto const want = SafetensorsFile::read(file).floats("logits");
  REQUIRE(all.rows() == rows);
  auto worst = 0.0F;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < steps * words; ++i)
      worst = std::max(worst, std::abs(all[r][i] - want[r * steps * words + i]));
  CHECK(worst < 1e-5F);
}

TEST_CASE("weights of another program come to all replicas, and train as on one", "[golden][weights]") {
  auto one = alone(), other = alone();
  auto two = trainer_under(MirroredStrategy{Cpu::logical(2)});
  one.load("test/golden/gpt.safetensors", of_torch());
  two.load("test/golden/gpt.safetensors", of_torch());
  CHECK(two.hashes() == std::vector<std::uint64_t>(2, one.hashes()[0]));
  CHECK(one.hashes() != other.hashes());
}

TEST_CASE("weights are saved as PyTorch has them, to the byte", "[golden][weights]") {
  auto const folder = test::Folder{};
  auto trainer      = alone();
  trainer.load("test/golden/gpt.safetensors", of_torch());
  trainer.save(folder / "ours.safetensors", of_torch());
  auto const theirs = SafetensorsFile::read("test/golden/gpt.safetensors");
  auto const ours   = SafetensorsFile::read(folder / "ours.safetensors");
  auto compared     = std::size_t{0};
  for (auto const& tensor : theirs.tensors()) {
    auto const* same = ours.find(tensor.name);
    INFO(tensor.name);
    CHECK((same == nullptr) == (tensor.name == "logits" || tensor.name.ends_with("mask")));
    if (same == nullptr) continue;
    CHECK(same->shape == tensor.shape);
    CHECK(std::ranges::equal(same->bytes, tensor.bytes));
    ++compared;
  }
  CHECK(compared == 36);
  CHECK(ours.tensors().size() == compared);
}

TEST_CASE("a file of another network is one sentence, and changes nothing", "[golden][weights]") {
  auto trainer      = alone();
  auto const before = trainer.hashes();
  CHECK_THROWS_WITH(trainer.load("test/golden/gpt.safetensors"),
                    Contains("gpt.safetensors: 67 differences from the network: the network has no "
                             "\"blocks.0.down.bias\"; the network has no \"blocks.0.down.weight\"; the network has no "
                             "\"blocks.0.k.bias\"; and 64 more."));
  auto map = of_torch();
  map.rules.pop_back();  // that of what is ignored
  CHECK_THROWS_WITH(trainer.load("test/golden/gpt.safetensors", map),
                    Contains("3 differences from the network: no rule of the map has a name for \"blocks.0.mask\""));
  CHECK(trainer.hashes() == before);
}

}  // namespace gpt_test
