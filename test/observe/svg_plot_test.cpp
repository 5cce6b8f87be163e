// SPDX-License-Identifier: Apache-2.0
#include "tools/plot/svg_plot.hpp"

#include "test/observe/folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using observe::said;

namespace {

constexpr auto none = std::numeric_limits<double>::quiet_NaN();

CsvTable table(std::vector<std::string> names, std::vector<std::vector<double>> columns) {
  return {.names = std::move(names), .columns = std::move(columns)};
}

std::size_t count(std::string const& text, std::string const& part) {
  auto n = std::size_t{0};
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// The shape of the curve with this colour: what its path draws.
std::string curve(std::string const& svg, std::size_t i) {
  auto const colour = svg.find("\" stroke=\"" + std::string{detail::plot_colours[i]});
  auto const begin  = svg.rfind("d=\"", colour) + 3;
  return svg.substr(begin, colour - begin);
}

/// How much lighter one colour is than another, as the guidelines for web pages count it.
double contrast(std::string const& a, std::string const& b) {
  auto const light = [](std::string const& colour) {
    auto sum = 0.05;
    for (auto const& [at, weight] : {std::pair{1U, 0.2126}, std::pair{3U, 0.7152}, std::pair{5U, 0.0722}}) {
      auto const c = std::stoi(colour.substr(at, 2), nullptr, 16) / 255.0;
      sum += weight * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  return std::max(light(a), light(b)) / std::min(light(a), light(b));
}

}  // namespace

TEST_CASE("a plot has a panel for each value, its validation beside it, axes, ticks and a legend", "[observe][unit]") {
  auto const svg = svg_plot(table({"step", "wall_time", "loss", "accuracy", "val_loss"},
                                  {{0, 50, 100}, {7, 8, 9}, {2, 1, 0.5}, {0.1, 0.5, 0.9}, {none, none, 0.75}}),
                            {.title = "A <run> & its \"curves\""});
  CHECK(count(svg, "font-weight=\"bold\">") == 1);  // the title
  CHECK(count(svg, "rotate(-90)\">loss</text>") == 1);
  CHECK(count(svg, ">accuracy</text>") == 1);
  CHECK(count(svg, ">loss  0.5</text>") == 1);
  CHECK(count(svg, ">val_loss  0.75</text>") == 1);
  CHECK(count(svg, "stroke-dasharray") == 2);  // the curve, and its piece in the legend
  CHECK(count(svg, ">20</text>") == 2);
  CHECK(count(svg, ">step</text>") == 1);
  CHECK(count(svg, "A &lt;run&gt; &amp; its \"curves\"") == 2);
  CHECK(svg.find("nan") == svg.npos);
  CHECK(curve(svg, 1).ends_with("h0.1"));  // one point is a dot
}

TEST_CASE("a point lies where its numbers say", "[observe][golden]") {
  auto const svg = svg_plot(table({"step", "wall_time", "loss"}, {{0, 5, 10}, {7, 7, 7}, {0, 25, 100}}));
  CHECK(curve(svg, 0) == "M78.0 193.8L271.0 154.9L464.0 38.2");  // axes from (78, 200) to (464, 32), 4 % margin
  CHECK(count(svg, "<text x=\"464.0\" y=\"219.0\" text-anchor=\"middle\">10</text>") == 1);
  CHECK(count(svg, "<text x=\"72.0\" y=\"43.2\" text-anchor=\"end\">100</text>") == 1);
}

TEST_CASE("means of epochs are apart from those of their steps, and a rate goes in steps", "[observe][unit]") {
  auto const svg =
      svg_plot(table({"step", "epoch", "loss", "val_loss", "learning_rate"}, {{1, 2, 2, 3, 4, 4},
                                                                              {none, none, 0, none, none, 1},
                                                                              {9, 8, 8, 5, 4, 4},
                                                                              {none, none, 7, none, none, 3},
                                                                              {0.1, 0.1, 0.1, 0.1, 0.1, 0.01}}));
  CHECK(count(svg, ">epoch</text>") == 0);
  CHECK(count(svg, "stroke-opacity=\"0.6\"") == 1);  // the steps of loss, of which val_loss has none
  auto const faint = svg.substr(0, svg.find("\" stroke=\"" + std::string{detail::plot_colours[0]}));
  CHECK(count(faint.substr(faint.rfind("d=\"")), "M") == 2);  // it begins again with the second epoch
  CHECK(count(svg, "stroke-width=\"6\"") == 2);               // dots
  CHECK(count(svg, ">loss  4</text>") == 1);
  auto const rate = curve(svg.substr(svg.find(">learning_rate<")), 0);
  CHECK(count(rate, "H") >= 4);
  CHECK(count(rate, "L") == 0);  // no line falls aslant
}

TEST_CASE("a value by its logarithm has ticks at powers of ten, and lacks what is not above 0", "[observe][unit]") {
  auto const by_log = PlotOptions{.log = {"loss"}};
  auto const svg = svg_plot(table({"step", "loss", "rate"}, {{1, 2, 3, 4}, {100, 1, -1, 0.01}, {1, 2, 3, 4}}), by_log);
  for (auto const* tick : {"0.01", "0.1", "1", "10", "100"})
    CHECK(count(svg, std::string{"end\">"} + tick + "</text>") >= 1);
  CHECK(curve(svg, 0) == "M78.0 33.7L206.7 116.0L464.0 198.3");
  auto const narrow = svg_plot(table({"step", "loss"}, {{1, 2}, {3, 6}}), by_log);
  CHECK(count(narrow, "end\">5</text>") == 1);
  CHECK(count(svg_plot(table({"step", "loss", "rate"}, {{1}, {2}, {3}}), {.only = {"rate"}}), "rotate(-90)") == 1);
  CHECK_THAT(said<BadArgument>([] { svg_plot(table({"step", "loss"}, {{1}, {2}}), {.only = {"lost"}}); }),
             Catch::Contains("no panel of this plot is named lost"));
  CHECK_THAT(said<BadArgument>([] { svg_plot(table({"step", "loss"}, {{1}, {2}}), {.log = {"lost"}}); }),
             Catch::Contains("no panel of this plot is named lost"));
}

TEST_CASE("printed 8 cm wide, letters have 7 points, and a legend that is too long goes on below", "[observe][unit]") {
  auto const svg =
      svg_plot(table({"step", "loss", "val_loss", "train_loss"}, {{1, 2}, {1, 2}, {2, 3}, {1.125, 1.375}}));
  auto width = 0.0, letters = 0.0;
  REQUIRE(std::sscanf(svg.c_str() + svg.find(" width="), " width=\"%lf\"", &width) == 1);
  REQUIRE(std::sscanf(svg.c_str() + svg.find("font-size="), "font-size=\"%lf\"", &letters) == 1);
  CHECK(letters / width * 80 / 25.4 * 72 >= 7);
  auto const y_of = [&](std::string const& text) { return svg.substr(svg.rfind("y=", svg.find(">" + text)), 8); };
  CHECK(y_of("loss  2") == y_of("val_loss"));
  CHECK(y_of("train_loss") != y_of("val_loss"));
}

TEST_CASE("where a run was started again, the later numbers count", "[observe][unit]") {
  auto const again = svg_plot(table({"step", "loss"}, {{1, 2, 3, 4, 2, 3}, {9, 8, 7, 6, 5, 4}}));
  CHECK(again == svg_plot(table({"step", "loss"}, {{1, 2, 3}, {9, 5, 4}})));
}

TEST_CASE("curves by wall time begin at 0 seconds", "[observe][unit]") {
  auto const by_time = PlotOptions{.by = PlotOptions::By::wall_time};
  auto const svg     = svg_plot(table({"step", "wall_time", "loss"}, {{1, 2}, {1e9, 1e9 + 10}, {2, 1}}), by_time);
  CHECK(count(svg, ">seconds</text>") == 1);
  CHECK(count(svg, "y=\"219.0\" text-anchor=\"middle\">0</text>") == 1);
  CHECK(count(svg, "y=\"219.0\" text-anchor=\"middle\">10</text>") == 1);
  CHECK_THAT(said<BadFile>([&] { svg_plot(table({"step", "loss"}, {{1}, {2}}), by_time); }),
             Catch::Contains("a table: has no column wall_time, which a plot needs"));
}

TEST_CASE("numbers that cannot be drawn are passed over, and a column without any says so", "[observe][unit]") {
  auto const svg =
      svg_plot(table({"step", "a", "b"}, {{1, 2, none, 4}, {HUGE_VAL, 3, 5, -HUGE_VAL}, {none, none, none, none}}));
  CHECK(count(svg, ">no numbers</text>") == 1);
  CHECK(curve(svg, 0) == "M271.0 116.0h0.1");
  for (auto const* word : {"nan", "inf"}) CHECK(svg.find(word) == svg.npos);
}

TEST_CASE("a long run keeps its extremes, in no more points than the picture can show", "[observe][unit]") {
  auto steps = std::vector<double>{}, loss = std::vector<double>{};
  for (int i = 0; i < 100'000; ++i) {
    steps.push_back(i);
    loss.push_back(i == 41'000 ? 10 : i == 77'777 ? -10 : std::sin(i * 0.01));
  }
  auto const svg = svg_plot(table({"step", "loss"}, {steps, loss}));
  CHECK(count(curve(svg, 0), "L") < 4 * 388);
  CHECK(count(curve(svg, 0), "L") > 388);
  CHECK(curve(svg, 0).find(" 38.2") != std::string::npos);
  CHECK(curve(svg, 0).find(" 193.8") != std::string::npos);
}

TEST_CASE("axes hold any numbers, with a handful of ticks", "[observe][unit]") {
  for (auto const& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {-1, 1}, {1e-12, 2e-12}, {-1e299, 1e299}, {5, 5}, {0, 0}, {1e17, 1e17}, {0, 7.0001}, {-3, 96}}) {
    auto const axis = detail::PlotAxis::over(low, high, 0, 100);
    auto ticks      = std::vector<double>{};
    axis.ticks([&](double value) { ticks.push_back(axis.pixel(value)); });
    CHECK(ticks.size() >= 2);
    CHECK(ticks.size() <= 8);
    CHECK(ticks.front() >= -1e-9);
    CHECK(ticks.back() <= 100 + 1e-9);
  }
}

TEST_CASE("any name is text that XML takes", "[observe][unit]") {
  auto const escaped = [](std::string const& text) { return detail::SvgPage::escaped(text); };
  CHECK(escaped("a<b>&c\"") == "a&lt;b&gt;&amp;c\"");
  CHECK(escaped("\x01\t") == "??");
  CHECK(escaped("\xC3\xB6\xE2\x82\xAC\xF0\x9F\x98\x80") == "\xC3\xB6\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(escaped("\xC3") == "?");
  CHECK(escaped("\xC0\x80\xED\xA0\x80\xEF\xBF\xBF") == "????????");
}

TEST_CASE("nothing to draw is refused", "[observe][unit]") {
  CHECK_THAT(said<BadFile>([] { svg_plot(table({"loss"}, {{1}})); }), Catch::Contains("has no column step"));
  CHECK_THAT(said<BadFile>([] { svg_plot(table({"step", "loss"}, {{none}, {1}})); }),
             Catch::Contains("has 1 rows, but none with"));
  CHECK_THAT(said<BadFile>([] { svg_plot(table({"step", "wall_time"}, {{1}, {1}})); }),
             Catch::Contains("no column beside step and wall_time"));
}

TEST_CASE("every colour can be seen on light and on dark pages", "[observe][unit]") {
  auto colours = std::vector<std::string>(detail::plot_colours.begin(), detail::plot_colours.end());
  colours.emplace_back(detail::plot_grey);
  for (auto const& colour : colours) {
    INFO(colour);
    CHECK(contrast(colour, "#ffffff") > 3.5);
    CHECK(contrast(colour, "#0d1117") > 3.5);
  }
}
