// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  nn::Dense<4> a;
  nn::Dense<4> b;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(a(tags) + b(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 1>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 24> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x) + widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: + adds values of one shape
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  nn::Dense<4> a;
  nn::Dense<5> b;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(a(tags) + b(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a shard of a value (S) meets a value that is not sharded alike over this axis: put nn::scatter<Axis, dim>(x) around that one, or nn::all_gather<Axis, nn::replicated>(x) around the shard
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 1>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 24> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x) + x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the width of a ColumnDense, in each of its blocks, is a multiple of its parts, which are as many as the ranks of its axis, or 2, 4, 8 .. times as many. Change the width, or write nn::Parts<N>
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 4>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 10> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 10> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Ids : Field<int, 4> {};
struct Net : nn::Graph<Ids> {
  nn::ShardedEmbedding<Axis<"tables", 4>, 100, 16, nn::ByColumn> table;
  constexpr auto operator()(auto ids) const { return nn::outputs<Ids>(table(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a ShardedEmbedding<A, rows, width, nn::ByColumn> deals out its columns evenly
struct Ids : Field<int, 4> {};
struct Net : nn::Graph<Ids> {
  nn::ShardedEmbedding<Axis<"tables", 4>, 100, 18, nn::ByColumn> table;
  constexpr auto operator()(auto ids) const { return nn::outputs<Ids>(table(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 7> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::concatenate(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: concatenate takes values that differ in their last dimension alone
struct In : Field<float, 4> {};
struct Other : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::concatenate(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer has variables that the ranks of an axis share, and what comes in is not the same on all of them with a complete gradient (I), so that the gradients of the variables would be parts: put nn::all_reduce<Axis>(x), nn::all_gather<Axis>(x) or nn::count_once<Axis>(x) before it
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  nn::Dense<6> dense;

  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(dense(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  nn::Dense<6> dense;

  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(dense(nn::all_reduce<Tensor>(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const {
    return nn::outputs<Out>(nn::Dense<2>{}(nn::concatenate(x, other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer takes one input. Call it once for each, or put nn::concatenate(...) before it
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::Dense<2>{}(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, 4> {};
struct Mean : Field<float, 12> {};
struct Net : nn::Graph<Words> {
  nn::Embedding<20, 3, nn::DenseGradient> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(nn::reshape<12>(words(ids))); }
};

auto create() {
  auto live = Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::Adam{}));
}

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Dense<2, nn::HeNormal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Dense takes a number of units and an initializer
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Dense<2, nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::maximum(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: maximum and minimum take numbers of one shape
struct In : Field<float, 4> {};
struct Other : Field<float, 5> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::maximum(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(x * other); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: * multiplies values of one shape, element by element
struct In : Field<float, 4> {};
struct Other : Field<float, 5> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(x * other); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Embedding takes ids, a field of int or of bytes, but what comes in are numbers
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Embedding<9, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::LayerNorm{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::RMSNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::UnitNorm{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Score>(loss::MeanSquaredError{}), optim::SGD{});

// expect: compiles
struct Kind : Field<int, 1> {};
auto const objective = nn::of<Kind>(loss::SparseCrossEntropy{});

// expect: chorale: nn::of<F>(...) takes a field that nn::outputs<...> names
struct Kind {};
auto const objective = nn::of<Kind>(loss::SparseCrossEntropy{});

// expect: chorale: both factors of a product differ between the ranks of one axis, so that each rank would have one block of many: put nn::all_gather<Axis, nn::replicated>(x) around one of them
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::reshape<4, 6>(nn::concatenate(nn::dot(a, a), nn::dot(a, a)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a = nn::scatter<Tensor, 0>(x), all = a;
    auto const y = nn::all_gather<Tensor>(nn::dot(a, nn::all_gather<Tensor, nn::replicated>(all)));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
/// Around the ring twice.
struct WholeRing : ScheduledAllReduce<WholeRing> {
  static constexpr Cost cost(int ranks, std::size_t bytes) { return RingAllReduce::cost(ranks, bytes); }
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * (ranks - 1); }
  static constexpr Step step(Rank rank, int ranks, int s) { return RingAllReduce::step(rank, ranks, s); }
};

void reduce(LocalEndpoint& at, Span<float> x) { WholeRing{}.all_reduce(at, x, Op::sum); }

// expect: compiles
/// Rank 0 sends to one other in each step.
struct OneByOne : ScheduledAllReduce<OneByOne> {
  static constexpr Collective collective = Collective::broadcast;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int, int s) {
    if (rank == 0) return {.to = s + 1, .send = {0, 1}};
    return rank == s + 1 ? Step{.from = 0, .receive = {0, 1}} : Step{};
  }
};

auto operation = ScheduleExecution<OneByOne, LocalEndpoint, float>{};

// expect: compiles
struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(x - other); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: - subtracts values of one shape
struct In : Field<float, 4> {};
struct Other : Field<float, 5> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(x - other); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    auto const own  = nn::vary<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(nn::all_reduce<Tensor, nn::replicated>(part) + own));
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
    return nn::outputs<Score>(nn::all_reduce<Tensor, nn::replicated>(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::compile has two losses, and a network has one
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, loss::CrossEntropy{}, optim::SGD{});

// expect: chorale: nn::compile has two optimizers, and a network has one
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(optim::Adam{}, loss::SparseCrossEntropy{}, optim::SGD{});

// expect: compiles
struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::UpSampling2D<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: UpSampling2D<rows, columns> takes images (B, H, W, C), and factors of at least 1
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::UpSampling2D<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the call operator of this network must return nn::outputs<Fields...>(...)
struct Tags : Field<float, 12> {};
struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return priority(tags); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this schedule ends before every chunk is complete
/// Around the ring once: sums are complete, but only on one rank each.
struct HalfARing : ScheduledAllReduce<HalfARing> {
  static constexpr Cost cost(int ranks, std::size_t bytes) { return RingAllReduce::cost(ranks, bytes); }
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int ranks, int s) { return RingAllReduce::step(rank, ranks, s); }
};

void reduce(LocalEndpoint& at, Span<float> x) { HalfARing{}.all_reduce(at, x, Op::sum); }

// expect: chorale: in this schedule a message has only one end
/// Rank 0 sends to all others in step 0, but a rank sends one message in a step: who waits for the rest?
struct Shout : ScheduledAllReduce<Shout> {
  static constexpr Collective collective = Collective::broadcast;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks > 1 ? 1 : 0; }
  static constexpr Step step(Rank rank, int, int) {
    return rank == 0 ? Step{.to = 1, .send = {0, 1}} : Step{.from = 0, .receive = {0, 1}};
  }
};

auto operation = ScheduleExecution<Shout, LocalEndpoint, float>{};
