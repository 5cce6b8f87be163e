// SPDX-License-Identifier: Apache-2.0
//
// nn::Recompute beside the plain block: the same bits, in less memory.
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace recompute_test {

using namespace chorale;

namespace {

struct Words : Field<int, 7> {};
struct Next : Field<int, 7> {};
struct RaggedWords : Field<int, ragged> {};
struct RaggedNext : Field<int, ragged> {};

constexpr int width = 16, words = 11;

/// A transformer block that drops, overwrites (ReLU, Dropout) and renames (reshape) within itself.
struct Part {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * width> queries_keys_values;
  nn::Dense<width> mixed, narrow;
  nn::Dense<4 * width> wide;

  constexpr auto operator()(auto x) const {
    auto const y = x + nn::Dropout<30>{}(mixed(nn::CausalHeads<2>{}(queries_keys_values(norm(x)))));
    return y + nn::Dropout<20>{}(narrow(nn::relu(wide(norm_2(y)))));
  }
};

/// Ends with an activation that lies over its input, and has another behind it.
struct Overwriting {
  nn::Dense<width> a, b;
  constexpr auto operator()(auto x) const { return nn::tanh(b(nn::relu(a(x)))); }
};

template <class B> using Plain = B;

template <template <class> class As, class In, class Out, std::size_t Blocks = 3> struct Gpt : nn::Graph<In> {
  nn::Embedding<words, width> table;
  nn::Positions<12, width> places;
  As<Part> first;
  std::array<As<Part>, Blocks> blocks;
  As<Overwriting> over;

  constexpr auto operator()(auto x) const {
    auto y = first(places(table(x)));
    for (auto const& block : blocks) y = block(y);
    return nn::outputs<Out>(table.logits(nn::relu(over(y))));
  }
};

template <class Net> auto model() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::AdamW{}); }

std::vector<std::vector<int>> ids(std::size_t rows, bool is_ragged, std::uint64_t stream) {
  auto all = std::vector<std::vector<int>>(rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < (is_ragged ? 1 + r * 5 % 12 : 7); ++i)
      all[r].push_back(static_cast<int>(Random{3, stream}.below(r * 12 + i, words)));
  return all;
}

/// Bits of all variables after four steps of uneven batches.
template <template <class> class As, class In, class Out> std::vector<std::uint64_t> trained(auto strategy) {
  auto const rows = ids(22, In::is_ragged, 0), next = ids(22, In::is_ragged, 1);
  auto trainer = Trainer{model<Gpt<As, In, Out>>(), strategy, RingAllReduce{}, LocalTransport{}, 5};
  trainer.fit(data::from_fields<In, Out>(rows, next).batch(8), {.epochs = 2, .show = Show::nothing});
  return trainer.hashes();
}

/// Bytes beside variables, gradients and slots.
template <class Net> std::size_t planned(std::size_t rows, Cpu const& device = Cpu::logical(1)[0]) {
  auto const bytes = model<Net>().planned(device, rows);
  return bytes.activations + bytes.gradients;
}

/// Calls that are computed again, where all stages find this in their workspaces.
template <class Net> std::ptrdiff_t calls_again(nn::graph::Finds found) {
  using Low        = nn::graph::Lowered<Net, Cpu>;
  auto const finds = std::vector(Low::counts.calls, found);
  auto const steps = nn::graph::Scheduler{Low::calls, Low::trains, {}, finds}.schedule().steps;
  return std::ranges::count(steps, nn::graph::Do::again, &nn::graph::Instruction::what);
}

/// A network whose logits are most of its memory.
struct ManyWords : nn::Graph<Words> {
  nn::Embedding<300, 4> table;
  nn::Dense<4> hidden;
  constexpr auto operator()(auto x) const { return nn::outputs<Next>(table.logits(nn::tanh(hidden(table(x))))); }
};

struct X : Field<float, 5> {};
struct Y : Field<float, 1> {};
struct Checked : nn::Graph<nn::Differentiable<X>> {
  nn::Recompute<nn::Block<nn::Dense<6>, nn::Tanh, nn::Dense<5>, nn::GELU>> one;
  nn::Recompute<Overwriting> two;
  nn::Recompute<nn::Recompute<nn::Dense<3>>> nested;
  constexpr auto operator()(auto x) const {
    auto const y = nn::tanh(one(x) + x);
    return nn::outputs<Y>(nested(nn::concatenate(two(y), y)));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("blocks that are computed again give the bits of plain ones", "[nn][recompute]", Words,
                   RaggedWords) {
  using Out          = std::conditional_t<TestType::is_ragged, RaggedNext, Next>;
  auto const devices = Cpu::logical(3);
  CHECK(trained<nn::Recompute, TestType, Out>(OneDeviceStrategy{devices[0]}) ==
        trained<Plain, TestType, Out>(OneDeviceStrategy{devices[0]}));
  for (std::size_t n : {2U, 3U}) {
    auto const some = std::vector<Cpu>(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK(trained<nn::Recompute, TestType, Out>(MirroredStrategy{some}) ==
          trained<Plain, TestType, Out>(MirroredStrategy{some}));
  }
}

TEST_CASE("slices of a share compute their blocks again", "[nn][recompute]") {
  auto const device = Cpu::with_threads(2);
  CHECK(trained<nn::Recompute, Words, Next>(OneDeviceStrategy{device}) ==
        trained<Plain, Words, Next>(OneDeviceStrategy{device}));
}

TEST_CASE("gradients of blocks that are computed again are those of differences", "[nn][recompute]") {
  CHECK(nn::network_gradient_error<Checked>() < 1e-3);
}

TEST_CASE("a plan does not depend on what is computed again", "[nn][recompute]") {
  STATIC_REQUIRE(nn::plan_of<Gpt<nn::Recompute, Words, Next>>.hash == nn::plan_of<Gpt<Plain, Words, Next>>.hash);
}

TEST_CASE("what backward does not read is not computed again", "[nn][recompute]") {
  using Again = Gpt<nn::Recompute, Words, Next, 0>;
  using nn::graph::Finds;
  CHECK(calls_again<Gpt<Plain, Words, Next, 0>>(Finds::in_backward) == 0);
  CHECK(calls_again<Again>(Finds::in_backward) == 11 + 4);  // all but the sum that ends Part
  CHECK(calls_again<Again>(Finds::nothing) == 9 + 2);       // nor the last products, and what is over them
}

TEST_CASE("logits and their gradient share memory, unless a metric or smoothing reads the logits after it",
          "[nn][memory]") {
  using Net          = ManyWords;
  auto const trained = [](auto const& compiled, Cpu const& device) {
    auto const words_in = ids(8, false, 0), next = ids(8, false, 1);
    auto trainer = Trainer{compiled, OneDeviceStrategy{device}, RingAllReduce{}, LocalTransport{}, 5};
    trainer.fit(data::from_fields<Words, Next>(words_in, next).batch(4), {.epochs = 2, .show = Show::nothing});
    return trainer.hashes();
  };
  for (auto const& device : {Cpu::logical(1)[0], Cpu::with_threads(2)}) {
    auto const of     = [&](auto const& compiled) { return compiled.planned(device, 256).activations; };
    auto const alone  = model<Net>();
    auto const metric = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::AdamW{}, metric::Accuracy{});
    auto const smooth = nn::compile<Net>(loss::SparseCrossEntropy{.label_smoothing = 0.1F}, optim::AdamW{});
    CHECK(of(alone) + 256 * 7 * 290 * sizeof(float) < of(metric));
    CHECK(of(smooth) == of(metric));
    CHECK(trained(alone, device) == trained(metric, device));  // the same bits
  }
}

TEST_CASE("pieces of memory that are in use together do not overlap", "[nn][memory]") {
  auto pieces = std::vector<nn::graph::Piece>(200);
  auto sum    = std::size_t{0};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto const draw = [&](std::uint64_t stream, int below) {
      return static_cast<int>(Random{1, stream}.below(i, static_cast<std::uint32_t>(below)));
    };
    auto const first = draw(0, 90), again = 100 + draw(1, 90);
    pieces[i].bytes = static_cast<std::size_t>(draw(2, 1000));
    pieces[i].used  = {{first, first + draw(3, 10)}, {again, again + draw(4, 10)}};
    sum += pieces[i].bytes;
  }
  auto const total = nn::graph::overlay(pieces);
  CHECK(total < sum / 3);
  for (auto const& a : pieces) {
    CHECK((a.offset % 64 == 0 && a.offset + a.bytes <= total));
    for (auto const& b : pieces)
      if (&a != &b && a.is_used_with(b)) CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
  }
}

TEST_CASE("memory grows by the inputs of blocks alone, if they are computed again", "[nn][recompute]") {
  constexpr auto rows = 32;
  auto const plain    = planned<Gpt<Plain, Words, Next, 9>>(rows) - planned<Gpt<Plain, Words, Next, 3>>(rows);
  auto const again =
      planned<Gpt<nn::Recompute, Words, Next, 9>>(rows) - planned<Gpt<nn::Recompute, Words, Next, 3>>(rows);
  CHECK(again == 6 * rows * 7 * width * sizeof(float));  // one input each
  CHECK(plain > 14 * again);
  CHECK(planned<Gpt<Plain, Words, Next>>(rows, Cpu::with_threads(2)) >  // of two slices, with a second gradient
        planned<Gpt<Plain, Words, Next>>(rows) + nn::plan_of<Gpt<Plain, Words, Next>>.parameters * sizeof(float));
}

}  // namespace recompute_test
