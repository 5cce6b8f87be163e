// SPDX-License-Identifier: Apache-2.0
#include <chorale/observe/prometheus.hpp>

#include "test/observe/folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>

using namespace chorale;
using observe::content_of, observe::said;

TEST_CASE("a page has the text that Prometheus reads", "[observe][golden]") {
  auto page = Prometheus{};
  page.counter("chorale_step_total", "Steps done.", 1179);
  page.gauge("chorale_loss", "Loss, \\ and \"why\"\nit is.", 0.25, {{"run", "a\\b\"c\nd"}, {"part", "train"}});
  page.gauge("chorale_loss", "", HUGE_VAL, {{"run", "b"}});
  page.gauge("chorale_rate", "Three values.", 1e-3);
  page.counter("chorale_step_total", "", 1180);
  CHECK(page.text() ==
        "# HELP chorale_loss Loss, \\\\ and \"why\"\\nit is.\n"
        "# TYPE chorale_loss gauge\n"
        "chorale_loss{run=\"a\\\\b\\\"c\\nd\",part=\"train\"} 0.25\n"
        "chorale_loss{run=\"b\"} +Inf\n"
        "# HELP chorale_rate Three values.\n"
        "# TYPE chorale_rate gauge\n"
        "chorale_rate 0.001\n"
        "# HELP chorale_step_total Steps done.\n"
        "# TYPE chorale_step_total counter\n"
        "chorale_step_total 1180\n");
}

TEST_CASE("gauges hold what is no number; the last value counts", "[observe][unit]") {
  auto page         = Prometheus{};
  auto const values = {std::pair{std::nan(""), "NaN"}, std::pair{-HUGE_VAL, "-Inf"}, std::pair{-0.5, "-0.5"}};
  for (auto const& [value, text] : values) {
    page.gauge("x", "X.", value);
    CHECK_THAT(page.text(), Catch::EndsWith(std::string{"\nx "} + text + "\n"));
  }
}

TEST_CASE("what Prometheus would refuse is refused here", "[observe][unit]") {
  auto page = Prometheus{};
  page.counter("steps", "Steps.", 5);
  CHECK_THAT(said<BadArgument>([&] { page.gauge("steps", "", 1); }), Catch::Contains("is a counter and a gauge"));
  CHECK_THAT(said<BadArgument>([&] { page.counter("steps", "", 4); }), Catch::Contains("goes back from 5 to 4"));
  CHECK_THAT(said<BadArgument>([&] { page.counter("steps", "", std::nan("")); }), Catch::Contains("counts NaN"));
  for (auto const* name : {"", "1st", "a-b", "a b", "\xC3\xB6"})
    CHECK_THAT(said<BadArgument>([&] { page.gauge(name, "", 1); }), Catch::Contains("metric name"));
  CHECK_THAT(said<BadArgument>([&] { page.gauge("a", "", 1, {{"a:b", "c"}}); }), Catch::Contains("label name"));
  CHECK(page.text() == "# HELP steps Steps.\n# TYPE steps counter\nsteps 5\n");
}

TEST_CASE("a tally is four counters for each operation, and a file is replaced by them", "[observe][golden]") {
  auto const folder = observe::Folder{};
  auto tally        = Tally{};
  for (int i = 0; i < 2; ++i) {
    tally.take({.name     = "all_reduce \"x\"",
                .category = Category::communication,
                .rank     = 3,
                .end      = Event::Time{std::chrono::milliseconds{250}},
                .bytes    = 1'000'000'000,
                .messages = 7});
    tally.take({.name = "forward"});
  }
  auto page = Prometheus{};
  page.counters(tally);
  page.counters(tally);
  page.write(folder / "metrics.prom");
  auto const text = content_of(folder / "metrics.prom");
  CHECK(text == page.text());
  auto const labels = std::string{"{operation=\"all_reduce \\\"x\\\"\",category=\"communication\",rank=\"3\"} "};
  CHECK_THAT(text, Catch::Contains("chorale_operations_total" + labels + "2\n") &&
                       Catch::Contains("chorale_operation_seconds_total" + labels + "0.5\n") &&
                       Catch::Contains("chorale_sent_bytes_total" + labels + "2e+09\n") &&
                       Catch::Contains("chorale_sent_messages_total" + labels + "14\n") &&
                       Catch::Contains("{operation=\"forward\",category=\"compute\",rank=\"0\"} 2\n"));
}
