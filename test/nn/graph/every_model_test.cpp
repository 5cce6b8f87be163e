// SPDX-License-Identifier: Apache-2.0
//
// Each model that people know, on replicas of one process and on workers over sockets and shared memory: what one
// replica with the whole batch learns. A GAN is in rivals_test.
#include "test/support/reference_nets.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test::reference_nets;

namespace every_model_test {

struct Learned {
  std::vector<float> values;          // of the first replica
  std::vector<std::uint64_t> hashes;  // of all replicas here
  double loss = 0;                    // of the last batch, a mean
};

/// Learns from 3 batches of 16 rows and one of 2, for which 3 replicas have an empty share, twice.
template <class Model, class S, class R, class T>
Learned learned(Model const& model, S strategy, R reduce, T transport) {
  auto live   = Live{std::move(strategy), std::move(reduce), with_plan(std::move(transport), model.plan)};
  auto copies = live.create(model, 3);
  auto got    = Learned{};
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : live.distribute(batches(50), epoch)) {
      auto const sum = live.reduce(live.run(
          [&](auto& replica, auto& copy, auto const& share) {
            auto [loss, gradients] = replica.value_and_gradient(copy, share);
            live.update(replica, copy, gradients);
            return loss;
          },
          copies, batch));
      got.loss       = sum.mean();
    }
  for (auto const& copy : copies) got.hashes.push_back(copy.hash());
  auto const variables = copies[0].net.variables();
  for (std::size_t i = 0; i < variables.size(); ++i)
    got.values.insert(got.values.end(), variables[i].value.begin(), variables[i].value.end());
  return got;
}

template <class Net> auto by_momentum() { return model_of<Net>(optim::SGD{.learning_rate = 0.05F, .momentum = 0.9F}); }

/// Compares with one replica, under the strategies whose replicas make each step together.
template <class Net> void check_close(std::string const& name) {
  auto const model = by_momentum<Net>();
  auto const one   = learned(model, MirroredStrategy{Cpu::logical(1)}, RingAllReduce{}, LocalTransport{});
  auto const check = [&](std::string const& how, int replicas, Learned const& got) {
    CAPTURE(name, how, replicas);
    REQUIRE(got.values.size() == one.values.size());
    auto apart = 0.0;
    for (std::size_t i = 0; i < got.values.size(); ++i)
      apart = std::max(apart, std::abs(static_cast<double>(got.values[i]) - static_cast<double>(one.values[i])));
    CHECK(apart < 1e-5);
    CHECK(std::abs(got.loss - one.loss) < 1e-5);
    CHECK(std::ranges::count(got.hashes, got.hashes[0]) == replicas);
  };
  for (int const n : {2, 3}) {
    check("mirrored", n, learned(model, MirroredStrategy{Cpu::logical(n)}, RingAllReduce{}, LocalTransport{}));
    auto const workers = MultiWorkerMirroredStrategy{Cluster::local(n)};
    check("workers over sockets", n, learned(model, workers, RingAllReduce{}, TcpTransport{}));
    check("workers over shared memory", n, learned(model, workers, RingAllReduce{}, SharedMemoryTransport{}));
  }
  auto const first = model.instantiate(Cpu::logical(1)[0], 3);
  CHECK(first.hash() != one.hashes[0]);  // it does learn
}

/// Compares with one replica, bit by bit.
template <class Net> void check_equal(std::string const& name) {
  auto const model = model_of<Net>(optim::Adam{.learning_rate = 1e-2F});
  auto const one   = learned(model, MirroredStrategy{Cpu::logical(1)}, Reproducible{}, LocalTransport{});
  auto const check = [&](std::string const& how, int replicas, Learned const& got) {
    CAPTURE(name, how, replicas);
    CHECK(got.hashes == std::vector(static_cast<std::size_t>(replicas), one.hashes[0]));
  };
  for (int const n : {2, 3})
    check("mirrored", n, learned(model, MirroredStrategy{Cpu::logical(n)}, Reproducible{}, LocalTransport{}));
  auto const of_workers = [](int n) { return MultiWorkerMirroredStrategy{Cluster::local(n)}; };
  check("workers over sockets", 2, learned(model, of_workers(2), Reproducible{}, TcpTransport{}));
  check("workers over sockets", 3, learned(model, of_workers(3), Reproducible{}, TcpTransport{}));
}

}  // namespace every_model_test

using namespace every_model_test;

TEST_CASE("networks of pictures learn what one replica learns, under each strategy", "[nn][graph][strategy]") {
  check_close<LeNet>("LeNet");
  check_close<Residual<nn::SyncBatchNorm>>("residual");
}

TEST_CASE("networks of texts and tables learn what one replica learns, under each strategy", "[nn][graph][strategy]") {
  check_close<CharacterGpt>("character GPT");
  check_close<Encoder>("encoder");
  check_close<Tickets>("tickets");
  check_close<Dlrm>("DLRM");
}

TEST_CASE("under Reproducible each network has the bits of one replica", "[nn][graph][reproducible]") {
  check_equal<LeNet>("LeNet");
  check_equal<Residual<nn::BatchNorm>>("residual");
  check_equal<CharacterGpt>("character GPT");
  check_equal<Encoder>("encoder");
  check_equal<Tickets>("tickets");
  check_equal<Dlrm>("DLRM");
}
