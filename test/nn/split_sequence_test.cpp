// SPDX-License-Identifier: Apache-2.0
//
// Networks whose sequences are split over 1, 2 and 4 ranks.
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
#include <chorale/nn/parallel/split_sequence.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <type_traits>
#include <vector>

namespace split_sequence_test {

using namespace chorale;

namespace {

template <int n> using Tensor  = Axis<"tensor", n>;
template <int n> using Context = Axis<"context", n>;

struct Sequence : Field<float, 16, 12> {};
struct Wanted : Field<float, 16, 12> {};

/// A block between whose products sequences are split; n = 0: an unsplit one.
template <int n> struct Layers {
  nn::SplitLayerNorm<Tensor<n>> first, second;
  nn::ColumnDense<Tensor<n>, 36, nn::Blocks<3>, nn::SplitSequence> look;
  nn::ColumnHeads<Tensor<n>, 4> attend;
  nn::RowDense<Tensor<n>, 12, nn::SplitSequence> join;
  nn::ColumnDense<Tensor<n>, 32, nn::SplitSequence> widen;
  nn::RowDense<Tensor<n>, 12, nn::SplitSequence> narrow;
  static constexpr auto scatter(auto x) { return nn::scatter_sequence<Tensor<n>>(x); }
  static constexpr auto gather(auto x) { return nn::gather_sequence<Tensor<n>>(x); }
};
template <> struct Layers<0> {
  nn::LayerNorm first, second;
  nn::Dense<36> look;
  nn::Heads<4> attend;
  nn::Dense<12> join;
  nn::Dense<32> widen;
  nn::Dense<12> narrow;
  static constexpr auto scatter(auto x) { return x; }
  static constexpr auto gather(auto x) { return x; }
};
template <int n> struct Split : nn::Graph<Sequence> {
  Layers<n> in;
  nn::Dense<12> before;
  constexpr auto operator()(auto sequence) const {
    auto const x    = in.scatter(before(sequence));
    auto const seen = x + in.join(in.attend(in.look(in.first(x))));
    return nn::outputs<Wanted>(in.gather(seen + in.narrow(nn::gelu(in.widen(in.second(seen))))));
  }
};

/// Attention whose positions are split, among layers that compute each position by itself.
template <int n, bool causal> struct Ring : nn::Graph<Sequence> {
  using Attention = std::conditional_t<
      n != 0, std::conditional_t<causal, nn::RingHeads<Context<n>, 3, nn::Causal>, nn::RingHeads<Context<n>, 3>>,
      std::conditional_t<causal, nn::CausalHeads<3>, nn::Heads<3>>>;
  nn::Dense<36> look;
  Attention attend;
  nn::LayerNorm norm;
  nn::Dense<12> join;
  constexpr auto operator()(auto sequence) const {
    if constexpr (n == 0) {
      return nn::outputs<Wanted>(sequence + join(norm(attend(look(sequence)))));
    } else {
      auto const x = nn::scatter_sequence<Context<n>>(sequence);
      return nn::outputs<Wanted>(nn::gather_sequence<Context<n>>(x + join(norm(attend(look(x))))));
    }
  }
};
/// Ring attention alone, whose input's gradient reaches a product of whole sequences.
template <int n, bool causal> struct RingAlone : nn::Graph<Sequence> {
  nn::Dense<36> look;
  typename Ring<n, causal>::Attention attend;
  constexpr auto operator()(auto sequence) const {
    if constexpr (n == 0) return nn::outputs<Wanted>(attend(look(sequence)));
    else
      return nn::outputs<Wanted>(
          nn::gather_sequence<Context<n>>(attend(nn::scatter_sequence<Context<n>>(look(sequence)))));
  }
};

template <class Net> test::SplitRun run(char const* axis, int ranks, int steps) {
  auto x = std::vector<float>(3 * 16 * 12), y = x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{Seed{3}, 0}.uniform(i, -2, 2);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Random{Seed{3}, 1}.uniform(i, -2, 2);
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 1e-2F, .epsilon = 1e-3F});
  return test::train_split(model, axis, ranks, Rows<Sequence, Wanted>{x, y}, steps);
}

std::vector<float> first_of(std::vector<float> const& outputs) {
  return {outputs.begin(), outputs.begin() + 3 * 16 * 12};
}

void check_near(test::SplitRun const& run, test::SplitRun const& unsplit) {
  CHECK(run.alike);
  CHECK(test::difference(first_of(run.outputs), unsplit.outputs) < 1e-5);
  CHECK(test::difference(run.gradients, unsplit.gradients) < 1e-5);
  CHECK(test::difference(run.losses, unsplit.losses) < 1e-5);
  CHECK(test::difference(run.variables, unsplit.variables) < 1e-4);  // Adam divides them by 1e-3, times 1e-2
}
void check_same(test::SplitRun const& run, test::SplitRun const& one) {
  CHECK(run.alike);
  CHECK(first_of(run.outputs) == one.outputs);
  CHECK(run.losses == one.losses);
  CHECK(run.gradients == one.gradients);
  CHECK(run.variables == one.variables);
}

template <bool causal> void check_rings() {
  auto const unsplit = run<Ring<0, causal>>("context", 1, 5), alone = run<RingAlone<0, causal>>("context", 1, 5);
  check_near(run<Ring<1, causal>>("context", 1, 5), unsplit);
  check_near(run<Ring<2, causal>>("context", 2, 5), unsplit);
  check_near(run<Ring<4, causal>>("context", 4, 5), unsplit);
  auto const one = run<RingAlone<1, causal>>("context", 1, 5);
  check_near(one, alone);
  check_same(run<RingAlone<2, causal>>("context", 2, 5), one);
  check_same(run<RingAlone<4, causal>>("context", 4, 5), one);
}

}  // namespace

TEST_CASE("a block whose sequences are split between its products learns the same bits", "[nn][split]") {
  auto const one = run<Split<1>>("tensor", 1, 20);
  check_near(one, run<Split<0>>("tensor", 1, 20));
  check_same(run<Split<2>>("tensor", 2, 20), one);
  check_same(run<Split<4>>("tensor", 4, 20), one);
}

TEST_CASE("attention around a ring of ranks is that of whole sequences", "[nn][split]") { check_rings<false>(); }
TEST_CASE("causal attention around a ring of ranks is that of whole sequences", "[nn][split]") { check_rings<true>(); }

TEST_CASE("a block over split sequences sends what one over whole ones sends, and a ring k and v", "[nn][split]") {
  auto const part = std::size_t{3 * 16 * 12 / 2};  // of activations on each of 2 ranks
  CHECK(run<Split<2>>("tensor", 2, 1).sent ==
        sizeof(float) * (4 * 2 * part + 2 * part + 2 * 24));  // scatter and gather; two norms
  auto const kv = std::size_t{3 * 4 * 24};                    // of each of 4 ranks
  CHECK(run<RingAlone<4, false>>("context", 4, 1).sent ==
        sizeof(float) * (3 * kv + 3 * kv + 4 * kv + 3 * (3 * 4 * 36) + 3 * (3 * 4 * 12)));
}

TEST_CASE("gradients of layers over split sequences are those of their outputs", "[nn][split]") {
  auto const alone = Cpu::OneThread{};
  CHECK(nn::network_gradient_error<Split<1>>() < 2e-3);
  CHECK(nn::network_gradient_error<Ring<1, true>>() < 2e-3);
  CHECK(nn::network_gradient_error<RingAlone<1, false>>() < 2e-3);
}

}  // namespace split_sequence_test
