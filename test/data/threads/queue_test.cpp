// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/threads.hpp>
#include <chorale/data/threads/queue.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;
using data::Fifo;
using data::PriorityQueue;
using data::RandomQueue;
using Ints = std::vector<int>;

namespace {

Ints all_of(auto& queue) {
  auto all = Ints{};
  while (auto value = queue.pop()) all.push_back(*value);
  return all;
}

Ints drawn(Seed seed, int n) {
  auto queue = RandomQueue<int>{static_cast<std::size_t>(n), data::AnyOf<int>{seed}};
  for (int i = 0; i < n; ++i) CHECK(queue.push(i));
  queue.close();
  return all_of(queue);
}

struct Errand {
  int urgency;
  std::string name;
  friend bool operator<(Errand const& a, Errand const& b) { return a.urgency < b.urgency; }
};

/// A place that refuses negative elements, and the first few takes; says how often a queue has looked at its size.
struct Refusing {
  struct Seen {
    std::atomic<int> looks = 0, refusals = 0, takes_to_refuse = 0;
  };
  data::FirstIn<int> values{};
  Seen* seen;

  void put(int value) { value < 0 ? refuse() : values.put(value); }
  int take() {
    if (seen->takes_to_refuse-- > 0) refuse();
    return values.take();
  }
  std::size_t size() const {
    ++seen->looks;
    return values.size();
  }
  void refuse() const {
    ++seen->refusals;
    throw std::bad_alloc{};
  }
};
using RefusingQueue = data::BoundedQueue<int, Refusing>;

/// Threads that wait in a queue, then what wakes one of them: do all come back while the queue is open?
bool all_come_back(RefusingQueue& queue, Refusing::Seen& seen, int threads, auto const& wait, auto const& wake) {
  auto back = std::atomic<int>{0};
  auto done = std::promise<void>{};
  auto all  = std::vector<NamedThread>{};
  for (int i = 0; i < threads; ++i) {
    auto const before = seen.looks.load();
    all.emplace_back("waiting", [&, i] {
      try {
        wait(i);
      } catch (std::bad_alloc const&) {}
      if (++back == threads) done.set_value();
    });
    while (seen.looks == before) std::this_thread::yield();  // under the lock, which only the wait gives up
  }
  wake();
  auto const in_time = done.get_future().wait_for(5s) == std::future_status::ready;
  queue.close();
  return in_time;
}

}  // namespace

TEST_CASE("a fifo gives elements in their order, and what is left after it was closed", "[data][queue]") {
  auto queue = Fifo<int>{3};
  CHECK((queue.push(1) && queue.push(2)));
  CHECK(queue.pop() == 1);
  CHECK((queue.push(3) && queue.push(4)));
  CHECK(queue.size() == 3);
  queue.close();
  CHECK(queue.closed());
  CHECK_FALSE(queue.push(5));
  CHECK(all_of(queue) == Ints{2, 3, 4});
  CHECK_FALSE(queue.pop().has_value());
}

TEST_CASE("cancel drops what is there", "[data][queue]") {
  auto queue = Fifo<std::shared_ptr<int>>{3};
  auto value = std::make_shared<int>(1);
  REQUIRE(queue.push(value));
  queue.cancel();
  CHECK(value.use_count() == 1);
  CHECK_FALSE(queue.pop().has_value());
  CHECK_FALSE(queue.push(value));
}

TEST_CASE("a random queue gives an order that the seed fixes, all of them with the same chance", "[data][queue]") {
  auto const one = drawn(1, 50);
  CHECK(one == drawn(1, 50));
  CHECK(one != drawn(2, 50));
  auto sorted = one;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 50; ++i) CHECK(sorted[static_cast<std::size_t>(i)] == i);
  CHECK(sorted != one);
  auto first = Ints(4);  // 4'000 draws: 1'000 each, deviation 27
  for (std::uint64_t seed = 0; seed < 4'000; ++seed) ++first[static_cast<std::size_t>(drawn(seed, 4)[0])];
  CHECK(*std::min_element(first.begin(), first.end()) > 850);
}

TEST_CASE("a priority queue gives the least first, equal ones in their order", "[data][queue]") {
  auto queue = PriorityQueue<Errand>{100};
  for (int i = 0; i < 60; ++i) REQUIRE(queue.push({i * 7 % 3, std::to_string(i)}));
  queue.close();
  auto last = Errand{-1, "-1"};
  for (int i = 0; i < 60; ++i) {
    auto const next = queue.pop();
    REQUIRE(next.has_value());
    CHECK(next->urgency >= last.urgency);
    if (next->urgency == last.urgency) CHECK(std::stoi(next->name) > std::stoi(last.name));
    last = *next;
  }
  CHECK_FALSE(queue.pop().has_value());
  auto most = PriorityQueue<int, std::greater<>>{3};
  REQUIRE((most.push(1) && most.push(3) && most.push(2)));
  CHECK(most.pop() == 3);
}

TEST_CASE("elements that can only be moved go through every queue", "[data][queue]") {
  auto queue = Fifo<std::unique_ptr<int>>{1};
  REQUIRE(queue.push(std::make_unique<int>(7)));
  CHECK(**queue.pop() == 7);
  auto any = RandomQueue<std::unique_ptr<int>>{1};
  REQUIRE(any.push(std::make_unique<int>(8)));
  CHECK(**any.pop() == 8);
}

TEST_CASE("a queue is bounded: a push waits for a pop", "[data][queue]") {
  auto queue        = Fifo<int>{2};
  auto pushed       = std::atomic<int>{0};
  auto const pusher = NamedThread{"pusher", [&] {
                                    for (int i = 0; i < 100; ++i) pushed += queue.push(i);
                                    queue.close();
                                  }};
  for (int i = 0; i < 100; ++i) {
    CHECK(queue.size() <= 2);
    CHECK(pushed <= i + 3);  // two wait, one more as this one leaves
    CHECK(queue.pop() == i);
  }
  CHECK_FALSE(queue.pop().has_value());
  CHECK(pushed == 100);
}

TEST_CASE("many threads put and take every element once", "[data][queue]") {
  auto const check = [](auto& queue) {
    auto sum = std::atomic<long>{0};
    auto n   = std::atomic<int>{0};
    auto out = std::vector<NamedThread>{};
    for (int t = 0; t < 3; ++t)
      out.emplace_back("taker", [&] {
        while (auto value = queue.pop()) sum += *value, ++n;
      });
    {
      auto in = std::vector<NamedThread>{};
      for (int t = 0; t < 3; ++t)
        in.emplace_back("putter", [&queue, t] {
          for (int i = 0; i < 500; ++i)
            if (!queue.push(500 * t + i)) return;
        });
    }
    queue.close();
    out.clear();
    CHECK(n == 1'500);
    CHECK(sum == 1'500L * 1'499 / 2);
  };
  auto fifo     = Fifo<int>{4};
  auto random   = RandomQueue<int>{4};
  auto priority = PriorityQueue<int>{4};
  check(fifo), check(random), check(priority);
}

TEST_CASE("close and cancel wake everyone who waits", "[data][queue]") {
  for (auto const cancelled : {false, true}) {
    auto empty = Fifo<int>{1}, full = Fifo<int>{1};
    REQUIRE(full.push(1));
    auto back = std::atomic<int>{0};
    {
      auto waiting = std::vector<NamedThread>{};
      for (int i = 0; i < 3; ++i) {
        waiting.emplace_back("pop", [&] { back += !empty.pop().has_value(); });
        waiting.emplace_back("push", [&] { back += !full.push(2); });
      }
      if (cancelled) empty.cancel(), full.cancel();
      else empty.close(), full.close();
    }
    CHECK(back == 6);
  }
}

TEST_CASE("a deadline ends a wait", "[data][queue]") {
  auto queue = Fifo<int>{1};
  CHECK_FALSE(queue.pop(Deadline::after(1ms)).has_value());
  REQUIRE(queue.push(1, Deadline::after(1ms)));
  CHECK_FALSE(queue.push(2, Deadline::after(1ms)));
  CHECK(queue.pop(Deadline::after(1h)) == 1);
}

TEST_CASE("the room that a push which throws was woken for is for the next one", "[data][queue]") {
  auto seen  = Refusing::Seen{};
  auto queue = RefusingQueue{1, Refusing{.seen = &seen}};
  REQUIRE(queue.push(1));
  auto pushed     = std::atomic<int>{0};
  auto const wait = [&](int i) { pushed += queue.push(i < 3 ? -1 : 2); };
  auto const wake = [&] {  // the 2 may come before others are refused
    CHECK(queue.pop() == 1);
    CHECK(queue.pop(Deadline::after(5s)) == 2);
  };
  CHECK(all_come_back(queue, seen, 4, wait, wake));
  CHECK(seen.refusals == 3);
  CHECK(pushed == 1);
}

TEST_CASE("the element that a pop which throws was woken for is for the next one", "[data][queue]") {
  auto seen            = Refusing::Seen{};
  seen.takes_to_refuse = 3;
  auto queue           = RefusingQueue{1, Refusing{.seen = &seen}};
  auto popped          = std::atomic<int>{0};
  auto const wait      = [&](int) { popped += queue.pop().value_or(0); };
  CHECK(all_come_back(queue, seen, 4, wait, [&] { CHECK(queue.push(7)); }));
  CHECK(seen.refusals == 3);
  CHECK(popped == 7);
}

TEST_CASE("a queue without room is refused", "[data][queue]") { CHECK_THROWS_AS(Fifo<int>{0}, BadArgument); }
