// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: chorale: Bidirectional<L> takes an LSTM, a GRU or a SimpleRNN
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Bidirectional<nn::Dense<4>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Bidirectional<nn::GRU<4>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto const made = nn::DepthMultiplier<1>{};

// expect: chorale: DepthMultiplier<N> needs at least 1
auto const made = nn::DepthMultiplier<0>{};

// expect: chorale: GRU takes the options nn::Sequences and nn::Reverse
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GRU<2, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GRU<2, nn::Sequences>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}));
  PerReplica<Sum<float>> losses = live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.update(replica, copy, gradients);
        replica.barrier();
        return loss;
      },
      copies);
  live.reduce(losses);
}

// expect: chorale: under ShardedStrategy a replica gets the sums of its shard of the gradients only. End the step by live.update(replica, copy, gradients)
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        replica.all_reduce(gradients);
        copy.optimizer.apply(copy.net.variables(), gradients);
      },
      copies);
}

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::CausalHeads<2>{}(nn::reshape<2, 6>(tags))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GlobalAveragePool1D{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: batch normalization takes images (B, H, W, C) or rows (B, C)
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::ClassToken token;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(token(nn::reshape<2, 6>(tags)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Conv1D<4, 3, nn::Causal> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GlobalMaxPool1D{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this pool takes images (B, H, W, C)
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::GlobalAveragePool2D{}(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::GRU<4> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::Heads<2>{}(nn::reshape<2, 6>(tags)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LSTM<8, nn::Sequences> first;
  nn::LSTM<8> second;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(second(first(nn::reshape<3, 4>(tags)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::MaxPool1D<2>{}(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::SimpleRNN<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
