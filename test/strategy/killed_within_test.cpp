// SPDX-License-Identifier: Apache-2.0
//
// What the others say of a rank that is killed in a step, where messages of the step are no operations of all ranks.
#include "test/support/processes.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <csignal>
#include <string>
#include <type_traits>
#include <vector>

namespace killed_within_test {

using namespace chorale;
using namespace chorale::test;

namespace {

struct Users : Field<int, 3> {};
struct Numbers : Field<float, 4> {};
struct Score : Field<float, 2> {};

struct OfTables : nn::Graph<Users> {
  nn::ShardedEmbeddingBag<Axis<"data", 2>, 11, 6> users;
  nn::Dense<2> score;
  constexpr auto operator()(auto user) const { return nn::outputs<Score>(score(users(user))); }
};
struct InStages : nn::Graph<Numbers> {
  nn::Dense<8> first{"first"};
  nn::Dense<2> second{"second"};
  constexpr auto operator()(auto x) const { return nn::outputs<Score>(second(nn::Tanh{}(first(x)))); }
};

template <class Input> auto rows() {
  using Value  = std::conditional_t<std::is_same_v<Input, Users>, int, float>;
  auto const n = std::size_t{64};
  auto x       = std::vector<Value>(n * (std::is_same_v<Input, Users> ? 3 : 4));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Value>(i % 11);
  return data::from_fields<Input, Score>(x, std::vector<float>(2 * n, 0.5F)).batch(8);
}

/// Kills rank 1 after its step 2.
struct Dies {
  int me;
  void on_step_end(auto&, StepEnd const& end) {
    if (me == 1 && end.step == 2) std::raise(SIGKILL);
  }
};

/// Two processes, of which one is killed: what the other one says.
template <class T, class Net, class Input, class Strategy> std::string said_of_killed(Strategy strategy) {
  auto const addresses = free_loopback_addresses(2);
  auto processes =
      Processes{2,
                [&](int me, Voice) {
                  auto transport = T{};
                  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
                  auto const cluster =
                      Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "kill-" + addresses[0]});
                  auto trainer = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.01F}),
                                         strategy(cluster), RingAllReduce{}, transport, 7};
                  trainer.fit(rows<Input>(), {.show = Show::nothing}, Dies{me});
                },
                60};
  CHECK(processes.exit(1) == 128 + SIGKILL);
  auto said = processes.line(0);
  CHECK(processes.exit(0) == 138);
  return said;
}

}  // namespace

TEMPLATE_TEST_CASE("of a rank that is killed between steps, others name the message, its axis and the step",
                   "[strategy][told][processes]", SharedMemoryTransport, TcpTransport) {
  auto const of_table = said_of_killed<TestType, OfTables, Users>(
      [](Cluster const& cluster) { return MeshStrategy{Mesh<Axis<"data", 2>>{cluster}}; });
  CHECK_THAT(of_table, Catch::Contains("lost rank 1") && Catch::Contains("in step ") &&
                           Catch::Contains("a message of 4 bytes along the axis \"data\": "));
  auto const of_stage = said_of_killed<TestType, InStages, Numbers>([](Cluster const& cluster) {
    return MeshStrategy{Mesh<Axis<"stage", 2>>{cluster}, pipelined<OneForwardOneBackward<4>>()};
  });
  CHECK_THAT(of_stage, Catch::Contains("lost rank 1") && Catch::Contains("in step ") &&
                           Catch::Contains(" bytes along the axis \"stage\", from stage "));
  CHECK_THAT(of_stage, Catch::Contains("from stage 1 to stage 0: ") ||  // whichever it waits for
                           Catch::Contains("from stage 0 to stage 1: "));
}

}  // namespace killed_within_test
