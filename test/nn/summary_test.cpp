// SPDX-License-Identifier: Apache-2.0
//
// What a model tells of itself: layers with their shapes and parameters, as Keras' summary, and its bytes.
#include <chorale/nn/compile.hpp>
#include <chorale/nn/engine/summary.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/layers/gaussian_noise.hpp>
#include <chorale/nn/layers/global_pool.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <type_traits>
#include <vector>

namespace summary_test {

using namespace chorale;

struct Pictures
    : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::BatchNorm<nn::Momentum<0.9>, nn::Epsilon<1e-5>>,
                     nn::ReLU, nn::MaxPool2D<2>, nn::Flatten, nn::Dropout<0.5>, nn::Dense<10>> {};

struct Text : Field<int, 7> {};
struct Mood : Field<float, 2> {};
struct Reader : nn::Graph<Text> {
  nn::Embedding<50, 8> words{"words"};
  nn::Dense<8> twice;
  constexpr auto operator()(auto text) const {
    return nn::outputs<Mood>(nn::Dense<2>{}(nn::GlobalAveragePool1D{}(twice(nn::relu(twice(words(text)))))));
  }
};

std::vector<std::vector<std::string>> words_of(std::string const& text) {
  auto lines = std::vector<std::vector<std::string>>{{{}}};
  for (auto const c : text) {
    if (c == '\n') lines.push_back({{}});
    else if (c != ' ') lines.back().back() += c;
    else if (!lines.back().back().empty()) lines.back().emplace_back();
  }
  lines.pop_back();
  return lines;
}

static_assert(std::is_same_v<nn::Dropout<0.3>, nn::Dropout<30>> && std::is_same_v<nn::Dropout<0.5F>, nn::Dropout<50>> &&
              std::is_same_v<nn::GaussianNoise<0.7>, nn::GaussianNoise<70>> &&
              std::is_same_v<nn::Epsilon<1e-5>, nn::Epsilon<10>> &&
              std::is_same_v<nn::Momentum<0.9>, nn::Momentum<90>>);
static_assert(nn::Momentum<90>::momentum == 0.9F && nn::Epsilon<1000>::epsilon == 1e-3F);

/// Numbers of percent have the bits that they had as whole numbers.
template <Fraction F> constexpr float float_of = F.as_float();
template <int P> constexpr bool as_percent     = float_of<P> == static_cast<float>(P) / 100.0F && as_percent<P - 1>;
template <> constexpr bool as_percent<-1>      = true;
static_assert(as_percent<99>);

TEST_CASE("a Sequential tells its layers, their shapes and parameters, and its bytes", "[nn][summary]") {
  auto const model = nn::compile<Pictures>(loss::SparseCrossEntropy{}, optim::Adam{});
  auto const text  = nn::summary(model, 64, Cpu::logical(1)[0]);
  CAPTURE(text);
  auto const lines = words_of(text);
  CHECK(lines.at(0) == std::vector<std::string>{"layer", "output", "parameters"});
  CHECK(text.find("\ninput ") != text.npos);
  auto sum = 0;
  for (auto const& line : lines) {
    if (line.at(0).starts_with("Conv2D<32,3")) CHECK(line.back() == "320");
    if (line[0].starts_with("BatchNorm<momentum=0.9,epsilon=1e-05>")) CHECK(line.back() == "128");
    if (line[0].starts_with("Dense<10")) CHECK(line.back() == "54,090");
    sum += line[0].starts_with("Conv2D<32,3") + line[0].starts_with("BatchNorm<") + line[0].starts_with("Dense<10");
  }
  CHECK(sum == 3);
  CHECK(text.find("(B, 5408)") != text.npos);
  CHECK(text.find("32)") != text.npos);
  CHECK(text.find("Dropout<50>") != text.npos);
  CHECK(text.find("54,538 parameters: 54,474 trained, 64 not\n") != text.npos);
  CHECK(text.ends_with(text_of(memory_of(model, 64, Cpu::logical(1)[0]), 1)));
  CHECK(nn::summary(model).ends_with("64 not\n"));
}

TEST_CASE("a graph tells each call, and the parameters of a layer once", "[nn][summary]") {
  auto const text = nn::summary(nn::compile<Reader>(nn::of<Mood>(loss::MeanSquaredError{}), optim::Adam{}));
  CAPTURE(text);
  CHECK(text.find("words") != text.npos);
  CHECK(text.find("(B, 7, 8)") != text.npos);
  auto dense = std::vector<std::string>{};
  for (auto const& line : words_of(text))
    if (line[0].starts_with("Dense<8")) dense.push_back(line.back());
  CHECK(dense == std::vector<std::string>{"72", "0"});
  CHECK(text.find("490 parameters: 490 trained, 0 not\n") != text.npos);
}

}  // namespace summary_test
