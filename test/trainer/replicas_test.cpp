// SPDX-License-Identifier: Apache-2.0
//
// What mirrored training promises, against the same program on one replica with the whole batch.
#include "test/support/reference.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace chorale;
using tiny::quietly;

namespace {

auto small(auto optimizer) {
  return nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{});
}

template <class R = DirectAllReduce> auto mirrored(auto model, int replicas, R reduce = {}) {
  return Trainer{model, MirroredStrategy{Cpu::logical(replicas)}, reduce, LocalTransport{}, 7};
}

/// The largest difference of any element of any variable, relative to the largest element of that variable.
template <class A, class B> double difference(A& a, B& b) {
  auto worst      = 0.0;
  auto const left = a.copies()[0].net.variables(), right = b.copies()[0].net.variables();
  for (std::size_t v = 0; v < left.size(); ++v) {
    double apart = 0, largest = 0;
    for (std::size_t i = 0; i < left[v].value.size(); ++i) {
      apart   = std::max(apart, static_cast<double>(std::abs(left[v].value[i] - right[v].value[i])));
      largest = std::max(largest, static_cast<double>(std::abs(right[v].value[i])));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

}  // namespace

TEMPLATE_TEST_CASE("all copies of all variables have the same bits after every step", "[trainer][mirrored]",
                   DirectAllReduce, RingAllReduce, ReduceToOne) {
  auto const replicas = GENERATE(1, 2, 3, 4, 7);
  auto trainer        = mirrored(small(optim::Adam{}), replicas, TestType{});
  auto previous       = trainer.hashes()[0];
  for (std::size_t step = 0; step < 8; ++step) {
    auto const rows = std::size_t{5} + step * 3;  // uneven shares; at 5 rows some are empty
    trainer.fit(tiny::Batches<int>{tiny::batch<int>(rows, 64, 1, step), {rows}}, quietly);
    auto const hashes = trainer.hashes();
    REQUIRE(hashes.size() == static_cast<std::size_t>(replicas));
    for (auto const hash : hashes) CHECK(hash == hashes[0]);
    CHECK(hashes[0] != previous);  // and the step did something
    previous = hashes[0];
  }
}

TEST_CASE("four replicas and one agree on the CNN after 20 steps of SGD, uneven batches included",
          "[trainer][mirrored]") {
  auto const sizes =
      std::vector<std::size_t>{32, 29, 32, 3, 30, 31, 32, 1, 32, 33, 32, 29, 32, 2, 30, 31, 32, 5, 32, 7};
  auto rows = std::size_t{0};
  for (auto const n : sizes) rows += n;
  auto const data  = tiny::Batches<int>{tiny::batch<int>(rows, 784, 1), sizes};
  auto const model = nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F});
  auto four        = mirrored(model, 4);
  auto one         = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, DirectAllReduce{}, LocalTransport{}, 7};
  auto const loss_of_four = four.fit(data, quietly)[0].scores.loss();
  auto const loss_of_one  = one.fit(data, quietly)[0].scores.loss();
  CHECK(difference(four, one) < 1e-5);  // float sums in another order: 20 · 6e-8 and some
  CHECK(loss_of_four == Approx(loss_of_one).epsilon(1e-5));
}

TEST_CASE("dropout, momentum and clipping do not tell replicas apart from one", "[trainer][mirrored]") {
  auto const data  = tiny::Batches<int>{tiny::batch<int>(61, 64, 1), {16, 17, 16, 12}};
  auto const model = small(optim::SGD{.learning_rate = 0.05F, .momentum = 0.9F, .global_clipnorm = 0.1F});
  auto three       = mirrored(model, 3);
  auto one         = mirrored(model, 1);
  three.fit(data, {.epochs = 5, .show = Show::nothing});
  one.fit(data, {.epochs = 5, .show = Show::nothing});
  CHECK(difference(three, one) < 1e-5);
}

TEST_CASE("evaluate counts every row once, whatever the replicas", "[trainer]") {
  auto const data = tiny::Batches<int>{tiny::batch<int>(61, 64, 1), {16, 17, 2, 14, 12}};
  auto one        = mirrored(small(optim::SGD{}), 1);
  auto const want = one.evaluate(data);
  CHECK(want.rows() == 61);
  for (int const replicas : {2, 3, 7}) {
    auto trainer   = mirrored(small(optim::SGD{}), replicas);
    auto const got = trainer.evaluate(data);
    CHECK(got.rows() == 61);
    CHECK(got["accuracy"] == want["accuracy"]);
    CHECK(got.loss() == Approx(want.loss()).epsilon(1e-6));
  }
}

TEST_CASE("predict gives each row once, in the order of the data", "[trainer]") {
  auto const data = tiny::Batches<int>{tiny::batch<int>(61, 64, 1), {16, 17, 2, 14, 12}};
  auto one        = mirrored(small(optim::SGD{}), 1);
  auto const want = one.predict(tiny::Batches<int>{data.rows, {61}});
  REQUIRE(want.rows() == 61);
  for (int const replicas : {1, 3, 7}) {
    auto trainer   = mirrored(small(optim::SGD{}), replicas);
    auto const got = trainer.predict(data);
    REQUIRE(got.rows() == 61);
    for (std::size_t row = 0; row < 61; ++row)
      for (std::size_t c = 0; c < 3; ++c) CHECK(got[row][c] == Approx(want[row][c]).margin(1e-6));
  }
}

TEST_CASE("a loop that reduces all gradients after backward learns the same bits as a Trainer", "[trainer][mirrored]") {
  auto const data  = tiny::Batches<int>{tiny::batch<int>(160, 784, 1), std::vector<std::size_t>(10, 16)};
  auto const model = nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F});
  auto trainer     = mirrored(model, 2);
  trainer.fit(data, quietly);

  auto live   = Live{MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, LocalTransport{}};
  auto copies = live.create(model, 7);
  for (auto& share : live.distribute(data))  // nothing leaves before all_reduce here
    live.run(
        [](auto& replica, auto& copy, Batch& batch) {
          auto [loss, gradients] = replica.value_and_gradient(copy, batch);
          replica.all_reduce(gradients);
          copy.optimizer.apply(copy.net.variables(), gradients);
        },
        copies, share);
  CHECK(copies[0].hash() == trainer.hashes()[0]);
  CHECK(copies[1].hash() == trainer.hashes()[0]);
  CHECK(live.local_replica(0).traffic().early_bytes == 0);
  CHECK(live.local_replica(0).traffic().bytes == 10 * tiny::LeNet::plan.bytes_per_step());
  CHECK(trainer.live().local_replica(0).traffic().bytes == 10 * tiny::LeNet::plan.bytes_per_step());
}
