// SPDX-License-Identifier: Apache-2.0
// The parameter server, unchanged, on virtual ranks.
#pragma once

#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/simulated.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::test {

using Flat = std::vector<float>;

/// Workers that make so many steps, and servers of so many elements each.
struct Job {
  int workers, servers, steps;
  std::size_t each;  // elements of a server

  std::size_t n() const { return each * static_cast<std::size_t>(servers); }
  Flat flat() const { return Flat(plan::header + n() + plan::trailer); }
  parameter_server::ShardLayout shards() const {
    auto runs = std::vector<std::vector<Range>>{};
    for (std::size_t s = 0; s < static_cast<std::size_t>(servers); ++s)
      runs.push_back({{plan::header + s * each, plan::header + (s + 1) * each}});
    return {workers, std::move(runs)};
  }
};

inline Span<float> body_of(Flat& flat) {
  return Span<float>{flat}.subspan(plan::header, flat.size() - plan::header - plan::trailer);
}
inline bool same_bits(Span<float const> a, Span<float const> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// What came of it.
struct Outcome {
  SimulatedRun run;
  std::vector<std::optional<parameter_server::ServerStatistics>> ledgers;  // [server]; none: it failed
  Flat values;                                                             // of all servers
  std::vector<Flat> pulled;                                                // [worker], last
};

/// step(at, client, values) on the workers, so often.
template <class C, class O, class Step>
Outcome serve_job(Job const& job, C when, O const& rule, Flat const& initial, SimulatedTransport transport, Step step) {
  transport.failures = FailureScope::peer;
  auto const shards  = job.shards();
  auto outcome       = Outcome{
            .ledgers = std::vector<std::optional<parameter_server::ServerStatistics>>(static_cast<std::size_t>(job.servers)),
            .values  = initial,
            .pulled  = std::vector<Flat>(static_cast<std::size_t>(job.workers), initial)};
  outcome.run = simulate(
      shards.ranks(),
      [&](SimulatedEndpoint& at) {
        if (at.rank() < job.workers) {
          auto client = parameter_server::Client{at, shards};
          for (int i = 0; i < job.steps; ++i) step(at, client, outcome.pulled[static_cast<std::size_t>(at.rank())], i);
          return client.leave();
        }
        auto const server = static_cast<std::size_t>(at.rank() - job.workers);
        auto service      = parameter_server::Server{at, when, rule, shards, initial};
        service.serve();
        outcome.ledgers[server] = service.ledger();
        std::ranges::copy(service.shard().values(),
                          body_of(outcome.values).begin() + static_cast<std::ptrdiff_t>(server * job.each));
      },
      transport);
  return outcome;
}

}  // namespace chorale::test
