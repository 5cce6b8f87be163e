// SPDX-License-Identifier: Apache-2.0
//
// A vision transformer, and BERT with the weights of the package transformers, against PyTorch's numbers. README.md
// beside this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"
#include "test/support/encoder_nets.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace encoders_test {

using namespace chorale;
using namespace chorale::test::encoder_nets;

namespace {

constexpr std::size_t rows = 3, pixels = 6 * 9 * 2;
constexpr int classes = 5;

struct Image : Field<float, 6, 9, 2> {};
struct Class : Field<int, 1> {};
struct Vision : VisionTransformer<Image, Class, 3, 6, 2, 8, 2, 16, classes> {};

struct Ids : Field<int, ragged> {};
struct Vector : Field<float, 24> {};
struct LongVector : Field<float, 384> {};
struct Bert : SentenceEncoder<Ids, Vector, 2, 24, 3, 48, 31, 12> {};
struct MiniLm : SentenceEncoder<Ids, LongVector, 6, 384, 12, 1536, 30'522, 512> {};
static_assert(nn::plan_of<MiniLm>.parameters == 22'565'376);

/// Largest difference between numbers, of which those from `first` to `end` do not count.
double largest_difference(Span<float const> got, std::vector<float> const& want, std::size_t first = 0,
                          std::size_t end = 0) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (i < first || i >= end) most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
  return most;
}

/// The names of variables in the order of make_vit.py.
std::vector<std::string> names_of_vision() {
  auto names = std::vector<std::string>{"conv2d/kernel", "conv2d/bias", "class_token/token", "positions/places"};
  auto layer = [&, dense = 0, norm = 0](bool is_dense) mutable {
    auto& number    = is_dense ? dense : norm;
    auto const name = (is_dense ? "dense" : "layer_normalization") + (number > 0 ? "_" + std::to_string(number) : "");
    ++number;
    names.push_back(name + (is_dense ? "/kernel" : "/gamma"));
    names.push_back(name + (is_dense ? "/bias" : "/beta"));
  };
  for (int block = 0; block < 2; ++block)
    for (bool is_dense : {false, true, true, false, true, true}) layer(is_dense);
  layer(false), layer(true);
  return names;
}

/// Texts of these lengths, of the ids of make_bert.py.
auto texts(std::vector<std::size_t> const& lengths, int words) {
  auto ids = std::vector<std::vector<int>>(lengths.size());
  auto i   = std::uint32_t{0};
  for (std::size_t r = 0; r < lengths.size(); ++r)
    for (std::size_t t = 0; t < lengths[r]; ++t)
      ids[r].push_back(static_cast<int>(static_cast<double>(golden::value(i++, 0x1B873593)) * words));
  return data::from_fields<Ids>(ids);
}

template <class Net> auto encoder() {
  return Trainer{nn::compile<Net>(loss::Given{}, optim::SGD{}), OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{},
                 LocalTransport{}, 3};
}

/// The names of make_bert.py, whose file has more than weights.
WeightMap names_of_file() {
  auto map = names_of_bert();
  map.rules.push_back(weights::ignored("sentences"));
  return map;
}

}  // namespace

TEST_CASE("three steps of a vision transformer are PyTorch's", "[golden][nn][graph]") {
  auto const expected = SafetensorsFile::read("test/golden/vit.safetensors");
  auto const plain    = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const rule     = optim::AdamW{.learning_rate = 1e-2F, .weight_decay = 0.05F, .global_clipnorm = 1};
  auto copy           = nn::compile<Vision>(loss::SparseCrossEntropy{},
                                            optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const v     = copy.net.variables();
  auto const names = names_of_vision();
  REQUIRE(v.size() == names.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    auto const place = std::ranges::find(names, std::string{v[i].name}) - names.begin();
    auto const salt  = static_cast<std::uint32_t>(0x101 * (place + 1));
    std::ranges::copy(golden::initial({"", v[i].value.size(), salt, 1}), v[i].value.begin());
    if (v[i].name.ends_with("gamma"))
      for (auto& gamma : v[i].value) gamma += 1;
  }
  auto image = std::vector<float>(rows * pixels);
  for (std::uint32_t i = 0; i < image.size(); ++i) image[i] = golden::value(i, 0x9999);
  auto const digits = std::vector<int>{1, 4, 2};
  auto const batch  = Rows<Image, Class>{image, digits};
  CHECK(largest_difference(copy.predict(batch), expected.floats("logits")) < 2e-6);
  auto const losses = expected.floats("losses");
  REQUIRE(losses.size() == 3);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    auto const loss = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(std::abs(loss.value / rows - losses[step]) < 2e-6F);
    for (std::size_t i = 0; step == 0 && i < v.size(); ++i) {
      INFO(v[i].name);
      auto const sums = copy.gradients()[i];
      auto means      = std::vector<float>(sums.begin(), sums.end());
      for (auto& g : means) g /= static_cast<float>(rows);
      CHECK(largest_difference(means, expected.floats("gradient/" + std::string{v[i].name})) < 8e-7);
    }
    copy.optimizer.apply(v, copy.gradients());
  }
  for (std::size_t i = 0; i < v.size(); ++i) {
    INFO(v[i].name);  // the loss does not depend on the keys' bias
    auto const keys = v[i].name == "dense/bias" || v[i].name == "dense_4/bias" ? std::size_t{8} : 0;
    CHECK(largest_difference(v[i].value, expected.floats("variable/" + std::string{v[i].name}), keys, 2 * keys) < 3e-5);
  }
}

TEST_CASE("BERT with weights of another package makes its vectors of texts, without padding", "[golden][weights]") {
  auto const file = std::string{"test/golden/bert.safetensors"};
  auto trainer    = encoder<Bert>();
  trainer.load(file, names_of_file());
  auto const lengths = std::vector<std::size_t>{5, 1, 9, 3, 12};
  auto const want    = SafetensorsFile::read(file).floats("sentences");
  auto const all     = trainer.predict(texts(lengths, 31).batch(5));
  CHECK(largest_difference(all.values, want) < 1e-6);
  auto const padding = data::PaddingOf<Ids>{.length = 12, .value = 99};
  auto const wide    = trainer.predict(texts(lengths, 31).padded_batch(5, padding));
  CHECK(wide.values == all.values);  // ids of padding are in no row of the table
  auto const alone = trainer.predict(texts(lengths, 31).batch(1));
  CHECK(largest_difference(alone.values, all.values) < 1e-6);
}

TEST_CASE("all-MiniLM-L6-v2 makes the vectors that transformers makes", "[golden][weights]") {
  auto const* named = std::getenv("CHORALE_MINILM");
  if (named == nullptr || *named == '\0') {
    std::printf("SKIPPED: all-MiniLM-L6-v2 makes the vectors that transformers makes: no folder in CHORALE_MINILM\n");
    return;
  }
  auto const folder = std::string{named};  // see make_bert.py
  auto const stored = SafetensorsFile::read(folder + "/sentences.safetensors");
  auto trainer      = encoder<MiniLm>();
  trainer.load(folder + "/model.safetensors", names_of_bert());
  auto const all = trainer.predict(texts({3, 128, 17, 40}, 30'522).batch(4));
  CHECK(largest_difference(all.values, stored.floats("sentences")) < 2e-6);
}

}  // namespace encoders_test
