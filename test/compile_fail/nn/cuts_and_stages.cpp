// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
using pipelines::Work;

/// The only micro-batch goes through.
constexpr pipelines::Entries one(int) { return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}}; }

int ticks() { return pipelines::Timetable<pipelines::Table<one, 1>, 1>::ticks; }

// expect: chorale: in this schedule of a pipeline stages wait for one another, for ever
using pipelines::Work;

/// Stage 0 does micro-batch 1 first, forward and backward, and stage 1 micro-batch 0.
constexpr pipelines::Entries crossed(int) {
  return {{0, 0, Work::forward, 1}, {1, 0, Work::backward, 1}, {2, 0, Work::forward, 0}, {3, 0, Work::backward, 0},
          {0, 1, Work::forward, 0}, {1, 1, Work::backward, 0}, {2, 1, Work::forward, 1}, {3, 1, Work::backward, 1}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<crossed, 2>, 2>::ticks; }

// expect: compiles
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

// expect: chorale: this network has fewer calls of layers than the pipeline has sections
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(a(x))); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Model      = std::remove_const_t<decltype(model)>;

auto copy() { return nn::Staged<Model>::instantiate<OneForwardOneBackward<4>, 3>(model, Cpu::logical(1)[0], 1, 0); }

// expect: chorale: this network has fewer calls of layers than the pipeline has sections
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(a(x))); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
using Model      = std::remove_const_t<decltype(model)>;

auto bytes() {
  auto const none = [](PlanView const&, std::size_t) { return std::size_t{0}; };
  return nn::Staged<Model>::memory<OneForwardOneBackward<4>, 3>(model, Cpu::logical(1)[0], 0, 16, none);
}

// expect: chorale: in this schedule of a pipeline a micro-batch is missing
using pipelines::Work;

/// A schedule that leaves out the second of two micro-batches.
constexpr pipelines::Entries one_of_two(int) { return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}}; }

int ticks() { return pipelines::Timetable<pipelines::Table<one_of_two, 2>, 1>::ticks; }

// expect: compiles
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(nn::stage_ends_after(a(x)))); }
};

auto copy() {
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<std::remove_const_t<decltype(model)>>::instantiate<OneForwardOneBackward<4>, 2>(
      model, Cpu::logical(1)[0], 1, 0);
}

// expect: chorale: this network names the ends of its sections
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(nn::stage_ends_after(a(x)))); }
};

auto copy() {
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<std::remove_const_t<decltype(model)>>::instantiate<OneForwardOneBackward<4>, 1>(
      model, Cpu::logical(1)[0], 1, 0);
}

// expect: compiles
using pipelines::Work;

/// Both stages do micro-batch 1 first.
constexpr pipelines::Entries in_turn(int) {
  return {{0, 0, Work::forward, 1}, {1, 0, Work::backward, 1}, {2, 0, Work::forward, 0}, {3, 0, Work::backward, 0},
          {0, 1, Work::forward, 1}, {1, 1, Work::backward, 1}, {2, 1, Work::forward, 0}, {3, 1, Work::backward, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<in_turn, 2>, 2>::ticks; }

// expect: chorale: pipelined<Schedule>() computes stages along an Axis named
auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()}; }

// expect: compiles
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Block<nn::Dense<8>, nn::Dense<2>> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(layers(x)); }
};

auto copies() {
  auto live = Live{MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                   RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: chorale: a pipeline cuts a network that is derived from nn::Graph
struct Net : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};

auto copies() {
  auto live = Live{MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                   RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: compiles
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

void run() { fit<Axis<"tensor", 1>>(); }

// expect: chorale: a layer of this network is split over several ranks along an Axis, and a pipeline computes each stage on one rank
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

void run() { fit<Axis<"tensor", 2>>(); }

// expect: compiles
using pipelines::Work;

/// Backward as a whole.
constexpr pipelines::Entries whole(int) { return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}}; }

int ticks() { return pipelines::Timetable<pipelines::Table<whole, 1>, 1>::ticks; }

// expect: compiles
using pipelines::Work;

/// Gradients by inputs, then those by weights.
constexpr pipelines::Entries inputs_first(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::by_inputs, 0}, {2, 0, Work::by_weights, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<inputs_first, 1>, 1>::ticks; }

// expect: compiles
auto strategy() { return MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()}; }

// expect: chorale: a section of this pipeline has no variables
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(nn::Tanh{}(a(x)))); }
};

auto copy() {
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<std::remove_const_t<decltype(model)>>::instantiate<OneForwardOneBackward<4>, 3>(
      model, Cpu::logical(1)[0], 1, 0);
}

// expect: compiles
struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Dense<8> a;
  nn::Dense<2> b;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(b(nn::Tanh{}(a(x)))); }
};

auto copy() {
  auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
  return nn::Staged<std::remove_const_t<decltype(model)>>::instantiate<OneForwardOneBackward<4>, 2>(
      model, Cpu::logical(1)[0], 1, 0);
}

// expect: chorale: in this schedule of a pipeline a micro-batch goes through a stage twice
using pipelines::Work;

/// Backward as a whole, and by weights again.
constexpr pipelines::Entries weights_again(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::backward, 0}, {3, 0, Work::by_weights, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<weights_again, 1>, 1>::ticks; }

// expect: chorale: in this schedule of a pipeline a stage is in the wrong order
using pipelines::Work;

/// Gradients by weights before those by inputs.
constexpr pipelines::Entries weights_first(int) {
  return {{0, 0, Work::forward, 0}, {1, 0, Work::by_weights, 0}, {2, 0, Work::by_inputs, 0}};
}

int ticks() { return pipelines::Timetable<pipelines::Table<weights_first, 1>, 1>::ticks; }
