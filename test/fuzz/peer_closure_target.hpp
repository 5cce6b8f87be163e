// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/peer.hpp"

#include <chorale/data/stages/generator.hpp>
#include <chorale/strategy/coordinator/coordinator.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

namespace chorale::test {

struct FuzzHere {
  int calls = 0;
};

inline auto const& fuzz_closures() {
  using Row             = data::Integers::element;
  static auto const all = std::tuple{
      Closure{"add", [](FuzzHere& here, int a, double b) { return ++here.calls, a + b; }},
      Closure{"join",
              [](FuzzHere& here, std::string const& text, std::vector<std::uint32_t> const& x) {
                return ++here.calls, text + std::to_string(x.size());
              }},
      Closure{"read",
              [](FuzzHere& here, WorkerStream<Row>& rows) {
                auto row = Row{};
                ++here.calls;
                return rows.next(row) ? row.x[0] : -1;
              }},
      PerWorkerDataset<Row>{"numbers", [](WorkerShare share) {
                              must(share.index >= 0 && share.index < share.count, "a share that there is not");
                              return data::from_generator<std::int64_t, std::int64_t>([share](std::size_t) {
                                return
                                    [share, i = 0](std::vector<std::int64_t>& x, std::vector<std::int64_t>&) mutable {
                                      x.assign(1, share.index + i);
                                      return i++ < 3;
                                    };
                              });
                            }}};
  return all;
}

/// The names of closures, and the beginning of a message, where an input has small numbers.
inline void forge_closure(Bytes message, Rank) {
  constexpr auto names = std::array{"add", "join", "read"};
  auto request         = detail::ClosureRequest{};
  if (message.size() != sizeof request) return;
  std::memcpy(&request, message.data(), sizeof request);
  if (request.magic == 0) request.magic = detail::closure_magic;
  if (request.closure > 0 && request.closure <= names.size())
    request.closure = detail::hash_of_name(names[request.closure - 1]);
  if (request.data[0].dataset == 1) request.data[0].dataset = detail::hash_of_name("numbers");
  std::memcpy(message.data(), &request, sizeof request);
}
inline void forge_result(Bytes message, Rank) {
  auto reply = detail::ClosureReply{};
  if (message.size() != sizeof reply) return;
  std::memcpy(&reply, message.data(), sizeof reply);
  if (reply.magic == 0) reply.magic = detail::closure_magic;
  if (reply.data[0].dataset == 1) reply.data[0].dataset = detail::hash_of_name("numbers");
  std::memcpy(message.data(), &reply, sizeof reply);
}

/// Any bytes, as what a coordinator says to a worker, or two workers to a coordinator.
inline void fuzz_peer_closure(ConstBytes in) {
  if (in.empty()) return;
  auto const& known = fuzz_closures();
  if (std::to_integer<int>(in[0]) % 2 == 0) {
    auto at   = StrangeEndpoint{1, 2, in.subspan(1), forge_closure};
    auto here = FuzzHere{};
    may_refuse([&] {
      auto const ran = ClosureWorker{at, here, known}.serve();
      must(static_cast<std::uint64_t>(here.calls) <= ran, "a closure was called more often than it was asked for");
    });
    return;
  }
  auto at = StrangeEndpoint{0, 3, in.subspan(1), forge_result};
  may_refuse([&] {
    auto coordinator = Coordinator<StrangeEndpoint, FuzzHere>{at, 2};
    auto const rows  = coordinator.create_per_worker_dataset(std::get<3>(known));
    auto sum         = coordinator.schedule(std::get<0>(known), 1, 2.5);
    auto text        = coordinator.schedule(std::get<1>(known), std::string{"a"}, std::vector<std::uint32_t>(2));
    auto row         = coordinator.schedule(std::get<2>(known), rows);
    for (auto const& one : {sum}) may_refuse([&] { coordinator.fetch(one); });
    may_refuse([&] { coordinator.fetch(text); });
    may_refuse([&] { coordinator.fetch(row); });
    must(coordinator.lost() <= 2, "more workers are lost than there are");
  });
}

}  // namespace chorale::test
