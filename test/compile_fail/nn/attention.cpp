// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(
        priority(nn::Flatten{}(nn::dot(nn::reshape<16, 6>(image), nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: dot takes vectors (B, K) and (B, K), or (B, M, K) and (B, N, K), of one length K
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(
        priority(nn::Flatten{}(nn::dot(nn::reshape<16, 6>(image), nn::reshape<8, 12>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::gather_sequence, nn::RingHeads, nn::SplitLayerNorm and nn::SplitSequence need sequences of which each rank along their axis has a part. Put nn::scatter_sequence<axis> before it
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::gather_sequence<Ranks>(norm(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer works over a dimension that is sharded over an axis (S): put nn::all_gather<Axis>(x) before it
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<72> look;
  nn::Heads<4> attend;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(attend(look(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the heads of a ColumnHeads do not divide by the ranks of its axis. Use a number of heads that is a multiple of the ranks
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 4>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 72, nn::Blocks<3>> look;
  nn::ColumnHeads<Ranks, 6> attend;
  nn::RowDense<Ranks, 24> join;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(join(attend(look(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 72, nn::Blocks<3>> look;
  nn::ColumnHeads<Ranks, 6> attend;
  nn::RowDense<Ranks, 24> join;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(join(attend(look(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MultiHeadAttention<2, 2, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: MultiHeadAttention takes heads, their width, and one option, nn::Causal
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MultiHeadAttention<2, 2, nn::Reverse>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Positions<6, 4>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Positions<steps, width> takes sequences (B, T, width) of at most that many steps
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Positions<5, 4>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the positions of a sequence do not divide by the ranks of the axis over which they are split. Pad the sequences, or use another number of ranks
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 8>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 4>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the network ends with nn::Softmax, and this loss takes logits, to which it applies softmax itself. Remove nn::Softmax
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{});

// expect: chorale: the network ends with nn::Softmax, and this loss takes logits
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax, nn::Flatten> {};
auto const model = nn::compile<Net>(loss::CrossEntropy{}, optim::SGD{});

// expect: chorale: this layer works over a dimension that is sharded over an axis (S): put nn::all_gather<Axis>(x) before it
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 1>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::softmax(shard)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::softmax(shard)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this output ends with nn::Softmax, and its loss takes logits
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(nn::Softmax{}(kind(words(ids)))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(nn::Softmax{}(kind(words(ids)))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{});
