// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: chorale: under ParameterServerStrategy workers send each other nothing
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}));
  PerReplica<Sum<float>> losses = live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        replica.broadcast(copy.net.variables().values);
        return loss;
      },
      copies);
  live.reduce(losses);
}

// expect: compiles
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Top<2>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Top<k> of Experts<A, experts, hidden> chooses more experts for a token than there are
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Top<5>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Uncounted> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Experts<A, experts, hidden> deals out its experts evenly
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 3>, 4, 32, nn::Uncounted> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Capacity<1>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Capacity<Percent> of nn::Experts needs at least 1 percent of an even share
struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Capacity<0>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a value whose gradient is complete on each rank of an axis (I) meets one whose gradient is not (R, V, P or S), so that it would get a part: put nn::replicate<Axis>(x) around the first
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(x + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the network ends with logits, and this loss takes probabilities. Put nn::Softmax at its end
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>> {};
auto const model = nn::compile<Net>(loss::CrossEntropyOfProbabilities{}, optim::SGD{});

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

// expect: chorale: this output ends with logits, and its loss takes probabilities
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{});

// expect: chorale: an output of this network has a part of the positions on each rank. Put nn::gather_sequence<axis> before nn::outputs
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 6, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(norm(nn::scatter_sequence<Ranks>(x))); }
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

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};
struct Other : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Dense<1> a, b;
  constexpr auto operator()(auto x) const { return nn::outputs<Out, Other>(a(x), b(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::outputs<Fields...>(...) needs a field for each output
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Dense<1> a, b;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(a(x), b(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a part of a sum over an axis (P) meets a value that each rank has of its own (V): put nn::all_reduce<Axis, nn::replicated>(x) around the part
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    auto const own  = nn::vary<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + own));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part * nn::all_reduce<Tensor, nn::replicated>(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a part of a sum over an axis (P) and a whole value are added, so that each rank would add the whole: put nn::on_one_rank<Axis>(x) around the whole value, or nn::all_reduce<Axis>(x) around the part
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part  = nn::on_one_rank<Tensor>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + other));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part  = nn::on_one_rank<Tensor>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + nn::on_one_rank<Tensor>(other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: an output of this network is not whole on each rank, but a part of a sum over an axis (P), a shard (S) or a value of each rank (V): put nn::all_reduce<Axis>(x) or nn::all_gather<Axis>(x) before nn::outputs
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(part);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: two parts of sums over one axis (P) are multiplied, and a product of sums is not the sum of products: put nn::all_reduce<Axis, nn::replicated>(x) around one of them
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part * part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Three = Axis<"tensor", 3>;
    return nn::outputs<Score>(nn::all_gather<Three>(nn::scatter<Three, 1>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::scatter<Tensor, 1>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a value is cut along a dimension of its rows, counted from 0, that all rows have in one size: this one has no such dimension
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::scatter<Tensor, 2>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a dimension is cut into equal shards, and its size is no multiple of the number of ranks of the axis
struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Five = Axis<"tensor", 5>;
    return nn::outputs<Score>(nn::all_gather<Five>(nn::scatter<Five, 1>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::scatter<Axis, dim>(x) takes a value that is the same on all ranks of the axis (I or R), and what comes in is not. Of a part of a sum (P) nn::reduce_scatter makes shards
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::scatter<Tensor, 0>(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::scatter<Tensor, 0>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 1>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(shard + nn::scatter<Tensor, 1>(other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a layer of this network is split along an Axis that the Mesh of this MeshStrategy does not have, or has with another number of ranks. Give both the same Axis
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct Bag : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Axis<"tables", 2>, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tables", 3>>{Cpu::logical(2 * 3)}}, RingAllReduce{},
                   LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: compiles
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct Bag : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Axis<"tables", 2>, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tables", 2>>{Cpu::logical(2 * 2)}}, RingAllReduce{},
                   LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: chorale: this layer is split over an axis, and does not take what the ranks of the axis have of its input. Its function spread(...) says which of I, R, V, P and S it takes
#include <array>
#include <optional>
#include <string_view>

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

/// y = x times this rank's columns of a matrix.
struct Columns : nn::Layer<Columns> {
  using axis                             = Tensor;
  static constexpr std::string_view name = "columns";
  static constexpr std::optional<nn::Distribution> spread(nn::Distribution x) {
    return x == nn::replicated ? std::optional{nn::sharded<-1>} : std::nullopt;
  }
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, T, 3>{}; }
  static constexpr auto variables(auto x) { return std::array{nn::glorot_uniform("kernel", x.back, 3)}; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Image> {
  Columns columns;

  constexpr auto operator()(auto x) const { return nn::outputs<Score>(nn::all_gather<Tensor>(columns(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
#include <array>
#include <optional>
#include <string_view>

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

/// y = x times this rank's columns of a matrix.
struct Columns : nn::Layer<Columns> {
  using axis                             = Tensor;
  static constexpr std::string_view name = "columns";
  static constexpr std::optional<nn::Distribution> spread(nn::Distribution x) {
    return x == nn::replicated ? std::optional{nn::sharded<-1>} : std::nullopt;
  }
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, T, 3>{}; }
  static constexpr auto variables(auto x) { return std::array{nn::glorot_uniform("kernel", x.back, 3)}; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Image> {
  Columns columns;

  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(columns(nn::replicate<Tensor>(x))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct Bag : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Axis<"tables", 2>, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Axis<"tables", 2>>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: chorale: a layer of this network is split over several ranks along an Axis, and this Strategy has no such ranks. Use MeshStrategy with a Mesh that has the Axis
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct Bag : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Axis<"tables", 2>, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm, last;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(last(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a layer is called with whole sequences and with sequences of which each rank has a part, so its gradients would be added up over ranks by one call only. Use two layers
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(norm(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
