// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/sink.hpp>

#include <catch2/catch.hpp>

#include <concepts>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

using namespace chorale;

namespace {

struct Events {
  std::vector<Event> seen;
  int flushed = 0;

  void take(Event const& event) noexcept { seen.push_back(event); }
  void flush() { ++flushed; }
};

struct Curves {
  std::vector<std::uint64_t> steps;
  int flushed = 0;

  void take(Scalars const& scalars) { steps.push_back(scalars.step); }
  void flush() { ++flushed; }
};

struct Full : Curves {
  using Curves::take;
  void flush() { throw std::runtime_error{"disk " + std::to_string(++flushed) + " is full"}; }
};

struct MayThrow {
  void take(Event const&) {}
  void flush() {}
};

}  // namespace

static_assert(!std::default_initializable<Event>, "an event without a name does not compile");
static_assert(Sink<NullSink> && EventSink<NullSink> && ScalarSink<NullSink>);
static_assert(Sink<Events> && !ScalarSink<Events>);
static_assert(Sink<Curves> && !EventSink<Curves>);
static_assert(!Sink<MayThrow>, "an event ends in a destructor");
static_assert(!Sink<int>);
static_assert(Sink<Fanout<Events, Curves>>);
static_assert(!observed<NullSink> && !observed<Fanout<NullSink, NullSink>> && !observed<Fanout<>>);
static_assert(observed<Fanout<NullSink, Curves>>);
static_assert(std::is_empty_v<Timed<NullSink>> && std::is_empty_v<Timed<Fanout<NullSink>>>);
static_assert(!std::is_trivially_destructible_v<Timed<NullSink>>, "or it is warned about as an unused variable");

TEST_CASE("a fanout gives each sink the records that it takes", "[observe][unit]") {
  auto events = Events{};
  auto curves = Curves{};
  auto sink   = Fanout{events, curves};
  sink.take(Event{.name = "forward", .step = 7});
  sink.take(Scalars{.step = 8});
  sink.flush();
  REQUIRE(events.seen.size() == 1);
  CHECK(events.seen[0].name.text() == "forward");
  CHECK(curves.steps == std::vector<std::uint64_t>{8});
  CHECK(events.flushed + curves.flushed == 2);
}

TEST_CASE("a fanout flushes every sink, then throws what the first that failed threw", "[observe][unit]") {
  auto one = Full{}, other = Full{};
  auto last     = Events{};
  other.flushed = 1;
  auto sink     = Fanout{one, other, last};
  CHECK_THROWS_WITH(sink.flush(), "disk 1 is full");
  CHECK(other.flushed == 2);
  CHECK(last.flushed == 1);
}

TEST_CASE("a timed scope is one event, with what was sent in it, also when an exception leaves it", "[observe][unit]") {
  auto events       = Events{};
  auto const before = std::chrono::steady_clock::now();
  auto const scope  = [&] {
    auto timed = Timed{events, {.name = "sum", .category = Category::communication, .rank = 2, .step = 9}};
    timed.sent(100);
    timed.sent(28, 3);
    throw std::runtime_error{"gone"};
  };
  CHECK_THROWS(scope());
  auto const after = std::chrono::steady_clock::now();
  REQUIRE(events.seen.size() == 1);
  auto const& event = events.seen[0];
  CHECK(before <= event.begin);
  CHECK(event.begin <= event.end);
  CHECK(event.end <= after);
  CHECK(event.bytes == 128);
  CHECK(event.messages == 4);
  CHECK((event.rank == 2 && event.step == 9 && event.category == Category::communication));
}

TEST_CASE("a name that is made at run time needs a letter", "[observe][unit]") {
  auto const name        = std::string{"bucket 2"};
  constexpr auto literal = EventName{"bucket 2"};  // in CHECK clang 14 crashes on it
  CHECK(EventName::lasting(name) == literal);
  CHECK_THROWS_AS(EventName::lasting(""), BadArgument);
}
