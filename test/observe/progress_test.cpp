// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/progress.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;

namespace {
std::atomic<std::size_t> allocations = 0;  // of this program, on any of its threads
}

// Not inlined: gcc would see malloc and free where it looks for new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using Metrics = std::vector<MetricValue>;

/// A progress line on a terminal that keeps what it gets, at a time that the test sets.
struct Screen {
  explicit Screen(Terminal terminal = {Terminal::Kind::moving, 0})
      : line{terminal, [this](std::string_view text) { seen = text; },
             [this] {
               ++clock_reads;
               return std::chrono::steady_clock::time_point{} + std::chrono::microseconds{now};
             }} {}

  /// What update() shows; empty when it shows nothing.
  std::string update(long long microseconds, std::size_t step, Metrics const& metrics = {}) {
    now = microseconds;
    seen.clear();
    line.update(step, metrics);
    return seen;
  }
  std::string end(long long microseconds, Metrics const& metrics = {}) {
    now = microseconds;
    seen.clear();
    line.end_epoch(metrics);
    return seen;
  }

  long long now   = 0;  // microseconds since the epoch began
  int clock_reads = 0;
  std::string seen;
  ProgressLine line;
};

/// What goes before a line that replaces another.
std::string over(std::string const& line) { return std::string(line.size(), '\b') + '\r'; }

constexpr long long second = 1'000'000;

}  // namespace

TEST_CASE("a moving line has the bytes of Keras's", "[observe][golden]") {
  using namespace std::string_literals;
  auto screen         = Screen{};
  auto const metrics  = Metrics{{"accuracy", 0.9442}, {"loss", 0.1924}};
  auto const late     = Metrics{{"loss", 0.1921}, {"lr", 0.001}};
  auto const first    = "  1/938 [..............................] - ETA: 31:14 - accuracy: 0.9442 - loss: 0.1924"s;
  auto const third    = "  3/938 [..............................] - ETA: 28s - accuracy: 0.9442 - loss: 0.1924"s;
  auto const almost   = "936/938 [============================>.] - ETA: 0s - accuracy: 0.9442 - loss: 0.1924"s;
  auto const complete = "938/938 [==============================] - ETA: 0s - loss: 0.1921 - lr: 1.0000e-03"s;
  auto const final    = "938/938 [==============================] - 31s 31ms/step - loss: 0.1921 - lr: 1.0000e-03"s;

  screen.line.begin_epoch(1, 12, 938);
  CHECK(screen.seen == "Epoch 1/12\n");
  CHECK(screen.update(2 * second, 1, metrics) == "\r" + first);
  CHECK(screen.update(2 * second + 30'000, 2, metrics) == "");  // 0.05 s have not passed
  CHECK(screen.update(2 * second + 60'000, 3, metrics) == over(first) + third + "  ");
  CHECK(screen.update(31 * second, 936, metrics) == over(third) + almost + " ");
  CHECK(screen.update(31 * second + 60'000, 938, late) == over(almost) + complete + "  ");
  CHECK(screen.end(31 * second + 61'000, late) == over(complete) + final + "\n");
}

TEST_CASE("the next epoch starts on a line of its own, and its time anew", "[observe][golden]") {
  auto screen = Screen{};
  screen.line.begin_epoch(1, 2, 4);
  screen.update(9 * second, 1);
  screen.end(9 * second);
  screen.line.begin_epoch(2, 2, 4);
  CHECK(screen.seen == "Epoch 2/2\n");
  CHECK(screen.update(10 * second, 2) == "\r2/4 [==============>...............] - ETA: 1s");
}

TEST_CASE("with one epoch in all there is no line that names it", "[observe][golden]") {
  auto screen = Screen{};
  screen.line.begin_epoch(1, 1, 4);
  CHECK(screen.seen == "");
}

TEST_CASE("without a known number of steps the line counts, and is complete at the end", "[observe][golden]") {
  auto screen = Screen{};
  screen.line.begin_epoch(1, 1, std::nullopt);
  auto const first = std::string{"      1/Unknown - 0s 500ms/step - loss: 2.5000"};
  auto const next  = std::string{"     12/Unknown - 1s 50ms/step - loss: 2.5000"};
  CHECK(screen.update(500'000, 1, {{"loss", 2.5}}) == "\r" + first);
  CHECK(screen.update(1'050'000, 12, {{"loss", 2.5}}) == over(first) + next + " ");
  CHECK(screen.end(1'060'000, {{"loss", 2.25}}) ==
        over(next) + "12/12 [==============================] - 1s 51ms/step - loss: 2.2500\n");
}

TEST_CASE("the time that is left is told in hours, minutes or seconds", "[observe][golden]") {
  auto const row = GENERATE(table<std::size_t, long long, std::string>({
      {1000, 10 * second, "\r   1/1000 [..............................] - ETA: 2:46:30"},
      {8, 10 * second, "\r1/8 [==>...........................] - ETA: 1:10"},
      {7, 10 * second, "\r1/7 [===>..........................] - ETA: 60s"},
      {2, 500, "\r1/2 [==============>...............] - ETA: 0s"},
      {2, 3600 * second, "\r1/2 [==============>...............] - ETA: 60:00"},
      {101, 36 * second, "\r  1/101 [..............................] - ETA: 60:00"},
  }));
  auto screen    = Screen{};
  screen.line.begin_epoch(1, 1, std::get<0>(row));
  CHECK(screen.update(std::get<1>(row), 1) == std::get<2>(row));
}

TEST_CASE("the time of a step is told in seconds, milliseconds or microseconds, in both forms", "[observe][golden]") {
  auto const row = GENERATE(table<std::size_t, long long, std::string, std::string>({
      {1, 400, "0s 400us/step\n", "1/1 - 0s - 400us/epoch - 400us/step\n"},
      {1, 0, "0s 0s/step\n", "1/1 - 0s - 0s/epoch - 0s/step\n"},
      {1, 250'000, "0s 250ms/step\n", "1/1 - 0s - 250ms/epoch - 250ms/step\n"},
      {2, 3 * second, "3s 3s/step\n", "2/2 - 3s - 3s/epoch - 2s/step\n"},  // the first form leaves the first step out
  }));
  auto moving = Screen{}, plain = Screen{{Terminal::Kind::plain, 0}};
  for (auto* screen : {&moving, &plain}) {
    screen->line.begin_epoch(1, 1, std::get<0>(row));
    if (std::get<0>(row) == 2) screen->update(0, 1);
    screen->update(0, std::get<0>(row));
  }
  auto const steps = std::to_string(std::get<0>(row));
  CHECK_THAT(moving.end(std::get<1>(row)),
             Catch::EndsWith(steps + "/" + steps + " [==============================] - " + std::get<2>(row)));
  CHECK(plain.end(std::get<1>(row)) == std::get<3>(row));
}

TEST_CASE("in a file there is one line for each epoch; small values have an exponent, of either sign", "[observe]") {
  auto screen = Screen{{Terminal::Kind::plain, 0}};
  screen.line.begin_epoch(3, 12, 938);
  CHECK(screen.seen == "Epoch 3/12\n");
  CHECK(screen.update(second, 1) == "");
  screen.update(31 * second, 938);
  CHECK(screen.end(31 * second, {{"loss", 0.1921}, {"x", -0.5}, {"y", -0.0005}, {"z", 0.001}}) ==
        "938/938 - 31s - loss: 0.1921 - x: -0.5000 - y: -5.0000e-04 - z: 1.0000e-03 - 31s/epoch - 33ms/step\n");
}

TEST_CASE("values that are no numbers are told as such", "[observe][unit]") {
  auto const nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  auto screen = Screen{{Terminal::Kind::plain, 0}};
  screen.line.begin_epoch(1, 1, 1);
  screen.update(0, 1);
  CHECK(screen.end(0, {{"a", nan}, {"b", -nan}, {"c", -infinity}}) ==
        "1/1 - 0s - a: nan - b: nan - c: -inf - 0s/epoch - 0s/step\n");
}

TEST_CASE("an epoch that stops early shows how far it came", "[observe][unit]") {
  auto screen = Screen{};
  screen.line.begin_epoch(1, 1, 10);
  screen.update(second, 5);
  CHECK_THAT(screen.end(second), Catch::EndsWith(" 5/10 [==============>...............] - 1s 200ms/step\n"));
}

TEST_CASE("on a narrow terminal the bar is shorter, then the line is cut, and it is whole at the end",
          "[observe][unit]") {
  auto const metrics = Metrics{{"loss", 0.5}, {"accuracy", 0.75}};
  auto screen        = Screen{{Terminal::Kind::moving, 60}};
  screen.line.begin_epoch(1, 1, 10);
  CHECK(screen.update(second, 5, metrics) == "\r 5/10 [==>....] - ETA: 1s - loss: 0.5000 - accuracy: 0.7500");
  CHECK(screen.seen.size() == 1 + 59);
  CHECK(screen.end(second, metrics) ==
        std::string(59, '\b') + "\r 5/10 - 1s 200ms/step - loss: 0.5000 - accuracy: 0.7500    \n");
  auto smallest = Screen{{Terminal::Kind::moving, 20}};
  smallest.line.begin_epoch(1, 1, 10);
  CHECK(smallest.update(second, 5, metrics) == "\r 5/10 - ETA: 1s - l");
  CHECK(smallest.end(second) == std::string(19, '\b') + "\r 5/10 - 1s 200ms/step\n");
  auto wide = Screen{{Terminal::Kind::moving, 200}};
  wide.line.begin_epoch(1, 1, 10);
  CHECK(wide.update(second, 5) == "\r 5/10 [==============>...............] - ETA: 1s");
}

TEST_CASE("what is told before the first step is broken between words on a narrow terminal", "[observe][unit]") {
  auto narrow = Screen{{Terminal::Kind::moving, 12}};
  narrow.line.note("one, two, three, four\nfive\na word_without_spaces\n");
  CHECK(narrow.seen == "one, two,\nthree, four\nfive\na\nword_without_spaces\n");
  auto wide = Screen{};
  wide.line.note("one, two, three, four\n");
  CHECK(wide.seen == "one, two, three, four\n");
}

TEST_CASE("update reads the clock once and allocates nothing after the first call", "[observe][unit]") {
  auto const metrics = Metrics{{"loss", 0.1924}, {"accuracy", 0.9442}};
  auto written       = std::size_t{0};
  auto screen        = Screen{};
  screen.line        = ProgressLine{{Terminal::Kind::moving, 0},
                             [&written](std::string_view text) { written += text.size(); },
                             [&screen] {
                               ++screen.clock_reads;
                               return std::chrono::steady_clock::time_point{} + std::chrono::microseconds{screen.now};
                             }};
  screen.line.begin_epoch(1, 12, 1000);
  screen.line.update(1, metrics);
  auto const reads  = screen.clock_reads;
  auto const before = allocations.load(), shown = written;
  for (std::size_t step = 2; step <= 1000; ++step) {
    screen.now += 20'000;
    screen.line.update(step, metrics);
  }
  CHECK(allocations == before);
  CHECK(screen.clock_reads == reads + 999);
  CHECK(written > shown);
}

TEST_CASE("the environment can ask for plain lines and for a width", "[observe][unit]") {
  using Kind    = Terminal::Kind;
  auto const of = [](Kind kind, std::map<std::string, char const*> const& set) {
    return Terminal::of(kind, 80, [&](char const* name) { return set.contains(name) ? set.at(name) : nullptr; });
  };
  CHECK(of(Kind::moving, {}).kind == Kind::moving);
  CHECK(of(Kind::moving, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).kind == Kind::moving);
  CHECK(of(Kind::moving, {{"TERM", "dumb"}}).kind == Kind::plain);
  CHECK(of(Kind::moving, {{"NO_COLOR", "1"}}).kind == Kind::plain);
  CHECK(of(Kind::plain, {{"TERM", "xterm"}}).kind == Kind::plain);
  CHECK(of(Kind::moving, {}).columns == 80);
  CHECK(of(Kind::moving, {{"COLUMNS", "132"}}).columns == 132);
  CHECK(of(Kind::moving, {{"COLUMNS", "wide"}}).columns == 80);
}

TEST_CASE("a stream gets the line as it is", "[observe][unit]") {
  auto stream = std::ostringstream{};
  auto line   = ProgressLine{
        {Terminal::Kind::plain, 0}, ProgressLine::to(stream), [] { return std::chrono::steady_clock::time_point{}; }};
  line.begin_epoch(1, 2, 1);
  line.update(1, {});
  line.end_epoch({});
  CHECK(stream.str() == "Epoch 1/2\n1/1 - 0s - 0s/epoch - 0s/step\n");
  stream.str("");
  line.begin_epoch(2, 2, 1);
  line.note("two\nlines\n");
  line.update(1, {});
  line.end_epoch({}, " - 7 images/s");
  CHECK(stream.str() == "Epoch 2/2\ntwo\nlines\n1/1 - 0s - 0s/epoch - 0s/step - 7 images/s\n");
  auto screen = Screen{};
  screen.line.begin_epoch(1, 1, 2);
  screen.line.end_epoch({}, " - 7 images/s");
  CHECK(screen.seen.ends_with(" - 7 images/s\n"));
}
