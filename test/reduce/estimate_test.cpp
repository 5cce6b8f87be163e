// SPDX-License-Identifier: Apache-2.0
//
// Costs as constants, the memory beside x, and advice for machines that are unequal or fail.
#include <chorale/advice/advise.hpp>
#include <chorale/advice/estimate.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/to_one.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;

// The model is a constant: a program may choose an algorithm, or refuse a plan, while it is compiled.
static_assert(estimated_choice(64, 1'000) == ReduceKind::recursive_doubling);
static_assert(estimated_choice(64, 100'000'000) == ReduceKind::halving_doubling);
static_assert(estimated_choice(2, 64) == ReduceKind::recursive_doubling);
static_assert(estimated_seconds(ReduceKind::ring, 1, 1'000'000) == 0);
static_assert(estimated_seconds(ReduceKind::ring, 8, 1'000'000) < estimated_seconds(ReduceKind::ring, 8, 2'000'000));
static_assert(scratch_of<RingAllReduce>(4, 1 << 20) > 0 && scratch_of<RingAllGather>(4, 1 << 20) == 0);

TEST_CASE("the constant estimate chooses nearly what the prediction chooses", "[reduce][estimate]") {
  auto const network = NetworkModel{};
  auto good = 0, all = 0;
  for (int const ranks : {2, 3, 4, 8, 16, 32})
    for (std::size_t const bytes : {1'000U, 30'000U, 300'000U, 3'000'000U, 30'000'000U}) {
      auto least = VirtualTime::max();
      for (auto const one : all_advised)
        if (one != ReduceKind::hierarchical) least = std::min(least, predicted_time(one, ranks, bytes, network));
      auto const chosen = predicted_time(estimated_choice(ranks, bytes), ranks, bytes, network);
      good += seconds(chosen) <= 1.25 * seconds(least) ? 1 : 0;
      ++all;
    }
  std::printf("the estimate's choice is within a quarter of the best in %d of %d cases\n", good, all);
  CHECK(good * 10 >= all * 9);
}

TEST_CASE("an estimate of a hierarchical all-reduce is refused, and not one of another", "[reduce][estimate]") {
  CHECK_THROWS_WITH(estimated_seconds(ReduceKind::hierarchical, 8, 1'000),
                    Catch::Contains("depends on how many ranks a host has"));
}

TEST_CASE("the memory beside x is four messages of the schedule", "[reduce][estimate]") {
  constexpr auto x = std::size_t{1} << 20;
  for (int const ranks : {2, 3, 4, 8}) {
    auto const n     = static_cast<std::size_t>(ranks);
    auto const about = [&](std::size_t scratch, std::size_t message) {  // of which one is at most some 256 KiB
      auto const lanes = (message + largest_message - 1) / largest_message;
      CHECK(scratch >= messages_kept * (message / lanes));
      CHECK(scratch <= messages_kept * (message / lanes + 64 * sizeof(float)));
    };
    about(scratch_of<RingAllReduce>(ranks, x), x / n);
    about(scratch_of<PairwiseAllReduce>(ranks, x), x / n);
    about(scratch_of<ReduceToOne>(ranks, x), x);
    about(scratch_of<RecursiveDoublingAllReduce>(ranks, x), x);
    about(scratch_of<DoubleTreeAllReduce>(ranks, x), x / 2);
  }
  CHECK(scratch_of<RingAllReduce>(1, x) == 0);
}

TEST_CASE("advice knows machines that are unequal, that fail, and asynchronous training", "[reduce][advise]") {
  auto const network = NetworkModel{};
  auto const work    = Workload{10'000'000, 100ms};
  auto const equal   = advise(work, 16, network, Machines{}, 4);
  CHECK(equal.strategy == AdvisedStrategy::multi_worker_mirrored);
  CHECK(equal.speedup == Approx(advise(work, 16, network).speedup).epsilon(1e-6));

  auto speeds       = std::vector<double>(16, 1.0);
  speeds[3]         = 1.0 / 3;
  auto const uneven = advise(work, 16, network, Machines{.speeds = speeds}, 4);
  CHECK(uneven.strategy == AdvisedStrategy::multi_worker_mirrored);
  CHECK(uneven.speedup == Approx(15 + 1.0 / 3).epsilon(0.05));
  CHECK_THAT(uneven.reason,
             Catch::Contains("rows dealt out by speed") && Catch::Contains("even shares would reach 5."));

  auto const failing = Machines{.failures_per_hour = 1, .restart = 300s, .checkpoint_every = 600s};
  auto const async   = advise(work, 64, network, failing, 4);
  CHECK(async.strategy == AdvisedStrategy::asynchronous_servers);  // all-reduce computes 9 % of the time
  CHECK_THAT(async.reason, Catch::Contains("a failure stops one of them, not all"));
  CHECK(seconds(async.step) < 1.5 * seconds(work.compute));  // while nothing fails
  auto const without = advise(work, 64, network, failing);
  CHECK(without.speedup < async.speedup);
  CHECK(without.speedup == Approx(advise(work, 64, network).speedup / (1 + 64 * 600.0 / 3600)).epsilon(0.01));
  CHECK(advise(work, 4, network, Machines{.speeds = {9, 0.1, 0.1, 0.1}, .failures_per_hour = 2, .restart = 600s})
            .strategy == AdvisedStrategy::one_device);
  CHECK_THROWS_WITH(advise(work, 3, network, Machines{.speeds = {1, 1}}), Catch::Contains("2 speeds for 3 ranks"));
}

TEST_CASE("a few dozen for dense models, a few hundred for sparse ones: with servers, not with all-reduce",
          "[reduce][advise]") {
  auto const network = NetworkModel{.fold_bytes_per_second = 5e9, .far = {.latency = 50us, .bytes_per_second = 1.25e9}};
  constexpr int servers = 16;
  auto const limit      = [&](Workload const& work) {  // twice as many are less than 1.5 times as fast
    auto const rate = [&](int workers) {
      return workers / seconds(work.compute + predicted_servers_time(workers, servers, work.bytes, network));
    };
    auto workers = 1;
    while (rate(2 * workers) >= 1.5 * rate(workers)) workers *= 2;
    return workers;
  };
  auto const dense = Workload{95'000'000, 330ms}, sparse = Workload{1'000'000, 20ms};
  std::printf("limits with %d servers: dense %d, sparse %d workers\n", servers, limit(dense), limit(sparse));
  CHECK(limit(dense) >= 16);
  CHECK(limit(dense) <= 64);
  CHECK(limit(sparse) >= 128);
  CHECK(limit(sparse) <= 512);
  auto const ring = [&](int ranks) { return advise(dense, ranks, network).speedup; };
  CHECK(ring(256) > 1.5 * ring(128));  // no such limit: refuted for all-reduce
}
