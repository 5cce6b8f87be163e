// SPDX-License-Identifier: Apache-2.0
// What a parameter server computes, over threads: the reference is one replica with the whole batch.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/optim/lion.hpp>
#include <chorale/optim/nadam.hpp>
#include <chorale/optim/rmsprop.hpp>

#include <catch2/catch.hpp>

#include <atomic>

namespace parameter_server_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t n = 70'001;  // some runs travel alone, some together
constexpr int steps     = 20;

/// Rows of a worker's share: not the same for all.
float rows_of(int worker, int step) { return static_cast<float>(3 + (worker + step) % 4); }

template <class C, class O> ParameterResult train(int workers, int servers, C consistency, O const& rule) {
  auto const initial = initial_values(n);
  return run_parameters(LocalTransport{}, shards_of(workers, servers, n), consistency, rule, initial,
                        [&](auto& client, int worker) {
                          auto values = initial, gradients = std::vector<float>(flat_size(n));
                          for (int step = 0; step < steps; ++step) {
                            fill_gradient(gradients, worker, step, rows_of(worker, step));
                            client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                          }
                        });
}

/// One replica with the batch of all workers.
template <class O> std::vector<float> whole_batch(int workers, O const& rule) {
  auto values = initial_values(n), sum = std::vector<float>(flat_size(n)), one = sum;
  auto slots      = std::vector<float>(n * static_cast<std::size_t>(O::slots));
  auto now        = optim::Moment{};
  auto const body = [](std::vector<float>& flat) { return Span<float>{flat}.subspan(plan::header, n); };
  for (int step = 0; step < steps; ++step, ++now.step) {
    std::ranges::fill(sum, 0.0F);
    for (int worker = 0; worker < workers; ++worker) {
      fill_gradient(one, worker, step, rows_of(worker, step));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    rule.template update<Cpu>(optim::Update{body(values), body(sum), slots, 1.0F / StepHeader{sum}.rows(), now});
  }
  return values;
}

template <class O> void check_against_whole_batch(O const& rule) {
  auto const workers  = GENERATE(1, 2, 3);
  auto const expected = whole_batch(workers, rule);
  auto const one = train(workers, 1, Synchronous{}, rule), two = train(workers, 2, Synchronous{}, rule);
  CHECK(all_errors(one) == "");
  CHECK(all_errors(two) == "");
  CHECK(same_bits(one.values, two.values));
  auto worst = 0.0F;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(one.values[i] - expected[i]) / std::max(1e-3F, std::abs(expected[i])));
  CHECK(worst <= 1e-5F);
  for (auto const& ledger : two.ledgers) {
    CHECK(ledger.applied == static_cast<std::uint64_t>(workers * steps));
    CHECK(ledger.updates == static_cast<std::uint64_t>(steps));
    CHECK(ledger.pushes() == ledger.applied);
    CHECK(ledger.staleness[0] == ledger.applied);
  }
}

/// A user's own rule, which knows nothing of servers.
struct SignDescent {
  static constexpr int slots = 0;
  float global_clipnorm      = 0;
  float rate(optim::Moment) const { return 0.125F; }
  template <class D> void update(optim::Update const& u) const {
    for (std::size_t i = 0; i < u.values.size(); ++i) u.values[i] -= u.gradients[i] > 0 ? 0.125F : -0.125F;
  }
};

}  // namespace

TEST_CASE("Synchronous with SGD is one replica with the whole batch, for any number of servers", "[strategy][ps]") {
  check_against_whole_batch(optim::SGD{.learning_rate = 0.1F, .momentum = 0.9F});
}

TEST_CASE("Synchronous with Adam is one replica with the whole batch, for any number of servers", "[strategy][ps]") {
  check_against_whole_batch(optim::Adam{});
}

TEST_CASE("an optimizer of the user's own needs no change of the server", "[strategy][ps]") {
  auto const run = train(2, 2, Synchronous{}, SignDescent{});
  CHECK(all_errors(run) == "");
  CHECK(same_bits(run.values, whole_batch(2, SignDescent{})));  // a sum of two has one order
}

TEST_CASE("servers apply other rules to the bits of one replica", "[strategy][ps]") {
  auto const check = [](auto const& rule) {
    auto const run = train(2, 2, Synchronous{}, rule);
    CHECK(all_errors(run) == "");
    CHECK(same_bits(run.values, whole_batch(2, rule)));  // a sum of two has one order
  };
  check(optim::RMSprop{.momentum = 0.5F, .centered = true});
  check(optim::Nadam{});
  check(optim::Lion{.weight_decay = 0.1F});
}

TEST_CASE("a server refuses an option that is out of range", "[strategy][ps]") {
  CHECK_THAT(all_errors(train(1, 1, Synchronous{}, optim::Nadam{.epsilon = -1})),
             Catch::Contains("epsilon of optim::Nadam is a number above 0, got -1"));
}

TEST_CASE("BoundedStaleness<0> has the bits of Synchronous", "[strategy][ps]") {
  auto const rule = optim::Adam{};
  auto const a = train(3, 2, Synchronous{}, rule), b = train(3, 2, BoundedStaleness<0>{}, rule);
  CHECK(all_errors(a) + all_errors(b) == "");
  CHECK(same_bits(a.values, b.values));
}

TEST_CASE("Asynchronous with one worker has the bits of the plain loop", "[strategy][ps]") {
  auto const rule = optim::Adam{};
  auto const run  = train(1, 2, Asynchronous{}, rule);
  CHECK(all_errors(run) == "");
  CHECK(same_bits(run.values, whole_batch(1, rule)));
}

TEST_CASE("every push of every worker is applied once under Asynchronous, and its staleness counted",
          "[strategy][ps]") {
  auto const run = train(3, 2, Asynchronous{}, optim::SGD{});
  CHECK(all_errors(run) == "");
  for (auto const& ledger : run.ledgers) {
    CHECK(ledger.applied == 3 * steps);
    CHECK(ledger.pushes() == 3 * steps);
    auto counted = std::uint64_t{0};
    for (auto const times : ledger.staleness) counted += times;
    CHECK(counted == 3 * steps);
    CHECK(ledger.bytes_in > 3 * steps * n / 4 * sizeof(float));
  }
}

TEST_CASE("a pull has one version of a shard, while others push to it", "[strategy][ps]") {
  constexpr std::size_t large = 300'000;  // several messages
  auto const initial          = std::vector<float>(flat_size(large));
  auto torn                   = std::atomic<int>{0};
  auto const run = run_parameters(LocalTransport{}, {3, {{{plan::header, plan::header + large}}}}, Asynchronous{},
                                  optim::SGD{.learning_rate = 1}, initial, [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(large), 1.0F);
                                    StepTrailer{gradients}.faults() = 0;
                                    for (int step = 0; step < 60; ++step) {
                                      if (worker == 0) {
                                        client.push(gradients_in(gradients), 0);
                                        continue;
                                      }
                                      client.pull(variables_in(values));
                                      auto const body = variables_in(values).body();
                                      torn += std::ranges::all_of(body, [&](float x) { return x == body[0]; }) ? 0 : 1;
                                    }
                                  });
  CHECK(all_errors(run) == "");
  CHECK(torn == 0);
  CHECK(run.values[plan::header] == -60);
}

TEST_CASE("a clip of the global norm is what nn does with one server, and refused with two", "[strategy][ps]") {
  auto const rule = optim::SGD{.global_clipnorm = 0.5F};
  auto const two  = train(1, 2, Synchronous{}, rule);
  CHECK_THAT(all_errors(two), Catch::Contains("global_clipnorm needs the norm of all gradients"));
  auto const one = train(1, 1, Synchronous{}, rule);
  CHECK(all_errors(one) == "");
  CHECK_FALSE(same_bits(one.values, train(1, 1, Synchronous{}, optim::SGD{}).values));
}

}  // namespace parameter_server_test
