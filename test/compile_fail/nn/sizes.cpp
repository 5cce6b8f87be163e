// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Ids : Field<int, 6> {};
struct Steps : Field<float, 6, 4> {};
struct Image : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

template <class In, class Layer> struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(Layer{}(x)); }
};
template <class In, class Layer> constexpr auto parameters = nn::plan_of<Net<In, Layer>>.parameters;

template <class... Layers> struct List : nn::Sequential<nn::Input<8, 8, 4>, Layers..., nn::Flatten, nn::Dense<1>> {};

// expect: compiles
constexpr auto n = parameters<Steps, nn::Conv1D<1, 1>>;

// expect: chorale: Conv1D<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Steps, nn::Conv1D<0, 1>>;

// expect: chorale: Conv1D<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Steps, nn::Conv1D<1, 0>>;

// expect: compiles
constexpr auto n = parameters<Image, nn::Conv2D<1, 1>>;

// expect: chorale: Conv2D<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Image, nn::Conv2D<0, 1>>;

// expect: chorale: Conv2D<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Image, nn::Conv2D<1, 0>>;

// expect: compiles
constexpr auto n = parameters<Image, nn::Conv2DTranspose<1, 1>>;

// expect: chorale: Conv2DTranspose<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Image, nn::Conv2DTranspose<0, 1>>;

// expect: chorale: Conv2DTranspose<Filters, Kernel> needs both to be at least 1
constexpr auto n = parameters<Image, nn::Conv2DTranspose<1, 0>>;

// expect: compiles
constexpr auto n = parameters<Image, nn::DepthwiseConv2D<1>>;

// expect: chorale: DepthwiseConv2D<Kernel> needs at least 1
constexpr auto n = parameters<Image, nn::DepthwiseConv2D<0>>;

// expect: compiles
constexpr auto n = parameters<Ids, nn::Embedding<1, 1>>;

// expect: chorale: Embedding<rows, width> needs both to be at least 1
constexpr auto n = parameters<Ids, nn::Embedding<0, 1>>;

// expect: chorale: Embedding<rows, width> needs both to be at least 1
constexpr auto n = parameters<Ids, nn::Embedding<1, 0>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::GRU<1>>;

// expect: chorale: GRU<units> needs at least 1
constexpr auto n = parameters<Steps, nn::GRU<0>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::LSTM<1>>;

// expect: chorale: LSTM<units> needs at least 1
constexpr auto n = parameters<Steps, nn::LSTM<0>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::SimpleRNN<1>>;

// expect: chorale: SimpleRNN<units> needs at least 1
constexpr auto n = parameters<Steps, nn::SimpleRNN<0>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::MaxPool1D<1>>;

// expect: chorale: a pool needs a window of at least 1
constexpr auto n = parameters<Steps, nn::MaxPool1D<0>>;

// expect: compiles
constexpr auto n = parameters<Image, nn::AveragePool2D<1>>;

// expect: chorale: a pool needs a window of at least 1
constexpr auto n = parameters<Image, nn::AveragePool2D<0>>;
