// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/peer_server_target.hpp"

#include <chorale/strategy/parameter_server/client.hpp>

#include <array>
#include <cstring>
#include <vector>

namespace chorale::test {

/// The values of a reply that the server knows: zeros in an input become them.
inline void forge_reply(Bytes message, Rank) {
  auto reply = parameter_server::Reply{};
  if (message.size() != sizeof reply) return;
  std::memcpy(&reply, message.data(), sizeof reply);
  if (reply.magic == 0) reply.magic = parameter_server::parameter_magic;
  std::memcpy(message.data(), &reply, sizeof reply);
}

/// Any bytes, as what a parameter server says to a worker: the first says what the worker asks.
inline void fuzz_peer_client(ConstBytes in) {
  if (in.empty()) return;
  auto at     = StrangeEndpoint{0, 3, in.subspan(1), forge_reply};
  auto values = std::vector<float>(fuzz_flat, 0.5F), gradients = values;
  auto const variables = Variables{values, {}};
  auto const swap      = ServerUpdate{"swap", [](ServerValues, float by) { return by; }};
  may_refuse([&] {
    auto client     = parameter_server::Client{at, fuzz_shards()};
    auto const rows = std::array<std::uint32_t, 3>{1, 9, 1};
    auto some       = std::array<float, 3 * fuzz_width>{};
    for (auto mode = std::to_integer<unsigned>(in[0]); mode != 0; mode /= 4) switch (mode % 4) {
        case 0: client.pull(variables); break;
        case 1: client.pull_rows(fuzz_shards().tables()[0], Span<std::uint32_t const>{rows}, Span<float>{some}); break;
        case 2: {
          auto const row               = std::array<std::uint32_t, 1>{2};
          auto const none              = std::array<std::uint32_t, 1>{0};
          auto const view              = std::array{RowsView{row, none, Span<float const>{some}.first(fuzz_width)}};
          StepHeader{gradients}.rows() = 1;
          client.push_and_pull(Gradients{gradients, {}, {}}, view, variables, 0);
          break;
        }
        default:
          for (auto const rank : client.total(0).reported) must(rank == 0 || rank == 1, "a rank that is no worker");
          client.pull_slot(0, gradients);
      }
    for (auto const& table : client.pulled().rows)
      for (auto const row : table) must(row < fuzz_rows, "a row that the table does not have");
  });
}

}  // namespace chorale::test
