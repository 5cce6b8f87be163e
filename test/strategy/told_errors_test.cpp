// SPDX-License-Identifier: Apache-2.0
//
// What is wrong in one process ends all of them with one error, where ranks are processes.
#include "test/support/folder.hpp"
#include "test/support/full_disk.hpp"
#include "test/support/processes.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <limits>
#include <string>
#include <vector>

namespace told_errors_test {

using namespace chorale;
using namespace chorale::test;

namespace {

struct Users : Field<int, 3> {};
struct Score : Field<float, 2> {};

using Data = Axis<"data", 2>;

struct Net : nn::Graph<Users> {
  nn::ShardedEmbeddingBag<Data, 11, 6> users;
  nn::Dense<2> score;
  constexpr auto operator()(auto user) const { return nn::outputs<Score>(score(users(user))); }
};

auto rows(float last_of_second = 1) {
  auto const n = std::size_t{32};
  auto users   = std::vector<int>(3 * n);
  auto scores  = std::vector<float>(2 * n, 0.5F);
  for (std::size_t i = 0; i < users.size(); ++i) users[i] = static_cast<int>(i * 5 % 11);
  scores[2 * 15 + 1] = last_of_second;  // of the second batch, a row of rank 1
  return data::from_fields<Users, Score>(users, scores).batch(8);
}

struct Throws {
  int me;
  void on_epoch_end(auto&, int, auto const&) {
    if (me == 1) throw std::runtime_error{"the moon is full"};
  }
};

/// Two processes: body(trainer of this rank, rank). Both end with that code, and a line that has the words.
template <class T, class Body>
void check_both(int code, std::string const& words, Body body, std::size_t budget_of_1 = 0) {
  auto const addresses = free_loopback_addresses(2);
  auto processes =
      Processes{2,
                [&](int me, Voice) {
                  auto const cluster =
                      Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "told-" + addresses[0]});
                  auto transport = T{};
                  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
                  auto trainer = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F}),
                                         MeshStrategy{Mesh<Data>{cluster}},
                                         RingAllReduce{},
                                         transport,
                                         7,
                                         MemoryBudget{.bytes = me == 1 ? budget_of_1 : 0, .rows = 4}};
                  body(trainer, me);
                },
                60};
  for (int rank = 0; rank < 2; ++rank) {
    auto line = std::string{}, last = line;
    while (!(line = processes.line(rank)).empty()) last = line;
    CHECK_THAT(last, Catch::Contains(words));
    CHECK(processes.exit(rank) == code);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a NaN on one rank of a dealt table is a NumericFault on all", "[strategy][told][processes]",
                   SharedMemoryTransport, TcpTransport) {
  check_both<TestType>(4, "is nan over 8 rows", [](auto& trainer, int) {
    trainer.fit(rows(std::numeric_limits<float>::quiet_NaN()), {.show = Show::nothing});
  });
}

TEMPLATE_TEST_CASE("a disk that is full for the chief ends all with that error", "[strategy][told][processes]",
                   SharedMemoryTransport, TcpTransport) {
  auto const folder = Folder{};
  check_both<TestType>(5, "not saved: variables.safetensors", [&](auto& trainer, int me) {
    auto const full = FullDisk{me == 0 ? 64U : 1U << 30};
    trainer.fit(rows(),
                {.epochs      = 3,
                 .show        = Show::nothing,
                 .checkpoints = {.folder = me == 0 ? folder / "run" : "/nowhere", .on_save_error = OnSaveError::stop}});
  });
}

TEMPLATE_TEST_CASE("a budget that is too small on one rank ends all with that error", "[strategy][told][processes]",
                   SharedMemoryTransport, TcpTransport) {
  SECTION("of a trainer") {
    check_both<TestType>(2, "budget", [](auto& trainer, int) { trainer.fit(rows(), {.show = Show::nothing}); }, 16);
  }
  SECTION("of a fit") {
    check_both<TestType>(2, "budget", [](auto& trainer, int me) {
      trainer.fit(rows(), {.show = Show::nothing, .memory_budget = me == 1 ? 16U : 1U << 30});
    });
  }
}

TEST_CASE("what a callback of one process throws is the reason of the other's loss", "[strategy][told][processes]") {
  auto const at  = free_loopback_addresses(2);
  auto processes = Processes{
      2,
      [&](int me, Voice) {
        auto const cluster = Cluster::at({.workers = at, .me = {Role::worker, me}, .job = "told-" + at[0]});
        auto trainer       = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F}),
                               MeshStrategy{Mesh<Data>{cluster}}, RingAllReduce{}, SharedMemoryTransport{}, 7};
        trainer.fit(rows(), {.epochs = 3, .show = Show::nothing}, Throws{me});
      },
      60};
  CHECK_THAT(processes.line(0), Catch::Contains("rank 0 lost rank 1") && Catch::Contains("the moon is full"));
  CHECK(processes.exit(0) == 138);
}

TEST_CASE("what callbacks of all processes throw leaves the job as it was", "[strategy][told][processes]") {
  auto const at  = free_loopback_addresses(2);
  auto processes = Processes{
      2,
      [&](int me, Voice const& voice) {
        auto const cluster = Cluster::at({.workers = at, .me = {Role::worker, me}, .job = "told-" + at[0]});
        auto trainer       = Trainer{nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F}),
                               MeshStrategy{Mesh<Data>{cluster}}, RingAllReduce{}, SharedMemoryTransport{}, 7};
        try {
          trainer.fit(rows(), {.epochs = 3, .show = Show::nothing}, Throws{1});
        } catch (std::runtime_error const& error) { voice.say(error.what()); }
        trainer.fit(rows(), {.show = Show::nothing});
        voice.say("trained on");
      },
      60};
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(processes.line(rank) == "the moon is full");
    CHECK(processes.line(rank) == "trained on");
    CHECK(processes.exit(rank) == 0);
  }
}

}  // namespace told_errors_test
