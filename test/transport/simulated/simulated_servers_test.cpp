// SPDX-License-Identifier: Apache-2.0
// What the parameter server computes on virtual ranks, and who is missed there.
#include "test/transport/simulated/simulated_servers.hpp"

#include <chorale/optim/adam.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto large = Job{16, 2, 6, 20'011};

float rows_of(int worker, int step) { return static_cast<float>(3 + (worker + step) % 4); }

void fill_gradient(Flat& flat, int worker, int step) {
  auto const random = Random{11, static_cast<std::uint64_t>(worker) << 32 | static_cast<std::uint64_t>(step)};
  auto const body   = body_of(flat);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = rows_of(worker, step) * random.uniform(i, -1.0F, 1.0F);
  StepHeader{flat}.rows() = rows_of(worker, step);
}

Flat initial_values() {
  auto flat = large.flat();
  for (std::size_t i = 0; i < large.n(); ++i) body_of(flat)[i] = Random{3, 0}.uniform(i, -1.0F, 1.0F);
  return flat;
}

template <class C> Outcome train(C when) {
  auto gradients = std::vector<Flat>(16, large.flat());
  return serve_job(
      large, when, optim::Adam{}, initial_values(), {.model = {.noise = 0.3, .seed = 5}},
      [&](auto& at, auto& client, Flat& values, int step) {
        auto& mine = gradients[static_cast<std::size_t>(at.rank())];
        at.work(Random{7, static_cast<std::uint64_t>(at.rank())}.below(static_cast<std::uint64_t>(step), 4) * 2ms +
                5ms);
        fill_gradient(mine, at.rank(), step);
        client.push_and_pull({mine, {}, {}}, {values, {}}, 0);
      });
}

/// What workers [first, first + n) bring, added up along a binary tree; n is a power of two.
Flat sum_of(int first, int n, int step) {
  if (n == 1) {
    auto one = large.flat();
    fill_gradient(one, first, step);
    return one;
  }
  auto left        = sum_of(first, n / 2, step);
  auto const right = sum_of(first + n / 2, n / 2, step);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

/// One replica with the batch of all workers.
Flat whole_batch() {
  auto values = initial_values(), slots = Flat(large.n() * optim::Adam::slots);
  auto now = optim::Moment{};
  for (; now.step < static_cast<std::int64_t>(large.steps); ++now.step) {
    auto sum = sum_of(0, large.workers, static_cast<int>(now.step));
    optim::Adam{}.update<Cpu>(optim::Update{body_of(values), body_of(sum), slots, 1.0F / StepHeader{sum}.rows(), now});
  }
  return values;
}

}  // namespace

TEST_CASE("on 16 virtual workers and 2 servers, Synchronous is one replica with the whole batch, bit for bit",
          "[transport][simulated][ps]") {
  auto outcome  = train(Synchronous{});
  auto expected = whole_batch();
  outcome.run.check();
  CHECK(same_bits(body_of(outcome.values), body_of(expected)));
  for (auto& pulled : outcome.pulled) CHECK(same_bits(body_of(pulled), body_of(expected)));
  for (auto const& ledger : outcome.ledgers) {
    CHECK(ledger->updates == 6);
    CHECK(ledger->applied == 96);
    CHECK(ledger->pushes() == 96);
    CHECK(ledger->staleness[0] == 96);
  }
  CHECK(train(Synchronous{}).run.trace == outcome.run.trace);
}

TEST_CASE("each consistency has every push once in its ledger, and its own staleness and time",
          "[transport][simulated][ps]") {
  auto const synchronous = train(Synchronous{}).run.time;
  auto const stale       = train(BoundedStaleness<2>{});
  auto const backup      = train(BackupWorkers<2>{});
  auto const free        = train(Asynchronous{});
  for (std::size_t server : {0U, 1U}) {
    auto const& bounded = *stale.ledgers[server];
    CHECK((bounded.applied == 96 && bounded.pushes() == 96 && bounded.updates == 6));
    CHECK(bounded.staleness[0] + bounded.staleness[1] + bounded.staleness[2] == 96);
    CHECK(bounded.staleness[0] < 96);
    auto const& spared = *backup.ledgers[server];
    CHECK(spared.pushes() == 96);
    CHECK(spared.applied + spared.late == 96);
    CHECK(spared.late > 0);
    auto const& loose = *free.ledgers[server];
    CHECK((loose.applied == 96 && loose.pushes() == 96 && loose.updates == 96));
    CHECK(loose.staleness[0] + loose.staleness[1] < 20);  // 15 others push meanwhile
  }
  for (auto const* outcome : {&stale, &backup, &free}) outcome->run.check();
  CHECK(free.run.time < synchronous);
  CHECK(backup.run.time < synchronous);
  CHECK(stale.run.time < synchronous);
}

TEST_CASE("a worker that is killed is only missed, and a server that is killed is named with its shard",
          "[transport][simulated][ps]") {
  auto const job              = Job{3, 2, 4, 12};
  auto gradient               = job.flat();
  StepHeader{gradient}.rows() = 1;
  auto const with_kill_of     = [&](Rank rank) {
    return serve_job(
        job, Synchronous{}, optim::SGD{}, job.flat(), {.faults = {.scheduled = {{SimulatedFault::kill, rank, 5}}}},
        [&](auto&, auto& client, Flat& values, int) { client.push_and_pull({gradient, {}, {}}, {values, {}}, 0); });
  };
  auto const without_worker = with_kill_of(1);
  for (Rank rank : {0, 2, 3, 4}) CHECK(without_worker.run.ranks[static_cast<std::size_t>(rank)].message == "");
  for (auto const& ledger : without_worker.ledgers) CHECK((ledger->lost == 1 && ledger->updates == 4));
  auto const without_server = with_kill_of(4);
  for (std::size_t rank : {0U, 1U, 2U}) {
    CHECK(without_server.run.ranks[rank].lost == 4);
    CHECK_THAT(without_server.run.ranks[rank].message, Catch::Contains("server 1 of 2 (rank 4) is gone; it held 48 of "
                                                                       "96 bytes"));
  }
  CHECK(without_server.run.ranks[3].message == "");
}
