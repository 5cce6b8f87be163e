// SPDX-License-Identifier: Apache-2.0
#include "test/support/thread_state.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/device/cpu_threads.hpp>

#include <catch2/catch.hpp>

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;

TEST_CASE("a run calls the function once on each thread, and the caller is thread 0", "[device][threads]") {
  for (int const size : {1, 2, 5}) {  // also more threads than cores
    auto threads = Cpu::Threads{Cpu{}, size};
    for (int n = 1; n <= size; ++n)
      for (int round = 0; round < 100; ++round) {
        auto calls   = std::array<std::atomic<int>, 5>{};
        auto kernels = std::array<int, 5>{};
        auto first   = std::thread::id{};
        threads.run(n, [&](int i) {
          ++calls[static_cast<std::size_t>(i)];
          kernels[static_cast<std::size_t>(i)] = Cpu::threads_here();
          if (i == 0) first = std::this_thread::get_id();
        });
        REQUIRE(first == std::this_thread::get_id());
        for (std::size_t i = 0; i < 5; ++i) {
          REQUIRE(calls[i] == (i < static_cast<std::size_t>(n) ? 1 : 0));
          REQUIRE((calls[i] == 0 || kernels[i] == 1));
        }
      }
  }
}

TEST_CASE("the caller's kernels have their threads again after a run", "[device][threads]") {
  auto const device = Cpu::with_threads(3);
  auto const scope  = Cpu::Scope{device};
  REQUIRE(Cpu::threads_here() == 3);
  Cpu::Threads{device, 2}.run(2, [](int) {});
  CHECK(Cpu::threads_here() == 3);
}

TEST_CASE("loops of a thread run on the threads lent to it, while these live and run nothing else",
          "[device][threads]") {
  auto const device = Cpu::with_threads(3);
  auto const scope  = Cpu::Scope{device};
  auto lent         = std::make_shared<Cpu::Threads>(device, 3);
  auto names        = std::array<std::string, 3>{};
  auto const loop   = [&] {
    Cpu::each(3, [&](std::ptrdiff_t i) {
      auto name = std::array<char, 16>{};
      pthread_getname_np(pthread_self(), name.data(), name.size());
      names[static_cast<std::size_t>(i)] = name.data();
    });
  };
  auto const own = [&] { return names[1] == "cpu 1" && names[2] == "cpu 2"; };
  loop();
  CHECK_FALSE(own());
  Cpu::Threads::lend(lent);
  loop();
#ifndef __SANITIZE_THREAD__  // under which each() runs on one thread
  CHECK(own());
#endif
  names = {};
  lent->run(3, [&](int i) {
    if (i != 0) return;
    auto const many = Cpu::Scope{device};
    loop();  // they are taken: by others, but in full
  });
  CHECK_FALSE(own());
  CHECK_FALSE(names[2].empty());
  names = {};
  lent.reset();
  loop();
  CHECK_FALSE(own());
  CHECK_FALSE(names[2].empty());
}

TEST_CASE("a run takes 1 to size() threads", "[device][threads]") {
  auto threads = Cpu::Threads{Cpu{}, 2};
  CHECK_THROWS_WITH(threads.run(3, [](int) {}), Catch::Contains("a run takes 1 to 2 threads, got 3"));
  CHECK_THROWS_WITH(threads.run(0, [](int) {}), Catch::Contains("got 0"));
  CHECK_THROWS_WITH((Cpu::Threads{Cpu{}, 0}), Catch::Contains("at least 1 thread, got 0"));
}

TEST_CASE("no thread passes a barrier before all have come", "[device][threads]") {
  auto threads = Cpu::Threads{Cpu{}, 4};
  for (int n = 1; n <= 4; ++n) {
    auto here = std::vector<int>(static_cast<std::size_t>(n));  // plain: the barrier orders them
    auto bad  = std::atomic<int>{0};
    threads.run(n, [&](int i) {
      for (int phase = 1; phase <= 200; ++phase) {
        here[static_cast<std::size_t>(i)] = phase;
        threads.barrier();
        for (int const other : here)
          if (other != phase) ++bad;
        threads.barrier();
      }
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("a thread waits for what another announces", "[device][threads]") {
  auto threads  = Cpu::Threads{Cpu{}, 3};
  auto progress = std::array<std::atomic<int>, 3>{};
  auto seen     = 0;
  threads.run(3, [&](int i) {
    for (int step = 1; step <= 500; ++step) {
      if (i > 0) {
        progress[static_cast<std::size_t>(i)].store(step, std::memory_order_release);
        threads.announce();
      } else {
        threads.wait([&] {
          return progress[1].load(std::memory_order_acquire) >= step &&
                 progress[2].load(std::memory_order_acquire) >= step;
        });
        seen = step;
      }
    }
  });
  CHECK(seen == 500);
}

TEST_CASE("the first failure of a run is thrown, nobody waits for the thread that failed, and the next run works",
          "[device][threads]") {
  auto threads = Cpu::Threads{Cpu{}, 3};
  for (int failing = 0; failing < 3; ++failing) {
    CHECK_THROWS_WITH(threads.run(3,
                                  [&](int i) {
                                    if (i == failing)
                                      throw std::runtime_error{"no room on thread " + std::to_string(i)};
                                    threads.barrier();
                                  }),
                      "no room on thread " + std::to_string(failing));
    CHECK_THROWS_WITH(threads.run(3,
                                  [&](int i) {
                                    if (i == failing) throw std::runtime_error{"not ready"};
                                    threads.wait([] { return false; });
                                  }),
                      "not ready");
    auto calls = std::atomic<int>{0};
    threads.run(3, [&](int) {
      threads.barrier();
      ++calls;
      threads.barrier();
    });
    CHECK(calls == 3);
  }
}

TEST_CASE("a thread that waits gives its core away, and is woken", "[device][threads]") {
  auto threads = Cpu::Threads{Cpu{}, 2};
  auto calls   = 0;
  auto asleep  = std::atomic<int>{0};
  for (int round = 1; round <= 5; ++round) {
    REQUIRE(test::await_sleep("cpu 1"));  // for the next run
    auto caller = NamedThread{"caller", [&] {
                                threads.run(2, [&](int i) {
                                  if (i == 0) return;
                                  asleep += test::await_sleep("caller") ? 1 : 0;  // for the end of this one
                                  ++calls;
                                });
                              }};
    caller      = {};
    CHECK(calls == round);
    CHECK(asleep == round);
  }
}
