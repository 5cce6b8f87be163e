// SPDX-License-Identifier: Apache-2.0
//
// Networks derived from nn::Graph on a GPU, beside the same networks on the CPU.
#include "test/cuda/device.hpp"
#include "test/cuda/same.hpp"

#include <chorale/chorale.hpp>
#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

using namespace chorale;
using Catch::Contains;
using test::apart;
using test::gpu_or_skip;

namespace {

struct Picture : Field<float, 8, 8, 2> {};
struct Numbers : Field<float, 6> {};
struct Kind : Field<int, 1> {};
struct Sizes : Field<float, 3> {};

/// Two inputs, two outputs, layers of kernels, a layer called twice, and sums.
struct Branches : nn::Graph<Picture, Numbers> {
  nn::Conv2D<5, 3, nn::NoBias> conv;  // its bias would have no gradient
  nn::BatchNorm<> norm;
  nn::Dense<9> dense, twice;
  nn::Dense<4> kind;
  nn::Dense<3> sizes;

  constexpr auto operator()(auto picture, auto numbers) const {
    auto const seen  = dense(nn::Flatten{}(nn::MaxPool2D<2>{}(nn::relu(norm(conv(picture))))));
    auto const other = nn::Dropout<30>{}(nn::gelu(nn::Dense<9>{}(numbers)));
    auto const both  = twice(nn::tanh(seen + other)) + twice(other);
    return nn::outputs<Kind, Sizes>(kind(both), sizes(both + seen));
  }
};

struct Text : Field<int, 7> {};
struct Letters : Field<std::uint8_t, 7> {};
struct Next : Field<int, 7> {};

template <class Heads, class Norm> struct Block {
  Norm norm, norm_2;
  nn::Dense<3 * 12> queries_keys_values;
  nn::Dense<20> wide;
  nn::Dense<12> mixed, narrow;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(Heads{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

/// A GPT whose last layer is its table of characters.
template <class Heads, class Norm> struct OfBlocks : nn::Graph<Text> {
  nn::Embedding<11, 12> characters;
  nn::Positions<9, 12> places;
  std::array<Block<Heads, Norm>, 2> blocks;
  Norm last;

  constexpr auto operator()(auto text) const {
    auto x = nn::Dropout<10>{}(places(characters(text)));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(characters.logits(last(x)));
  }
};
using Gpt     = OfBlocks<nn::CausalHeads<3>, nn::LayerNorm>;
using Encoder = OfBlocks<nn::Heads<3>, nn::LayerNormWith<nn::EpsilonPower<2>>>;
struct OfBytes : nn::Graph<Letters> {
  nn::Embedding<11, 12, nn::DenseGradient> characters;
  nn::Dense<11> last;

  constexpr auto operator()(auto text) const { return nn::outputs<Next>(last(characters(text))); }
};

std::vector<float> random(std::size_t n, std::uint64_t stream) {
  auto x = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = Random{5, stream}.uniform(i, -1, 1);
  return x;
}
template <class T> std::vector<T> ids(std::size_t n, std::size_t all, std::size_t shift) {
  auto x = std::vector<T>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>((i * 5 + i / 3 + shift) % all);
  return x;
}

/// Three steps, of two numbers of rows, on both devices, and what is asked of them after each.
template <class Model, class Batch> void check_alike(Cuda const& gpu, Model const& model, Batch const& all) {
  auto const scope = Cuda::Scope{gpu};
  auto ours        = model.instantiate(gpu, 3);
  auto theirs      = model.instantiate(Cpu{}, 3);
  for (int step = 0; step < 3; ++step) {
    auto const rows = step == 1 ? all.part(1, 3) : all;
    auto const got  = ours.value_and_gradient(rows, 2, [](std::size_t) {}, Together{});
    auto const want = theirs.value_and_gradient(rows, 2, [](std::size_t) {}, Together{});
    CHECK(got.mean() == Approx(want.mean()).epsilon(1e-5));
    for (std::size_t i = 0; i < Model::metric_names.size(); ++i)
      CHECK(ours.gradients().header().metric(i) == Approx(theirs.gradients().header().metric(i)).epsilon(1e-5));
    for (std::size_t i = 0; i < Model::plan.variables.size(); ++i) {
      INFO("step " << step << ", " << std::string_view{Model::plan.variables[i].name});
      CHECK(apart(ours.gradients()[i], theirs.gradients()[i], 1e-3) < 2e-5);
    }
    ours.optimizer.apply(ours.net.variables(), ours.gradients());
    theirs.optimizer.apply(theirs.net.variables(), theirs.gradients());
    CHECK(apart(ours.net.variables().values, theirs.net.variables().values) < 1e-5);
  }
  CHECK(apart(ours.predict(all), theirs.predict(all)) < 1e-4);
  auto sums = std::array<std::array<float, plan::header>, 2>{};
  ours.evaluate(all, sums[0]);
  theirs.evaluate(all, sums[1]);
  CHECK(apart(sums[0], sums[1]) < 1e-4);
}

}  // namespace

TEST_CASE("a network with branches learns on a GPU what it learns on the CPU", "[nn][cuda]") {
  auto const gpu = gpu_or_skip("a network with branches learns on a GPU what it learns on the CPU");
  if (!gpu) return;
  auto const picture = random(12 * 128, 0), numbers = random(12 * 6, 1), sizes = random(12 * 3, 2);
  auto const kind  = ids<int>(12, 4, 0);
  auto const batch = Rows<Picture, Numbers, Kind, Sizes>{picture, numbers, kind, sizes};
  auto const both  = nn::of<Kind>(loss::SparseCrossEntropy{}) + 0.3F * nn::of<Sizes>(loss::MeanSquaredError{}) +
                    0.5F * nn::of<Sizes>(loss::MeanSquaredError{});  // two of one output
  check_alike(*gpu,
              nn::compile<Branches>(both, optim::SGD{.learning_rate = 0.1F}, nn::of<Kind>(metric::Accuracy{}),
                                    nn::of<Sizes>(metric::MeanAbsoluteError{})),
              batch);
}

TEST_CASE("a GPT learns on a GPU what it learns on the CPU", "[nn][cuda]") {
  auto const gpu = gpu_or_skip("a GPT learns on a GPU what it learns on the CPU");
  if (!gpu) return;
  auto const text = ids<int>(6 * 7, 11, 0), next = ids<int>(6 * 7, 11, 4);
  auto const rule = optim::Grouped{optim::AdamW{.weight_decay = 0.1F, .epsilon = 1e-3F, .global_clipnorm = 1},
                                   {optim::ParameterGroup{.names = "*bias", .weight_decay = 0}}};
  check_alike(*gpu, nn::compile<Gpt>(loss::SparseCrossEntropy{}, rule, metric::Accuracy{}),
              Rows<Text, Next>{text, next});
  auto const bytes = ids<std::uint8_t>(6 * 7, 11, 0);
  check_alike(*gpu, nn::compile<OfBytes>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}),
              Rows<Letters, Next>{bytes, next});
}

TEST_CASE("an encoder attends to later steps on a GPU as well, with the epsilon of its normalizations", "[nn][cuda]") {
  auto const gpu = gpu_or_skip("an encoder attends to later steps on a GPU as well");
  if (!gpu) return;
  auto const text = ids<int>(6 * 7, 11, 0), next = ids<int>(6 * 7, 11, 4);
  check_alike(*gpu, nn::compile<Encoder>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}),
              Rows<Text, Next>{text, next});
}

TEST_CASE("an id that is in no row of a table is refused before a GPU has it", "[nn][cuda]") {
  auto const gpu = gpu_or_skip("an id that is in no row of a table is refused before a GPU has it");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto copy        = nn::compile<Gpt>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(*gpu, 3);
  auto text        = ids<int>(2 * 7, 11, 0);
  auto const next  = text;
  text[9]          = 11;
  CHECK_THROWS_WITH(copy.value_and_gradient(
                        Rows<Text, Next>{text, next}, 0, [](std::size_t) {}, Together{}),
                    Contains("row 1 of the batch has id 11 at position 2") && Contains("11 rows, 0 to 10"));
}

TEST_CASE("two replicas on GPUs train a network of layers as one on the CPU", "[nn][cuda]") {
  auto const gpus = test::two_gpus_or_skip("two replicas on GPUs train a network of layers as one on the CPU");
  if (gpus.empty()) return;
  auto const text = ids<int>(8 * 7, 11, 0), next = ids<int>(8 * 7, 11, 4);
  auto const rows  = data::from_fields<Text, Next>(text, next).batch(GlobalBatch{5});
  auto const model = nn::compile<Gpt>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.01F});
  auto ours        = Trainer{model, MirroredStrategy{gpus}, RingAllReduce{}, test::through_host(), 7};
  auto theirs      = Trainer{model, OneDeviceStrategy{Cpu{}}, DirectAllReduce{}, LocalTransport{}, 7};
  auto const got   = ours.fit(rows, {.epochs = 3, .show = Show::nothing});
  auto const want  = theirs.fit(rows, {.epochs = 3, .show = Show::nothing});
  CHECK(got.back()["loss"] == Approx(want.back()["loss"]).epsilon(1e-4));
}
