// pipeline_enough_calls.cpp   expect: compiles
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

auto copy() {
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<std::remove_const_t<decltype(model)>>::instantiate<OneForwardOneBackward<4>, 2>(
      model, Cpu::logical(1)[0], 1, 0);
}
