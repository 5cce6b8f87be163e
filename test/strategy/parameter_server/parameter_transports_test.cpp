// SPDX-License-Identifier: Apache-2.0
// A parameter server over sockets, and workers that end or fail while others go on.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <optional>

namespace parameter_transports_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t n = 40'001;
constexpr int steps     = 8;

template <class T> T apart() {
  auto transport     = T{};
  transport.failures = FailureScope::peer;
  return transport;
}

/// Dense pushes and pulls, each by itself, and rows of a table over all of it.
template <class T, class C> ParameterResult train(T const& transport, int workers, int servers, C consistency) {
  auto const initial = initial_values(n);
  return run_parameters(transport, shards_of(workers, servers, n), consistency, optim::Adam{}, initial,
                        [&](auto& client, int worker) {
                          auto values = initial, gradients = std::vector<float>(flat_size(n));
                          for (int step = 0; step < steps; ++step) {
                            fill_gradient(gradients, worker, step, 2);
                            client.push(gradients_in(gradients), 0);
                            client.pull(variables_in(values));
                            client.report(step, std::vector{1.0});
                            if (client.total(step).sums[0] != workers) throw Error{"not all have reported"};
                          }
                        });
}

}  // namespace

TEMPLATE_TEST_CASE("the bits are those over threads, for 1 to 3 workers and 1 or 2 servers", "[strategy][ps]",
                   SharedMemoryTransport, TcpTransport) {
  auto const workers = GENERATE(1, 2, 3);
  auto const local   = train(LocalTransport{}, workers, 1, Synchronous{});
  for (int const servers : {1, 2}) {
    auto const run = train(apart<TestType>(), workers, servers, Synchronous{});
    CHECK(all_errors(run) == "");
    CHECK(same_bits(run.values, local.values));
  }
  CHECK(all_errors(local) == "");
}

TEMPLATE_TEST_CASE("a worker whose endpoint ends is only missed, whether it has left or failed", "[strategy][ps]",
                   LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const fails   = GENERATE(false, true);
  auto const shards  = shards_of(2, 2, n);
  auto const initial = initial_values(n);
  auto ends          = apart<TestType>().connect(Group::all_local(4));
  auto endpoints     = std::vector<std::optional<typename TestType::endpoint>>{};
  for (auto& at : ends) endpoints.emplace_back(std::move(at));
  auto ledgers = std::vector<parameter_server::ServerStatistics>(2);
  auto errors  = std::vector<std::string>(4);
  auto gone    = std::atomic<bool>{false};
  {
    auto threads = std::vector<NamedThread>{};
    for (Rank rank = 0; rank < 4; ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        auto& at = endpoints[static_cast<std::size_t>(rank)];
        try {
          if (rank >= 2) {
            auto service = parameter_server::Server{*at, Synchronous{}, optim::SGD{}, shards, initial};
            service.serve();
            ledgers[static_cast<std::size_t>(rank - 2)] = service.ledger();
            return;
          }
          auto values = initial, gradients = std::vector<float>(flat_size(n));
          {
            auto client = parameter_server::Client{*at, shards};
            for (int step = 0; step < steps; ++step) {
              if (rank == 1 && step == 3) {
                if (fails) fail(*at, "it was told to");
                break;
              }
              fill_gradient(gradients, rank, step, 1);
              client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
            }
          }
          if (rank != 1) return;
          at.reset();
          gone = true;
        } catch (std::exception const& error) { errors[static_cast<std::size_t>(rank)] = error.what(); }
      });
  }
  CHECK(gone);
  for (auto const& error : errors) CHECK(error == "");
  for (auto const& ledger : ledgers) {
    CHECK(ledger.updates == steps);
    CHECK(ledger.applied == steps + 3);
    CHECK(ledger.lost == (fails ? 1 : 0));
  }
}

}  // namespace parameter_transports_test
