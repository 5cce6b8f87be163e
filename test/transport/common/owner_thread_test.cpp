// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/threads.hpp>
#include <chorale/transport/common/owner_thread.hpp>

#include <catch2/catch.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

namespace owner_thread_test {

using namespace chorale;

namespace {

constexpr Rank rank = 3;

/// What use() throws in a thread of this name; empty when it returns.
template <class Idle> std::string refused_in_thread(std::string const& name, OwnerThread& owner, Idle idle) {
  auto text = std::string{};
  NamedThread{name, [&] {
                try {
                  auto const use = owner.use(rank, idle);
                } catch (BadArgument const& error) { text = error.what(); }
              }};
  return text;
}

auto const idle = [] { return true; };
auto const busy = [] { return false; };

}  // namespace

TEST_CASE("an endpoint goes to the next thread that calls it when nothing is under way", "[transport][owner]") {
  auto owner = OwnerThread{};
  { auto const use = owner.use(rank, busy); }
  CHECK(refused_in_thread("second", owner, idle) == "");
  { auto const use = owner.use(rank, idle); }
  { auto const use = owner.use(rank, busy); }  // mine again: nobody is asked
}

TEST_CASE("a thread that calls while operations of the owner are under way is told both threads",
          "[transport][owner]") {
  auto owner = OwnerThread{};
  { auto const use = owner.use(rank, idle); }
  auto const me = std::to_string(syscall(SYS_gettid));
  CHECK_THAT(refused_in_thread("intruder", owner, busy),
             Catch::Contains("rank 3 has operations under way of thread " + me) &&
                 Catch::Contains("(intruder) calls it") && Catch::Contains("Try: one thread for each endpoint"));
  { auto const use = owner.use(rank, busy); }  // still mine
}

TEST_CASE("a thread that calls while the owner is in a call is refused", "[transport][owner]") {
  auto owner     = OwnerThread{};
  auto const use = owner.use(rank, idle);
  CHECK_THAT(refused_in_thread("intruder", owner, idle), Catch::Contains("rank 3 is in use by thread "));
}

TEST_CASE("what a thread leaves under way when it ends is the next one's", "[transport][owner]") {
  auto owner = OwnerThread{};
  CHECK(refused_in_thread("first", owner, busy) == "");
  { auto const use = owner.use(rank, busy); }
}

TEST_CASE("of threads that call at once no two are in a call", "[transport][owner]") {
  constexpr int threads = 2, calls = 1'000'000;
  auto owner   = OwnerThread{};
  auto inside  = 0;  // changed by who is in a call
  auto served  = 0;
  auto refused = std::atomic<int>{0}, both = std::atomic<int>{0}, ready = std::atomic<int>{0};
  {
    auto all = std::vector<NamedThread>{};
    for (int t = 0; t < threads; ++t)
      all.emplace_back("caller", [&] {
        ready.fetch_add(1);
        spin_until([&] { return ready.load() == threads; });
        for (int i = 0; i < calls; ++i) {
          try {
            auto const use = owner.use(rank, idle);
            if (++inside != 1) both.fetch_add(1);
            ++served;
            --inside;
          } catch (BadArgument const&) { refused.fetch_add(1); }
        }
      });
  }
  CHECK(both.load() == 0);
  CHECK(served + refused.load() == threads * calls);
}

}  // namespace owner_thread_test
