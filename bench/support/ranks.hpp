// SPDX-License-Identifier: Apache-2.0
//
// Ranks that reduce together: as threads or as processes, how often each does it, and what that took.
#pragma once

#include "report.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

/// How often an all-reduce of that size is called: blocks of calls without a pause between them.
struct Repeats {
  int calls, blocks;

  explicit Repeats(std::size_t bytes)
      : calls{static_cast<int>(std::clamp<std::size_t>((4 << 20) / std::max<std::size_t>(bytes, 1), 1, 100))},
        blocks{bytes <= 1 << 20    ? 20
               : bytes <= 16 << 20 ? 10
                                   : 5} {}
  int warm_up() const { return blocks / 4 + 1; }
};

/// Microseconds per call of each block, on one rank.
using Times = std::vector<double>;

/// The slowest rank's time of each block, and of these the median.
inline double microseconds(std::vector<Times> const& ranks) {
  auto slowest = ranks.at(0);
  for (auto const& times : ranks)
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], times[i]);
  return median(slowest);
}

/// Reduces once and looks at the sum; then times it. The numbers are zeros by then, are not filled in again between
/// calls, and stay zeros.
template <class AllReduce> Times times_of(int rank, int ranks, chorale::Span<float> x, AllReduce&& all_reduce) {
  auto const value = [](std::size_t i, int r) { return static_cast<float>(r + 1) + static_cast<float>(i % 5); };
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(i, rank);
  all_reduce();
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto sum = 0.0F;
    for (int r = 0; r < ranks; ++r) sum += value(i, r);
    if (x[i] != sum)
      throw std::runtime_error{"chorale: element " + std::to_string(i) + " of " + std::to_string(x.size()) + " is " +
                               std::to_string(x[i]) + ", not " + std::to_string(sum)};
  }
  std::fill(x.begin(), x.end(), 0.0F);
  all_reduce();  // nobody fills while another reduces
  auto const repeats = Repeats{x.size_bytes()};
  auto times         = Times{};
  for (int block = -repeats.warm_up(); block < repeats.blocks; ++block) {
    auto const start = std::chrono::steady_clock::now();
    for (int call = 0; call < repeats.calls; ++call) all_reduce();
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (block >= 0) times.push_back(seconds * 1e6 / repeats.calls);
  }
  return times;
}

inline int cores() {
  auto set = cpu_set_t{};
  if (sched_getaffinity(0, sizeof set, &set) != 0) throw std::runtime_error{"chorale: cannot read the cores"};
  return CPU_COUNT(&set);
}

/// Keeps this rank on a core of its own, when there are as many.
inline void pin(int rank, int ranks) {
  auto all = cpu_set_t{}, one = cpu_set_t{};
  if (ranks > cores() || pthread_getaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
  CPU_ZERO(&one);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && seen++ == rank) CPU_SET(core, &one);
  if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0)
    throw std::runtime_error{"chorale: cannot keep rank " + std::to_string(rank) + " on a core"};
}

/// Memory that all ranks see, zeros at first; also those that are forked later.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t bytes)
      : size_{bytes}, data_{mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)} {
    if (data_ == MAP_FAILED) throw std::bad_alloc{};
  }
  ~SharedBytes() { munmap(data_, size_); }
  SharedBytes(SharedBytes const&)            = delete;
  SharedBytes& operator=(SharedBytes const&) = delete;

  template <class T> T* as() const { return static_cast<T*>(data_); }

 private:
  std::size_t size_;
  void* data_;
};

/// body(rank) on every rank, each in a thread.
template <class Body> double on_threads(int ranks, Body body) {
  auto all = std::vector<Times>(static_cast<std::size_t>(ranks));
  {
    auto threads = std::vector<chorale::NamedThread>{};
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        pin(rank, ranks);
        all[static_cast<std::size_t>(rank)] = body(rank);
      });
  }
  return microseconds(all);
}

/// Where a process may run: ranks that bring threads of their own do better anywhere.
enum class Cores { one_each, any };

/// body(rank) on every rank, each in a process of its own.
///
/// throws  std::runtime_error when one fails, after all have ended
template <class Body> void run_processes(int ranks, Body body) {
  auto children = std::vector<pid_t>{};
  for (int rank = 0; rank < ranks; ++rank) {
    auto const child = fork();
    if (child < 0) throw std::runtime_error{"chorale: cannot start rank " + std::to_string(rank)};
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    try {
      body(rank);
      _exit(0);
    } catch (std::exception const& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      _exit(1);
    }
  }
  auto failed = 0;
  for (auto const child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  if (failed != 0) throw std::runtime_error{"chorale: " + std::to_string(failed) + " ranks failed"};
}

/// body(rank), which returns times, on every rank, each in a process of its own.
///
/// bytes   of what is reduced
template <class Body> double on_processes(int ranks, std::size_t bytes, Cores where, Body body) {
  auto const blocks = static_cast<std::size_t>(Repeats{bytes}.blocks);
  auto const shared = SharedBytes{static_cast<std::size_t>(ranks) * blocks * sizeof(double)};
  run_processes(ranks, [&](int rank) {
    if (where == Cores::one_each) pin(rank, ranks);
    auto const times = body(rank);
    std::copy(times.begin(), times.end(), shared.as<double>() + static_cast<std::size_t>(rank) * blocks);
  });
  auto all = std::vector<Times>{};
  for (int rank = 0; rank < ranks; ++rank) {
    auto const* first = shared.as<double>() + static_cast<std::size_t>(rank) * blocks;
    all.emplace_back(first, first + blocks);
  }
  return microseconds(all);
}

}  // namespace bench
