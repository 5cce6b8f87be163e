// SPDX-License-Identifier: Apache-2.0
//
// Blocks of the pages in docs/ that are lines of a longer program: code_blocks_test compiles this file, and compares the
// blocks with it.
#include <chorale/advice.hpp>
#include <chorale/advice/advise_forms.hpp>
#include <chorale/advice/training_form.hpp>
#include <chorale/chorale.hpp>
#include <chorale/cluster/from_env.hpp>
#include <chorale/parallel.hpp>
#include <chorale/pjrt/tpu.hpp>
#include <chorale/solver.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

#include <chrono>
#include <iostream>
#include <utility>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
auto const train = data::digits(200, 1).map(data::scale).batch(64);
auto const test  = data::digits(50, 2).map(data::scale).batch(64);

namespace several_processes {  // README.md

auto strategy = MultiWorkerMirroredStrategy{Cluster::from_env()};  // TF_CONFIG, torchrun, mpirun, srun
auto trainer  = Trainer{model, strategy, RingAllReduce{}, TcpTransport{}};

}  // namespace several_processes

void interrupted(auto& trainer) {  // docs/38-checkpoints.md
  auto const end = EndOnSignal{};  // SIGTERM: save, and end in good order
  trainer.fit(train, {.epochs = 12, .checkpoints = {.folder = "run/mnist"}, .asked_to_end = end.asked()});
}

void one_configuration(auto& trainer) {  // docs/48-observe.md
  auto const run =
      RunConfig{.folder = "run/first", .epochs = 12, .save_checkpoints_steps = 1000, .save_summary_steps = 100};
  trainer.fit(train, run.options(), validate_on(test), run.records());  // started again, it goes on
}

namespace shards {  // docs/42-strategies.md

auto here  = ShardedStrategy<Zero::one>{Cpu::split(4)};          // instead of MirroredStrategy{Cpu::split(4)}
auto many  = ShardedStrategy<Zero::one>{Cluster::from_env()};    // instead of MultiWorkerMirroredStrategy{..}
auto whole = ShardedStrategy<Zero::three>{Cluster::from_env()};  // the gradients and the variables in shards, too

auto nodes   = HybridStrategy<Zero::three, 8>{Cluster::from_env()};                 // nodes of 8 workers
auto devices = HybridStrategy<Zero::three, 4>{Cluster::from_env(), Cpu::split(4)};  // workers of 4 devices are nodes

}  // namespace shards

void memory(auto const& device, Rank rank) {
  constexpr auto memory = memory_plan<Net, ShardedStrategy<Zero::one>, optim::Adam>(4, 32);  // 4 ranks of 32 rows
  static_assert(
      within_memory<8'000'000'000, 4, 32, Net, MirroredStrategy<>, optim::Adam>());  // one sentence, or nothing
  auto exact =
      memory_plan<MirroredStrategy<>>(model, RingAllReduce{}, device, 32, {rank, 4});  // also kernels' workspaces
  static_cast<void>(memory.peak() + exact.peak());
}

void budget(auto const& strategy) {
  auto trainer =
      Trainer{model, strategy, RingAllReduce{}, TcpTransport{}, Seed{}, MemoryBudget{.bytes = 64 << 20, .rows = 1024}};
  trainer.fit(train, {.memory_budget = 64 << 20});
  trainer.fit(train, {.task_memory_budget = 256 << 20});  // of all replicas of this process, where tasks share a host
}

void mesh() {
  using Tensor = Axis<"tensor", 2>;                             // a name, and how many ranks it has
  auto mesh    = Mesh<Axis<"data", 2>, Tensor>{Cpu::split(4)};  // or {Cluster::from_env()}: 4 workers
  auto trainer = Trainer{model, MeshStrategy{mesh}, RingAllReduce{}, LocalTransport{}};
  std::cout << mesh;
}

void another_strategy(auto const& data) {
  auto small = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  small.fit(data, {.epochs = 1});
  auto large = retarget(std::move(small), ShardedStrategy<Zero::one>{Cpu::split(4)}, RingAllReduce{}, LocalTransport{});
  large.fit(data, {.epochs = 3, .initial_epoch = 1});
}

auto pushed_as(Cluster const& cluster) {
  return ParameterServerStrategy{
      cluster, Asynchronous{}, placement::GreedyByBytes{}, Cpu::split(2), {.pushed_as = PushedAs::bf16}};
}

void related_variables(auto& replica, auto& copy, auto& here, Cluster const& cluster) {
  auto const move = ServerUpdate{"move", [](ServerValues values, float by) {
                                   for (auto& x : values[0]) x += by;
                                   for (auto& x : values[1]) x -= by;
                                   return values[0][0];  // a result, for who called it
                                 }};
  auto strategy   = ParameterServerStrategy{cluster}.with_updates(move);   // in every process
  replica.update_on_server(copy.net.variables(), move, {"a", "b"}, 0.5F);  // in a step of a worker
  here.update_on_server(move, {"a", "b"}, 0.5F);                           // in a closure, or its coordinator
}

namespace normalized {

struct Net : nn::Sequential<nn::Input<32, 32, 3>, nn::Conv2D<16, 3>, nn::SyncBatchNorm<>, nn::ReLU, nn::Flatten,
                            nn::Dense<10>> {};
using AsTorch = nn::BatchNorm<nn::Momentum<0.9>, nn::Epsilon<1e-5>>;  // or <90>, <10>: percent, millionths

static_assert(Net::plan.parameters > 0);

struct Other : nn::Sequential<nn::Input<4>, AsTorch, nn::Dense<10>> {};
static_assert(Other::plan.parameters == 8 + 50);

}  // namespace normalized

namespace stages {  // docs/43-pipelines.md

struct Words : Field<float, 8> {};
struct Next : Field<int, 1> {};

auto pipeline() {
  auto mesh     = Mesh<Axis<"data", 2>, Axis<"stage", 4>>{Cluster::from_env()};
  auto strategy = MeshStrategy{mesh, pipelined<OneForwardOneBackward<8>>()};
  return strategy;
}

struct Cut : nn::Graph<Words> {
  nn::Dense<8> encoder;
  nn::Dense<10> decoder;

  constexpr auto operator()(auto words) const {
    auto const x = nn::stage_ends_after(encoder(words));
    return nn::outputs<Next>(decoder(x));
  }
};
static_assert(nn::plan_of<Cut>.parameters == 72 + 90);

using pipelines::Work;

constexpr pipelines::Entries in_turn(int stages) {  // one micro-batch in the pipeline at a time
  auto all = pipelines::Entries{};
  for (int s = 0; s < stages; ++s)
    for (int k = 0; k < 4; ++k)
      all.push_back({2 * k, s, Work::forward, k}), all.push_back({2 * k + 1, s, Work::backward, k});
  return all;
}
static_assert(pipelines::Timetable<pipelines::Table<in_turn, 4>, 3>::idle() == 24);

}  // namespace stages

void buckets(auto const& strategy) {  // docs/50-reduce.md
  auto trainer = Trainer{model, strategy, Bucketed<RingAllReduce, BucketBytes<25 << 20>>{}, TcpTransport{}};
  trainer.fit(train);
}

void averages(auto& trainer) {  // docs/60-write-your-own.md
  auto const scores = with_averages(trainer, [&] { return trainer.evaluate(test); });
  with_averages(trainer, [&] { trainer.save("averaged.safetensors"); });
}

template <class Reduce, class E> using OwnReplica = Replica<Reduce, E>;

struct OwnStrategy : MirroredStrategy<> {
  using MirroredStrategy<>::MirroredStrategy;

  template <class R, class E> using replica_type = OwnReplica<R, E>;  // R: the Reduce; E: the transport's endpoint
};

void every_use() {
  auto const device = Cpu{};
  memory(device, 0);
  budget(MirroredStrategy{Cpu::split(2)});
  another_strategy(train);
  buckets(OwnStrategy{Cpu::split(2)});
  auto averaging = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Averaged{optim::SGD{}, 0.9F}),
                           OneDeviceStrategy{Cpu{}}};
  averages(averaging);
  interrupted(averaging);
}

void advice() {  // docs/75-simulation.md
  auto const sizes = ModelSizes{.variables     = 1'000'000'000,
                                .slots         = 2,
                                .activations   = 2'000'000'000,
                                .blocks        = 10,
                                .boundary      = 10'000'000,
                                .compute       = 100ms,
                                .micro_batches = 16};
  std::cout << advise(sizes, {.ranks = 4, .memory = 5'000'000'000}).text();
}

void on_tpus() {  // docs/46-tpu.md
  auto const devices = Pjrt::open(pjrt::Plugin::path_from_environment(), {.devices = 8});
  auto trainer       = Trainer{model, TPUStrategy<8>{devices}};
  auto in_shards     = Trainer{model, TPUStrategy<8, Zero::one>{devices}};  // each core has an eighth of the slots
  auto one_core      = Trainer{model, OneDeviceStrategy{devices.first(1)}};
  auto workers = Trainer{model, MultiWorkerMirroredStrategy{Cluster::from_env(), std::vector{devices}}, RingAllReduce{},
                         TcpTransport{}};  // the cores of each, TCP between them
}
