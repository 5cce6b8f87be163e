// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Point : Field<float, 4> {};
struct Height : Field<float, 2> {};

template <class A> struct Net : nn::Graph<Point> {
  nn::ColumnDense<A, 8> first;
  nn::RowDense<A, 8> second;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Height>(last(second(first(x)))); }
};

template <class A> auto fit() {
  auto trainer      = Trainer{nn::compile<Net<A>>(loss::MeanSquaredError{}, optim::SGD{}),
                         MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                         RingAllReduce{}, LocalTransport{}};
  auto const points = data::from_fields<Point, Height>(std::vector<float>(16), std::vector<float>(8)).batch(4);
  trainer.fit(points);
}

// expect: compiles
void run() { fit<Axis<"tensor", 1>>(); }

// expect: chorale: a layer of this network is split over several ranks along an Axis, and a pipeline computes each stage on one rank
void run() { fit<Axis<"tensor", 2>>(); }
