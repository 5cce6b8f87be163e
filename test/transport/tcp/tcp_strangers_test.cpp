// SPDX-License-Identifier: Apache-2.0
// How ranks find each other over TCP, and what becomes of those who do not belong, and of bytes that were changed.
#include "test/transport/tcp/tcp_strangers.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/tcp.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto quiet = [](std::string const&) {};

TcpTransport two(std::vector<std::string> addresses = free_loopback_addresses(2)) {
  return {.addresses = std::move(addresses), .timeouts = {.join = 10s}, .log = quiet};
}

struct Outcome {
  std::string error;
  int fault = -1;
  std::vector<float> x;  // ones, before the ranks add them up
};

/// One line of the program, so that all ranks are in one operation. Nobody leaves it before all are in it.
void reduce(TcpEndpoint& at, std::vector<float>& x) {
  ReduceToOne{}.all_reduce(at, Span<float>{x}, Op::sum);
  auto byte = std::array<std::byte, 1>{};
  for (Rank peer = 0; peer < at.size(); ++peer) at.send(peer, Tag{9}, byte);
  for (Rank peer = 0; peer < at.size(); ++peer) at.recv(peer, Tag{9}, byte).wait();
}

/// Connects, and reduces once. What went wrong is in the outcome.
Outcome take_part(TcpTransport const& transport, Rank rank, std::size_t n = 3) {
  auto outcome = Outcome{};
  outcome.x.assign(n, 1.0F);
  try {
    auto at = std::move(transport.connect(Group{static_cast<int>(transport.addresses.size()), {rank}})[0]);
    reduce(at, outcome.x);
  } catch (PeerLost const& lost) {
    outcome.error = lost.what();
    outcome.fault = static_cast<int>(lost.fault());
  } catch (Disagreement const& disagreement) {
    outcome.error = disagreement.what();
    outcome.fault = static_cast<int>(disagreement.fault());
  }
  return outcome;
}

std::vector<Outcome> take_part(std::vector<std::pair<Rank, TcpTransport>> const& ranks, std::size_t n = 3) {
  auto outcomes = std::vector<Outcome>(ranks.size());
  auto threads  = std::vector<NamedThread>{};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back("part " + std::to_string(i),
                         [&, i] { outcomes[i] = take_part(ranks[i].second, ranks[i].first, n); });
  threads.clear();
  return outcomes;
}

constexpr std::size_t shaken = 112 + 44;  // bytes of a dialer's handshake
constexpr int number(Fault fault) { return static_cast<int>(fault); }

}  // namespace

TEST_CASE("strangers at a rank's port change nothing while ranks join and while they work", "[transport][tcp][fault]") {
  auto transport = two();
  auto lines     = std::vector<std::string>{};
  auto mutex     = std::mutex{};
  transport.log  = [&](std::string const& line) {
    auto const lock = std::scoped_lock{mutex};
    lines.push_back(line);
  };
  auto const noise = std::array<std::string, 6>{
      "GET / HTTP/1.1\r\n\r\n",     "\x16\x03\x01\x02\x00\x01\x00", "\xC4h",
      std::string(1 << 20, '\x5A'), std::string(300, '\0'),         std::string(300, '\xFF')};
  auto first  = Outcome{};
  auto thread = NamedThread{"rank 0", [&] { first = take_part(transport, 0); }};
  auto guests = std::vector<FileDescriptor>{};
  for (auto const& text : noise) send_all(guests.emplace_back(connected(transport.addresses[0])), text);
  for (int i = 0; i < 500; ++i) guests.push_back(connected(transport.addresses[0]));  // idle
  auto const begin = std::chrono::steady_clock::now();
  auto endpoint    = std::move(transport.connect(Group{2, {1}})[0]);
  CHECK(std::chrono::steady_clock::now() - begin < 1s);
  for (auto const& text : noise) send_all(guests.emplace_back(connected(transport.addresses[0])), text);
  for (auto const& text : noise) send_all(guests.emplace_back(connected(transport.addresses[1])), text);
  auto x = std::vector<float>{1, 1, 1};
  reduce(endpoint, x);
  thread = {};
  CHECK(first.error == "");
  CHECK(first.x == x);
  CHECK(x == std::vector<float>{2, 2, 2});
  auto const lock = std::scoped_lock{mutex};
  CHECK(lines.size() <= 2);  // one source, 10 s; two listeners
  CHECK_THAT(lines.at(0), Catch::Contains("a connection from 127.0.0.1:") && Catch::Contains("was refused"));
}

TEST_CASE("a rank that never comes is named with its address after Timeouts::join", "[transport][tcp][fault]") {
  auto transport         = TcpTransport{.addresses = free_loopback_addresses(3), .timeouts = {.join = 600ms}};
  auto mutex             = std::mutex{};
  auto lines             = std::vector<std::string>{};
  transport.report_every = 200ms;
  transport.log          = [&](std::string const& line) {
    auto const lock = std::scoped_lock{mutex};
    lines.push_back(line);
  };
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = take_part({{0, transport}, {2, transport}});
  CHECK(std::chrono::steady_clock::now() - begin < 1600ms);
  for (auto const& rank : ended) {
    CHECK(rank.fault == number(Fault::join_timeout));
    CHECK_THAT(rank.error, Catch::Contains("lost rank 1") && Catch::Contains("after 0.6 s rank ") &&
                               Catch::Contains(" still misses 1 of 3: rank 1 (" + transport.addresses[1] + "): "));
  }
  auto const lock = std::scoped_lock{mutex};
  CHECK(lines.size() >= 2);
  CHECK_THAT(lines.at(0), Catch::Contains(": waiting for 1 of 3: rank 1 (" + transport.addresses[1] + "): "));
  CHECK(std::ranges::any_of(lines, [](auto const& line) { return line.ends_with("Connection refused"); }));
}

TEST_CASE("a second process that claims a rank is refused, and the first is unharmed", "[transport][tcp][fault]") {
  auto const transport = two();
  auto at0 = TcpEndpoint{nullptr}, at1 = TcpEndpoint{nullptr};
  {
    auto const thread = NamedThread{"rank 0", [&] { at0 = std::move(transport.connect(Group{2, {0}})[0]); }};
    at1               = std::move(transport.connect(Group{2, {1}})[0]);
  }
  auto second         = transport;
  second.addresses[1] = "127.0.0.1:0";
  auto const refused  = take_part(second, 1);
  CHECK(refused.fault == number(Fault::duplicate_rank));
  CHECK_THAT(refused.error,
             Catch::Contains("two processes claim to be rank 1: the first called rank 0 from 127.0.0.1:") &&
                 Catch::Contains(", the second from 127.0.0.1:"));
  auto byte = std::array<std::byte, 1>{std::byte{5}}, got = std::array<std::byte, 1>{};
  at1.send(0, Tag{1}, byte).wait();
  at0.recv(1, Tag{1}, got).wait();
  CHECK(got == byte);
}

TEST_CASE("ranks that do not fit refuse each other, with both values", "[transport][tcp][fault]") {
  auto good               = two();
  good.timeouts.handshake = 2s;  // as long one waits for who has gone already
  auto bad                = good;
  auto fault              = Fault::world_mismatch;
  auto says               = std::string{};
  auto const secret = [](char const* text) { return Secret{std::as_bytes(Span<char const>{std::string_view{text}})}; };
  auto left         = good;
  SECTION("another job") {
    bad.job = "another";
    says    = "rank 1 is of job another, and rank 0 of job chorale";
  }
  SECTION("another world") {
    bad.addresses.push_back("127.0.0.1:1");
    says = "rank 1 has a world of 3, and rank 0 one of 2";
  }
  SECTION("an older incarnation") {
    left.incarnation = 3;
    bad.incarnation  = 2;
    fault            = Fault::evicted;
    says             = "rank 1 is of incarnation 2, and rank 0 of 3";
  }
  SECTION("another secret") {
    left.secret = secret("sixteen bytes, at least");
    bad.secret  = secret("sixteen bytes, or more");
    fault       = Fault::not_authentic;
    says        = "no secret in common";
  }
  SECTION("no secret") {
    left.secret = secret("sixteen bytes, at least");
    fault       = Fault::not_authentic;
    says        = "rank 0 has a secret, and rank 1 has none";
  }
  auto const waits = fault == Fault::evicted;  // for the right one, which may still come
  if (waits) left.timeouts.join = 300ms;
  auto const begin = std::chrono::steady_clock::now();
  auto const ended = take_part({{0, left}, {1, bad}});
  CHECK(ended[1].fault == number(fault));
  CHECK_THAT(ended[1].error, Catch::Contains(says));
  CHECK(ended[0].fault == number(waits ? Fault::join_timeout : fault));
  if (!waits) CHECK_THAT(ended[0].error, Catch::Contains("rank 0") && Catch::Contains("rank 1"));
  CHECK(std::chrono::steady_clock::now() - begin < 5s);  // of 10 s to join
}

TEST_CASE("a rank with another secret, or of another job, ends the wait of all others at once",
          "[transport][tcp][fault]") {
  auto const odd       = GENERATE(0, 1, 2);
  auto const kind      = GENERATE(as<std::string>{}, "another secret", "no secret", "another job");
  auto const addresses = free_loopback_addresses(3);
  auto const text      = [](char const* s) { return Secret{std::as_bytes(Span<char const>{std::string_view{s}})}; };
  auto const begin     = std::chrono::steady_clock::now();
  auto ranks           = std::vector<std::pair<Rank, TcpTransport>>{};
  for (Rank rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(rank, two(addresses));
    auto& transport              = ranks.back().second;
    transport.timeouts.handshake = 2s;  // as long one waits for who has gone already
    transport.secret             = text("sixteen bytes, at least");
    if (rank != odd) continue;
    if (kind == "another secret") transport.secret = text("sixteen bytes, or more");
    if (kind == "no secret") transport.secret.reset();
    if (kind == "another job") transport.job = "another";
  }
  INFO("rank " << odd << " has " << kind);
  for (auto const& ended : take_part(ranks)) {
    INFO(ended.error);
    CHECK(ended.fault == number(kind == "another job" ? Fault::world_mismatch : Fault::not_authentic));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
}

TEST_CASE("a rank that is asked whether it fits says so, and nothing else happens", "[transport][tcp][fault]") {
  auto lines              = std::atomic<int>{0};
  auto transport          = two();
  transport.secret        = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  transport.timeouts.join = 2s;
  transport.log           = [&](std::string const&) { ++lines; };
  auto second             = Outcome{};
  auto const rank_1       = NamedThread{"rank 1", [&] { second = take_part(transport, 1); }};
  auto const probe        = connected(transport.addresses[1]);  // it listens
  auto const asked        = [&](char const* secret) {
    auto io      = asio::io_context{};
    auto fault   = -1;
    auto over    = false;
    auto host    = tcp::IdentityProbe::Host{};
    host.call_to = [&](Rank rank) {
      auto to     = tcp::Connector::Host{};
      to.identity = {.rank = 0, .world = 2};
      std::ranges::copy(std::as_bytes(Span<char const>{std::string_view{"chorale"}}), to.identity.job.begin());
      to.peer    = rank;
      to.address = TcpAddress::parse(transport.addresses[1]);
      to.secret  = Secret{std::as_bytes(Span<char const>{std::string_view{secret}})};
      return to;
    };
    host.is_expected = [](Rank) { return true; };
    host.impossible  = [&](Rank, wire::Refusal const& no) { fault = number(no.fault); };
    auto doubt       = tcp::IdentityProbe{io, 2, std::move(host)};
    doubt.ask(1, [&] { over = true; });
    while (!over && io.run_one() > 0) {}
    CHECK(over);
    doubt.ask(2, [&] { over = false; });  // there is no such rank: answered at once
    CHECK_FALSE(over);
    return fault;
  };
  CHECK(asked("sixteen bytes, at least") == -1);
  CHECK(lines == 0);
  CHECK(asked("sixteen bytes, or more") == number(Fault::not_authentic));
}

TEST_CASE("a stranger that claims to be a rank ends nothing, whatever it says", "[transport][tcp][fault]") {
  auto transport   = two();
  transport.secret = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, at least"}})};
  auto other       = Secret{std::as_bytes(Span<char const>{std::string_view{"sixteen bytes, or more"}})};
  auto lines       = std::vector<std::string>{};  // of rank 0
  auto first       = Outcome{};
  auto patient     = transport;
  patient.log      = [&](std::string const& line) { lines.push_back(line); };
  {
    auto const thread = NamedThread{"rank 0", [&] { first = take_part(patient, 0); }};
    for (auto const* secret : std::array<Secret const*, 2>{&other, nullptr}) {
      auto identity = wire::Identity{.rank = 1, .world = 2};
      std::ranges::copy(std::as_bytes(Span<char const>{std::string_view{"chorale"}}), identity.job.begin());
      auto const socket = connected(transport.addresses[0]);
      auto dialer       = wire::Initiator{identity, 0, secret};
      while (dialer.state() == wire::Handshake::State::talking) {
        send_all(socket, dialer.to_send());
        dialer.sent(dialer.to_send().size());
        auto byte = std::byte{};
        if (::recv(socket.number(), &byte, 1, 0) != 1) break;
        dialer.feed({&byte, 1});
      }
      CHECK(dialer.state() == wire::Handshake::State::refused);
    }
    CHECK(take_part(transport, 1).error == "");
  }
  CHECK(first.error == "");
  CHECK(std::ranges::count_if(lines, [](auto const& line) { return line.find("was refused") != line.npos; }) == 1);
}

TEST_CASE("ranks with different plans are told the first line that differs", "[transport][tcp][fault]") {
  auto ranks     = std::vector<std::pair<Rank, TcpTransport>>{};
  auto transport = TcpTransport{.addresses = free_loopback_addresses(3), .timeouts = {.join = 10s}, .log = quiet};
  transport.plan = {"conv/kernel f32[3,3]", "dense/kernel f32[784,512]"};
  for (Rank rank = 0; rank < 3; ++rank) ranks.emplace_back(rank, transport);
  ranks[2].second.plan[1] = "dense/kernel f32[784,256]";
  for (auto const& rank : take_part(ranks)) {
    CHECK(rank.fault == number(Fault::model_mismatch));
    CHECK_THAT(rank.error, Catch::Contains("dense/kernel f32[784,256] vs f32[784,512]") ||
                               Catch::Contains("dense/kernel f32[784,512] vs f32[784,256]"));
  }
}

TEST_CASE("another version of the wire is refused on both ends", "[transport][tcp][fault]") {
  auto transport          = two();
  transport.timeouts.join = 300ms;
  auto line               = std::string{};
  transport.log           = [&](std::string const& text) { line = text; };
  auto first              = Outcome{};
  auto reason             = std::string{};
  {
    auto const thread = NamedThread{"rank 0", [&] { first = take_part(transport, 0); }};
    reason            = FakeRank{transport.addresses[0], {.wire_version = {.major = 3}}}.reason;
  }
  CHECK_THAT(reason, Catch::Contains("version 2.0") && Catch::Contains("version 3.0"));
  CHECK_THAT(line, Catch::Contains("version 2.0") && Catch::Contains("version 3.0"));
  CHECK(first.fault == number(Fault::join_timeout));
}

TEST_CASE("a rank with a newer minor version of the wire joins, and both speak the smaller",
          "[transport][tcp][fault]") {
  auto const transport = two();
  auto const newer     = wire::Version{wire::version.major, static_cast<std::uint8_t>(wire::version.minor + 1)};
  auto first           = Outcome{};
  auto reason          = std::string{};
  auto answer          = wire::HeaderBytes{};
  {
    auto const thread = NamedThread{"rank 0", [&] {
                                      auto at = std::move(transport.connect(Group{2, {0}})[0]);
                                      try {
                                        at.recv(1, Tag{9}, {}).wait();
                                        at.send(1, Tag{9}, {}).wait();
                                        at.recv(1, Tag{9}, {}).wait();
                                      } catch (PeerLost const& lost) {
                                        first = {lost.what(), number(lost.fault()), {}};
                                      }
                                    }};
    auto fake         = FakeRank{transport.addresses[0], {.wire_version = newer}};
    reason            = fake.reason;
    auto head         = wire::Header{.from = 1, .to = 0, .tag = Tag{9}};
    fake.send(1, head);
    ::recv(fake.sockets[1].number(), answer.data(), answer.size(), MSG_WAITALL);
    head.minor = newer.minor;
    fake.send(1, head);  // as if it had not heard
    auto rest = std::byte{};
    while (::recv(fake.sockets[1].number(), &rest, 1, 0) > 0) {}  // until rank 0 hangs up
  }
  CHECK(reason == "");
  CHECK(wire::parse(answer, 0).version == wire::version);
  CHECK(first.fault == number(Fault::frame_corrupt));
  CHECK_THAT(first.error, Catch::Contains("claims version " + newer.text() + " of the wire"));
}

TEST_CASE("a frame that lies about its length is damage, and nothing is allocated for it", "[transport][tcp][fault]") {
  auto const length    = GENERATE(as<std::uint64_t>{}, 0, 5, (1U << 20) + 1, 1ULL << 31, 1ULL << 63, ~0ULL);
  auto const count     = GENERATE(1U, 7U);
  auto const transport = two();
  auto first           = Outcome{};
  {
    auto const thread = NamedThread{"rank 0", [&] {
                                      auto at   = std::move(transport.connect(Group{2, {0}})[0]);
                                      auto byte = std::array<std::byte, 1>{};
                                      try {
                                        at.recv(1, Tag{9}, byte).wait();
                                      } catch (PeerLost const& lost) {
                                        first = {lost.what(), number(lost.fault()), {}};
                                      } catch (Disagreement const& mismatch) {
                                        first = {mismatch.what(), number(mismatch.fault()), {}};
                                      }
                                    }};
    auto fake         = FakeRank{transport.addresses[0]};
    CHECK(fake.reason == "");
    fake.send(1, {.from = 1, .to = 0, .tag = Tag{9}, .count = count, .length = length});
    auto byte = std::byte{};
    while (::recv(fake.sockets[1].number(), &byte, 1, 0) > 0) {}  // until rank 0 gives up
  }
  CHECK((first.fault == number(length > 1U << 20 ? Fault::frame_corrupt : Fault::collective_mismatch)));
  CHECK_THAT(first.error,
             Catch::Contains(length > 1U << 20 ? "claims " + std::to_string(length) + " bytes" : "rank 1 sent"));
}

TEST_CASE("a frame that goes between other ranks, or is of another start of its rank, is damage",
          "[transport][tcp][fault]") {
  auto const head      = GENERATE(wire::Header{.incarnation = 7, .from = 1, .to = 0}, wire::Header{.from = 2, .to = 0},
                                  wire::Header{.from = 1, .to = 1});
  auto const transport = two();
  auto first           = Outcome{};
  {
    auto const thread = NamedThread{"rank 0", [&] {
                                      auto at = std::move(transport.connect(Group{2, {0}})[0]);
                                      try {
                                        at.recv(1, Tag{}, Bytes{}).wait();
                                      } catch (PeerLost const& lost) {
                                        first = {lost.what(), number(lost.fault()), {}};
                                      }
                                    }};
    auto fake         = FakeRank{transport.addresses[0]};
    CHECK(fake.reason == "");
    fake.send(1, head);
    auto byte = std::byte{};
    while (::recv(fake.sockets[1].number(), &byte, 1, 0) > 0) {}  // until rank 0 gives up, or has ended
  }
  CHECK(first.fault == number(Fault::frame_corrupt));
  CHECK_THAT(first.error, Catch::Contains("goes from rank " + std::to_string(head.from) + ", incarnation " +
                                          std::to_string(head.incarnation) + ", to rank " + std::to_string(head.to)));
}

TEST_CASE("a bit that flips on the way is found, and all ranks are told", "[transport][tcp][fault]") {
  auto const at        = GENERATE(as<std::size_t>{}, 0, 4, 9, 21, 39, 63, 64, 100'000);  // of the first frame
  auto const addresses = free_loopback_addresses(3);
  auto const proxy     = Proxy{addresses[2], addresses[0], Proxy::Deed::flip, shaken + at};
  auto const ended =
      take_part({{0, two({addresses[0], addresses[1]})}, {1, two({addresses[2], addresses[1]})}}, 50'000);
  INFO("byte " << at);
  for (auto const& rank : ended) {
    CHECK(rank.fault == number(Fault::frame_corrupt));
    CHECK_THAT(rank.error, Catch::Contains("a frame from it") || Catch::Contains("the checksum of"));
  }
  CHECK(std::ranges::count(ended[0].x, 1.0F) == 50'000);  // what was wrong was not added
}

TEST_CASE("a connection that is cut after any byte is a loss within a second", "[transport][tcp][fault]") {
  auto const at        = GENERATE(as<std::size_t>{}, 0, 1, 63, 64, 5'000);  // of the first frame
  auto const addresses = free_loopback_addresses(3);
  auto const proxy     = Proxy{addresses[2], addresses[0], Proxy::Deed::cut, shaken + at};
  auto const begin     = std::chrono::steady_clock::now();
  auto const ended =
      take_part({{0, two({addresses[0], addresses[1]})}, {1, two({addresses[2], addresses[1]})}}, 50'000);
  CHECK(std::chrono::steady_clock::now() - begin < 1500ms);
  INFO("byte " << at);
  for (auto const& rank : ended)
    CHECK((rank.fault == number(Fault::peer_lost) || rank.fault == number(Fault::evicted)));
  CHECK(ended[0].fault != ended[1].fault);  // both say that it was the same one
}
