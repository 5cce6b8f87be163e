// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/clock_offset.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/observe/tally.hpp>

#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;

namespace {

Event lasting(EventName name, Category category, std::chrono::nanoseconds time, Rank rank = 0) {
  return {.name = name, .category = category, .rank = rank, .end = Event::Time{time}};
}

Spent spent(double step, double compute, double communication, double wait, double input, double checkpoint) {
  return {.steps   = 10,
          .seconds = {step * 10, compute * 10, communication * 10, wait * 10, input * 10, checkpoint * 10}};
}

}  // namespace

static_assert(EventSink<Tally>);

TEST_CASE("bytes, messages and times are counted exactly, from any number of threads", "[observe][unit]") {
  auto tally = Tally{};
  {
    auto threads = std::vector<NamedThread>{};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back("tally", [&tally, t] {
        for (int i = 0; i < 1000; ++i) {
          constexpr EventName names[] = {"even", "odd"};  // between ? and : clang 14 crashes on them
          auto const name             = names[i % 2];
          auto event                  = lasting(name, Category::communication, 3ns, t % 2);
          event.bytes                 = static_cast<std::size_t>(i);
          event.messages              = 2;
          tally.take(event);
        }
      });
  }
  auto const lines = tally.lines();
  REQUIRE(lines.size() == 4);
  for (auto const& line : lines) {
    CHECK(line.events == 1000);
    CHECK(line.messages == 2000);
    CHECK(line.bytes == (line.name.text() == "even" ? 499'000 : 500'000));
    CHECK(line.time == 3000ns);
  }
  CHECK((lines[0].rank == 0 && lines[1].rank == 0 && lines[2].rank == 1));
  CHECK(tally.dropped() == 0);
}

TEST_CASE("the time of a rank is told by what it was for, and steps are counted", "[observe][unit]") {
  auto tally = Tally{};
  for (int step = 0; step < 4; ++step) {
    tally.take(lasting("forward", Category::compute, 2ms));
    tally.take(lasting("backward", Category::compute, 3ms));
    tally.take(lasting("next batch", Category::input, 1ms));
    tally.take(lasting("step", Category::step, 8ms));
    tally.take(lasting("forward", Category::compute, 1s, 1));
  }
  auto const spent = tally.spent(0);
  CHECK(spent.steps == 4);
  CHECK(spent[Category::compute] == Approx(0.020));
  CHECK(spent[Category::input] == Approx(0.004));
  CHECK(spent[Category::step] == Approx(0.032));
  CHECK(spent[Category::wait] == 0);
}

TEST_CASE("the pace of a rank is its own part of its last 1024 steps", "[observe][unit]") {
  auto tally = Tally{};
  for (int step = 0; step < 1124; ++step) {  // rank 0 waits for rank 1: their steps are equally long
    auto const own = step < 100 ? 1s : step % 50 == 0 ? 9ms : 2ms;
    tally.take(lasting("all", Category::compute, own, 0));
    tally.take(lasting("wait", Category::wait, 20ms - own, 0));
    tally.take(lasting("step", Category::step, 20ms, 0));
    tally.take(lasting("wait", Category::wait, 5ms, 1));  // tells nothing of what it computes
    tally.take(lasting("step", Category::step, 20ms, 1));
  }
  auto const paces = tally.paces();
  REQUIRE(paces.size() == 2);
  CHECK(paces[0].rank == 0);
  CHECK(paces[0].p50 == Approx(0.002));
  CHECK(paces[0].p99 == Approx(0.009));
  CHECK(paces[1].p50 == Approx(0.015));
}

TEST_CASE("a single step has a pace", "[observe][unit]") {
  auto tally = Tally{};
  tally.take(lasting("step", Category::step, 4ms));
  REQUIRE(tally.paces().size() == 1);
  CHECK(tally.paces()[0].p50 == Approx(0.004));
  CHECK(tally.paces()[0].p99 == Approx(0.004));
}

TEST_CASE("why-slow says what dominates, by how much, and what to try", "[observe][golden]") {
  CHECK(why_slow(spent(0.0201, 0.0059, 0.0123, 0.0011, 0.0006, 0.0002)) ==
        "why slow: communication takes 12.30 ms of 20.10 ms of a step (61 %), 2.1 times compute (5.90 ms); then wait "
        "1.10 ms, input 600 us, checkpoint 200 us. Try: a larger batch, another Reduce (AutoAllReduce measures them), "
        "or fewer bytes (Compressed<bf16>).\n");
}

TEST_CASE("each way to lose time has its own advice", "[observe][unit]") {
  CHECK_THAT(why_slow(spent(1, 0.9, 0.1, 0, 0, 0)), Catch::Contains("compute takes 900.00 ms of 1.00 s") &&
                                                        Catch::Contains("9.0 times communication") &&
                                                        Catch::Contains("more replicas"));
  CHECK_THAT(why_slow(spent(1, 0.2, 0.1, 0.6, 0.1, 0)), Catch::Contains("wait takes") && Catch::Contains("straggler"));
  CHECK_THAT(why_slow(spent(1, 0.2, 0.1, 0, 0.7, 0)), Catch::Contains("input takes") && Catch::Contains("prefetch"));
  CHECK_THAT(why_slow(spent(1, 0.2, 0.1, 0, 0, 0.7)),
             Catch::Contains("checkpoint takes") && Catch::Contains("less often"));
  CHECK_THAT(why_slow(spent(1, 0.2, 0.1, 0, 0, 0)),
             Catch::Contains("unrecorded takes 700.00 ms of 1.00 s of a step (70 %)") && Catch::Contains("recording"));
  CHECK_THAT(why_slow(spent(1, 1, 0, 0, 0, 0)), Catch::Contains("(100 %), and nothing else takes any. Try"));
  CHECK(why_slow(Spent{}) == "why slow: not a single step was recorded.\n");
}

TEST_CASE("a prediction stands beside the measurement", "[observe][golden]") {
  auto const said = why_slow(spent(0.0214, 0.01, 0.01, 0, 0, 0), 0.0159);
  CHECK(said.substr(said.find('\n') + 1) == "step: 21.40 ms measured, 15.90 ms predicted (1.35 times)\n");
  CHECK_THAT(why_slow(spent(1, 1, 0, 0, 0, 0), 0.0), Catch::Contains("(no ratio)"));
}

TEST_CASE("the straggler line names the slowest rank, or none", "[observe][golden]") {
  auto paces = std::vector<Pace>{{0, 0.0151, 0.0160}, {1, 0.0152, 0.0163}, {2, 0.0229, 0.0401}};
  CHECK(straggler_line(paces) ==
        "straggler: rank 2 needs 22.90 ms for its part of a step (p50; p99 40.10 ms), 1.51 times the middle rank's; "
        "p50/p99 in ms: 2 22.90/40.10, 1 15.20/16.30, 0 15.10/16.00\n");
  CHECK_THAT(straggler_line(paces, 2.0), Catch::StartsWith("straggler: none; ranks need 15.10 ms to 22.90 ms"));
  for (int rank = 3; rank < 1000; ++rank) paces.push_back({rank, 0.01, 0.01});
  CHECK_THAT(straggler_line(paces), Catch::Contains("rank 2 needs") && Catch::EndsWith("and 992 faster ones\n"));
  CHECK_THAT(straggler_line(std::vector<Pace>{{0, 1, 1}, {1, 2, 2}}), Catch::Contains("rank 1 needs"));
  CHECK_THAT(straggler_line(std::vector<Pace>{{0, 1, 1}}), Catch::Contains("none"));
  CHECK(straggler_line({}) == "straggler: not a single step was recorded.\n");
}

TEST_CASE("an offset between clocks is right within its error, however uneven the ways are", "[observe][unit]") {
  auto const random = Random{Seed{3}, 1};
  for (std::uint64_t round = 0; round < 200; ++round) {
    auto const truth =
        std::chrono::nanoseconds{static_cast<std::int64_t>(random.below(round * 32, 2'000'000'000)) - 1'000'000'000};
    auto pings   = std::vector<Ping>{};
    auto fastest = std::chrono::nanoseconds::max();
    for (std::uint64_t i = 1; i < 9; ++i) {
      auto const there = std::chrono::nanoseconds{random.below(round * 32 + 2 * i, 100'000)};
      auto const back  = std::chrono::nanoseconds{random.below(round * 32 + 2 * i + 1, 100'000)};
      auto const sent  = std::chrono::nanoseconds{i * 1'000'000};
      pings.push_back({sent, sent + there + truth, sent + there + back});
      fastest = std::min(fastest, there + back);
    }
    auto const clock = ClockOffset::of(pings);
    REQUIRE(std::chrono::abs(clock.offset - truth) <= clock.error);
    REQUIRE(clock.error <= fastest / 2 + 1ns);
  }
  CHECK_THROWS_AS(ClockOffset::of({}), BadArgument);
  CHECK_THROWS_AS(ClockOffset::of(std::vector<Ping>{{2ns, 5ns, 1ns}}), BadArgument);
}
