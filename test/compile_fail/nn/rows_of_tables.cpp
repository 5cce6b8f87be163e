// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: chorale: EmbeddingBag takes (B, n) ids; put nn::reshape<n>(...) before it
struct Ids : Field<int, 3, 5> {};
struct Mean : Field<float, 4> {};
struct Net : nn::Graph<Ids> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Ids : Field<int, 15> {};
struct Mean : Field<float, 4> {};
struct Net : nn::Graph<Ids> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
#include <cstdint>

struct In : Field<std::uint8_t, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Embedding<9, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer takes numbers, but what comes in are ids; put nn::Embedding<rows, width> before it
struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words, Tags> {
  nn::Dense<1> priority;
  nn::Dense<8> words;
  constexpr auto operator()(auto ids, auto tags) const {
    return nn::outputs<Priority>(priority(nn::concatenate(words(ids), tags)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words, Tags> {
  nn::Dense<1> priority;
  nn::Embedding<50, 8> words;
  constexpr auto operator()(auto ids, auto tags) const {
    return nn::outputs<Priority>(priority(nn::concatenate(nn::reshape<40>(words(ids)), tags)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LayerNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids
struct In : Field<int, 6> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::LayerNorm{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LSTM takes sequences (B, T, C) of numbers, but what comes in are ids; put nn::Embedding<rows, width> before it
struct Words : Field<int, 5> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words> {
  nn::LSTM<8> reader;
  nn::Dense<1> priority;
  constexpr auto operator()(auto ids) const { return nn::outputs<Priority>(priority(reader(ids))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: RMSNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids
struct In : Field<int, 6> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::RMSNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: UnitNorm takes vectors of numbers (B, .., C)
struct Tags : Field<int, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::UnitNorm{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  nn::Dense<4> a;
  nn::Dense<4> b;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::interaction(a(tags), b(tags))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: interaction takes two or more vectors of numbers of one width, (B, width)
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  nn::Dense<4> a;
  nn::Dense<5> b;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::interaction(a(tags), b(tags))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Weight : Field<float, 1> {};
auto const weighted = nn::of<Kind>(loss::SparseCrossEntropy{}).weighted_by(Weight{});

// expect: chorale: the field that weighs rows has one number for each row
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Weight : Field<float, 2> {};
auto const weighted = nn::of<Kind>(loss::SparseCrossEntropy{}).weighted_by(Weight{});

// expect: chorale: CausalHeads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::CausalHeads<2>{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: GlobalAveragePool1D takes sequences (B, T, C) of numbers
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GlobalAveragePool1D{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: ClassToken takes sequences of numbers (B, T, C)
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::ClassToken token;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(token(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: DepthwiseConv2D takes images (B, H, W, C) but what comes in has another shape
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::DepthwiseConv2D<3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<96>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: GlobalMaxPool1D takes sequences (B, T, C) of numbers
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GlobalMaxPool1D{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: GRU takes sequences (B, T, C), a vector of numbers for each step; put
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::GRU<4> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<96>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: Heads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::Heads<2>{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: LSTM takes sequences (B, T, C), a vector of numbers for each step; put nn::reshape<T, C>(...) before it
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LSTM<8> first, second;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(second(first(nn::reshape<3, 4>(tags)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: SimpleRNN takes sequences (B, T, C), a vector of numbers for each step; put nn::reshape<T, C>(...) before it
struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::SimpleRNN<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(nn::gelu(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::RowDense and nn::ColumnHeads take vectors of which each rank along their axis has a part, as nn::ColumnDense gives them. Put nn::ColumnDense over the same axis before it, or use nn::Dense
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<32> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(nn::gelu(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: distribute takes batches; end the dataset with .batch(n)
template <class Data> void pass(Data const& data) {
  auto live = Live{MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  for ([[maybe_unused]] auto& batch : live.distribute(data)) {}
}
void use() { pass(data::digits(100, 1).map(data::scale)); }

// expect: chorale: under ShardedStrategy a replica has a shard of all variables, and the gradients of a table of this network are rows. Write nn::Embedding<rows, width, nn::DenseGradient>, or use MultiWorkerMirroredStrategy
struct Words : Field<int, 4> {};
struct Mean : Field<float, 12> {};
struct Net : nn::Graph<Words> {
  nn::Embedding<20, 3> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(nn::reshape<12>(words(ids))); }
};

auto create() {
  auto live = Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::Adam{}));
}

// expect: compiles
struct Users : Field<int, 4> {};
struct Items : Field<int, 4> {};
struct Click : Field<float, 1> {};
struct Net : nn::Graph<Users, Items> {
  nn::ShardedTables<Axis<"tables", 2>, 16, nn::TableRows<100, 50>> tables;
  constexpr auto operator()(auto users, auto items) const {
    auto const [user, item] = tables(users, items);
    return nn::outputs<Click>(nn::concatenate(user, item));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: ShardedTables takes a field of ids for each table
struct Users : Field<int, 4> {};
struct Items : Field<int, 4> {};
struct Click : Field<float, 1> {};
struct Net : nn::Graph<Users, Items> {
  nn::ShardedTables<Axis<"tables", 2>, 16, nn::TableRows<100, 50, 20>> tables;
  constexpr auto operator()(auto users, auto items) const { return nn::outputs<Click>(tables(users, items)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
