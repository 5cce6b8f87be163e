// SPDX-License-Identifier: Apache-2.0
// Ranks that call different things, and ranks that are none: rows T22 and T24 to T26 of docs/65-robustness.md.
#include "test/faults/told.hpp"

#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

enum class Calls { sum, largest, broadcast, barrier };

/// One line of a program that ranks run.
struct Line {
  Calls calls;
  std::size_t n;         // elements
  std::uint32_t number;  // of the line
};

template <class E> void run(E& at, Line const& line) {
  auto const where = CallSite{"train.cpp", line.number};
  auto x           = std::vector<float>(line.n, 1.0F);
  switch (line.calls) {
    case Calls::sum: return RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum, Tag{}, where);
    case Calls::largest: return RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::max, Tag{}, where);
    case Calls::broadcast: return broadcast(at, Span<float>{x}, 0, Tag{}, where);
    case Calls::barrier: return barrier(at, Tag{}, where);
  }
}

struct Case {
  char const* name;
  std::vector<Line> rank_1, others;  // after a line that all have in common
  char const* says[2];
};

std::vector<Case> const cases = {
    {"T24: another size", {{Calls::sum, 500, 2}}, {{Calls::sum, 1'000, 2}}, {"of 500 float", "of 1000 float"}},
    {"T25: another order of the same sizes",
     {{Calls::sum, 400, 3}, {Calls::sum, 400, 2}},
     {{Calls::sum, 400, 2}, {Calls::sum, 400, 3}},
     {"train.cpp:", "train.cpp:3"}},
    {"T26: another collective",
     {{Calls::broadcast, 400, 2}},
     {{Calls::sum, 400, 2}},
     {"broadcast of 400", "all_reduce (sum) of 400"}},
    {"T26: another operation", {{Calls::largest, 400, 2}}, {{Calls::sum, 400, 2}}, {"(max)", "(sum)"}},
    {"T26: a call that is left out",
     {{Calls::barrier, 0, 3}},
     {{Calls::sum, 400, 2}, {Calls::barrier, 0, 3}},
     {"barrier", "all_reduce (sum) of 400"}},
};

constexpr auto not_in_a_frame = "at another line";  // of what the other rank calls, over TCP

template <class T> Processes job(int ranks, std::vector<Line> const& rank_1, std::vector<Line> const& others) {
  auto const transport = between_processes<T>(ranks, {.join = 20s});
  return Processes{ranks, [=](Rank rank, Voice voice) {
                     auto at            = connected(transport, ranks, rank);
                     auto const weights = Weights{ranks, 0};
                     tell_end(voice, weights, [&] {
                       begin_step(at, 12);
                       run(at, {Calls::sum, 100, 1});
                       for (auto const& line : rank == 1 ? rank_1 : others) run(at, line);
                     });
                   }};
}

}  // namespace

TEMPLATE_TEST_CASE("T24, T25, T26: ranks that call different things all end with both calls in one sentence",
                   "[faults][agreement]", TcpTransport, SharedMemoryTransport) {
  auto const ranks = GENERATE(2, 3, 4);
  auto const which = GENERATE(range(std::size_t{0}, cases.size()));
  auto const& c    = cases[which];
  auto processes   = job<TestType>(ranks, c.rank_1, c.others);
  auto first       = std::string{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const told = Told::parse(processes.line(rank));
    INFO(c.name << ", rank " << rank << " of " << ranks << ": " << told.text);
    CHECK(told.is(Fault::collective_mismatch));
    CHECK_THAT(told.text, Catch::Contains("step 12") && Catch::Contains(c.says[0]) &&
                              (Catch::Contains(c.says[1]) || Catch::Contains(not_in_a_frame)));
    if (first.empty()) first = told.text;
    CHECK(told.text == first);
    CHECK(processes.exit(rank) == 3);  // and not by a signal
  }
}

TEMPLATE_TEST_CASE("T26: a rank that leaves out the last call, and ends, is named with the call that waits",
                   "[faults][agreement]", TcpTransport, SharedMemoryTransport) {
  auto const ranks = GENERATE(2, 3, 4);
  auto processes   = job<TestType>(ranks, {}, {{Calls::sum, 400, 2}});
  CHECK(Told::parse(processes.line(1)).fault == -1);
  auto first = Told{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == 1) continue;
    auto const told = Told::parse(processes.line(rank));
    INFO("rank " << rank << " of " << ranks << ": " << told.line());
    CHECK(told.is(Fault::peer_lost));
    CHECK(told.culprit == 1);
    CHECK_THAT(told.text, Catch::Contains("at train.cpp:2") && Catch::Contains("left the group"));
    if (rank == 0) first = told;
    check_same_loss(told, first);
    CHECK(processes.exit(rank) == 138);
  }
}

TEST_CASE("T22: ranks that cannot be in the group end a program with exit code 2 and the number",
          "[faults][agreement]") {
  struct Wrong {
    int size;
    std::vector<Rank> local;
    char const* says;
  };
  auto const wrong = std::vector<Wrong>{{4, {4}, "rank 4 "},    {4, {-1}, "rank -1 "}, {4, {2, 1}, "rank 1 "},
                                        {4, {1, 1}, "rank 1 "}, {0, {}, "got 0"},      {-3, {}, "got -3"}};
  auto const which = GENERATE_COPY(range(std::size_t{0}, wrong.size()));
  auto const& w    = wrong[which];
  auto const since = seconds_now();
  auto processes =
      Processes{1, [&](Rank, Voice) { TcpTransport{.addresses = {"127.0.0.1:0"}}.connect(Group{w.size, w.local}); }};
  CHECK_THAT(processes.line(0), Catch::StartsWith("chorale: ") && Catch::Contains(w.says));
  CHECK(processes.exit(0) == 2);
  CHECK(seconds_now() - since < 1);
}

TEST_CASE("T22: a list of addresses with a hole, or for another number of ranks, is refused with both numbers",
          "[faults][agreement]") {
  auto const connect = [](std::vector<std::string> addresses) {
    return TcpTransport{.addresses = std::move(addresses)}.connect(Group{3, {0}});
  };
  CHECK_THROWS_WITH(connect({"127.0.0.1:1", "127.0.0.1:2"}),
                    Catch::Contains("a group of 3 ranks") && Catch::Contains("got 2"));
  CHECK_THROWS_WITH(connect({"127.0.0.1:1", "", "127.0.0.1:2"}), Catch::Contains("\"\" is not an address"));
  CHECK_THROWS_AS(connect({}), BadArgument);
}
