// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include <array>
#include <string_view>

using namespace chorale;

using Ranks = Axis<"tensor", 2>;

struct Ids : Field<int, 8> {};
struct Matrix : Field<int, 8, 3> {};
struct Number : Field<float> {};
struct Vector : Field<float, 12> {};
struct Steps : Field<float, 12, 24> {};
struct Image : Field<float, 12, 12, 24> {};
struct Out : Field<float, 1> {};

template <class In, class F> struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(F{}(x)); }
};
template <class In, class F> constexpr auto parameters = nn::plan_of<Net<In, F>>.parameters;

template <class Column, class Row> struct Between {
  constexpr auto operator()(auto x) const { return Row{}(Column{}(x)); }
};
template <class Layer> struct OnPositions {
  constexpr auto operator()(auto x) const {
    return nn::gather_sequence<Ranks>(Layer{}(nn::scatter_sequence<Ranks>(x)));
  }
};

struct Same {
  constexpr auto operator()(auto x) const { return x; }
};
template <int Width> struct Tied {
  nn::SplitEmbedding<Ranks, 50, 4> table;
  constexpr auto operator()(auto ids) const {
    return nn::all_gather<Ranks>(table.logits(nn::Dense<Width>{}(table(ids))));
  }
};
/// A layer of one's own that has variables, and combines two values.
struct Weighted : nn::Layer<Weighted> {
  static constexpr std::string_view name = "weighted";
  static constexpr auto output(auto a, auto) { return a; }
  static constexpr auto variables(auto a, auto) { return std::array{nn::ones("weight", a.back)}; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};
template <class Layer> struct WithWhole {
  constexpr auto operator()(auto x) const { return Weighted{}(Layer{}(x), nn::Dense<12>{}(x)); }
};

// expect: compiles
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 24>, nn::RowDense<Ranks, 1>>>;

// expect: chorale: ColumnDense takes an axis, a width, and of options Parts, Blocks, SplitSequence, and an initializer
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 24, nn::Causal>, nn::RowDense<Ranks, 1>>>;

// expect: chorale: RowDense takes an axis, a width, and of options Parts, SplitSequence, and an initializer
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 24>, nn::RowDense<Ranks, 1, nn::Causal>>>;

// expect: chorale: RowDense<axis, width> needs at least one unit
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 24>, nn::RowDense<Ranks, 0>>>;

// expect: chorale: ColumnDense takes vectors of numbers (B, .., In), and with SplitSequence sequences (B, T, In)
constexpr auto n = parameters<Ids, nn::ColumnDense<Ranks, 24>>;

// expect: chorale: RowDense takes vectors of numbers (B, .., In), and with SplitSequence sequences (B, T, In)
constexpr auto n = parameters<Number, nn::RowDense<Ranks, 1>>;

// expect: chorale: the vectors that a RowDense takes have, on all ranks, a multiple of its parts of numbers, and its parts are as many as the ranks of its axis
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 24>, nn::RowDense<Ranks, 1, nn::Parts<16>>>>;

// expect: compiles
constexpr auto n = parameters<Ids, nn::SplitEmbedding<Ranks, 50, 4>>;

// expect: chorale: SplitEmbedding takes an axis, rows, a width, and Parts<N>
constexpr auto n = parameters<Ids, nn::SplitEmbedding<Ranks, 50, 4, nn::Causal>>;

// expect: chorale: the rows of a SplitEmbedding are a multiple of its parts
constexpr auto n = parameters<Ids, nn::SplitEmbedding<Ranks, 51, 4>>;

// expect: compiles
constexpr auto n = parameters<Steps, OnPositions<nn::SplitLayerNorm<Ranks, nn::Parts<4>>>>;

// expect: chorale: SplitLayerNorm takes an axis, Parts<N> and Epsilon<millionths>
constexpr auto n = parameters<Steps, OnPositions<nn::SplitLayerNorm<Ranks, nn::Causal>>>;

// expect: chorale: SplitLayerNorm takes sequences of numbers (B, T, C)
constexpr auto n = parameters<Image, OnPositions<nn::SplitLayerNorm<Ranks>>>;

// expect: chorale: the positions of a sequence are a multiple of the parts of a SplitLayerNorm
constexpr auto n = parameters<Steps, OnPositions<nn::SplitLayerNorm<Ranks, nn::Parts<8>>>>;

// expect: compiles
constexpr auto n = parameters<Steps, OnPositions<nn::RingHeads<Ranks, 4, nn::Causal>>>;

// expect: chorale: RingHeads takes an axis, heads, and of options Causal and Parts<N>
constexpr auto n = parameters<Steps, OnPositions<nn::RingHeads<Ranks, 4, nn::Reverse>>>;

// expect: chorale: RingHeads<axis, heads> takes sequences (B, T / ranks, 3 C), with C a multiple of the heads
constexpr auto n = parameters<Steps, OnPositions<nn::RingHeads<Ranks, 5>>>;

// expect: chorale: the positions of a sequence are a multiple of the parts of a RingHeads
constexpr auto n = parameters<Steps, OnPositions<nn::RingHeads<Ranks, 4, nn::Parts<8>>>>;

// expect: compiles
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 72, nn::Blocks<3>>,
                                             Between<nn::ColumnHeads<Ranks, 4>, nn::RowDense<Ranks, 1>>>>;

// expect: chorale: ColumnHeads takes an axis, heads, and Causal
constexpr auto n = parameters<Steps, Between<nn::ColumnDense<Ranks, 72, nn::Blocks<3>>,
                                             Between<nn::ColumnHeads<Ranks, 4, nn::Reverse>, nn::RowDense<Ranks, 1>>>>;

// expect: chorale: ColumnHeads<axis, heads> takes sequences (B, T, 3 C / ranks), as nn::ColumnDense<axis, 3 * C, nn::Blocks<3>> gives them
constexpr auto n = parameters<Vector, Between<nn::ColumnDense<Ranks, 72, nn::Blocks<3>>,
                                              Between<nn::ColumnHeads<Ranks, 4>, nn::RowDense<Ranks, 1>>>>;

// expect: compiles
constexpr auto n = parameters<Ids, nn::ShardedEmbedding<Ranks, 50, 4, nn::ByColumn>>;

// expect: chorale: a ShardedEmbedding is cut in one way: nn::ByRow, nn::ByRowInTurn or nn::ByColumn
constexpr auto n = parameters<Ids, nn::ShardedEmbedding<Ranks, 50, 4, nn::ByColumn, nn::ByRow>>;

// expect: the gradient of a table is rows, which its rank has whole: leave nn::DenseGradient out
constexpr auto n = parameters<Ids, nn::ShardedEmbedding<Axis<"data", 2>, 50, 4, nn::DenseGradient>>;

// expect: compiles
constexpr auto n = parameters<Ids, nn::ShardedEmbeddingBag<Ranks, 50, 4>>;

// expect: chorale: ShardedEmbeddingBag takes (B, n) ids; put nn::reshape<n>(...) before it
constexpr auto n = parameters<Matrix, nn::ShardedEmbeddingBag<Ranks, 50, 4>>;

// expect: compiles
constexpr auto n = parameters<Ids, nn::ShardedTables<Ranks, 4, nn::TableRows<50>>>;

// expect: chorale: ShardedTables takes (B, n) ids, fields of int or of bytes, for each table
constexpr auto n = parameters<Matrix, nn::ShardedTables<Ranks, 4, nn::TableRows<50>>>;

// expect: compiles
constexpr auto n = parameters<Steps, nn::Experts<Ranks, 4, 8>>;

// expect: chorale: Experts takes vectors (B, .., C) of numbers
constexpr auto n = parameters<Ids, nn::Experts<Ranks, 4, 8>>;

// expect: chorale: Top<Count> of nn::Experts needs at least 1 expert for each token
constexpr auto n = parameters<Steps, nn::Experts<Ranks, 4, 8, nn::Top<0>>>;

// expect: chorale: this option is not one of Experts. It takes Capacity<percent>, Top<k>, Balanced<percent> and Uncounted
constexpr auto n = parameters<Steps, nn::Experts<Ranks, 4, 8, nn::Causal>>;

// expect: chorale: a layer needs whole sequences, but each rank has a part of their positions. Put nn::gather_sequence<axis> before it
constexpr auto n = parameters<Steps, OnPositions<nn::GRU<4, nn::Sequences>>>;

// expect: compiles
constexpr auto n = parameters<Ids, OnPositions<nn::Embedding<50, 4>>>;

// expect: chorale: scatter_sequence takes sequences (B, T, ..) of one length
constexpr auto n = parameters<Number, OnPositions<Same>>;

// expect: chorale: gather_sequence takes sequences of numbers (B, T, ..) of one length
constexpr auto n = parameters<Ids, OnPositions<Same>>;

// expect: compiles
constexpr auto n = parameters<Ids, Tied<4>>;

// expect: chorale: logits(x) of a SplitEmbedding takes vectors (B, .., width) as wide as its own
constexpr auto n = parameters<Ids, Tied<5>>;

// expect: compiles
constexpr auto n = parameters<Steps, WithWhole<nn::Dense<12>>>;

// expect: chorale: a layer combines values of which a rank has different parts: one is split over an axis, and another is whole or split over another axis
constexpr auto n = parameters<Steps, WithWhole<nn::ColumnDense<Ranks, 24>>>;
