// SPDX-License-Identifier: Apache-2.0
// Many operations under way at once, under tags of any value; and one endpoint in the hands of several threads.
#include "test/support/cases.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

template <class T> T soon_stuck() {  // so that a test that would wait fails soon
  auto transport           = T{};
  transport.timeouts.stuck = 10s;
  if constexpr (requires { transport.arena; }) transport.arena = 1 << 20;
  return transport;
}

/// All-reduces of 10 floats, one for each tag, all started before the first is polled: on every other rank, the last.
template <class R, class E> void reduce_at_once(E& at, std::vector<Tag> const& tags) {
  constexpr std::size_t n = 10;
  auto own                = std::vector<float>(n * tags.size());
  auto values             = Span<float>{own};
  if constexpr (requires { at.memory(); }) values = {reinterpret_cast<float*>(at.memory().data()), own.size()};
  auto const x    = [&](std::size_t i) { return values.subspan(n * i, n); };
  using Operation = decltype(R{}.start(at, x(0), Op::sum, Tag{}));
  auto operations = std::vector<Operation>(tags.size());
  for (std::size_t i = 0; i < tags.size(); ++i) {
    std::ranges::fill(x(i), static_cast<float>(at.rank() + 1) * static_cast<float>(i + 1));
    operations[i].restart(at, x(i), Op::sum, tags[i]);
  }
  auto const backwards = at.rank() % 2 == 1;
  for (auto over = std::size_t{0}; over < tags.size();) {
    over = 0;
    for (std::size_t i = 0; i < tags.size(); ++i) over += operations[backwards ? tags.size() - 1 - i : i].poll();
  }
  for (std::size_t i = 0; i < tags.size(); ++i) {
    auto const sum = static_cast<float>(at.size() * (at.size() + 1) / 2) * static_cast<float>(i + 1);
    if (!std::ranges::all_of(x(i), [&](float value) { return value == sum; }))
      throw Error{"operation " + std::to_string(i) + " has a wrong sum"};
  }
  barrier(at, Tag{7});
}

std::vector<Tag> tags_from(std::uint32_t first, std::uint32_t step, std::size_t n) {
  auto tags = std::vector<Tag>{};
  for (std::size_t i = 0; i < n; ++i) tags.push_back(Tag{first + step * static_cast<std::uint32_t>(i)});
  return tags;
}

template <class R, class T> void check_at_once(int ranks, std::vector<Tag> const& tags) {
  INFO(ranks << " ranks, " << tags.size() << " tags, the second of them " << static_cast<std::uint32_t>(tags[1]));
  auto const ended = on_ranks<T>(ranks, 1, [&](auto& at, auto&) { reduce_at_once<R>(at, tags); }, soon_stuck<T>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

/// What a thread gets that makes this call; empty when it returns.
std::string refusal_of(std::function<void()> const& call) {
  auto text = std::string{};
  NamedThread{"intruder", [&] {
                try {
                  call();
                } catch (BadArgument const& error) { text = error.what(); }
              }};
  return text;
}

}  // namespace

TEST_CASE("what is announced is found by number and by tag, whatever the tags are", "[transport][tags]") {
  auto const random = Random{5, 0};
  auto announced    = chorale::detail::OperationLog{};
  auto newest       = std::map<std::uint32_t, std::uint64_t>{};
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    auto const bits = random.bits(i);
    auto const tag  = static_cast<std::uint32_t>(bits % 3 == 0   ? 64 * (bits >> 8)
                                                 : bits % 3 == 1 ? bits >> 8 & 63
                                                                 : bits >> 32);
    announced.add({Collective::all_reduce, Op::sum, Element::f32, i, Tag{tag}});
    newest[tag] = i;
    if (i % 100 != 0) continue;
    for (auto const& [known, number] : newest) {
      auto const& found    = announced.of(Tag{known});
      auto const forgotten = i - number >= announced.remembered;
      if (found.sequence != (forgotten ? 0 : number)) FAIL("tag " << known << " after " << i);
      if (announced.at(number).operation.count != (forgotten ? 0 : number)) FAIL("operation " << number << " of " << i);
    }
  }
  CHECK(announced.of(Tag{0xABCD'EF01}).sequence == 0);
  CHECK(announced.at(20'001).sequence == 0);
}

TEMPLATE_TEST_CASE("operations whose tags are equal modulo 64 are under way at once", "[transport][tags]", TcpTransport,
                   SharedMemoryTransport) {
  for (auto const ranks : {2, 3, 4}) {
    check_at_once<RingAllReduce, TestType>(ranks, {Tag{1}, Tag{65}});
    check_at_once<RingAllReduce, TestType>(ranks, tags_from(1, 64, 20));
    check_at_once<HalvingDoublingAllReduce, TestType>(ranks, tags_from(3, 1U << 16, 20));
  }
}

TEMPLATE_TEST_CASE("200 operations are under way at once", "[transport][tags]", TcpTransport, SharedMemoryTransport) {
  for (auto const ranks : {2, 3, 4}) {
    check_at_once<RingAllReduce, TestType>(ranks, tags_from(0, 1, 200));
    check_at_once<HalvingDoublingAllReduce, TestType>(ranks, tags_from(5, 64, 200));
  }
}

TEST_CASE("messages that nobody waits for yet are kept, whatever their size, and received in their order",
          "[transport][tags]") {
  constexpr auto messages = 150;
  auto const bytes        = GENERATE(as<std::size_t>{}, 1, 3'000, 100'000);  // in slots; over the stage
  auto const ended        = on_ranks<SharedMemoryTransport>(
      2, 1,
      [&](auto& at, auto&) {
        auto const other = 1 - at.rank();
        auto out         = std::vector<std::vector<std::byte>>{};
        for (int i = 0; i < messages; ++i) out.emplace_back(bytes, static_cast<std::byte>(i));
        auto sent = std::vector<SharedMemoryEndpoint::pending>{};
        auto one  = std::byte{1};
        for (int i = 0; i < messages; ++i)  // two tags; nobody receives one of them yet
          sent.push_back(at.send(other, Tag{static_cast<std::uint32_t>(i % 2)}, out[static_cast<std::size_t>(i)]));
        sent.push_back(at.send(other, Tag{9}, {&one, 1}));
        auto last = std::byte{};
        at.recv(other, Tag{9}, {&last, 1}).wait();  // behind all others
        if (last != one) throw Error{"another last message"};
        for (auto const tag : {1, 0})
          for (int i = tag; i < messages; i += 2) {
            auto got = std::vector<std::byte>(bytes);
            at.recv(other, Tag{static_cast<std::uint32_t>(tag)}, got).wait();
            if (got != out[static_cast<std::size_t>(i)]) throw Error{"message " + std::to_string(i) + " is another"};
          }
        for (auto& each : sent) each.wait();
        barrier(at, Tag{7});
      },
      soon_stuck<SharedMemoryTransport>());
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEST_CASE("a rank keeps 64 MiB from another at most, and says so when it waits for ever", "[transport][tags]") {
  auto ended               = std::vector<std::string>{};
  auto transport           = soon_stuck<SharedMemoryTransport>();
  transport.timeouts.stuck = 2s;
  auto const big           = std::vector<std::byte>(1 << 20);
  auto const both          = on_ranks<SharedMemoryTransport>(
      2, 1,
      [&](auto& at, auto&) {
        auto sent = std::vector<SharedMemoryEndpoint::pending>{};
        auto one  = std::byte{};
        if (at.rank() == 0)
          for (int i = 0; i < 200; ++i) sent.push_back(at.send(1, Tag{1}, big));
        at.recv(1 - at.rank(), Tag{9}, {&one, 1}).wait();  // never sent
      },
      transport);
  CHECK_THAT(both[0].error + both[1].error,
             Catch::Contains("rank 1 keeps 6606") &&  // 63 MiB, and where they are noted
                 Catch::Contains(" bytes from rank 0 for which it has posted no receive, and takes no more"));
}

TEST_CASE("60 operations in place are under way at once, and more wait for them", "[transport][tags]") {
  for (auto const ranks : {2, 3}) {
    check_at_once<DirectAllReduce, SharedMemoryTransport>(ranks, {Tag{1}, Tag{65}});
    check_at_once<DirectAllReduce, SharedMemoryTransport>(ranks, tags_from(1, 64, 60));
    check_at_once<DirectAllReduce, SharedMemoryTransport>(ranks, tags_from(1, 1, 200));
  }
}

TEST_CASE("an operation in place that waits for one 64 before it is one sentence", "[transport][tags]") {
  auto const ended = on_ranks<SharedMemoryTransport>(
      2, 1,
      [](auto& at, auto&) {
        auto const x    = Span<float>{reinterpret_cast<float*>(at.memory().data()), 4};
        auto operations = std::vector<decltype(DirectAllReduce{}.start(at, x, Op::sum))>(65);
        for (std::uint32_t i = 0; i < 65; ++i) operations[i].restart(at, x, Op::sum, Tag{i});
        operations[64].finish();
      },
      soon_stuck<SharedMemoryTransport>());
  for (auto const& rank : ended)
    CHECK_THAT(rank.error, Catch::Contains("waits to expose memory under tag 64, while more than 63 other operations"));
}

TEMPLATE_TEST_CASE("an endpoint that two threads use at once refuses one of them, and names both", "[transport][tags]",
                   TcpTransport, SharedMemoryTransport) {
  auto refused    = 0;
  auto text       = std::string{};
  auto endpoints  = soon_stuck<TestType>().connect(Group::all_local(2));
  auto& at        = endpoints[0];
  auto got        = std::array{0.0F};
  auto const into = std::as_writable_bytes(Span<float>{got});
  {
    auto pending      = at.recv(1, Tag{1}, into);  // under way: this thread is the owner
    auto const others = [&](std::function<void()> const& call) {
      text = refusal_of(call);
      refused += text.empty() ? 0 : 1;
    };
    auto x = std::array{1.0F};
    others([&] { at.send(1, Tag{2}, std::as_bytes(Span<float>{x})); });
    CHECK_THAT(text, Catch::Contains("the endpoint of rank 0 has operations under way of thread ") &&
                         Catch::Contains("its owner, and thread ") && Catch::Contains("(intruder) calls it"));
    others([&] { at.recv(1, Tag{2}, into); });
    others([&] { at.announce({}); });
    others([&] { pending.done(); });
    others([&] { pending.wait(); });
    CHECK(refused == 5);
    endpoints[1].send(0, Tag{1}, std::as_bytes(Span<float>{x}));
    pending.wait();  // the owner's go on
    CHECK(got[0] == 1.0F);
  }
  auto const thread = NamedThread{"next", [&] {  // nothing is under way: it may go on
                                    auto x = std::array{3.0F};
                                    at.send(1, Tag{4}, std::as_bytes(Span<float>{x}));
                                  }};
  endpoints[1].recv(0, Tag{4}, into).wait();
  CHECK(got[0] == 3.0F);
}

TEMPLATE_TEST_CASE("threads that race for one endpoint end with sums or with sentences", "[transport][tags]",
                   TcpTransport, SharedMemoryTransport) {
  auto endpoints = soon_stuck<TestType>().connect(Group::all_local(2));
  std::string told[2];
  std::atomic<int> inside{0};
  {
    auto threads = std::vector<NamedThread>{};
    for (auto i : {0, 1})
      threads.emplace_back("user " + std::to_string(i), [&, i] {
        auto x = std::array{1.0F};
        ++inside;
        while (inside.load() < 2) {}
        try {
          for (int round = 0; round < 10'000; ++round)
            endpoints[0].send(1, Tag{static_cast<std::uint32_t>(i)}, std::as_bytes(Span<float>{x}));
        } catch (BadArgument const& error) {
          told[static_cast<std::size_t>(i)] = error.what();
        } catch (PeerLost const&) {}
        if (!told[static_cast<std::size_t>(i)].empty()) endpoints[0].fail("two threads");
      });
  }
  CHECK((told[0].empty() || told[1].empty() || told[0] != told[1]));
  CHECK_THAT(told[0] + told[1], Catch::Contains("the endpoint of rank 0"));
}
