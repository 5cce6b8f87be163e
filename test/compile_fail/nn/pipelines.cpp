// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;
using pipelines::Work;

struct Words : Field<int, 4> {};
struct Text : Field<int, ragged> {};
struct Vector : Field<float, 4> {};
struct Out : Field<float, 2> {};

template <class In, class... Layers> struct Net : nn::Graph<In> {
  nn::Block<Layers...> layers;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(last(layers(x))); }
};
template <class In, class... Layers> auto copies() {
  auto live = Live{MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                   RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net<In, Layers...>>(loss::MeanSquaredError{}, optim::SGD{}));
}

/// One micro-batch, forward and backward, whose number is given.
template <int k> constexpr pipelines::Entries micro_batch(int) {
  return {{0, 0, Work::forward, k}, {1, 0, Work::backward, k}};
}
/// Its backward in the tick of its forward.
constexpr pipelines::Entries at_once(int) { return {{0, 0, Work::forward, 0}, {0, 0, Work::backward, 0}}; }
/// Two chunks on each stage, of which the sections are given.
template <int of_second> struct TwoChunks {
  static constexpr int micro_batches = 1, chunks = 2;
  static constexpr int section(int, int chunk, int) { return chunk == 0 ? 0 : of_second; }
  static constexpr pipelines::Entries entries(int) {
    return {{0, 0, Work::forward, 0, 0},
            {1, 0, Work::forward, 0, 1},
            {2, 0, Work::backward, 0, 1},
            {3, 0, Work::backward, 0, 0}};
  }
};

// expect: compiles
auto const schedule = AllForwardAllBackward<1>{};

// expect: chorale: AllForwardAllBackward<m> needs at least 1 micro-batch
auto const schedule = AllForwardAllBackward<0>{};

// expect: compiles
auto const schedule = OneForwardOneBackward<1>{};

// expect: chorale: OneForwardOneBackward<m> needs at least 1 micro-batch
auto const schedule = OneForwardOneBackward<0>{};

// expect: compiles
auto const schedule = Interleaved<1, 1>{};

// expect: chorale: Interleaved<m, chunks> needs at least 1 micro-batch and 1 chunk
auto const schedule = Interleaved<1, 0>{};

// expect: compiles
auto const schedule = ZeroBubbleH1<1>{};

// expect: chorale: ZeroBubbleH1<m> needs at least 1 micro-batch
auto const schedule = ZeroBubbleH1<0>{};

// expect: compiles
auto const schedule = ZeroBubbleV<1>{};

// expect: chorale: ZeroBubbleV<m> needs at least 1 micro-batch
auto const schedule = ZeroBubbleV<0>{};

// expect: compiles
int ticks() { return pipelines::Timetable<OneForwardOneBackward<4>, 1>::ticks; }

// expect: chorale: a pipeline has at least 1 stage
int ticks() { return pipelines::Timetable<OneForwardOneBackward<4>, 0>::ticks; }

// expect: compiles
int ticks() { return pipelines::Timetable<pipelines::Table<micro_batch<0>, 1>, 1>::ticks; }

// expect: chorale: this schedule of a pipeline names a stage, a micro-batch or a chunk that there is not
int ticks() { return pipelines::Timetable<pipelines::Table<micro_batch<1>, 1>, 1>::ticks; }

// expect: chorale: in this schedule of a pipeline a stage does two things in one tick
int ticks() { return pipelines::Timetable<pipelines::Table<at_once, 1>, 1>::ticks; }

// expect: compiles
int ticks() { return pipelines::Timetable<TwoChunks<1>, 1>::ticks; }

// expect: chorale: in this schedule of a pipeline section(stage, chunk, stages) is not one section for each chunk of each stage
int ticks() { return pipelines::Timetable<TwoChunks<0>, 1>::ticks; }

// expect: compiles
auto create() { return copies<Words, nn::Embedding<9, 3, nn::DenseGradient>, nn::Flatten>(); }

// expect: chorale: a pipeline has no gradients that are rows of a table. Write nn::Embedding<rows, width, nn::DenseGradient>, or use MirroredStrategy
auto create() { return copies<Words, nn::Embedding<9, 3>, nn::Flatten>(); }

// expect: chorale: a pipeline takes rows of one shape. Give the fields of this network one length
auto create() { return copies<Text, nn::Embedding<9, 3, nn::DenseGradient>, nn::LSTM<3>>(); }

// expect: chorale: nn::SyncBatchNorm adds up over all rows of a batch, and a pipeline computes micro-batches. Use nn::BatchNorm
auto create() { return copies<Vector, nn::Dense<3>, nn::SyncBatchNorm<>>(); }
