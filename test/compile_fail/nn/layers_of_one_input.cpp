// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Number : Field<float> {};
struct Ids : Field<int, 6> {};
struct Vector : Field<float, 6> {};
struct Steps : Field<float, 6, 4> {};
struct Image : Field<float, 8, 8, 4> {};
struct Films : Field<float, 2, 2, 2, 2, 4> {};
struct Text : Field<float, ragged, 4> {};
struct Out : Field<float, 1> {};

template <class In, class Layer> struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(Layer{}(x)); }
};
template <class In, class Layer> constexpr auto parameters = nn::plan_of<Net<In, Layer>>.parameters;

// expect: compiles
constexpr auto n = parameters<Vector, nn::Dense<1>>;

// expect: chorale: Dense<Units> needs at least one unit
constexpr auto n = parameters<Vector, nn::Dense<0>>;

// expect: chorale: this layer works on the last dimension of a row, but a row that comes in is one number; put nn::reshape<1>(...) before it
constexpr auto n = parameters<Number, nn::Dense<1>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::GRU<1>>;

// expect: chorale: GRU takes sequences (B, T, C) of numbers, but what comes in are ids; put nn::Embedding<rows, width> before it
constexpr auto n = parameters<Ids, nn::GRU<1>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::LSTM<1>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::LSTM<1, nn::Reverse>>;

// expect: chorale: LSTM with nn::Reverse takes sequences of one length; leave nn::Reverse out, or use a field whose rows have one length
constexpr auto n = parameters<Text, nn::LSTM<1, nn::Reverse>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::SimpleRNN<1>>;

// expect: chorale: SimpleRNN takes sequences (B, T, C) of numbers, but what comes in are ids; put nn::Embedding<rows, width> before it
constexpr auto n = parameters<Ids, nn::SimpleRNN<1>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::MaxPool1D<1, nn::Stride<2>>>;

// expect: chorale: a pool takes a window size, then Valid, Same or Pad<n>, and Stride<n>
constexpr auto n = parameters<Steps, nn::MaxPool1D<1, nn::Causal>>;

// expect: compiles
constexpr auto n = parameters<Image, nn::AveragePool2D<1, nn::Same>>;

// expect: chorale: a pool takes a window size, then Valid, Same or Pad<n>, and Stride<n>
constexpr auto n = parameters<Image, nn::AveragePool2D<1, nn::Causal>>;

// expect: compiles
constexpr auto n = parameters<Films, nn::PReLU<nn::PerChannel>>;

// expect: chorale: PReLU takes numbers (B, .., C) of at most 4 dimensions, or of more with nn::PerChannel
constexpr auto n = parameters<Films, nn::PReLU<>>;
