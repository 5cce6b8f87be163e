// SPDX-License-Identifier: Apache-2.0
// A worker that sends what no client sends, and one beside it that trains on.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <functional>

namespace nonsense_test {

using namespace chorale;
using namespace chorale::test;
using parameter_server::Call;
using parameter_server::Request;

namespace {

constexpr std::size_t n = 1'000;
constexpr int steps     = 6;

enum class Nonsense { shorter, longer, empty, shorter_values, longer_values, many_rows, rounds_ahead };

/// What worker 1 sends instead of its third push, and why the server loses it.
struct Sent {
  Nonsense what;
  char const* reason;
};

template <class E> void send_nonsense(E& at, parameter_server::ShardLayout const& shards, Nonsense what) {
  auto const server = shards.rank_of(0);
  auto const tag    = ParameterOptions{}.tag;
  auto const send   = [&](std::size_t bytes) {
    auto const message = std::vector<std::byte>(bytes, std::byte{255});
    at.send(server, tag, message).wait();
  };
  auto request = Request{.layout = shards.fingerprint(), .sequence = 1, .worker = 1, .rows = 1, .call = Call::push};
  if (what == Nonsense::shorter) return send(sizeof request - 1);
  if (what == Nonsense::longer) return send(1'000'000);
  if (what == Nonsense::empty) return send(0);
  if (what == Nonsense::rounds_ahead) request.turn = std::uint64_t{1} << 60;
  if (what == Nonsense::many_rows)
    request.call = Call::push_rows, request.table = {16, 10, 8}, request.index_bytes = 4, request.count = 1 << 20;
  at.send(server, tag, bytes_of(request)).wait();
  if (what == Nonsense::shorter_values) send(8);
  if (what == Nonsense::longer_values) send(std::size_t{1} << 22);
  if (what == Nonsense::many_rows) send(std::size_t{600} << 10);
}

}  // namespace

TEMPLATE_TEST_CASE("a worker that sends another message is lost with the reason, and the others train on",
                   "[strategy][ps]", LocalTransport, SharedMemoryTransport, TcpTransport) {
  auto const sent    = GENERATE(values<Sent>({
      {Nonsense::shorter, "rank 1 sent 247 bytes where rank 2 expected 248 bytes"},
      {Nonsense::longer, "rank 1 sent 1000000 bytes where rank 2 expected 248 bytes"},
      {Nonsense::empty, "rank 1 sent 0 bytes where rank 2 expected 248 bytes"},
      {Nonsense::shorter_values, "rank 1 sent 8 bytes where rank 2 expected"},
      {Nonsense::longer_values, "rank 1 sent 4194304 bytes where rank 2 expected"},
      {Nonsense::many_rows, "rank 1 sent 614400 bytes where rank 2 expected 524288 bytes"},
      {Nonsense::rounds_ahead, ""},
  }));
  auto transport     = TestType{};
  transport.failures = FailureScope::peer;
  if constexpr (requires { transport.log; }) transport.log = [](std::string const&) {};
  auto const shards  = shards_of(2, 1, n);
  auto const initial = initial_values(n);
  auto endpoints     = transport.connect(Group::all_local(3));
  auto errors        = std::vector<std::string>(3);
  auto ledger        = parameter_server::ServerStatistics{};
  auto losses        = std::vector<std::string>{};
  auto const guarded = [&](Rank rank, auto const& body) {
    return NamedThread{"rank " + std::to_string(rank), [&, rank, body] {
                         auto& at = endpoints[static_cast<std::size_t>(rank)];
                         try {
                           body(at);
                         } catch (std::exception const& error) {
                           errors[static_cast<std::size_t>(rank)] = error.what();
                           fail(at, error.what());
                         }
                       }};
  };
  {
    auto threads = std::vector<NamedThread>{};
    threads.push_back(guarded(0, [&](auto& at) {
      auto client = parameter_server::Client{at, shards};
      auto values = initial, gradients = std::vector<float>(flat_size(n));
      for (int step = 0; step < steps; ++step) {
        fill_gradient(gradients, 0, step, 1);
        client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
      }
      client.leave();
    }));
    threads.push_back(guarded(1, [&](auto& at) {
      send_nonsense(at, shards, sent.what);
      auto reply = parameter_server::Reply{};
      at.recv(shards.rank_of(0), ParameterOptions{}.tag, bytes_of(reply)).wait();
      if (reply.outcome == parameter_server::Outcome::refused) throw Error{reply.said()};
    }));
    threads.push_back(guarded(2, [&](auto& at) {
      auto service = parameter_server::Server{at, Synchronous{}, optim::SGD{}, shards, initial};
      service.serve();
      ledger = service.ledger();
      losses = service.losses();
    }));
  }
  CHECK(errors[0] == "");
  CHECK(errors[2] == "");
  CHECK(ledger.updates == steps);
  if (sent.what == Nonsense::rounds_ahead) {
    CHECK_THAT(errors[1], Catch::Contains("it saw clock 1152921504606846976 on another server, but here it is 0"));
    return;
  }
  CHECK_THAT(errors[1], Catch::Contains(sent.reason));
  CHECK(ledger.lost == 1);
  REQUIRE(losses.size() == 1);
  CHECK_THAT(losses[0], Catch::StartsWith("worker 1 (rank 1): ") && Catch::Contains(sent.reason));
}

TEST_CASE("workers that wait for one another are refused, and told for what each waits", "[strategy][ps]") {
  auto transport     = LocalTransport{};
  transport.failures = FailureScope::peer;
  auto const shards  = shards_of(2, 1, n);
  auto const initial = initial_values(n);
  auto endpoints     = transport.connect(Group::all_local(3));
  auto errors        = std::vector<std::string>(2);
  auto const worker  = [&](Rank rank, auto const& body) {
    return NamedThread{"rank " + std::to_string(rank), [&, rank, body] {
                         auto& at = endpoints[static_cast<std::size_t>(rank)];
                         try {
                           auto client = parameter_server::Client{at, shards};
                           body(client);
                         } catch (std::exception const& error) {
                           errors[static_cast<std::size_t>(rank)] = error.what();
                           fail(at, error.what());
                         }
                       }};
  };
  {
    auto const evaluates = worker(0, [&](auto& client) { client.total(0); });  // and has no push for round 0
    auto const trains    = worker(1, [&](auto& client) {
      auto values = initial, gradients = std::vector<float>(flat_size(n));
      fill_gradient(gradients, 1, 0, 1);
      client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
    });
    auto service         = parameter_server::Server{endpoints[2], Synchronous{}, optim::SGD{}, shards, initial};
    service.serve();
  }
  for (auto const& error : errors)
    CHECK_THAT(error, Catch::Contains("no worker can go on: worker 0 waits until all have reported epoch 0; worker 1 "
                                      "waits for round 0"));
}

}  // namespace nonsense_test
