// retarget_to_stages.cpp   expect: chorale: retarget moves copies of a whole network, but under pipelined<Schedule>() each
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(a(x))); }
};
using Stages = Mesh<Axis<"stage", 2>>;

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         RingAllReduce{}, LocalTransport{}};
  auto next = retarget(std::move(trainer), MeshStrategy{Stages{Cpu::split(2)}, pipelined<OneForwardOneBackward<4>>()},
                       RingAllReduce{}, LocalTransport{});
  next.stop();
}
