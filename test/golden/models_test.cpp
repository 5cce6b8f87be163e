// SPDX-License-Identifier: Apache-2.0
//
// A GPT against the numbers of PyTorch, and DLRM against those that its authors print. README.md beside this file has
// the tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace models_test {

using namespace chorale;

namespace {

constexpr int characters = 11, length = 6, size = 8;
constexpr std::size_t rows = 3;

struct Text : Field<int, length> {};
struct Next : Field<int, length> {};

struct Layer {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * size> queries_keys_values;
  nn::Dense<4 * size> wide;
  nn::Dense<size> mixed, narrow;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<2>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

struct Gpt : nn::Graph<Text> {
  nn::Embedding<characters, size> table;
  nn::Positions<length, size> positions;
  std::array<Layer, 2> layers;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = positions(table(text));
    for (auto const& layer : layers) x = layer(x);
    return nn::outputs<Next>(table.logits(last(x)));
  }
};

/// Largest difference between numbers, of which those from `first` to `end` do not count.
double largest_difference(Span<float const> got, std::vector<float> const& want, std::size_t first = 0,
                          std::size_t end = 0) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (i < first || i >= end) most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
  return most;
}

template <int I> struct Ids : Field<int, 3> {};
struct Numbers : Field<float, 4> {};
struct Target : Field<float, 1> {};

/// The tables have a row more than theirs, of zeros: what is missing in a bag of fewer than three ids.
struct Dlrm : nn::Graph<Numbers, Ids<0>, Ids<1>, Ids<2>> {
  nn::EmbeddingBag<5, 2, nn::Bag::sum> table_0{"table_0"};
  nn::EmbeddingBag<4, 2, nn::Bag::sum> table_1{"table_1"};
  nn::EmbeddingBag<3, 2, nn::Bag::sum> table_2{"table_2"};
  nn::Dense<3> bottom_0{"bottom_0"};
  nn::Dense<2> bottom_1{"bottom_1"};
  nn::Dense<4> top_0{"top_0"};
  nn::Dense<2> top_1{"top_1"};
  nn::Dense<1> top_2{"top_2"};

  constexpr auto operator()(auto numbers, auto a, auto b, auto c) const {
    auto const x     = nn::relu(bottom_1(nn::relu(bottom_0(numbers))));
    auto const pairs = nn::interaction(x, table_0(a), table_1(b), table_2(c));
    return nn::outputs<Target>(nn::sigmoid(top_2(nn::relu(top_1(nn::relu(top_0(nn::concatenate(x, pairs))))))));
  }
};

/// Values of a variable before training, and after three steps; a kernel is (out, in) here, as it is printed.
struct Printed {
  std::string_view name;
  std::size_t in, out;  // 0 for in: no kernel
  std::vector<float> before, after;
};

std::vector<Printed> printed() {
  return {{"table_0/embeddings",
           0,
           2,
           {0.05438F, -0.11105F, 0.42513F, 0.34167F, -0.1426F, -0.45641F, -0.19523F, -0.10181F},
           {0.0543F, -0.1112F, 0.42513F, 0.34167F, -0.14283F, -0.45679F, -0.19532F, -0.10197F}},
          {"table_1/embeddings",
           0,
           2,
           {0.23667F, 0.57199F, -0.16638F, 0.30316F, 0.10759F, 0.22136F},
           {0.23667F, 0.57199F, -0.1666F, 0.30285F, 0.10751F, 0.22124F}},
          {"table_2/embeddings",
           0,
           2,
           {-0.49338F, -0.14301F, -0.36649F, -0.22139F},
           {-0.49338F, -0.14301F, -0.36664F, -0.22164F}},
          {"bottom_0/kernel",
           4,
           3,
           {0.51313F, 0.66662F, 0.10591F, 0.13089F, 0.32198F, 0.66156F, 0.84651F, 0.55326F, 0.85445F, 0.38484F,
            0.31679F, 0.35426F},
           {0.51313F, 0.66663F, 0.10591F, 0.1309F, 0.32196F, 0.66154F, 0.84649F, 0.55324F, 0.85444F, 0.38482F, 0.31677F,
            0.35425F}},
          {"bottom_0/bias", 0, 3, {0.17108F, 0.82911F, 0.33867F}, {0.17109F, 0.82907F, 0.33863F}},
          {"bottom_1/kernel",
           3,
           2,
           {0.55237F, 0.57855F, 0.52153F, 0.00269F, 0.98835F, 0.90534F},
           {0.55238F, 0.57857F, 0.52154F, 0.00265F, 0.98825F, 0.90528F}},
          {"bottom_1/bias", 0, 2, {0.20764F, 0.29249F}, {0.20764F, 0.29244F}},
          {"top_0/kernel",
           8,
           4,
           {0.52001F, 0.90191F, 0.98363F, 0.25754F, 0.56436F, 0.80697F, 0.39437F, 0.73107F, 0.16107F, 0.6007F, 0.86586F,
            0.98352F, 0.07937F, 0.42835F, 0.20454F, 0.45064F, 0.54776F, 0.09333F, 0.29686F, 0.92758F, 0.569F,  0.45741F,
            0.75353F, 0.74186F, 0.04858F, 0.7087F,  0.83924F, 0.16594F, 0.781F,   0.28654F, 0.30647F, 0.66526F},
           {0.51996F, 0.90184F, 0.98368F, 0.25752F, 0.56436F, 0.807F,  0.39437F, 0.73107F, 0.16096F, 0.60055F, 0.86596F,
            0.98348F, 0.07938F, 0.42842F, 0.20453F, 0.45064F, 0.5476F, 0.0931F,  0.29701F, 0.92752F, 0.56902F, 0.45752F,
            0.75351F, 0.74187F, 0.04849F, 0.70857F, 0.83933F, 0.1659F, 0.78101F, 0.2866F,  0.30646F, 0.66526F}},
          {"top_0/bias", 0, 4, {0.11139F, 0.66487F, 0.88786F, 0.69631F}, {0.11137F, 0.66482F, 0.88778F, 0.69627F}},
          {"top_1/kernel",
           4,
           2,
           {0.44033F, 0.43821F, 0.7651F, 0.56564F, 0.0849F, 0.58267F, 0.81484F, 0.33707F},
           {0.44029F, 0.43816F, 0.76502F, 0.56561F, 0.08485F, 0.5826F, 0.81474F, 0.33702F}},
          {"top_1/bias", 0, 2, {0.92758F, 0.75072F}, {0.92754F, 0.75067F}},
          {"top_2/kernel", 2, 1, {0.57406F, 0.75164F}, {0.57379F, 0.7514F}},
          {"top_2/bias", 0, 1, {0.07915F}, {0.07908F}}};
}

/// Printed values in our order: kernels (in, out), and behind a table its row of zeros.
std::vector<float> ours(Printed const& of, std::vector<float> values) {
  if (of.name.ends_with("embeddings")) values.resize(values.size() + of.out);
  auto turned = values;
  for (std::size_t i = 0; i < of.in; ++i)
    for (std::size_t o = 0; o < of.out; ++o) turned[i * of.out + o] = values[o * of.in + i];
  return turned;
}

}  // namespace

TEST_CASE("five steps of a GPT are PyTorch's", "[golden][nn][graph]") {
  auto const expected = SafetensorsFile::read("test/golden/character_gpt.safetensors");
  auto const plain    = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const rule = optim::AdamW{.learning_rate = 1e-2F, .weight_decay = 0.1F, .beta_2 = 0.99F, .global_clipnorm = 1};
  auto copy       = nn::compile<Gpt>(loss::SparseCrossEntropy{},
                                     optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const v     = copy.net.variables();
  auto const names = std::array<std::string, 28>{"embedding/embeddings",
                                                 "positions/places",
                                                 "layer_normalization/gamma",
                                                 "layer_normalization/beta",
                                                 "dense/kernel",
                                                 "dense/bias",
                                                 "dense_1/kernel",
                                                 "dense_1/bias",
                                                 "layer_normalization_1/gamma",
                                                 "layer_normalization_1/beta",
                                                 "dense_2/kernel",
                                                 "dense_2/bias",
                                                 "dense_3/kernel",
                                                 "dense_3/bias",
                                                 "layer_normalization_2/gamma",
                                                 "layer_normalization_2/beta",
                                                 "dense_4/kernel",
                                                 "dense_4/bias",
                                                 "dense_5/kernel",
                                                 "dense_5/bias",
                                                 "layer_normalization_3/gamma",
                                                 "layer_normalization_3/beta",
                                                 "dense_6/kernel",
                                                 "dense_6/bias",
                                                 "dense_7/kernel",
                                                 "dense_7/bias",
                                                 "layer_normalization_4/gamma",
                                                 "layer_normalization_4/beta"};
  REQUIRE(v.size() == names.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    auto const place = std::ranges::find(names, std::string{v[i].name}) - names.begin();
    auto const salt  = static_cast<std::uint32_t>(0x101 * (place + 1));
    std::ranges::copy(golden::initial({"", v[i].value.size(), salt, 1}), v[i].value.begin());
    if (v[i].name.ends_with("gamma"))
      for (auto& gamma : v[i].value) gamma += 1;
  }
  auto text = std::vector<int>{}, next = text;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t t = 0; t <= length; ++t) {
      auto const i = static_cast<std::uint32_t>(r * (length + 1) + t);
      auto const c = static_cast<int>(golden::value(i, 0x9999) * static_cast<float>(characters));
      if (t < length) text.push_back(c);
      if (t > 0) next.push_back(c);
    }
  auto const losses = expected.floats("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    auto const loss = copy.value_and_gradient(Rows<Text, Next>{text, next}, 0, LooksAtEnd{});
    CHECK(std::abs(loss.value / rows - losses[step]) < 2e-6F);
    for (std::size_t i = 0; step == 0 && i < v.size(); ++i) {
      INFO(v[i].name);
      auto const sums = copy.gradients()[i];
      auto means      = std::vector<float>(sums.begin(), sums.end());
      for (auto& g : means) g /= static_cast<float>(rows);
      CHECK(largest_difference(means, expected.floats("gradient/" + std::string{v[i].name})) < 6e-7);
    }
    copy.optimizer.apply(v, copy.gradients());
  }
  for (std::size_t i = 0; i < v.size(); ++i) {
    INFO(v[i].name);  // the loss does not depend on the keys' bias
    auto const keys = v[i].name == "dense/bias" || v[i].name == "dense_4/bias" ? std::size_t{size} : 0;
    CHECK(largest_difference(v[i].value, expected.floats("variable/" + std::string{v[i].name}), keys, 2 * keys) < 6e-6);
  }
}

TEST_CASE("three steps of DLRM are those that its authors print", "[golden][nn][graph]") {
  auto copy = nn::compile<Dlrm>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.01F})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const all = printed();
  auto const v   = copy.net.variables();
  REQUIRE(v.size() == all.size());
  auto const of = [&](std::size_t i) { return std::ranges::find(all, std::string_view{v[i].name}, &Printed::name); };
  for (std::size_t i = 0; i < v.size(); ++i) {
    REQUIRE(of(i) != all.end());
    std::ranges::copy(ours(*of(i), of(i)->before), v[i].value.begin());
  }
  struct Step {
    std::vector<float> numbers, target;
    std::vector<int> a, b, c;  // 4, 3 and 2 are the rows of zeros
    float loss;
  };
  auto const steps =
      std::vector<Step>{{{0.69647F, 0.28614F, 0.22685F, 0.55131F, 0.71947F, 0.42311F, 0.98076F, 0.68483F},
                         {0.55679F, 0.15896F},
                         {1, 4, 4, 0, 1, 4},
                         {0, 3, 3, 1, 3, 3},
                         {1, 2, 2, 0, 2, 2},
                         0.451893F},
                        {{0.36179F, 0.22826F, 0.29371F, 0.63098F, 0.0921F, 0.4337F, 0.43086F, 0.49369F},
                         {0.15307F, 0.69553F},
                         {1, 4, 4, 0, 2, 3},
                         {1, 3, 3, 1, 2, 3},
                         {1, 2, 2, 1, 2, 2},
                         0.402002F},
                        {{0.60306F, 0.54507F, 0.34276F, 0.30412F, 0.41702F, 0.6813F, 0.87546F, 0.51042F},
                         {0.31877F, 0.69197F},
                         {2, 4, 4, 0, 1, 2},
                         {1, 3, 3, 2, 3, 3},
                         {1, 2, 2, 1, 2, 2},
                         0.275460F}};
  for (auto const& step : steps) {
    auto const batch = Rows<Numbers, Ids<0>, Ids<1>, Ids<2>, Target>{step.numbers, step.a, step.b, step.c, step.target};
    auto const loss  = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(std::abs(loss.value / 2 - step.loss) < 2e-5F);
    copy.optimizer.apply(v, copy.gradients());
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i].name.ends_with("embeddings")) std::ranges::fill(v[i].value.last(2), 0.0F);
  }
  for (std::size_t i = 0; i < v.size(); ++i) {
    INFO(v[i].name);
    CHECK(largest_difference(v[i].value, ours(*of(i), of(i)->after)) < 2e-5);
  }
}

}  // namespace models_test
