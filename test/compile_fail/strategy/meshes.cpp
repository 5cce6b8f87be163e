// SPDX-License-Identifier: Apache-2.0
#include <chorale/advice.hpp>
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

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

// expect: chorale: nn::all_gather<Axis>(x) joins shards (S), and what comes in is not sharded along this axis. Is it another axis?
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::replicate<Tensor>(x)));
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
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::all_reduce<Axis>(x) adds up parts of a sum (P) or, to nn::invariant, values of each rank (V), and what comes in along this axis is neither: what is the same on all ranks needs no sum, and for shards there is nn::all_gather. Is it another axis?
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_reduce<Tensor>(nn::replicate<Tensor>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: under ParameterServerStrategy no replica all-reduces gradients
#include <chorale/strategy/parameter_server.hpp>

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}));
  PerReplica<Sum<float>> losses = live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        replica.all_reduce(gradients);
        copy.optimizer.apply(copy.net.variables(), gradients);
        return loss;
      },
      copies);
  live.reduce(losses);
}

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Axis<"tensor", 2>>(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::all_reduce<Axis>(x) adds up parts of a sum (P) or, to nn::invariant, values of each rank (V), and what comes in along this axis is neither: what is the same on all ranks needs no sum, and for shards there is nn::all_gather. Is it another axis?
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Axis<"context", 2>>(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a     = nn::replicate<Axis<"tensor", 2>>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(a + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: two axes of one name have different numbers of ranks. Give the axis a name in C++, by using, and write that name everywhere
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a     = nn::replicate<Axis<"tensor", 3>>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(a + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Net : nn::Sequential<nn::Input<100>, nn::Dense<1000>> {};  // 101,000 numbers

static_assert(within_memory<1'600'000, 2, 32, Net, ShardedStrategy<Zero::one>, optim::Adam, DirectAllReduce>());

// expect: chorale: a replica of this network takes more than its memory budget; memory_plan<Net, S, O>(world, rows) says what takes how much. Use ShardedStrategy, nn::Recompute, an optimizer with fewer slots, or fewer rows. See docs/42-strategies.md
struct Net : nn::Sequential<nn::Input<100>, nn::Dense<1000>> {};  // 101,000 numbers

static_assert(within_memory<1'600'000, 2, 32, Net, MirroredStrategy<>, optim::Adam>());

// expect: compiles
auto connect() { return Live{Gossip{MirroredStrategy{}}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: this Strategy cannot use this Reduce
auto connect() { return Live{Gossip{MirroredStrategy{}}, TopK<10>{}, LocalTransport{}}; }

// expect: chorale: HybridStrategy<zero, within> is for Zero::two and Zero::three, within nodes of 1 rank
auto strategy() { return HybridStrategy<Zero::one, 2>{Cpu::split(4)}; }

// expect: compiles
auto strategy() { return HybridStrategy<Zero::three, 2>{Cpu::split(4)}; }

// expect: compiles
auto strategy() { return local_sgd<8>(MirroredStrategy{}); }

// expect: chorale: LocalSgd needs a strategy with a copy of the variables on every replica
auto strategy() { return local_sgd<8>(CentralStorageStrategy{}); }

// expect: chorale: OwnThread sends buckets while layers of a split network exchange values over the same endpoint. Under MeshStrategy use its Reduce without OwnThread
auto connect() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, OwnThread<RingAllReduce>{}, LocalTransport{}}
      .num_replicas();
}

// expect: compiles
auto connect() {
  return Live{MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}}.num_replicas();
}

// expect: compiles
auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::split(2)}, sharded<Zero::one>("data")}; }

// expect: chorale: MeshStrategy shards the optimizer's state alone. Write sharded<Zero::one>
auto strategy() { return MeshStrategy{Mesh<Axis<"data", 2>>{Cpu::split(2)}, sharded<Zero::three>("data")}; }

// expect: chorale: this Mesh has two axes of one name. Give each Axis a name of its own
auto mesh() { return Mesh<Axis<"data", 2>, Axis<"data", 2>>{Cpu::logical(4)}; }

// expect: compiles
auto mesh() { return Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}; }

// expect: chorale: a shard (S) is multiplied with a part of a sum over the same axis (P), and needs the whole sum: put nn::all_reduce<Axis, nn::replicated>(x) around the part
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a    = nn::scatter<Tensor, 0>(x);
    auto const part = nn::on_one_rank<Tensor>(x);
    auto const y    = nn::all_gather<Tensor>(nn::dot(a, part));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a shard of a value (S) meets a value that is not sharded alike over this axis: put nn::scatter<Axis, dim>(x) around that one, or nn::all_gather<Axis, nn::replicated>(x) around the shard
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 1>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(shard + nn::slice<0, 3>(other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a    = nn::scatter<Tensor, 0>(x);
    auto const part = nn::on_one_rank<Tensor>(x);
    auto const y    = nn::all_gather<Tensor>(nn::dot(a, nn::all_reduce<Tensor, nn::replicated>(part)));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
auto connect() { return Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: this Strategy cannot use this Reduce, which rounds, leaves out or orders what it adds up: LocalSgd and Gossip average variables by it, and under ParameterServerStrategy no gradient passes through it; or which has no halves, of which ShardedStrategy uses one before the update and one after it. RingAllReduce goes with all. See docs/30-compose.md
auto connect() { return Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, TreeAllReduce{}, LocalTransport{}}; }

// expect: compiles
struct Alone : OneDeviceStrategy<Cpu> {
  static constexpr bool reduces_every_step = true;
};
auto connect(Alone const& alone) { return Live{alone, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: a choice of this Strategy is not a static constexpr bool
struct Alone : OneDeviceStrategy<Cpu> {
  bool reduces_every_step = true;
};
auto connect(Alone const& alone) { return Live{alone, RingAllReduce{}, LocalTransport{}}; }

// expect: chorale: the strategy argument is not a Strategy
struct Nothing {};
auto connect() { return Live{Nothing{}, RingAllReduce{}, LocalTransport{}}; }

// expect: compiles
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }
