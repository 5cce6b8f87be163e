// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
void f() { Bucketed<RingAllReduce, BucketBytes<1>>{}; }

// expect: chorale: gradients are cut into 1 bucket or more, each of 1 byte or more. OneBucket sends all at once, BucketPerLayer each layer by itself
void f() { Bucketed<RingAllReduce, BucketBytes<0>>{}; }

// expect: chorale: bucket_by_sequence_length takes a ragged field of rows that are not in batches yet.
#include <vector>

struct Words : Field<int, 4> {};

auto buckets(std::vector<int> const& words) {
  return data::from_fields<Words>(words).bucket_by_sequence_length(Words{}, {.boundaries = {9}, .rows = {64, 8}});
}

// expect: compiles
#include <vector>

struct Words : Field<int, ragged> {};

auto buckets(std::vector<std::vector<int>> const& words) {
  return data::from_fields<Words>(words).bucket_by_sequence_length(Words{}, {.boundaries = {9}, .rows = {64, 8}});
}

// expect: compiles
void f() { Bucketed<RingAllReduce, BucketPerLayer>{}; }

// expect: chorale: this Reduce is Bucketed twice, and only one cut can hold. Remove one
void f() { Bucketed<Bucketed<RingAllReduce, OneBucket>, BucketPerLayer>{}; }

// expect: chorale: this Reduce cannot run over this Transport
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    using pending = Done;
    Rank rank() const;
    int size() const;
    Done send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, DirectAllReduce{}, Mailbox{}}; }

// expect: compiles
auto connect() { return Live{MirroredStrategy{}, DirectAllReduce{}, LocalTransport{}}; }

// expect: chorale: in fp16 small gradients round to zero, so the loss has to be scaled
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto model() { return nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::SGD{}); }

// expect: compiles
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto model() {
  return nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}});
}

// expect: chorale: the reduce argument is not a ReduceAlgorithm. It needs all_reduce(endpoint, x, op)
struct Nothing {};
auto connect() { return Live{MirroredStrategy{}, Nothing{}, LocalTransport{}}; }

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::reduce_scatter<Tensor, 0>(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::reduce_scatter<Axis, dim>(x) adds up parts of a sum (P), and what comes in along this axis is no part. For a value that is the same on all ranks there is nn::scatter
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::reduce_scatter<Tensor, 0>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto const made = Reproducible<4>{};

// expect: chorale: Reproducible<L> needs a power of two up to 64
auto const made = Reproducible<3>{};

// expect: compiles
struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<72> look;
  nn::RingHeads<Ranks, 4> attend;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(attend(look(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
