// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test {

/// A flat buffer of n elements between header and trailer, of which every server has several runs, large and small.
inline parameter_server::ShardLayout shards_of(int workers, int servers, std::size_t n) {
  auto runs = std::vector<std::vector<Range>>(static_cast<std::size_t>(servers));
  auto next = std::size_t{0};
  for (auto begin = std::size_t{0}; begin < n; ++next) {
    auto const size = std::min(n - begin, next % 3 == 2 ? n / 4 + 1 : next % 3 * 40 + 16);
    runs[next % runs.size()].push_back({plan::header + begin, plan::header + begin + size});
    begin += size;
  }
  return {workers, std::move(runs)};
}

/// Of one model without a name: a buffer that is laid out as a plan does it.
inline std::size_t flat_size(std::size_t n) { return plan::header + n + plan::trailer; }
inline Gradients gradients_in(std::vector<float>& flat) { return {flat, {}, {}}; }
inline Variables variables_in(std::vector<float>& flat) { return {flat, {}}; }

inline std::vector<float> initial_values(std::size_t n) {
  auto flat = std::vector<float>(flat_size(n));
  for (std::size_t i = 0; i < n; ++i) flat[plan::header + i] = Random{3, 0}.uniform(i, -1.0F, 1.0F);
  return flat;
}

/// The gradient of one worker in one step, a sum over `rows` rows.
inline void fill_gradient(std::vector<float>& flat, int worker, int step, float rows) {
  auto const random = Random{11, static_cast<std::uint64_t>(worker) << 32 | static_cast<std::uint64_t>(step)};
  for (std::size_t i = plan::header; i < flat.size() - plan::trailer; ++i)
    flat[i] = rows * random.uniform(i, -1.0F, 1.0F);
  StepHeader{flat}.loss() = rows;
  StepHeader{flat}.rows() = rows;
}

struct ParameterResult {
  std::vector<float> values;                                // of all servers, laid out flat
  std::vector<parameter_server::ServerStatistics> ledgers;  // [server]
  std::vector<std::string> errors;                          // [rank]; empty: none
};

/// W workers and the servers of the shards, each a thread: body(client, worker) on the workers, or with the endpoint.
template <class T, class C, class O, class Body>
ParameterResult run_parameters(T const& transport, parameter_server::ShardLayout const& shards, C consistency,
                               O const& rule, std::vector<float> const& initial, Body body,
                               ParameterOptions options = {}) {
  auto const ranks = shards.workers() + shards.servers();
  auto endpoints   = transport.connect(Group::all_local(ranks));
  auto result      = ParameterResult{
      initial, std::vector<parameter_server::ServerStatistics>(static_cast<std::size_t>(shards.servers())),
      std::vector<std::string>(static_cast<std::size_t>(ranks))};
  {
    auto threads = std::vector<NamedThread>{};
    for (Rank rank = 0; rank < ranks; ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        auto& at = endpoints[static_cast<std::size_t>(rank)];
        try {
          if (rank < shards.workers()) {
            auto client = parameter_server::Client{at, shards, options};
            if constexpr (requires { body(client, rank, at); }) body(client, rank, at);
            else body(client, rank);
            client.leave();
            return;
          }
          auto const server = rank - shards.workers();
          auto service      = parameter_server::Server{at, consistency, rule, shards, initial, options};
          service.serve();
          result.ledgers[static_cast<std::size_t>(server)] = service.ledger();
          shards.pieces(server, {0, shards.elements(server)}, [&](Range flat, Range shard) {
            std::ranges::copy(service.shard().values().subspan(shard.begin, shard.size()),
                              result.values.begin() + static_cast<std::ptrdiff_t>(flat.begin));
          });
        } catch (std::exception const& error) {
          result.errors[static_cast<std::size_t>(rank)] = error.what();
          if (dynamic_cast<NumericFault const*>(&error) == nullptr) fail(at, error.what());  // else it has left
        }
      });
  }
  return result;
}

inline std::string all_errors(ParameterResult const& result) {
  auto all = std::string{};
  for (auto const& error : result.errors) all += error.empty() ? "" : error + "\n";
  return all;
}

inline bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace chorale::test
