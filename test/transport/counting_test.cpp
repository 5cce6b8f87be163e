// SPDX-License-Identifier: Apache-2.0
#include "test/transport/tcp/listening.hpp"

#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <array>

using namespace chorale;
using namespace chorale::test;

static_assert(Transport<Counting<Counting<LocalTransport>>>);
static_assert(DirectAccessEndpoint<Counting<ListeningTransport>::endpoint>);

template <class E> concept HasArena = requires(E& at) { at.memory(); };
static_assert(HasArena<Counting<ListeningTransport>::endpoint> && !HasArena<Counting<LocalTransport>::endpoint>);

TEST_CASE("a counting endpoint passes on what it is told", "[transport][counting]") {
  auto const transport = Counting<ListeningTransport>{};
  auto endpoints       = transport.connect(Group::all_local(1));
  CHECK(told(endpoints[0], *transport.transport.heard) == everything);
}

TEST_CASE("a counting endpoint shows the arena of the one below", "[transport][counting]") {
  auto endpoints = Counting<ListeningTransport>{}.connect(Group::all_local(1));
  CHECK(endpoints[0].memory().size() == 2 * sizeof(float));
}

TEST_CASE("two counters count the same", "[transport][counting]") {
  auto endpoints = Counting<Counting<LocalTransport>>{}.connect(Group::all_local(1));
  auto x         = std::array{1.0F, 2.0F, 3.0F};
  endpoints[0].send(0, Tag{1}, std::as_bytes(std::span{x}));
  endpoints[0].recv(0, Tag{1}, std::as_writable_bytes(std::span{x})).wait();
  CHECK(endpoints[0].sent() == Sent{.messages = 1, .bytes = 12});
}
