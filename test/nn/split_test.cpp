// SPDX-License-Identifier: Apache-2.0
//
// Networks that are split over 1, 2 and 4 ranks: the same bits on any number of them, and those of the unsplit network to
// 1e-5.
#include "test/support/count_allocations.hpp"
#include "test/support/split_runs.hpp"

#include <chorale/nn/derivatives/gradient_error.hpp>
#include <chorale/nn/engine/compiled.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/parallel/split_attention.hpp>
#include <chorale/nn/parallel/split_dense.hpp>
#include <chorale/nn/parallel/split_embedding.hpp>
#include <chorale/nn/parallel/split_loss.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace split_test {

using namespace chorale;

namespace {

template <int n> using Tensor = Axis<"tensor", n>;

struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};

constexpr int width = 16, vocabulary = 24, heads = 4;

/// The layers of a block, unsplit for n = 0.
template <int n> struct Layers {
  nn::ColumnDense<Tensor<n>, 3 * width, nn::Blocks<3>> look;
  nn::ColumnHeads<Tensor<n>, heads, nn::Causal> attend;
  nn::RowDense<Tensor<n>, width> join;
  nn::ColumnDense<Tensor<n>, 4 * width> widen;
  nn::RowDense<Tensor<n>, width> narrow;
};
template <> struct Layers<0> {
  nn::Dense<3 * width> look;
  nn::CausalHeads<heads> attend;
  nn::Dense<width> join;
  nn::Dense<4 * width> widen;
  nn::Dense<width> narrow;
};
template <int n> struct Table {
  using type = nn::SplitEmbedding<Tensor<n>, vocabulary, width>;
};
template <> struct Table<0> {
  using type = nn::Embedding<vocabulary, width>;
};

template <int n> struct Part : Layers<n> {
  nn::LayerNorm first, second;
  constexpr auto operator()(auto x) const {
    auto const seen = x + this->join(this->attend(this->look(first(x))));
    return seen + this->narrow(nn::gelu_tanh(this->widen(second(seen))));
  }
};
template <int n> struct Gpt : nn::Graph<Words> {
  typename Table<n>::type table;
  nn::Positions<8, width> places;
  std::array<Part<n>, 2> parts;
  nn::LayerNorm last;
  constexpr auto operator()(auto words) const {
    auto x = places(table(words));
    for (auto const& part : parts) x = part(x);
    return nn::outputs<Next>(table.logits(last(x)));
  }
};

struct Text {
  std::vector<int> words = std::vector<int>(3 * 8), next = words;
  Rows<Words, Next> rows() const { return Rows<Words, Next>{words, next}; }
};
Text text() {
  auto made = Text{};
  for (std::size_t i = 0; i < made.words.size(); ++i) {
    made.words[i] = static_cast<int>(Random{Seed{2}, 0}.below(i, vocabulary));
    made.next[i]  = static_cast<int>(Random{Seed{2}, 1}.below(i, vocabulary));
  }
  return made;
}

template <int n> test::SplitRun run(int steps) {
  auto const adam  = optim::Adam{.learning_rate = 1e-2F, .epsilon = 1e-3F};  // the gradient of keys' biases is 0
  auto const batch = text();
  if constexpr (n == 0)
    return test::train_split(nn::compile<Gpt<0>>(loss::SparseCrossEntropy{}, adam), "tensor", 1, batch.rows(), steps);
  else
    return test::train_split(nn::compile<Gpt<n>>(loss::SplitSparseCrossEntropy<Tensor<n>>{}, adam), "tensor", n,
                             batch.rows(), steps);
}

/// The logits of the first rank, of as many as have them.
std::vector<float> first_of(std::vector<float> const& outputs) {
  return {outputs.begin(), outputs.begin() + 3 * 8 * vocabulary};
}

}  // namespace

TEST_CASE("a GPT that is split over 1, 2 and 4 ranks learns the same bits", "[nn][split]") {
  auto const one = run<1>(20), two = run<2>(20), four = run<4>(20), unsplit = run<0>(20);
  CHECK(one.alike);
  CHECK(two.alike);
  CHECK(four.alike);
  CHECK(first_of(two.outputs) == one.outputs);  // predictions gather logits
  CHECK(first_of(four.outputs) == one.outputs);
  CHECK(two.losses == one.losses);
  CHECK(four.losses == one.losses);
  CHECK(two.gradients == one.gradients);
  CHECK(four.gradients == one.gradients);
  CHECK(two.variables == one.variables);
  CHECK(four.variables == one.variables);

  CHECK(test::difference(one.outputs, unsplit.outputs) < 1e-5);  // the same first values, too
  CHECK(test::difference(one.gradients, unsplit.gradients) < 1e-5);
  CHECK(test::difference(one.variables, unsplit.variables) < 5e-5);  // Adam divides by gradients near 0
  CHECK(test::difference(one.losses, unsplit.losses) < 1e-5);
  CHECK(one.losses.back() < 0.5F * one.losses.front());
}

/// Products larger than the blocks in which oneDNN computes them, of sizes that vectors do not divide.
struct Wide : Field<float, 300> {};
struct WideOut : Field<float, 37> {};
template <int n, int parts> struct WideNet : nn::Graph<Wide> {
  nn::Dense<203> first;
  nn::ColumnDense<Tensor<n>, 12 * 97, nn::Parts<parts>, nn::HeNormal> widen;
  nn::RowDense<Tensor<n>, 37, nn::Parts<parts>> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<WideOut>(narrow(nn::relu(widen(first(x))))); }
};
template <int n, int parts> test::SplitRun run_wide() {
  auto x = std::vector<float>(29 * 300), y = std::vector<float>(29 * 37);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{Seed{4}, 0}.uniform(i, -1, 1);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Random{Seed{4}, 1}.uniform(i, -1, 1);
  return test::train_split(nn::compile<WideNet<n, parts>>(loss::MeanSquaredError{}, optim::Adam{}), "tensor", n,
                           Rows<Wide, WideOut>{x, y}, 2);
}

TEST_CASE("large products and any number of ranks have the same bits", "[nn][split]") {
  auto const check = [](test::SplitRun const& many, test::SplitRun const& one) {
    CHECK(many.alike);
    CHECK(many.losses == one.losses);
    CHECK(many.gradients == one.gradients);
    CHECK(many.variables == one.variables);
  };
  auto const four = run_wide<1, 4>(), six = run_wide<1, 6>();
  check(run_wide<2, 4>(), four);
  check(run_wide<4, 4>(), four);
  check(run_wide<3, 6>(), six);
  CHECK(four.gradients != six.gradients);
  CHECK(test::difference(four.gradients, six.gradients) < 1e-5);
}

/// One of each split layer, and no kernel of oneDNN but its products.
struct Few : nn::Graph<Words> {
  nn::SplitEmbedding<Tensor<1>, vocabulary, 8> table;
  nn::ColumnDense<Tensor<1>, 24, nn::Blocks<3>> look;
  nn::ColumnHeads<Tensor<1>, 2, nn::Causal> attend;
  nn::RowDense<Tensor<1>, 8> join;
  constexpr auto operator()(auto words) const {
    auto const x = table(words);
    return nn::outputs<Next>(table.logits(x + join(attend(look(x)))));
  }
};

TEST_CASE("gradients of split layers are those of their outputs", "[nn][split]") {
  auto const alone = Cpu::OneThread{};
  CHECK(nn::network_gradient_error<Few>() < 1e-3);
}

TEST_CASE("a step of split layers allocates nothing", "[nn][split]") {
  auto const batch = text();
  auto copy = nn::compile<Few>(loss::SplitSparseCrossEntropy<Tensor<1>>{}, optim::Adam{}).instantiate(Cpu{}, Seed{5});
  auto const step = [&] {
    copy.value_and_gradient(batch.rows(), 0, LooksAtEnd{});
    auto gradients = copy.gradients();
    copy.optimizer.apply(copy.net.variables(), gradients);
  };
  step();
  auto const before = test::allocations;
  step();
  CHECK(test::allocations == before);
}

TEST_CASE("a block sends four sums of its activations", "[nn][split]") {
  auto const floats  = std::size_t{3 * 8 * width};
  auto const reduced = [](std::size_t n, std::size_t ranks) {  // n numbers, halves in pieces of each rank
    return n <= 1024 ? n * (ranks == 2 ? 1 : 2) : 2 * n * (ranks - 1) / ranks;
  };
  auto const loss = [&](std::size_t ranks) { return reduced(3 * 8, ranks) + reduced(2 * 3 * 8, ranks); };
  auto const step = [&](std::size_t ranks) {  // two blocks, the table, and its logits
    return sizeof(float) * (2 * 4 * reduced(floats, ranks) + 2 * reduced(floats, ranks) + loss(ranks));
  };
  CHECK(run<2>(1).sent == step(2));
  CHECK(run<4>(1).sent == step(4));
  CHECK(run<1>(1).sent == 0);
}

}  // namespace split_test
