// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(a(x))); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Model      = std::remove_const_t<decltype(model)>;

// expect: chorale: this network has fewer calls of layers than the pipeline has sections
auto copy() { return nn::Staged<Model>::instantiate<OneForwardOneBackward<4>, 3>(model, Cpu::logical(1)[0], 1, 0); }

// expect: chorale: this network has fewer calls of layers than the pipeline has sections
auto bytes() {
  auto const none = [](PlanView const&, std::size_t) { return std::size_t{0}; };
  return nn::Staged<Model>::memory<OneForwardOneBackward<4>, 3>(model, Cpu::logical(1)[0], 0, 16, none);
}
