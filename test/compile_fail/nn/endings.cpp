// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 8> {};
struct Score : Field<float, 1> {};
struct Parts : Field<float, 3> {};
struct Kind : Field<int, 1> {};
struct One : nn::Sequential<nn::Input<8>, nn::Dense<1>> {};
struct Three : nn::Sequential<nn::Input<8>, nn::Dense<3>> {};
struct Shares : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Sigmoid, nn::Flatten> {};
struct Classes : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
/// A logit, and probabilities of three parts.
struct Two : nn::Graph<Image> {
  nn::Dense<1> score;
  nn::Dense<3> parts;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score, Parts>(score(x), nn::reshape<3>(nn::sigmoid(parts(x))));
  }
};
auto const both = nn::of<Score>(loss::BinaryCrossEntropy{}) + nn::of<Parts>(loss::BinaryCrossEntropyOfProbabilities{});
struct OneClass : nn::Graph<Image> {
  nn::Dense<1> kind;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(kind(x)); }
};

// expect: compiles
auto made() { return nn::compile<Shares>(loss::BinaryCrossEntropyOfProbabilities{}, optim::SGD{}); }

// expect: chorale: this output ends with nn::Sigmoid, and its loss takes logits, to which it applies sigmoid or softmax itself. Remove nn::Sigmoid, or use loss::BinaryCrossEntropyOfProbabilities
auto made() { return nn::compile<Shares>(loss::BinaryCrossEntropy{}, optim::SGD{}); }

// expect: chorale: this output ends with nn::Sigmoid, and its loss takes logits
auto made() { return nn::compile<Shares>(loss::BinaryFocalCrossEntropy{}, optim::SGD{}, metric::BinaryAccuracy{0.5F}); }

// expect: chorale: this output ends with nn::Sigmoid, and its loss takes logits
auto made() { return nn::compile<Shares>(loss::Weighted{loss::SparseCrossEntropy{}, {1, 1, 2}}, optim::SGD{}); }

// expect: chorale: this output ends with nn::Softmax, and its loss takes logits, to each of which it applies sigmoid itself
auto made() { return nn::compile<Classes>(loss::BinaryCrossEntropy{}, optim::SGD{}); }

// expect: chorale: this output ends with logits, and its loss takes probabilities. Put nn::Sigmoid at its end, or use loss::BinaryCrossEntropy
auto made() { return nn::compile<Three>(loss::BinaryCrossEntropyOfProbabilities{}, optim::SGD{}); }

// expect: compiles
auto made() { return nn::compile<Two>(both, optim::SGD{}, nn::of<Score>(metric::F1{})); }

// expect: chorale: this output ends with nn::Sigmoid, and its loss takes logits
auto made() {
  return nn::compile<Two>(nn::of<Score>(loss::BinaryCrossEntropy{}) + nn::of<Parts>(loss::BinaryCrossEntropy{}),
                          optim::SGD{});
}

// expect: chorale: this output ends with logits, and its loss takes probabilities. Put nn::Sigmoid at its end
auto made() { return nn::compile<Two>(nn::of<Score>(loss::BinaryCrossEntropyOfProbabilities{}), optim::SGD{}); }

// expect: chorale: this metric compares the outputs of several classes, and here is one output: it would always be the same. Use metric::BinaryAccuracy
auto made() { return nn::compile<Two>(both, optim::SGD{}, nn::of<Score>(metric::Accuracy{})); }

// expect: compiles
auto made() { return nn::compile<One>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::BinaryAccuracy{}); }

// expect: chorale: this metric compares the outputs of several classes, and here is one output: it would always be the same. Use metric::BinaryAccuracy, metric::Precision, metric::Recall or metric::F1
auto made() { return nn::compile<One>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::Accuracy{}); }

// expect: chorale: this metric compares the outputs of several classes
auto made() { return nn::compile<One>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::TopKAccuracy<1>{}); }

// expect: chorale: this metric compares the outputs of several classes
auto made() { return nn::compile<One>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::F1Of<1>{}); }

// expect: chorale: this metric compares the outputs of several classes
auto made() { return nn::compile<One>(loss::MeanSquaredError{}, optim::SGD{}, metric::MeanIoU<1>{}); }

// expect: chorale: this metric needs more outputs than the network has. metric::TopKAccuracy<K> needs more than K
auto made() { return nn::compile<Three>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::TopKAccuracy<3>{}); }

// expect: chorale: this metric needs more outputs than the network has
auto made() { return nn::compile<Three>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::RecallOf<3>{}); }

// expect: compiles
auto made() {
  return nn::compile<Three>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::TopKAccuracy<2>{}, metric::RecallOf<2>{});
}

// expect: chorale: this loss compares several outputs, and here is one: it would teach the network nothing. Use loss::BinaryCrossEntropy
auto made() { return nn::compile<One>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::Accuracy{}); }

// expect: chorale: this loss compares several outputs, and here is one
auto made() { return nn::compile<One>(loss::CosineSimilarity{}, optim::SGD{}); }

// expect: chorale: this loss compares several outputs, and here is one
auto made() { return nn::compile<OneClass>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::Accuracy{}); }

// expect: compiles
auto made() {
  return nn::compile<Classes>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{}, metric::Accuracy{});
}

// expect: chorale: this output ends with nn::Softmax or nn::Sigmoid, and its metric takes logits, to which it applies softmax itself
auto made() {
  return nn::compile<Classes>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{}, metric::Perplexity{});
}
