// SPDX-License-Identifier: Apache-2.0
//
// The order of receives, over transports that threads of one process can use, and those that pass messages on to one.
#include "test/support/on_ranks.hpp"

#include <chorale/transport/counting.hpp>
#include <chorale/transport/faulty.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/staged.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

namespace posted_order_test {

using namespace chorale;
using namespace chorale::test;

namespace {

/// All memory is the device's.
struct Everywhere {
  using block = std::vector<std::byte>;

  static constexpr Memory memory = Memory::cuda;

  static bool holds(std::byte const*) { return true; }
  static block allocate(std::size_t bytes) { return block(bytes); }
  static void to_host(Bytes to, ConstBytes from) { std::memcpy(to.data(), from.data(), from.size()); }
  static void from_host(Bytes to, ConstBytes from) { std::memcpy(to.data(), from.data(), from.size()); }
};

using Transports =
    std::tuple<LocalTransport, Counting<LocalTransport>, Faulty<LocalTransport>, Staged<LocalTransport, Everywhere>,
               Layered<LocalTransport, LocalTransport>, SharedMemoryTransport, TcpTransport>;

constexpr std::size_t n = 40;

/// One rank sends n numbers with one tag and n with another, one by one; the other posts all its receives and then
/// waits for them as wait(receives) does.
template <class T, class Wait> std::vector<float> received(Wait wait) {
  auto const ended = on_ranks<T>(2, 2 * n, [&](auto& at, auto& x) {
    auto all       = std::vector<decltype(at.send(0, Tag{}, {}))>{};
    auto const one = [&](std::size_t i) { return x.subspan(i, 1); };
    for (std::size_t i = 0; i < 2 * n; ++i)
      all.push_back(at.rank() == 0 ? at.send(1, Tag{i % 2 == 0 ? 1U : 2U}, std::as_bytes(one(i)))
                                   : at.recv(0, Tag{i % 2 == 0 ? 1U : 2U}, std::as_writable_bytes(one(i))));
    if (at.rank() == 0)
      for (auto& sent : all) sent.wait();
    else wait(all);
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  return ended[1].x;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("receives of one tag get its messages in the order in which they were posted",
                        "[transport][contract]", Transports) {
  auto const expected = values_of(0, 2 * n);
  for (int again = 0; again < 20; ++again) {
    CHECK(same_bits(received<TestType>([](auto& all) {
                      for (auto& one : all) one.wait();
                    }),
                    expected));
    CHECK(same_bits(received<TestType>([](auto& all) {  // from the last to the first
                      for (auto i = all.size(); i-- > 0;) all[i].wait();
                    }),
                    expected));
    CHECK(same_bits(received<TestType>([](auto& all) {  // looks at all until all are done
                      for (auto left = all.size(); left > 0;) {
                        left = 0;
                        for (auto& one : all) left += one.done() ? 0 : 1;
                      }
                    }),
                    expected));
  }
}

}  // namespace posted_order_test
