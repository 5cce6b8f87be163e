// SPDX-License-Identifier: Apache-2.0
// A job that is started with the addresses and the name of one that runs: it is told at once, or has ranks of its own,
// and the first one goes on.
#include "told.hpp"

#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace second_job_test {

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

/// What the processes of both jobs have told one another.
struct Shared {
  std::atomic<int> joined, over;

  static Shared& make() {
    auto* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error{"no memory for a test's processes"};
    return *static_cast<Shared*>(at);  // zeros
  }
};

void wait_for(std::atomic<int> const& counter, int n) {
  while (counter.load() < n) std::this_thread::sleep_for(1ms);
}

/// Sums until `over` has this number; the sum of the flags ends both ranks in the same round.
template <class E> void sum_until(E& at, std::atomic<int> const& over, int n) {
  for (int round = 0, ends = 0; ends == 0; ++round) {
    auto x = std::vector<float>(1'000, static_cast<float>(at.rank() + 1));
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{1});
    if (x != std::vector<float>(1'000, 3.0F)) throw Error{"a wrong sum"};
    x.assign(1, over.load() >= n ? 1.0F : 0.0F);
    RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{2});
    ends = static_cast<int>(x[0]);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a job with the addresses and the name of one that runs does not disturb it", "[faults][strangers]",
                   TcpTransport, SharedMemoryTransport) {
  auto& shared         = Shared::make();
  auto const transport = between_processes<TestType>(2, {.join = 60s});
  auto processes       = Processes{4, [&](int process, Voice voice) {
                               auto const rank = process % 2;
                               if (process < 2) {
                                 auto at = connected(transport, 2, rank);
                                 ++shared.joined;
                                 sum_until(at, shared.over, 2);
                                 return;
                               }
                               wait_for(shared.joined, 2);
                               auto const since = seconds_now();
                               try {
                                 auto at = connected(transport, 2, rank);
                                 auto x  = std::vector<float>(1, 1.0F);
                                 RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{1});
                                 voice.say(x[0] == 2.0F ? "ranks of its own" : "a wrong sum");
                               } catch (std::exception const& error) { voice.say(error.what()); }
                               voice.say(seconds_now() - since < 20 ? "at once" : "late");
                               ++shared.over;
                             }};
  for (auto const second : {2, 3}) {
    auto const told = processes.line(second);
    if constexpr (std::is_same_v<TestType, TcpTransport>)
      CHECK_THAT(told, Catch::Contains("rank " + std::to_string(second - 2) + " cannot listen on 127.0.0.1:") &&
                           Catch::Contains("a port that no other program or rank uses"));
    else CHECK(told == "ranks of its own");  // the name is free once all have joined
    CHECK(processes.line(second) == "at once");
  }
  for (auto const first : {0, 1}) {
    CHECK(processes.line(first) == "");
    CHECK(processes.exit(first) == 0);
  }
}

}  // namespace second_job_test
