// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"
#include "test/transport/tcp/listening.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/staged.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

namespace staged_test {

using namespace chorale;
using namespace chorale::test;

namespace {

/// A device memory: a few megabytes whose bytes read inverted to whoever does not copy them as they should be.
struct Device {
  std::vector<std::byte> bytes = std::vector<std::byte>(8 << 20);
  std::atomic<int> blocks{0};

  Span<float> floats(std::size_t first, std::size_t n) { return {reinterpret_cast<float*>(bytes.data()) + first, n}; }
};

struct DeviceCopies {
  using block = std::vector<std::byte>;

  static constexpr Memory memory = Memory::cuda;

  std::shared_ptr<Device> device = std::make_shared<Device>();

  bool holds(std::byte const* p) const { return p >= device->bytes.data() && p < device->bytes.data() + (8 << 20); }
  block allocate(std::size_t bytes) const {
    ++device->blocks;
    return block(bytes);
  }
  static void to_host(Bytes to, ConstBytes from) { invert(to, from); }
  static void from_host(Bytes to, ConstBytes from) { invert(to, from); }

 private:
  static void invert(Bytes to, ConstBytes from) {
    std::transform(from.begin(), from.end(), to.begin(), [](std::byte b) { return ~b; });
  }
};

void put(Span<float> on_device, Span<float const> x) {
  DeviceCopies::from_host(std::as_writable_bytes(on_device), std::as_bytes(x));
}

std::vector<float> got(Span<float> on_device) {
  auto x = std::vector<float>(on_device.size());
  DeviceCopies::to_host(std::as_writable_bytes(Span<float>{x}), std::as_bytes(on_device));
  return x;
}

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

using Through = Staged<LocalTransport, DeviceCopies>;

static_assert(Transport<Through> && Through::reaches(Memory::cuda) && Through::reaches(Memory::host));
static_assert(!DirectAccessEndpoint<Through::endpoint>);
static_assert(std::is_same_v<Staged<LocalTransport>::endpoint, LocalEndpoint>);  // it reaches: nothing to do
static_assert(!Staged<LocalTransport>::reaches(Memory::cuda));
static_assert(std::is_same_v<Staged<Through, DeviceCopies>::endpoint, Through::endpoint>);

}  // namespace

TEST_CASE("messages in device memory arrive in device memory", "[transport][staged]") {
  auto const copies = DeviceCopies{};
  auto const n      = GENERATE(as<std::size_t>{}, 0, 1, 1'000, 100'003);
  auto const ended  = on_ranks<Through>(
      3, n,
      [&](auto& at, auto& x) {
        auto const mine = static_cast<std::size_t>(at.rank()) * 4 * n;
        auto const from = copies.device->floats(mine, n), into = copies.device->floats(mine + n, n);
        put(from, x);
        auto sent = at.send((at.rank() + 1) % 3, Tag{1}, out(from));
        at.recv((at.rank() + 2) % 3, Tag{1}, in(into)).wait();
        sent.wait();
        if (!same_bits(got(into), values_of((at.rank() + 2) % 3, n))) throw Error{"another message arrived"};
        if (!same_bits(got(from), values_of(at.rank(), n))) throw Error{"what was sent has changed"};
      },
      Through{.copy = copies});
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("one side may be on the host, and messages complete in any order", "[transport][staged]") {
  auto const copies = DeviceCopies{};
  auto endpoints    = Through{.copy = copies}.connect(Group::all_local(2));
  auto const device = copies.device->floats(0, 6);
  auto x            = std::array{1.0F, 2.0F, 3.0F};
  put(device, std::array{4.0F, 5.0F, 6.0F, 0.0F, 0.0F, 0.0F});
  auto first  = endpoints[0].send(1, Tag{1}, out(device.first(3)));
  auto second = endpoints[0].send(1, Tag{2}, out(x));
  put(device.first(3), std::array{7.0F, 8.0F, 9.0F});  // the message has left the device
  auto y       = std::array{0.0F, 0.0F, 0.0F};
  auto to_dev  = endpoints[1].recv(0, Tag{2}, in(device.last(3)));
  auto to_host = endpoints[1].recv(0, Tag{1}, in(y));
  CHECK(to_host.done());
  auto moved = std::move(endpoints[1]);
  to_dev.wait();
  CHECK(first.done());
  CHECK(second.done());
  CHECK(second.done());
  CHECK(y == std::array{4.0F, 5.0F, 6.0F});
  CHECK(got(device.last(3)) == std::vector{1.0F, 2.0F, 3.0F});
  CHECK(Through::endpoint::pending{}.done());
}

TEST_CASE("a rank that is lost leaves messages with the others alone", "[transport][staged]") {
  auto endpoints = Through{.transport = {.failures = FailureScope::peer}}.connect(Group::all_local(3));
  auto x = std::array{1.0F}, y = std::array{0.0F};
  auto from_lost = endpoints[0].recv(1, Tag{1}, in(y));
  { auto const ended = std::move(endpoints[1]); }
  for (int turn = 0; turn < 3; ++turn) {
    auto sent = endpoints[0].send(2, Tag{2}, out(x));
    endpoints[2].recv(0, Tag{2}, in(y)).wait();
    sent.wait();
    CHECK(y == x);
    x[0] += 1;
  }
  CHECK_THROWS_AS(from_lost.wait(), PeerLost);
}

TEST_CASE("blocks of host memory are kept", "[transport][staged]") {
  auto const copies = DeviceCopies{};
  auto endpoints    = Through{.copy = copies}.connect(Group::all_local(1));
  auto const from = copies.device->floats(0, 1'000), into = copies.device->floats(1'000, 1'000);
  auto round = [&](std::size_t n) {
    endpoints[0].send(0, Tag{}, out(from.first(n)));  // nobody waits for it
    endpoints[0].recv(0, Tag{}, in(into.first(n))).wait();
  };
  round(1'000);
  CHECK(copies.device->blocks == 2);
  for (std::size_t n = 1; n < 1'000; n += 7) round(n);
  CHECK(copies.device->blocks == 2);
}

TEST_CASE("an all-reduce of host memory takes no notice", "[transport][staged]") {
  auto const ring  = [](auto& at, auto& x) { RingAllReduce{}.all_reduce(at, x, Op::sum, Tag{3}); };
  auto const ended = on_ranks<Through>(3, 1'001, ring);
  auto const plain = on_ranks<LocalTransport>(3, 1'001, ring);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(ended[rank].error == "");
    CHECK(same_bits(ended[rank].x, plain[rank].x));
  }
}

TEST_CASE("a staged endpoint passes on what it is told", "[transport][staged]") {
  auto const transport = Staged<ListeningTransport, DeviceCopies>{};
  auto endpoints       = transport.connect(Group::all_local(1));
  CHECK(told(endpoints[0], *transport.transport.heard) == everything);
}

namespace {

/// A transport with a collective of its own, that doubles.
struct DoublingEndpoint : ForwardingEndpoint<LocalEndpoint> {
  using ForwardingEndpoint::ForwardingEndpoint;
  void all_reduce(Span<float> x, Op) {
    for (auto& value : x) value *= 2;
  }
};
struct DoublingTransport {
  using endpoint = DoublingEndpoint;
  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }
  std::vector<endpoint> connect(Group const& group) const {
    auto endpoints = std::vector<endpoint>{};
    for (auto& at : LocalTransport{}.connect(group)) endpoints.emplace_back(std::move(at));
    return endpoints;
  }
};
static_assert(CollectiveTransport<Staged<DoublingTransport, DeviceCopies>> && !CollectiveTransport<Through>);

}  // namespace

TEST_CASE("a transport's own all-reduce is staged as well", "[transport][staged]") {
  auto const copies = DeviceCopies{};
  auto endpoints    = Staged<DoublingTransport, DeviceCopies>{.copy = copies}.connect(Group::all_local(1));
  auto const device = copies.device->floats(0, 3);
  put(device, std::array{1.0F, 2.0F, 3.0F});
  endpoints[0].all_reduce(device, Op::sum);
  endpoints[0].all_reduce(device, Op::sum);
  CHECK(got(device) == std::vector{4.0F, 8.0F, 12.0F});
  CHECK(copies.device->blocks == 1);
  auto x = std::array{5.0F};
  endpoints[0].all_reduce(x, Op::sum);
  CHECK(x[0] == 10.0F);
}

}  // namespace staged_test
