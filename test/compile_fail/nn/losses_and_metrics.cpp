// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include <cstddef>
#include <utility>

using namespace chorale;

struct Image : Field<float, 8> {};
struct Kind : Field<int, 1> {};
struct List : nn::Sequential<nn::Input<8>, nn::Dense<20>> {};
struct Graph : nn::Graph<Image> {
  nn::Dense<20> logits;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(logits(x)); }
};

/// A trainer whose model has so many metrics.
template <class Net, std::size_t... I> auto trainer(std::index_sequence<I...>) {
  return Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::TopKAccuracy<I + 1>{}...),
                 OneDeviceStrategy{Cpu{}}};
}

// expect: compiles
auto made() { return trainer<List>(std::make_index_sequence<14>{}); }

// expect: chorale: a model has at most 14 metrics
auto made() { return trainer<List>(std::make_index_sequence<15>{}); }

// expect: compiles
auto made() { return trainer<Graph>(std::make_index_sequence<13>{}); }

// expect: chorale: a model has at most 14 losses and metrics
auto made() { return trainer<Graph>(std::make_index_sequence<14>{}); }

// expect: compiles
auto made() { return nn::compile<Graph>(loss::SparseCrossEntropy{}, optim::SGD{}); }

// expect: chorale: loss::SplitSparseCrossEntropy takes logits of which each rank has a part, as logits(x) of an nn::SplitEmbedding and nn::ColumnDense give them. Use loss::SparseCrossEntropy
auto made() { return nn::compile<Graph>(loss::SplitSparseCrossEntropy<Axis<"tensor", 2>>{}, optim::SGD{}); }

// expect: compiles
auto made() {
  return nn::compile<Graph>(loss::per_position(loss::SparseCrossEntropy{}).ignore_label(-100), optim::SGD{});
}

// expect: chorale: ignore_label is for losses of labels, such as loss::SparseCrossEntropy, and this one compares numbers
auto made() { return loss::per_position(loss::MeanSquaredError{}).ignore_label(-100); }

// expect: chorale: put loss::per_position around loss::Weighted, not into it
auto made() {
  return loss::Weighted<loss::PerPosition<loss::SparseCrossEntropy>>{loss::per_position(loss::SparseCrossEntropy{}),
                                                                     {1, 2}};
}

// expect: chorale: loss::per_position takes a loss of whole outputs, and each rank has a part of those of loss::SplitSparseCrossEntropy
auto made() { return loss::per_position(loss::SplitSparseCrossEntropy<Axis<"tensor", 2>>{}); }

// expect: chorale: gradients are divided once, by the rows or by the positions of all replicas, and one of several losses is not loss::per_position
struct Other : Field<int, 1> {};
struct Two : nn::Graph<Image> {
  nn::Dense<20> one, other;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind, Other>(one(x), other(x)); }
};
auto made() {
  return nn::compile<Two>(
      nn::of<Kind>(loss::per_position(loss::SparseCrossEntropy{})) + nn::of<Other>(loss::SparseCrossEntropy{}),
      optim::SGD{});
}
