// SPDX-License-Identifier: Apache-2.0
// Gradients that travel to the servers in 16 bits, over threads.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/core/half.hpp>

#include <catch2/catch.hpp>

namespace parameter_halves_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t n = 100'000;  // runs of their own, and shared messages
constexpr int workers = 3, steps = 4;

template <class C> ParameterResult run(C consistency, int servers, PushedAs as, bool rounded) {
  auto const initial = initial_values(n);
  return run_parameters(LocalTransport{}, shards_of(workers, servers, n), consistency, optim::SGD{.learning_rate = 1},
                        initial,
                        [&](auto& client, int worker) {
                          auto values = initial, gradients = std::vector<float>(flat_size(n));
                          for (int step = 0; step < steps; ++step) {
                            fill_gradient(gradients, worker, step, static_cast<float>(worker + 1));
                            if (rounded)
                              for (auto i = plan::header; i < plan::header + n; ++i) gradients[i] = bf16{gradients[i]};
                            client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                          }
                        },
                        {.pushed_as = as});
}

}  // namespace

TEST_CASE("gradients pushed as bf16 are rounded once, and added up as floats", "[strategy][ps]") {
  auto const servers = GENERATE(1, 2);
  auto const halves  = run(Synchronous{}, servers, PushedAs::bf16, false);
  auto const floats  = run(Synchronous{}, servers, PushedAs::f32, true);
  auto const exact   = run(Synchronous{}, servers, PushedAs::f32, false);
  CHECK(all_errors(halves) + all_errors(floats) == "");
  CHECK(same_bits(halves.values, floats.values));
  CHECK_FALSE(same_bits(halves.values, exact.values));
  auto bytes_less = std::uint64_t{0};
  for (std::size_t s = 0; s < halves.ledgers.size(); ++s) {
    CHECK(halves.ledgers[s].applied == workers * steps);
    CHECK(halves.ledgers[s].bytes_out == exact.ledgers[s].bytes_out);  // values come as floats
    bytes_less += exact.ledgers[s].bytes_in - halves.ledgers[s].bytes_in;
  }
  CHECK(bytes_less == workers * steps * n * sizeof(bf16));  // half of each push
}

TEST_CASE("workers that push floats and workers that push bf16 go together", "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto endpoints     = LocalTransport{}.connect(Group::all_local(3));
  auto const shards  = shards_of(2, 1, n);
  auto service = parameter_server::Server{endpoints[2], Synchronous{}, optim::SGD{.learning_rate = 1}, shards, initial};
  {
    auto const server = NamedThread{"server", [&] { service.serve(); }};
    auto const work   = [&](int worker, PushedAs as) {
      auto client    = parameter_server::Client{endpoints[static_cast<std::size_t>(worker)], shards, {.pushed_as = as}};
      auto gradients = std::vector<float>(flat_size(n), 1.0F + 0x1p-9F);  // bf16 has 1 instead
      StepHeader{gradients}.loss() = StepHeader{gradients}.rows() = 1;
      std::ranges::fill(StepTrailer{gradients}.all(), 0.0F);
      client.push(gradients_in(gradients), 0);
    };
    auto const other = NamedThread{"worker 1", [&] { work(1, PushedAs::bf16); }};
    work(0, PushedAs::f32);
  }
  auto const mean = 1.0F + 0x1p-10F;
  auto wrong      = std::size_t{0};
  shards.pieces(0, {0, n}, [&](Range flat, Range shard) {
    for (std::size_t i = 0; i < flat.size(); ++i)
      wrong += service.shard().values()[shard.begin + i] != initial[flat.begin + i] - mean ? 1U : 0U;
  });
  CHECK(wrong == 0);
}

TEST_CASE("numbers of a kind that a call does not bring are refused", "[strategy][ps]") {
  auto const shards = shards_of(1, 1, n);
  auto request      = parameter_server::Request{.layout   = shards.fingerprint(),
                                                .sequence = 1,
                                                .rows     = 1,
                                                .call     = parameter_server::Call::push,
                                                .as       = PushedAs::bf16};
  CHECK(what_is_wrong(request, 0, shards, 0).empty());
  request.call = parameter_server::Call::assign;
  CHECK(what_is_wrong(request, 0, shards, 0) == "call 6 brings numbers of kind 1");
  request.call = parameter_server::Call::push;
  request.as   = static_cast<PushedAs>(2);
  CHECK(what_is_wrong(request, 0, shards, 0) == "call 1 brings numbers of kind 2");
}

}  // namespace parameter_halves_test
