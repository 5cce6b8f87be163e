// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/merge_timelines.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/observe/timeline.hpp>

#include <chorale/core/threads.hpp>

#include "test/observe/folder.hpp"
#include "test/support/full_disk.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;
using observe::content_of, observe::said;

namespace {

Event event(EventName name, std::chrono::nanoseconds begin, std::chrono::nanoseconds time, Rank rank = 0) {
  return {.name     = name,
          .category = Category::communication,
          .rank     = rank,
          .step     = 7,
          .begin    = Event::Time{begin},
          .end      = Event::Time{begin + time}};
}

nlohmann::json json_of(std::filesystem::path const& file) { return nlohmann::json::parse(content_of(file)); }

/// The events that are no names.
std::vector<nlohmann::json> timed_in(std::filesystem::path const& file) {
  auto events     = std::vector<nlohmann::json>{};
  auto const json = json_of(file);
  for (auto const& entry : json["traceEvents"])
    if (entry["ph"] == "X") events.push_back(entry);
  return events;
}

}  // namespace

static_assert(Sink<Timeline> && !ScalarSink<Timeline>);

TEST_CASE("a timeline is Chrome's trace: a process for a rank, a thread for a category", "[observe][golden]") {
  auto const folder = observe::Folder{};
  auto timeline     = Timeline{folder / "trace-2.json", {.offset = -5us, .error = 40ns}, {.host = "a\"b"}};
  auto sum          = event("sum", 1'234'567'890ns, 1'500ns, 2);
  sum.bytes         = 1024;
  sum.messages      = 3;
  timeline.take(sum);
  timeline.flush();
  auto const text = content_of(folder / "trace-2.json");
  CHECK_THAT(text, Catch::Contains("{\"name\":\"sum\",\"cat\":\"communication\",\"ph\":\"X\",\"ts\":1234567.890,"
                                   "\"dur\":1.500,\"pid\":2,\"tid\":2,\"args\":{\"step\":7,\"bytes\":1024,"
                                   "\"messages\":3}}"));
  auto const json = nlohmann::json::parse(text);
  CHECK(json["otherData"]["clock_offset_ns"] == -5000);
  CHECK(json["otherData"]["clock_error_ns"] == 40);
  auto const& events = json["traceEvents"];
  CHECK(events[0]["args"]["name"] == "rank 2 on a\"b");
  auto rows = std::vector<std::string>{};
  for (auto const& entry : events)
    if (entry["name"] == "thread_name") rows.push_back(entry["args"]["name"]);
  CHECK(rows == std::vector<std::string>{"step", "compute", "communication", "wait", "input", "checkpoint"});
}

TEST_CASE("any name is kept as JSON can hold it", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const names  = std::vector<std::string>{"\"\\/\b\n\t\x01</script>",
                                               "gr\xC3\xB6\xC3\x9F"
                                                "e",
                                               "torn \xC3", "\xFF", std::string{"a\0b", 3}};
  auto timeline     = Timeline{folder / "trace.json"};
  for (auto const& name : names) timeline.take(event(EventName::lasting(name), 1us, 1us));
  timeline.flush();
  auto const events = timed_in(folder / "trace.json");
  REQUIRE(events.size() == names.size());
  CHECK(events[0]["name"] == names[0]);
  CHECK(events[1]["name"] == names[1]);
  CHECK(events[2]["name"] == "torn \xEF\xBF\xBD");
  CHECK(events[3]["name"] == "\xEF\xBF\xBD");
  CHECK(events[4]["name"] == names[4]);
}

TEST_CASE("a timeline is whole JSON after every write, also of events that came from many threads", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const file   = folder / "new folder/trace.json";
  auto timeline     = Timeline{file, {}, {.buffer = 16}};
  CHECK(json_of(file)["traceEvents"].empty());
  {
    auto threads = std::vector<NamedThread>{};
    for (int rank = 0; rank < 4; ++rank)
      threads.emplace_back("rank", [&, rank] {
        for (int i = 0; i < 100; ++i) timeline.take(event("e", i * 1us, 1us, rank));
      });
  }
  CHECK(timed_in(file).size() == 384);  // 24 buffers: the last is full, but not written yet
  timeline.align({.offset = 1'000'000'000ns, .error = 1ns});
  timeline.flush();
  CHECK(timed_in(file).size() == 400);
  timeline.align({});  // a shorter closing
  timeline.flush();
  CHECK(json_of(file)["otherData"]["clock_offset_ns"] == 0);
  CHECK(timeline.dropped() == 0);
}

TEST_CASE("a disk that is full is told by flush, with what was lost, and training goes on", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto timeline     = Timeline{folder / "trace.json", {}, {.buffer = 8}};
  auto sentence     = std::string{};
  {
    auto const full = chorale::test::FullDisk{500};
    for (int i = 0; i < 20; ++i) timeline.take(event("e", i * 1us, 1us));
    sentence = said<BadFile>([&] { timeline.flush(); });
  }
  CHECK_THAT(sentence, Catch::Contains("trace.json: byte") && Catch::Contains("cannot be written") &&
                           Catch::Contains("Try: a folder"));
  CHECK(timeline.dropped() == 20);
  timeline.take(event("after", 30us, 1us));
  timeline.flush();
  CHECK(timed_in(folder / "trace.json").size() == 1);
}

TEST_CASE("merged timelines are on rank 0's clock, and begin at 0", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto files        = std::vector<std::filesystem::path>{};
  for (int rank = 0; rank < 3; ++rank) {  // the same moment on three clocks
    files.push_back(folder / ("trace-" + std::to_string(rank) + ".json"));
    auto timeline = Timeline{files.back(), {.offset = rank * -1'000s, .error = rank * 7ns}};
    timeline.take(event("second", rank * 1'000s + 12us + 1ns, 1us, rank));
    timeline.take(event("first", rank * 1'000s + 10us, 1us, rank));
  }
  auto const merged = merge_timelines(files, folder / "trace.json");
  CHECK(merged.ranks == std::vector<Rank>{0, 1, 2});
  CHECK(merged.events == 6);
  CHECK(merged.largest_error == 14);
  auto const events = timed_in(folder / "trace.json");
  REQUIRE(events.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(events[i]["pid"] == i % 3);
    CHECK(events[i]["name"] == (i < 3 ? "first" : "second"));
    CHECK(events[i]["ts"] == (i < 3 ? 0.0 : 2.001));
  }
  CHECK(json_of(folder / "trace.json")["otherData"]["clock_error_ns"] == 14);
}

TEST_CASE("what is no timeline is refused in one sentence, and what was merged before stays", "[observe][unit]") {
  auto const folder = observe::Folder{};
  auto const out    = folder.file("trace.json", "old");
  auto const merge  = [&](std::string const& content) {
    return said<BadFile>([&] { merge_timelines(std::vector{folder.file("bad.json", content)}, out); });
  };
  auto const events = [](std::string const& list) { return "{\"traceEvents\":[" + list + "]}"; };
  CHECK_THAT(merge(""), Catch::Contains("bad.json: is no JSON"));
  CHECK_THAT(merge("{\"traceEvents\":["), Catch::Contains("is no JSON"));
  CHECK_THAT(merge("[1]"), Catch::Contains("no list traceEvents"));
  CHECK_THAT(merge("{\"traceEvents\":1}"), Catch::Contains("no list traceEvents"));
  CHECK_THAT(merge(events("1")), Catch::Contains("event 0 has no phase"));
  CHECK_THAT(merge(events("{\"ph\":\"X\",\"ts\":1}")), Catch::Contains("event 0 has no number \"pid\""));
  CHECK_THAT(merge(events("{\"ph\":\"X\",\"pid\":-1,\"ts\":1}")), Catch::Contains("\"pid\" that is out of range"));
  CHECK_THAT(merge(events("{\"ph\":\"X\",\"pid\":1,\"ts\":1e300}")), Catch::Contains("\"ts\" that is out of range"));
  CHECK_THAT(merge("{\"traceEvents\":[],\"otherData\":{\"clock_offset_ns\":1e3}}"), Catch::Contains("no whole number"));
  CHECK_THAT(merge("{\"traceEvents\":[],\"otherData\":{\"clock_offset_ns\":9000000000000000000}}"),
             Catch::Contains("no whole number"));
  CHECK_THAT(said<BadFile>([&] { merge_timelines(std::vector{folder / "none.json"}, out); }),
             Catch::Contains("none.json: cannot be opened"));
  auto const one = folder.file("one.json", events("{\"ph\":\"X\",\"pid\":5,\"ts\":1}"));
  CHECK_THAT(said<BadFile>([&] { merge_timelines(std::vector{one, one}, out); }), Catch::Contains("events of rank 5"));
  CHECK_THAT(merge(std::string(100'000, '[')), Catch::Contains("is no JSON"));
  CHECK(content_of(out) == "old");
  CHECK(merge_timelines(std::vector{one}, out).events == 1);
  CHECK(timed_in(out).at(0)["ts"] == 0.0);
}
