// SPDX-License-Identifier: Apache-2.0
// What TcpTransport promises while all ranks are well. Ranks are threads here; tcp_faults_test.cpp has processes.
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

static_assert(Transport<TcpTransport> && !DirectAccessEndpoint<TcpEndpoint> && !CollectiveTransport<TcpTransport>);

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

Operation reduction(std::uint64_t count, Tag tag, std::uint32_t line = 1) {
  return {Collective::all_reduce, Op::sum, Element::f32, count, tag, {"train.cpp", line}};
}

template <class R> void check_sums(int ranks, std::size_t n) {
  auto const ended = on_ranks<TcpTransport>(ranks, n, [](auto& at, auto& x) {
    for (int step = 0; step < 3; ++step) R{}.all_reduce(at, x, Op::sum);
  });
  auto const local = on_ranks<TcpTransport>(1, n, [](auto&, auto&) {});
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, ended[0].x));
    if (ranks == 1) CHECK(same_bits(rank.x, local[0].x));
    else CHECK(rank.x[0] != local[0].x[0]);
  }
}

}  // namespace

TEST_CASE("every pair of ranks exchanges what was sent over TCP", "[transport][tcp]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 7);
  auto const ended = on_ranks<TcpTransport>(ranks, 100, [](auto& at, auto& x) {
    auto pendings = std::vector<TcpEndpoint::pending>{};
    for (Rank peer = 0; peer < at.size(); ++peer) pendings.push_back(at.send(peer, Tag{1}, out(x)));  // itself, too
    for (Rank peer = 0; peer < at.size(); ++peer) {
      auto got = std::vector<float>(100);
      at.recv(peer, Tag{1}, in(got)).wait();
      if (!same_bits(got, values_of(peer, 100))) throw Error{"rank " + std::to_string(peer) + " sent something else"};
    }
    for (auto& pending : pendings) pending.wait();
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("an all-reduce over TCP leaves the same sum on all ranks", "[transport][tcp]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 7);
  check_sums<RingAllReduce>(ranks, 10'007);
  check_sums<ReduceToOne>(ranks, 10'007);
}

TEST_CASE("messages of any size arrive whole over TCP", "[transport][tcp]") {
  auto const sizes =
      std::array<std::size_t, 10>{0, 1, 63, 32'768, 33'728, 33'729, 262'144, 262'145, 1'048'577, 3'145'728};
  auto const ended = on_ranks<TcpTransport>(2, 0, [&](auto& at, auto&) {
    for (auto const size : sizes) {
      auto mine = std::vector<std::byte>(size), theirs = std::vector<std::byte>(size);
      for (std::size_t i = 0; i < size; ++i) mine[i] = static_cast<std::byte>(i * 7 + i / 251);
      auto sent = at.send(1 - at.rank(), Tag{3}, mine);
      at.recv(1 - at.rank(), Tag{3}, theirs).wait();
      sent.wait();
      if (mine != theirs) throw Error{std::to_string(size) + " bytes arrived changed"};
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("messages with different tags overtake one another over TCP, those with one tag do not", "[transport][tcp]") {
  auto const announces = GENERATE(false, true);
  auto const ended     = on_ranks<TcpTransport>(2, 8, [&](auto& at, auto& x) {
    if (at.rank() == 0) {
      for (unsigned tag = 5; announces && tag < 8; ++tag) at.announce(reduction(2, Tag{tag}));
      auto sent = std::array{at.send(1, Tag{5}, out(x.subspan(0, 2))), at.send(1, Tag{6}, out(x.subspan(2, 2))),
                             at.send(1, Tag{5}, out(x.subspan(4, 2))), at.send(1, Tag{7}, out(x.subspan(6, 2)))};
      for (auto& pending : sent) pending.wait();
    } else {
      for (unsigned tag = 5; announces && tag < 8; ++tag) at.announce(reduction(2, Tag{tag}));
      at.recv(0, Tag{7}, in(x.subspan(6, 2))).wait();
      at.recv(0, Tag{5}, in(x.subspan(0, 2))).wait();
      at.recv(0, Tag{5}, in(x.subspan(4, 2))).wait();
      at.recv(0, Tag{6}, in(x.subspan(2, 2))).wait();
    }
  });
  CHECK(ended[0].error == "");
  CHECK(ended[1].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 8)));
}

TEST_CASE("a message of an operation that is not announced yet waits, and one that is wanted overtakes it",
          "[transport][tcp]") {
  auto const ended = on_ranks<TcpTransport>(2, 600'000, [](auto& at, auto& x) {
    auto const a = x.first(300'000), b = x.subspan(300'000);  // several frames each
    if (at.rank() == 0) {
      at.announce(reduction(1, Tag{1}));
      at.announce(reduction(2, Tag{2}));
      auto early = at.send(1, Tag{2}, out(b));
      auto sent  = at.send(1, Tag{1}, out(a));
      early.wait();
      sent.wait();
    } else {
      at.announce(reduction(1, Tag{1}));
      at.recv(0, Tag{1}, in(a)).wait();
      at.announce(reduction(2, Tag{2}));
      at.recv(0, Tag{2}, in(b)).wait();
    }
  });
  CHECK(ended[1].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 600'000)));
}

TEST_CASE("a TCP pending that was made by default is done, done() does not block, and endpoints may be moved",
          "[transport][tcp]") {
  auto pending = TcpEndpoint::pending{};
  CHECK(pending.done());
  pending.wait();
  auto endpoints = TcpTransport{}.connect(Group::all_local(2));
  auto x = std::array{1.0F, 2.0F}, y = std::array{0.0F, 0.0F};
  auto received = endpoints[1].recv(0, Tag{1}, in(y));
  CHECK_FALSE(received.done());
  auto sent  = endpoints[0].send(1, Tag{1}, out(x));
  auto moved = std::move(endpoints[1]);
  received.wait();
  CHECK(received.done());
  CHECK(sent.done());
  CHECK(y == x);
  CHECK(moved.rank() == 1);
  CHECK_THROWS_AS(moved.send(2, Tag{}, {}), BadArgument);
  CHECK_THROWS_AS(moved.recv(-1, Tag{}, {}), BadArgument);
}

TEST_CASE("thousands of TCP messages pass in order, with 64 under way and the next send waiting", "[transport][tcp]") {
  auto const ended = on_ranks<TcpTransport>(2, 5'000, [](auto& at, auto& x) {
    auto sent = std::vector<TcpEndpoint::pending>{};
    for (std::size_t i = 0; i < x.size(); ++i)
      if (at.rank() == 0) sent.push_back(at.send(1, Tag{static_cast<unsigned>(i % 3)}, out(x.subspan(i, 1))));
      else at.recv(0, Tag{static_cast<unsigned>(i % 3)}, in(x.subspan(i, 1))).wait();
    for (auto& pending : sent) pending.wait();
  });
  CHECK(ended[0].error == "");
  CHECK(same_bits(ended[1].x, values_of(0, 5'000)));
}

TEST_CASE("64 large messages each way at once do not wait for one another", "[transport][tcp]") {
  constexpr std::size_t n = 20'000;
  auto const ended        = on_ranks<TcpTransport>(2, 64 * n, [](auto& at, auto& x) {
    auto got    = std::vector<float>(x.size());
    auto flying = std::vector<TcpEndpoint::pending>{};
    for (unsigned i = 0; i < 64; ++i) flying.push_back(at.send(1 - at.rank(), Tag{i}, out(x.subspan(i * n, n))));
    for (unsigned i = 0; i < 64; ++i)
      flying.push_back(at.recv(1 - at.rank(), Tag{i}, in(Span<float>{got}.subspan(i * n, n))));
    for (auto& pending : flying) pending.wait();
    if (!same_bits(got, values_of(1 - at.rank(), x.size()))) throw Error{"something else arrived"};
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("ranks that bring different sizes are told both, over TCP", "[transport][tcp]") {
  auto const sent  = GENERATE(as<std::size_t>{}, 10, 600'000);
  auto const ended = on_ranks<TcpTransport>(2, sent, [](auto& at, auto& x) {
    if (at.rank() == 0) at.send(1, Tag{3}, out(x)).wait();
    else at.recv(0, Tag{3}, in(x.first(4))).wait();
    at.recv(1 - at.rank(), Tag{4}, in(x)).wait();
  });
  for (auto const& rank : ended)
    CHECK_THAT(rank.error, Catch::Contains("rank 0 sent " + std::to_string(4 * sent) +
                                           " bytes where rank 1 expected 16 bytes, tag 3"));
}

TEST_CASE("ranks in different operations are told both before memory is touched", "[transport][tcp]") {
  struct Case {
    Operation first[2], second[2];  // [rank]
    char const* says;
  };
  auto const a = reduction(400, Tag{1}, 41), b = reduction(500, Tag{1}, 41), c = reduction(400, Tag{2}, 57);
  auto const which = GENERATE_COPY(Case{{a, b}, {a, a}, "500 float"},                                  // another size
                                   Case{{a, c}, {c, a}, "tag 2"},                                      // another order
                                   Case{{a, reduction(400, Tag{1}, 99)}, {a, a}, "at another line"});  // another line
  auto const ended = on_ranks<TcpTransport>(3, 4, [&](auto& at, auto& x) {
    auto const side = at.rank() == 1 ? 1U : 0U;
    at.begin_step(12);
    for (auto const& operation : {which.first[side], which.second[side]}) {
      at.announce(operation);
      auto got  = std::vector<float>(4, 7.0F);
      auto sent = at.send((at.rank() + 1) % 3, operation.tag, out(x));
      try {
        at.recv((at.rank() + 2) % 3, operation.tag, in(got)).wait();
      } catch (Disagreement const& found) {
        if (found.fault() != Fault::collective_mismatch) throw Error{"another fault"};
        for (auto const value : got)
          if (value != 7.0F && at.rank() != 0) throw Error{"memory was touched"};
        throw;
      }
      sent.wait();
    }
  });
  for (auto const& rank : ended) {
    CHECK_THAT(rank.error, Catch::Contains("step 12") && Catch::Contains("all_reduce (sum) of 400 float, tag 1") &&
                               Catch::Contains(which.says) && Catch::Contains("Try: the same calls"));
    CHECK(rank.error == ended[0].error);
    CHECK_FALSE(rank.was_lost);
  }
}

TEST_CASE("a rank that fails is named by all others over TCP, from every operation", "[transport][tcp]") {
  auto const ranks = GENERATE(2, 4, 7);
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = on_ranks<TcpTransport>(ranks, 10'007, [](auto& at, auto& x) {
    for (int step = 0; step < 20; ++step) {
      at.begin_step(static_cast<std::uint64_t>(step));
      if (step == 11 && at.rank() == 1) throw Error{"the disk is full."};
      try {
        RingAllReduce{}.all_reduce(at, x, Op::sum);
      } catch (PeerLost const&) {
        at.recv(0, Tag{}, in(x)).wait();  // the same again
      }
    }
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{3});
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const& end = ended[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.error, Catch::Contains("the disk is full"));
    CHECK(end.was_lost == (rank != 1));
    if (rank != 1) CHECK(end.lost == 1);
  }
}

TEST_CASE("a rank that ended and is waited for is named", "[transport][tcp]") {
  auto endpoints = TcpTransport{}.connect(Group::all_local(3));
  auto x         = std::array{1.0F};
  endpoints[2].send(0, Tag{1}, out(x)).wait();
  endpoints.pop_back();  // rank 2 says goodbye
  auto y = std::array{0.0F};
  endpoints[0].recv(2, Tag{1}, in(y)).wait();  // what it sent before is here
  CHECK(y == x);
  CHECK_THROWS_WITH(endpoints[0].recv(2, Tag{1}, in(y)).wait(),
                    Catch::Contains("rank 0 lost rank 2") && Catch::Contains("it had ended and left the group"));
  CHECK_THROWS_WITH(endpoints[1].recv(0, Tag{1}, in(y)).wait(), Catch::Contains("rank 1 lost rank 2"));
}

TEST_CASE("addresses that cannot work are refused", "[transport][tcp]") {
  CHECK(TcpAddress::parse("[::1]:2222") == TcpAddress{"::1", 2222});
  CHECK(TcpAddress::parse("[::1]:2222").text() == "[::1]:2222");
  CHECK(TcpAddress::parse("node3:1").text() == "node3:1");
  for (auto const* text : {"", "node3", "node3:", ":1", "node3:65536", "node3:-1", "node3:1x", "::1:2222", "[]:1"})
    CHECK_THROWS_WITH(TcpAddress::parse(text), Catch::Contains("is not an address"));
  auto const refused = [](std::string const& address, char const* says) {
    CHECK_THROWS_WITH((TcpTransport{.addresses = {address}}.connect(Group::all_local(1))), Catch::Contains(says));
  };
  refused("0.0.0.0:0", "there is no secret");
  refused("[::]:0", "there is no secret");
  refused("192.0.2.1:0", "there is no secret");
  auto const secret = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  CHECK(TcpTransport{.addresses = {"0.0.0.0:0"}, .secret = secret}.connect(Group::all_local(1)).size() == 1);
  CHECK(TcpTransport{.addresses = {"0.0.0.0:0"}, .insecure_network = AllowInsecureNetwork{}}
            .connect(Group::all_local(1))
            .size() == 1);
  CHECK_THROWS_WITH((TcpTransport{.addresses = {"192.0.2.1:0"}, .secret = secret}.connect(Group::all_local(1))),
                    Catch::Contains("rank 0 cannot listen on 192.0.2.1:0"));
  CHECK_THROWS_WITH((TcpTransport{.addresses = {"127.0.0.1:0"}}.connect(Group::all_local(2))),
                    Catch::Contains("2 ranks needs as many addresses, got 1"));
  CHECK_THROWS_WITH((TcpTransport{.addresses = {"127.0.0.1:0", "127.0.0.1:0"}}.connect(Group{2, {0}})),
                    Catch::Contains("rank 1 has port 0"));
  CHECK_THROWS_WITH((TcpTransport{.plan = {"a", ""}}.connect(Group::all_local(1))), Catch::Contains("line of a plan"));
}

TEST_CASE("ranks with the same secret and plan join, and bytes pass", "[transport][tcp]") {
  auto transport   = TcpTransport{.job = "a name of more than sixteen bytes", .plan = {"dense/kernel f32[784,128]"}};
  transport.secret = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  auto const ended =
      on_ranks<TcpTransport>(3, 100, [](auto& at, auto& x) { ReduceToOne{}.all_reduce(at, x, Op::max); }, transport);
  for (auto const& rank : ended) CHECK(rank.error == "");
}
