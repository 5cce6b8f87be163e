// SPDX-License-Identifier: Apache-2.0
//
// Programs that train on a device with what computes on Cpu only.
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include "test/compile_fail/gpu.hpp"

#include <cstddef>

using namespace chorale;

struct Image : Field<float, 8, 8, 4> {};
struct Steps : Field<float, 6, 4> {};
struct Words : Field<int, 6> {};
struct Text : Field<float, ragged, 4> {};
struct Kind : Field<int, 1> {};
struct Numbers : Field<float, 2> {};
struct Weight : Field<float, 1> {};

/// One step of one copy.
template <class D, class Batch> void step(auto const& model, Batch const& batch) {
  auto copy = model.instantiate(D{}, 1);
  copy.value_and_gradient(batch, 0, [](std::size_t) {});
}
template <class... Layers> struct List : nn::Sequential<nn::Input<8, 8, 4>, Layers..., nn::Flatten, nn::Dense<2>> {};
template <class D, class... Layers> void list(Batch const& batch) {
  step<D>(nn::compile<List<Layers...>>(loss::SparseCrossEntropy{}, optim::SGD{}), batch);
}
struct Probabilities : nn::Sequential<nn::Input<8, 8, 4>, nn::Flatten, nn::Dense<2>, nn::Softmax> {};
template <class D, class Loss, class Net> void loss_of_list(BasicBatch<float, typename Loss::target> const& batch) {
  step<D>(nn::compile<Net>(Loss{}, optim::SGD{}), batch);
}
template <class In, class... Layers> struct Net : nn::Graph<In> {
  nn::Block<Layers...> layers;
  nn::Dense<2> logits;
  constexpr auto operator()(auto x) const { return nn::outputs<Kind>(logits(layers(x))); }
};
template <class D, class In, class... Layers> void graph(Rows<In, Kind> const& batch) {
  step<D>(nn::compile<Net<In, Layers...>>(loss::SparseCrossEntropy{}, optim::SGD{}), batch);
}

template <class When> struct ByImage : nn::Graph<nn::Differentiable<Image, When>> {
  nn::Block<nn::Flatten, nn::Dense<2>> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<Numbers>(layers(x)); }
};
template <class When, class D> auto copy() {
  return nn::compile<ByImage<When>>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(D{}, 1);
}
template <class D, class Loss> void loss_of_graph(Loss const& loss, Rows<Image, Numbers, Weight> const& batch) {
  step<D>(nn::compile<ByImage<nn::InEachStep>>(loss, optim::SGD{}), batch);
}
struct Own {
  using target = float;
  static float row(Span<float const> y, Span<float const> wanted, Span<float> dy) {
    dy[0] = 1;
    return y[0] - wanted[0];
  }
};

// expect: compiles
void run(Batch const& batch) { list<Queue, nn::Conv2D<1, 1>>(batch); }

// expect: chorale: nn::Conv2D with KernelWidth, Dilation or Groups has no kernels for this device. Use a strategy over Cpu
void run(Batch const& batch) { list<Queue, nn::Conv2D<1, 1, nn::Dilation<2>>>(batch); }

// expect: chorale: nn::Conv2DTranspose has no kernels for this device. Use a strategy over Cpu
void run(Batch const& batch) { list<Queue, nn::Conv2DTranspose<1, 1>>(batch); }

// expect: chorale: nn::DepthwiseConv2D has no kernels for this device. Use a strategy over Cpu
void run(Batch const& batch) { list<Queue, nn::DepthwiseConv2D<1>>(batch); }

// expect: chorale: nn::GaussianNoise has no kernels for this device. Use a strategy over Cpu
void run(Batch const& batch) { list<Queue, nn::GaussianNoise<0.5>>(batch); }

// expect: compiles
void run(Rows<Image, Kind> const& batch) { graph<Queue, Image, nn::Conv2D<1, 1>, nn::Flatten>(batch); }

// expect: chorale: nn::Conv1D has no kernels for this device. Use a strategy over Cpu
void run(Rows<Steps, Kind> const& batch) { graph<Queue, Steps, nn::Conv1D<1, 1>, nn::Flatten>(batch); }

// expect: chorale: nn::Recompute computes on Cpu only, where memory is shared by what is not in use together
void run(Rows<Image, Kind> const& batch) { graph<Queue, Image, nn::Recompute<nn::Conv2D<1, 1>>, nn::Flatten>(batch); }

// expect: chorale: a network with rows of different lengths runs on CPUs only. Give its fields one length, or use a strategy over Cpu
void run(Rows<Text, Kind> const& batch) { graph<Queue, Text, nn::Dense<3>, nn::GlobalAveragePool1D>(batch); }

// expect: chorale: gradients that are rows of a table run on CPUs only. Write nn::Embedding<rows, width, nn::DenseGradient>, or use a strategy over Cpu
void run(Rows<Words, Kind> const& batch) { graph<Queue, Words, nn::Embedding<9, 2>, nn::Flatten>(batch); }

// expect: chorale: this layer computes on the host, and the network is for another device
void run(Rows<Steps, Kind> const& batch) { graph<Queue, Steps, nn::GRU<3>>(batch); }

// expect: compiles
void run(BasicBatch<float, float> const& batch) { loss_of_list<Queue, loss::MeanSquaredError, List<>>(batch); }

// expect: chorale: this loss runs on CPUs only. On a GPU use loss::SparseCrossEntropy
void run(BasicBatch<float, float> const& batch) { loss_of_list<Queue, Own, List<>>(batch); }

// expect: chorale: loss::SparseCrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of the network and use loss::SparseCrossEntropy
void run(Batch const& batch) { loss_of_list<Queue, loss::SparseCrossEntropyOfProbabilities, Probabilities>(batch); }

// expect: chorale: loss::CrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of the network and use loss::CrossEntropy
void run(BasicBatch<float, float> const& batch) {
  loss_of_list<Queue, loss::CrossEntropyOfProbabilities, Probabilities>(batch);
}

// expect: compiles
void run(Rows<Image, Numbers, Weight> const& batch) { loss_of_graph<Queue>(loss::MeanSquaredError{}, batch); }

// expect: chorale: this loss runs on CPUs only. On a GPU use loss::SparseCrossEntropy, loss::CrossEntropy or loss::MeanSquaredError, or a strategy over Cpu; one of your own needs queue<D>
void run(Rows<Image, Numbers, Weight> const& batch) { loss_of_graph<Queue>(Own{}, batch); }

// expect: chorale: losses weighted by a field run on CPUs only. Use a strategy over Cpu
void run(Rows<Image, Numbers, Weight> const& batch) {
  loss_of_graph<Queue>(nn::of<Numbers>(loss::MeanSquaredError{}).weighted_by(Weight{}), batch);
}

// expect: compiles
auto outputs(Rows<Image> const& batch) { return copy<nn::OnRequest, Queue>().predict(batch); }

// expect: chorale: outputs(batch) begins a step on Cpu only. Use predict(batch) there
auto outputs(Rows<Image> const& batch) { return copy<nn::OnRequest, Queue>().outputs(batch); }

// expect: chorale: gradient_by(F, batch) computes on Cpu only
auto by(Rows<Image, Numbers> const& batch) { return copy<nn::OnRequest, Queue>().gradient_by(Image{}, batch); }

// expect: chorale: a pipeline computes on Cpu only. Use a strategy over Cpu
auto stage() {
  auto model = nn::compile<ByImage<nn::InEachStep>>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<decltype(model)>::instantiate<OneForwardOneBackward<4>, 1>(model, Queue{}, 1, 0);
}
