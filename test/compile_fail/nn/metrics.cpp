// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: chorale: a metric argument is not a metric
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Nothing {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Nothing{});

// expect: compiles
struct First {
  static constexpr std::string_view name = "first";
  float row(Span<float const> y, Span<int const> label) const { return y[static_cast<std::size_t>(label[0])]; }
};

float sum(float const* y, int const* wanted) { return metric::sum_of(First{}, 4, 2, y, wanted); }

// expect: chorale: a metric needs a name, and float row(Span<float const> y, Span<target const> wanted) const, with the targets of the loss
struct First {
  static constexpr std::string_view name = "first";
  float row(Span<float const> y, Span<int const> label) const { return y[static_cast<std::size_t>(label[0])]; }
};

float sum(float const* y, float const* wanted) { return metric::sum_of(First{}, 4, 2, y, wanted); }

// expect: chorale: each rank has a part of this output, and a metric needs all of it. Leave the metric out: the exp of the loss is the perplexity
struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<Words> {
  nn::SplitEmbedding<Ranks, 40, 16> table;
  nn::Dense<16> vectors;
  constexpr auto operator()(auto words) const { return nn::outputs<Next>(table.logits(vectors(table(words)))); }
};
auto const model = nn::compile<Net>(loss::SplitSparseCrossEntropy<Ranks>{}, optim::Adam{}, metric::Accuracy{});

// expect: chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target const> wanted) const
struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  using state = std::array<double, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  double result(state const& sums) const { return sums[0] / sums[1]; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target const> wanted) const
struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  static constexpr std::string_view name = "sure";
  using state                            = std::array<double, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  void result(state const&) const {}
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  static constexpr std::string_view name = "sure";
  using state                            = std::array<double, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  double result(state const& sums) const { return sums[0] / sums[1]; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: the state of a metric is a std::array<double, n> of numbers that replicas add up
struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
struct Sure {
  static constexpr std::string_view name = "sure";
  using state                            = std::array<float, 2>;
  void update(state& sums, Span<float const> y, Span<int const> label) const {
    sums[0] += y[static_cast<std::size_t>(label[0])] > 2 ? 1 : 0;
    sums[1] += 1;
  }
  double result(state const& sums) const { return sums[0] / sums[1]; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Sure{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
struct Share {
  static constexpr std::string_view name = "share";
  float row(Span<float const>, Span<int const>) const { return 1; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Share{});

// expect: chorale: this metric has no name. A metric has a static constexpr std::string_view name
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
struct Share {
  float row(Span<float const>, Span<int const>) const { return 1; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Share{});
