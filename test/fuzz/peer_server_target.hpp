// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/peer.hpp"

#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/consistency.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/plan.hpp>

#include <cmath>
#include <cstring>
#include <vector>

namespace chorale::test {

inline constexpr std::size_t fuzz_dense = 24, fuzz_rows = 10, fuzz_width = 4;
inline constexpr std::size_t fuzz_flat = plan::header + fuzz_dense + fuzz_rows * fuzz_width + plan::trailer;

/// Two workers, one server: 24 values, and a table of 10 rows.
inline parameter_server::ShardLayout const& fuzz_shards() {
  using parameter_server::RowTable;
  constexpr auto begin = plan::header, middle = begin + fuzz_dense, end = middle + fuzz_rows * fuzz_width;
  static auto const layout = parameter_server::ShardLayout{
      2, {{{begin, begin + 8}, {begin + 8, middle}, {middle, end}}}, 1, {RowTable{middle, fuzz_rows, fuzz_width}}};
  return layout;
}

/// The values of a request that a worker knows: zeros in an input become them.
inline void forge_request(Bytes message, Rank peer) {
  auto request = parameter_server::Request{};
  if (message.size() != sizeof request) return;
  std::memcpy(&request, message.data(), sizeof request);
  if (request.magic == 0) request.magic = parameter_server::parameter_magic;
  if (request.layout == 0) request.layout = fuzz_shards().fingerprint();
  if (request.worker == 0) request.worker = peer;
  std::memcpy(message.data(), &request, sizeof request);
}

template <class Rounds, class Rule> void fuzz_server(ConstBytes in, Rule const& rule) {
  auto at      = StrangeEndpoint{2, 3, in, forge_request};
  auto initial = std::vector<float>(fuzz_flat, 0.5F);
  auto swap    = ServerUpdate{"swap", [](ServerValues values, float by) {
                             for (auto const value : values)
                               for (auto& x : value) x *= by;
                             return static_cast<int>(values.size());
                           }};
  auto known   = parameter_server::known(swap);
  known.key    = 7;
  auto server  = parameter_server::Server{at, Rounds{}, rule, fuzz_shards(), initial, ParameterOptions{}, {known}};
  may_refuse([&] { server.serve(); });
  must(server.ledger().lost <= 2 && server.losses().size() == server.ledger().lost,
       "more workers are lost than there are");
  must(server.shard().size() == fuzz_dense + fuzz_rows * fuzz_width, "the shard has another size");
}

/// Any bytes, as what two workers say to a parameter server: the first says how it waits.
inline void fuzz_peer_server(ConstBytes in) {
  if (in.empty()) return;
  auto const mode = std::to_integer<int>(in[0]) % 4;
  auto const said = in.subspan(1);
  if (mode == 0) fuzz_server<Asynchronous>(said, optim::SGD{});
  else if (mode == 1) fuzz_server<Synchronous>(said, optim::Adam{});
  else if (mode == 2) fuzz_server<BoundedStaleness<2>>(said, optim::SGD{});
  else fuzz_server<BackupWorkers<1>>(said, optim::Adam{});
}

}  // namespace chorale::test
