// SPDX-License-Identifier: Apache-2.0
// SealedTcpTransport: the same numbers as plain frames give, and what somebody on the path can see and do.
#include "test/faults/proxy.hpp"
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/transport/tcp.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t shaken = 156;  // bytes of the caller's handshake

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(Span<char const>{text}); }

Secret secret() { return Secret{bytes_of("sixteen bytes, at least")}; }

template <class T> T with_secret() {
  return {.secret = secret(), .log = [](std::string const&) {}};
}

template <class R> void check_same_as_plain(int ranks, std::size_t n) {
  auto const body   = [](auto& at, auto& x) { R{}.all_reduce(at, x, Op::sum); };
  auto const sealed = on_ranks(ranks, n, body, with_secret<SealedTcpTransport>());
  auto const plain  = on_ranks(ranks, n, body, with_secret<TcpTransport>());
  for (std::size_t rank = 0; rank < sealed.size(); ++rank) {
    CHECK(sealed[rank].error == "");
    CHECK(same_bits(sealed[rank].x, plain[rank].x));
    CHECK(same_bits(sealed[rank].x, plain[0].x));
  }
}

/// How a rank's work ended.
struct Outcome {
  int fault = -1;  // a Fault; -1: all went well
  std::string error{};
};

template <class Work> Outcome outcome_of(Work work) {
  try {
    work();
  } catch (PeerLost const& lost) {
    return {static_cast<int>(lost.fault()), lost.what()};
  } catch (Disagreement const& error) { return {static_cast<int>(error.fault()), error.what()}; }
  return {};
}

/// What becomes of two ranks, and what rank 0 has got.
struct Sent {
  explicit Sent(std::size_t n) : got(n, '-') {}

  std::array<Outcome, 2> outcomes{};
  std::string got;
};

/// Rank 1 sends `text` twice, and rank 0 once; what rank 0 got last stands in `got`.
template <class T, class After>
void talk(T const& transport, Rank rank, std::string_view text, std::string& got, After after) {
  auto at         = std::move(transport.connect(Group{2, {rank}})[0]);
  auto into       = std::string(text.size(), '-');
  auto const room = std::as_writable_bytes(Span<char>{into});
  at.announce({Collective::broadcast, Op::sum, Element::byte, text.size(), Tag{3}, {}});
  if (rank == 0) {
    for (int i = 0; i < 2; ++i) {
      at.recv(1, Tag{3}, room).wait();
      got = into;
    }
    at.send(1, Tag{3}, bytes_of(text)).wait();
  } else {
    auto first = at.send(0, Tag{3}, bytes_of(text)), second = at.send(0, Tag{3}, bytes_of(text));
    at.recv(0, Tag{3}, room).wait();
    first.wait();
    second.wait();
  }
  after(at);
}

constexpr auto no_more = [](auto&) {};

/// What rank 1 sends goes past a proxy.
template <class T0, class T1, class After = decltype(no_more)>
Sent send_past(Proxy::Passes passes, std::string_view text, T0 first, T1 second, After after = no_more) {
  auto const addresses = free_loopback_addresses(3);
  auto const proxy     = Proxy{addresses[2], addresses[0], std::move(passes)};
  first.addresses      = {addresses[0], addresses[1]};
  second.addresses     = {addresses[2], addresses[1]};
  first.plan = second.plan = {"embedding/table f32[9,9]"};
  auto sent                = Sent{text.size()};
  auto const call          = [&](auto const& transport, Rank rank) {
    sent.outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] { talk(transport, rank, text, sent.got, after); });
  };
  auto threads = std::vector<NamedThread>{};
  threads.emplace_back("rank 0", [&] { call(first, 0); });
  threads.emplace_back("rank 1", [&] { call(second, 1); });
  threads.clear();
  return sent;
}

Sent send_past(Proxy::Passes passes, std::string_view text) {
  auto transport          = with_secret<SealedTcpTransport>();
  transport.timeouts.join = 10s;
  return send_past(std::move(passes), text, transport, transport);
}

/// Changes bytes of one connection, `at` bytes after its handshake. Every byte is passed on.
Proxy::Passes change(std::size_t connection, std::size_t at, std::vector<std::byte> to) {
  return [=](std::size_t number, std::size_t before, Bytes bytes) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      auto const place = shaken + at + i;
      if (number == connection && place >= before && place < before + bytes.size()) bytes[place - before] = to[i];
    }
    return bytes.size();
  };
}

Proxy::Passes flip(std::size_t connection, std::size_t at) {
  return [=](std::size_t number, std::size_t before, Bytes bytes) {
    auto const place = shaken + at;
    if (number == connection && place >= before && place < before + bytes.size()) bytes[place - before] ^= std::byte{4};
    return bytes.size();
  };
}

bool contains(std::vector<std::byte> const& all, std::string_view text) {
  auto const part = bytes_of(text);
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

constexpr auto secret_text = std::string_view{"a gradient that is nobody's business but that of the two who share it"};

}  // namespace

TEST_CASE("an all-reduce over sealed frames has the bits of one over plain frames", "[transport][tcp][sealed]") {
  auto const ranks = GENERATE(2, 3, 4);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 5, 10'007, 300'007);
  check_same_as_plain<RingAllReduce>(ranks, n);
  check_same_as_plain<ReduceToOne>(ranks, n);
}

TEST_CASE("sealed messages of any size arrive whole, also when others overtake them", "[transport][tcp][sealed]") {
  auto const sizes = std::array<std::size_t, 8>{0, 1, 16, 16'304, 262'144, 262'145, 1'048'577, 3'145'728};
  auto const ended = on_ranks(
      2, 0,
      [&](auto& at, auto&) {
        auto mine = std::vector<std::vector<std::byte>>{}, theirs = mine;
        auto sent = std::vector<SealedTcpTransport::endpoint::pending>{};
        for (auto const size : sizes) {
          mine.emplace_back(size);
          theirs.emplace_back(size);
          for (std::size_t i = 0; i < size; ++i) mine.back()[i] = static_cast<std::byte>(i * 7 + i / 251 + size);
        }
        for (unsigned i = 0; i < sizes.size(); ++i) sent.push_back(at.send(1 - at.rank(), Tag{i}, mine[i]));
        for (unsigned i = sizes.size(); i-- > 0;)
          at.recv(1 - at.rank(), Tag{i}, theirs[i]).wait();  // the last one first
        for (auto& pending : sent) pending.wait();
        if (mine != theirs) throw Error{"bytes arrived changed"};
      },
      with_secret<SealedTcpTransport>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("who listens sees what plain frames say, and not what sealed ones do", "[transport][tcp][sealed]") {
  auto all          = std::vector<std::byte>{};
  auto const record = [&](std::size_t, std::size_t, Bytes bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return bytes.size();
  };
  auto const sealed = send_past(record, secret_text);
  for (auto const& outcome : sealed.outcomes) CHECK(outcome.error == "");
  CHECK(sealed.got == secret_text);
  CHECK(all.size() > 2 * shaken + 2 * secret_text.size());
  for (auto const part : {secret_text, secret_text.substr(0, 8), std::string_view{"embedding"}})
    CHECK_FALSE(contains(all, part));
  all.clear();
  auto const plain = send_past(record, secret_text, with_secret<TcpTransport>(), with_secret<TcpTransport>());
  for (auto const& outcome : plain.outcomes) CHECK(outcome.error == "");
  for (auto const part : {secret_text, std::string_view{"embedding"}}) CHECK(contains(all, part));
}

TEST_CASE("a bit that somebody flips in a sealed frame is found, wherever it is", "[transport][tcp][sealed]") {
  auto const at   = GENERATE(as<std::size_t>{}, 0, 5, 7, 30, 40, 52, 63, 64, 100, 64 + 69, 64 + 69 + 15);
  auto const sent = send_past(flip(1, at), secret_text);  // the last two: of the tag
  INFO("byte " << at << ": " << sent.outcomes[0].error);
  CHECK(sent.outcomes[0].fault == static_cast<int>(Fault::frame_corrupt));
  CHECK_THAT(sent.outcomes[0].error, Catch::Contains("a frame from it") || Catch::Contains("does not open"));
  CHECK((sent.outcomes[1].fault == static_cast<int>(Fault::frame_corrupt) ||
         sent.outcomes[1].fault == static_cast<int>(Fault::evicted)));
  CHECK(sent.got == std::string(secret_text.size(), '-'));
}

TEST_CASE("a header that somebody changes together with its checksum does not open", "[transport][tcp][sealed]") {
  auto const call  = Operation{Collective::broadcast, Op::sum, Element::byte, secret_text.size(), Tag{3}, {}};
  auto head        = wire::Header{};
  head.from        = 1;
  head.tag         = Tag{3};
  head.sequence    = 1;
  head.collective  = Collective::broadcast;
  head.count       = secret_text.size() + 1;  // what differs
  head.fingerprint = call.fingerprint();
  head.length      = secret_text.size();
  auto const plain = GENERATE(true, false);
  auto bytes       = wire::HeaderBytes{};
  if (plain) head.payload_crc = crc32c(bytes_of(secret_text));
  wire::write(head, bytes);
  auto const to = change(1, 0, {bytes.begin(), bytes.end()});
  if (plain) {  // a checksum is no protection
    auto const sent = send_past(to, secret_text, with_secret<TcpTransport>(), with_secret<TcpTransport>());
    CHECK(sent.outcomes[0].error == "");
  } else {
    auto const sent = send_past(to, secret_text);
    CHECK(sent.outcomes[0].fault == static_cast<int>(Fault::frame_corrupt));
    CHECK_THAT(sent.outcomes[0].error, Catch::Contains("a sealed frame of 69 bytes from it does not open"));
  }
}

TEST_CASE("a goodbye that somebody forges is none", "[transport][tcp][sealed]") {
  auto head  = wire::Header{};
  head.type  = wire::FrameType::goodbye;
  head.from  = 1;
  auto bytes = wire::HeaderBytes{};
  wire::write(head, bytes);
  auto const sent = send_past(change(1, 0, {bytes.begin(), bytes.end()}), secret_text);
  CHECK(sent.outcomes[0].fault == static_cast<int>(Fault::frame_corrupt));
}

TEST_CASE("a bit that flips on a sealed control connection ends it", "[transport][tcp][sealed]") {
  auto const at    = GENERATE(as<std::size_t>{}, 0, 8, 64, 64 + 25 + 3, 2'000);  // the plan, its tag; a heartbeat
  auto connections = std::size_t{0};
  auto passes      = [&, changes = flip(0, at)](std::size_t number, std::size_t before, Bytes bytes) {
    connections = std::max(connections, number + 1);
    return changes(number, before, bytes);
  };
  auto transport               = with_secret<SealedTcpTransport>();
  transport.timeouts.heartbeat = 10ms;
  if (at < 1'000) {  // while they join, another one is made
    auto const sent = send_past(passes, secret_text, transport, transport);
    for (auto const& outcome : sent.outcomes) CHECK(outcome.error == "");
    CHECK(connections >= 3);
  } else {
    auto const wait = [](auto& endpoint) {
      auto byte = std::array<std::byte, 1>{};
      endpoint.recv(1 - endpoint.rank(), Tag{4}, byte).wait();  // nobody sends it
    };
    auto const sent = send_past(passes, secret_text, transport, transport, wait);
    CHECK(sent.outcomes[0].fault == static_cast<int>(Fault::frame_corrupt));
    CHECK(sent.outcomes[1].fault >= 0);  // it knows only that a connection ended
    CHECK_THAT(sent.outcomes[0].error, Catch::Contains("a frame of its control connection is damaged"));
  }
}

TEST_CASE("sealed frames need a secret, and both ends must seal", "[transport][tcp][sealed]") {
  CHECK_THROWS_AS(SealedTcpTransport{}.connect(Group::all_local(2)), BadArgument);
  CHECK_THROWS_WITH(SealedTcpTransport{}.connect(Group::all_local(2)), Catch::Contains("makes its keys from a secret"));
  auto const pass      = [](std::size_t, std::size_t, Bytes bytes) { return bytes.size(); };
  auto sealed          = with_secret<SealedTcpTransport>();
  auto plain           = with_secret<TcpTransport>();
  sealed.timeouts.join = plain.timeouts.join = 500ms;
  auto const one = send_past(pass, secret_text, sealed, plain), other = send_past(pass, secret_text, plain, sealed);
  CHECK(one.outcomes[1].fault == static_cast<int>(Fault::world_mismatch));
  CHECK_THAT(one.outcomes[1].error, Catch::Contains("rank 0 seals its frames, and rank 1 does not"));
  CHECK(other.outcomes[1].fault == static_cast<int>(Fault::world_mismatch));
  CHECK_THAT(other.outcomes[1].error, Catch::Contains("rank 1 seals its frames, and rank 0 does not"));
}

TEST_CASE("a rank with sealed frames that ends apart is lost with that reason, after what it had sent",
          "[transport][tcp][sealed][apart]") {
  auto transport     = with_secret<SealedTcpTransport>();
  transport.failures = FailureScope::peer;
  auto endpoints     = transport.connect(Group::all_local(3));
  auto x = std::array{1.0F}, y = std::array{0.0F};
  endpoints[2].send(0, Tag{1}, std::as_bytes(Span<float>{x})).wait();
  endpoints.pop_back();
  endpoints[0].recv(2, Tag{1}, std::as_writable_bytes(Span<float>{y})).wait();
  CHECK(y == x);
  CHECK_THROWS_WITH(endpoints[0].recv(2, Tag{1}, std::as_writable_bytes(Span<float>{y})).wait(),
                    Catch::Contains("rank 0 lost rank 2") && Catch::Contains("it had ended and left the group"));
  CHECK(endpoints[0].lost(2));
  CHECK_FALSE(endpoints[0].lost(1));
  auto sent = endpoints[0].send(1, Tag{1}, std::as_bytes(Span<float>{x}));
  endpoints[1].recv(0, Tag{1}, std::as_writable_bytes(Span<float>{y})).wait();
  sent.wait();
}
