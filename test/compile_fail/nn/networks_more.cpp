// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct Numbers : Field<float, 5> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(numbers)); }
};
auto const model = nn::compile<Net, nn::Precision<bf16>>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: chorale: in fp16 small gradients round to zero, and a network derived from nn::Graph does not scale its loss
struct Numbers : Field<float, 5> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(numbers)); }
};
auto const model = nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: compiles
struct Numbers : Field<float, 8, 16> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::LSTM<4> reader;
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(reader(numbers))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: chorale: the optimizer argument is not an Optimizer
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, 0.1F);

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});

// expect: chorale: optim::LossScaled does not fit a network derived from nn::Graph, which computes in float
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}});

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: chorale: an output of this network is one of its inputs, which no layer has changed
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(tags); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(nn::relu(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a Sequential begins with nn::Input<...>, the shape of one row
struct Net : nn::Sequential<nn::Dense<64>, nn::Dense<10>> {};

// expect: compiles
struct Net : nn::Sequential<nn::Input<64>, nn::Dense<10>> {};

// expect: compiles
#include <cstddef>
#include <string_view>

struct Words : Field<float, ragged, 3> {};
struct Topic : Field<float, 3> {};

struct First : nn::Layer<First> {
  static constexpr std::string_view name = "first";
  static constexpr bool reads_lengths    = true;
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, C>{}; }
  static constexpr std::size_t kept(auto x) { return x.vectors; }
  static std::size_t kept_for(auto const& at) { return at.x().size(); }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Words> {
  nn::Dense<3> dense;
  First first;
  constexpr auto operator()(auto words) const { return nn::outputs<Topic>(first(dense(words))); }
};
auto bytes() { return nn::GraphExecutor<Net, Cpu>{1, {}, {}}.bytes(); }

// expect: chorale: a layer that sets reads_lengths and has kept(...) needs kept_for(at) as well
#include <cstddef>
#include <string_view>

struct Words : Field<float, ragged, 3> {};
struct Topic : Field<float, 3> {};

struct First : nn::Layer<First> {
  static constexpr std::string_view name = "first";
  static constexpr bool reads_lengths    = true;
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, C>{}; }
  static constexpr std::size_t kept(auto x) { return x.vectors; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Words> {
  nn::Dense<3> dense;
  First first;
  constexpr auto operator()(auto words) const { return nn::outputs<Topic>(first(dense(words))); }
};
auto bytes() { return nn::GraphExecutor<Net, Cpu>{1, {}, {}}.bytes(); }

// expect: compiles
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/lowering/network.hpp>

struct Square : nn::Elementwise<Square> {
  static constexpr std::string_view name = "square";
  static float f(float x) { return x * x; }
  static float df(float x, float) { return 2 * x; }
};
template <> struct nn::stablehlo::Lowering<Square> {
  static Value write(Call& at) { return at.x() * at.x(); }
};

struct Pixels : Field<float, 12> {};
struct Area : Field<float, 1> {};

struct Net : nn::Graph<Pixels> {
  nn::Dense<4> wide;
  nn::Dense<1> area;
  constexpr auto operator()(auto x) const { return nn::outputs<Area>(area(Square{}(wide(x)))); }
};
constexpr auto first = nn::graph::Traced<Net, nn::stablehlo::AsText>::calls.calls[0].number;

// expect: chorale: this layer is not written in operations of StableHLO
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/lowering/network.hpp>

struct Square : nn::Elementwise<Square> {
  static constexpr std::string_view name = "square";
  static float f(float x) { return x * x; }
  static float df(float x, float) { return 2 * x; }
};

struct Pixels : Field<float, 12> {};
struct Area : Field<float, 1> {};

struct Net : nn::Graph<Pixels> {
  nn::Dense<4> wide;
  nn::Dense<1> area;
  constexpr auto operator()(auto x) const { return nn::outputs<Area>(area(Square{}(wide(x)))); }
};
constexpr auto first = nn::graph::Traced<Net, nn::stablehlo::AsText>::calls.calls[0].number;

// expect: chorale: an optional member of a layer is not static, or no constant
struct Clipped : nn::ReLU {
  std::string text() const { return "Clipped"; }
};
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>, Clipped> {};
auto const parameters = Net::plan.parameters;

// expect: compiles
struct Clipped : nn::ReLU {
  static std::string text() { return "Clipped"; }
};
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>, Clipped> {};
auto const parameters = Net::plan.parameters;

// expect: chorale: two layers of this network have the same name
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<4> a{"head"};
  nn::Dense<1> b{"head"};
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(b(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<4> a{"body"};
  nn::Dense<1> b{"head"};
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(b(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the model argument is not a Model. It needs batch, metric_names, plan, optimizer
struct Nothing {};
auto train() { return Trainer{Nothing{}, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
#include <vector>

//
// Models that a strategy's device or stages cannot have: each call of their trainer is part of one error.

struct Chain : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};
struct Point : Field<float, 4> {};
struct Height : Field<float, 2> {};
struct Net : nn::Graph<Point> {
  nn::Dense<8> first;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Height>(last(first(x))); }
};

auto const by_stages = MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()};

void use(auto const& model, auto const& rows) {
  auto trainer = Trainer{model, by_stages, RingAllReduce{}, LocalTransport{}};
  trainer.fit(rows);
  trainer.evaluate(rows);
  trainer.save("weights");
}

void run() {
  auto const rows = data::from_fields<Point, Height>(std::vector<float>(16), std::vector<float>(8)).batch(4);
  use(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}), rows);
}

// expect: chorale: a pipeline cuts a network that is derived from nn::Graph
#include <vector>

//
// Models that a strategy's device or stages cannot have: each call of their trainer is part of one error.

struct Chain : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};
struct Point : Field<float, 4> {};
struct Height : Field<float, 2> {};
struct Net : nn::Graph<Point> {
  nn::Dense<8> first;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Height>(last(first(x))); }
};

auto const by_stages = MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()};

void use(auto const& model, auto const& rows) {
  auto trainer = Trainer{model, by_stages, RingAllReduce{}, LocalTransport{}};
  trainer.fit(rows);
  trainer.evaluate(rows);
  trainer.save("weights");
}

void run() {
  auto const rows = data::from_tensors(std::vector<float>(16), std::vector<float>(8), 4).batch(4);
  use(nn::compile<Chain>(loss::MeanSquaredError{}, optim::SGD{}), rows);
}

// expect: chorale: a pipeline cuts a network that is derived from nn::Graph
#include <vector>

//
// Models that a strategy's device or stages cannot have: each call of their trainer is part of one error.

struct Chain : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};
struct Point : Field<float, 4> {};
struct Height : Field<float, 2> {};
struct Net : nn::Graph<Point> {
  nn::Dense<8> first;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Height>(last(first(x))); }
};

auto const by_stages = MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()};

void use(auto const& model, auto const& rows) {
  auto trainer = Trainer{model, by_stages, RingAllReduce{}, LocalTransport{}};
  trainer.fit(rows);
  trainer.evaluate(rows);
  trainer.save("weights");
}

void run() {
  auto const rows = data::from_tensors(std::vector<float>(16), std::vector<float>(8), 4).batch(4);
  use(custom_model<BasicBatch<float, float>>(
          {{"slope", {1}}},
          [](auto& step, auto const&) {
            step.gradient(0)[0] += 1;
            return 0.0F;
          },
          optim::SGD{}),
      rows);
}

// expect: chorale: the network argument is not a network
struct Nothing {};
auto const model = nn::compile<Nothing>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: chorale: batch normalization takes the options Momentum<percent> and Epsilon<millionths>
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LayerNormWith takes one option, Epsilon<millionths> or EpsilonPower<power>
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LayerNormWith<nn::NoBias> norm;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(norm(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LSTM takes the options nn::Sequences and nn::Reverse
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LSTM<8, nn::NoBias> first;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(first(nn::reshape<3, 4>(tags)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: PReLU takes one option, nn::PerChannel
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::PReLU<nn::Same> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: RMSNorm takes one option, Epsilon<millionths>
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::RMSNorm<nn::NoBias> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: SimpleRNN takes the options nn::Sequences and nn::Reverse
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::SimpleRNN<4, nn::NoBias> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::SimpleRNN<4, nn::Reverse, nn::Sequences> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::replicate<Tensor>(x) + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const { return nn::outputs<Score>(nn::replicate<Tensor>(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this conversion does not take what comes in along this axis: replicate takes I, count_once R, on_one_rank I or R, vary I, R or S, as_parts and as_shards V, pad S, and all_to_all S of another dimension
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::replicate<Tensor>(nn::replicate<Tensor>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a layer of this nn::Sequential computes in networks derived from nn::Graph alone
struct Net : nn::Sequential<nn::Input<8, 16>, nn::LSTM<4>, nn::Dense<3>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
