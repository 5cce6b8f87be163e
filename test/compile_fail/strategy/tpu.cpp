// SPDX-License-Identifier: Apache-2.0
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/lstm.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/pjrt/tpu.hpp>

using namespace chorale;

struct Numbers : Field<float, 6, 4> {};
struct Points : Field<float, ragged, 4> {};
struct Y : Field<float, 1> {};

template <class F> struct Net : nn::Graph<F> {
  nn::LSTM<3> read;
  nn::Dense<1> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(last(read(x))); }
};

// expect: compiles
auto strategy() { return TPUStrategy<8, Zero::one>{}; }
auto copy(Pjrt const& device) {
  return nn::compile<Net<Numbers>>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(device, 1);
}
float gradients(Pjrt const& device, Rows<Numbers, Y> const& batch) {
  return copy(device).value_and_gradient(batch, 0, LooksAtEnd{}).value;
}

// expect: chorale: TPUStrategy<N> needs at least 1 device
auto strategy() { return TPUStrategy<0>{}; }

// expect: chorale: TPUStrategy<N, Zero::one> is the only form with shards
auto strategy() { return TPUStrategy<8, Zero::three>{}; }

// expect: chorale: a network with rows of different lengths does not compute on PJRT devices
auto copy(Pjrt const& device) {
  return nn::compile<Net<Points>>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(device, 1);
}
float gradients(Pjrt const& device, Rows<Points, Y> const& batch) {
  return copy(device).value_and_gradient(batch, 0, LooksAtEnd{}).value;
}
