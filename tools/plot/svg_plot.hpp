// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/observe/csv.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Options of a plot.
struct PlotOptions {
  enum class By { step, wall_time };                       // wall_time: seconds since the first row

  By by             = By::step;
  std::string title = {};
};

namespace detail {

/// The colours of lines: mid tones, with a contrast of at least 3.5 to 1 to white and to the usual dark pages.
inline constexpr auto plot_colours =
    std::array<char const*, 6>{"#2f81d7", "#d4602f", "#2b9564", "#9a67d0", "#b07f00", "#c2508f"};
inline constexpr auto plot_grey = "#757d87";

/// The numbers of one column, without its empty cells.
struct PlotLine {
  std::string name;
  std::vector<double> x, y;
};

/// Lines over the same axes, such as loss and val_loss.
struct PlotPanel {
  std::string name;
  std::vector<PlotLine> lines;
};

/// An axis from low to high pixels, with a tick at each multiple of 1, 2 or 5 times a power of ten.
struct PlotAxis {
  double from, to, tick;                                   // values
  double first, last;                                      // pixels

  static PlotAxis over(double from, double to, double first, double last) {
    if (!(from < to)) {
      auto const around = std::max(std::abs(from) * 0.1, 1e-6);
      from -= around;
      to += around;
    }
    auto const rough = (to - from) / 6;
    auto const power = std::pow(10, std::floor(std::log10(rough)));
    auto const digit = rough / power;                      // from 1 to 10
    return {from, to, power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10), first, last};
  }

  double pixel(double value) const { return first + (last - first) * (value - from) / (to - from); }

  /// Calls f(value) at each tick.
  void ticks(auto&& f) const {
    auto const low = std::ceil(from / tick), high = std::floor(to / tick);
    for (int i = 0; i <= static_cast<int>(high - low); ++i) f((low + i) * tick + 0.0);       // + 0.0: no "-0"
  }
};

/// Builds an SVG picture, element by element.
class SvgPage {
 public:
  SvgPage(double width, double height, std::string const& title) {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %.0f %.0f\"", width, height);
    add(" width=\"%.0f\" height=\"%.0f\"", width, height);
    add(" font-family=\"sans-serif\" font-size=\"12\" fill=\"%s\">\n", plot_grey);
    out_ += "<title>" + escaped(title) + "</title>\n";
  }

  std::string end() && { return std::move(out_) + "</svg>\n"; }

  void text(double x, double y, char const* anchor, std::string_view what, char const* style = "") {
    add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, style);
    out_ += escaped(what) + "</text>\n";
  }

  /// Adds a path; `where` is its attribute d.
  void path(std::string const& where, char const* colour, char const* style) {
    out_ += "<path d=\"" + where;
    add("\" stroke=\"%s\" fill=\"none\"%s/>\n", colour, style);
  }

  template <class... Values>
  static std::string print(char const* format, Values... values) {
    auto text    = std::array<char, 400>{};
    auto const n = std::snprintf(text.data(), text.size(), format, values...);
    return {text.data(), static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(text.size()) - 1))};
  }

  /// Escapes a text for XML; characters that XML cannot hold become question marks.
  static std::string escaped(std::string_view text) {
    auto out = std::string{};
    for (std::size_t i = 0; i < text.size();) {
      auto const n = character(text.substr(i));
      if (text[i] == '&') out += "&amp;";
      else if (text[i] == '<') out += "&lt;";
      else if (text[i] == '>') out += "&gt;";
      else if (n == 0 || (n == 1 && static_cast<unsigned char>(text[i]) < 0x20)) out += '?';
      else out += text.substr(i, n);
      i += std::max<std::size_t>(n, 1);
    }
    return out;
  }

 private:
  template <class... Values>
  void add(char const* format, Values... values) {
    out_ += print(format, values...);
  }

  /// The length in bytes of the UTF-8 character at the front; 0 if it is not valid.
  static std::size_t character(std::string_view text) {
    auto const byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    auto const n    = byte(0) < 0x80 ? 1U : byte(0) < 0xC2 ? 0U : byte(0) < 0xE0 ? 2U : byte(0) < 0xF0 ? 3U
                    : byte(0) < 0xF5 ? 4U : 0U;
    for (std::size_t i = 1; i < n; ++i)
      if (byte(i) >> 6 != 2) return 0;
    auto const two = byte(0) << 8 | byte(1);               // too long, a surrogate, or beyond the last; U+FFFE, U+FFFF
    if ((n == 3 && (two < 0xE0A0 || (two >= 0xEDA0 && two < 0xEE80))) || (n == 4 && (two < 0xF090 || two >= 0xF490)) ||
        (n == 3 && two == 0xEFBF && byte(2) >= 0xBE))
      return 0;
    return n;
  }

  std::string out_;
};

/// Draws panels one below the other.
class Plot {
 public:
  static std::string of(std::vector<PlotPanel> const& panels, std::string const& x_name, std::string const& title) {
    auto const top    = title.empty() ? 8.0 : 36.0;
    auto const bottom = top + height * static_cast<double>(panels.size());
    auto plot         = Plot{SvgPage{right + 16, bottom + 20, title.empty() ? "curves by " + x_name : title}};
    if (!title.empty()) plot.page_.text(left, 22, "start", title, " font-size=\"15\" font-weight=\"bold\"");
    for (std::size_t i = 0; i < panels.size(); ++i) plot.draw(panels[i], top + height * static_cast<double>(i));
    plot.page_.text((left + right) / 2, bottom + 8, "middle", x_name);
    return std::move(plot.page_).end();
  }

 private:
  static constexpr double left = 64, right = 744, height = 230, head = 28, foot = 26;       // pixels

  explicit Plot(SvgPage page) : page_{std::move(page)} {}

  void draw(PlotPanel const& panel, double top) {
    auto const upper = top + head, lower = top + height - foot;
    page_.text(left, top + 16, "start", panel.name, " font-weight=\"bold\"");
    auto all = PlotLine{};                                 // for the lowest and the highest of each axis
    for (auto const& line : panel.lines) {
      all.x.insert(all.x.end(), line.x.begin(), line.x.end());
      all.y.insert(all.y.end(), line.y.begin(), line.y.end());
    }
    if (all.x.empty()) return page_.text((left + right) / 2, (upper + lower) / 2, "middle", "no numbers");
    auto const [x_low, x_high] = std::ranges::minmax(all.x);
    auto const [y_low, y_high] = std::ranges::minmax(all.y);
    auto const margin          = 0.04 * (y_high - y_low);
    auto const x = PlotAxis::over(x_low, x_high, left, right);
    auto const y = PlotAxis::over(y_low - margin, y_high + margin, lower, upper);
    y.ticks([&](double value) {
      rule(left, y.pixel(value), right, y.pixel(value), " stroke-opacity=\"0.25\"");
      page_.text(left - 6, y.pixel(value) + 4, "end", number(value));
    });
    x.ticks([&](double value) {
      rule(x.pixel(value), lower, x.pixel(value), lower + 4);
      page_.text(x.pixel(value), lower + 17, "middle", number(value));
    });
    rule(left, lower, right, lower);
    rule(left, upper, left, lower);
    for (std::size_t i = 0; i < panel.lines.size(); ++i)
      page_.path(curve(panel.lines[i], x, y), colour(i), style(i));
    legend(panel, top + 16);
  }

  /// Draws the legend from the right edge to the left: a piece of line, the name, and the last value.
  void legend(PlotPanel const& panel, double y) {
    auto x = right;
    for (auto i = panel.lines.size(); i-- > 0;) {
      auto const& line = panel.lines[i];
      auto const label = line.name + (line.y.empty() ? "" : "  " + number(line.y.back()));
      page_.text(x, y, "end", label);
      x -= 7.0 * static_cast<double>(label.size()) + 6;
      page_.path(SvgPage::print("M%.1f %.1fh22", x - 22, y - 4), colour(i), style(i));
      x -= 40;
    }
  }

  /// The path of a line, with at most four points for each column of pixels: the first, lowest, highest and last.
  static std::string curve(PlotLine const& line, PlotAxis const& x, PlotAxis const& y) {
    auto where   = std::string{};
    auto const n = line.x.size();
    for (std::size_t begin = 0, end = 0; begin < n; begin = end) {
      auto low = begin, high = begin;
      for (; end < n && std::floor(x.pixel(line.x[end])) == std::floor(x.pixel(line.x[begin])); ++end) {
        if (line.y[end] < line.y[low]) low = end;
        if (line.y[end] > line.y[high]) high = end;
      }
      auto points = std::array{begin, low, high, end - 1};
      std::ranges::sort(points);
      for (std::size_t k = 0; k < points.size(); ++k)
        if (k == 0 || points[k] != points[k - 1])
          where += SvgPage::print("%s%.1f %.1f", where.empty() ? "M" : "L", x.pixel(line.x[points[k]]),
                                  y.pixel(line.y[points[k]]));
    }
    return where.find('L') == where.npos ? where + "h0.1" : where;                           // one point is a dot
  }

  void rule(double x1, double y1, double x2, double y2, char const* style = "") {
    page_.path(SvgPage::print("M%.1f %.1fL%.1f %.1f", x1, y1, x2, y2), plot_grey, style);
  }

  static char const* colour(std::size_t i) { return plot_colours[i % plot_colours.size()]; }
  static char const* style(std::size_t i) {                // every other line is dashed: distinct without colours
    return i % 2 == 0 ? " stroke-width=\"2\" stroke-linecap=\"round\" stroke-linejoin=\"round\""
                      : " stroke-width=\"2\" stroke-linejoin=\"round\" stroke-dasharray=\"6 3\"";
  }
  static std::string number(double value) {
    return SvgPage::print(std::abs(value) >= 1e4 && std::abs(value) < 1e9 ? "%.0f" : "%.4g", value);
  }

  SvgPage page_;
};

/// The panel of a column: loss for loss, val_loss, test_loss and train_loss.
inline std::string panel_of(std::string_view column) {
  for (auto const prefix : {"val_", "test_", "train_"})
    if (auto const part = std::string_view{prefix}; column.starts_with(part) && column.size() > part.size())
      return std::string{column.substr(part.size())};
  return std::string{column};
}

}  // namespace detail

/// Draws the columns of a CsvLog as an SVG picture for light or dark pages: one panel for each value, together with its
/// val_, test_ and train_ columns.
///
/// keeps   if a step is repeated after a restart, the later numbers count, and earlier numbers of later steps are
///         dropped. Empty cells, NaN and infinities are skipped
/// throws  BadFile when there is no column step, no other column, or no row with a step
inline std::string svg_plot(CsvTable const& table, PlotOptions const& options = {}) {
  auto const bad = [&](std::string const& why) {
    throw BadFile{(table.file.empty() ? "a table" : table.file) + ": " + why + ", which a plot needs.",
                  "a file that CsvLog wrote."};
  };
  auto const column = [&](std::string_view name) -> std::vector<double> const& {
    auto const at = std::ranges::find(table.names, name);
    if (at == table.names.end()) bad("has no column " + std::string{name});
    return table.columns[static_cast<std::size_t>(at - table.names.begin())];
  };
  auto const drawable = [](double v) { return std::abs(v) < 1e300; };      // and not NaN
  auto const& steps   = column("step");
  auto const& x       = options.by == PlotOptions::By::step ? steps : column("wall_time");
  auto rows           = std::vector<std::size_t>{};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (!drawable(steps[row]) || !drawable(x[row])) continue;
    while (!rows.empty() && steps[rows.back()] >= steps[row]) rows.pop_back();
    rows.push_back(row);
  }
  if (rows.empty()) bad("has " + std::to_string(table.rows()) + " rows, but none with a number in step");
  auto const origin = options.by == PlotOptions::By::step ? 0.0 : x[rows.front()];
  auto panels       = std::vector<detail::PlotPanel>{};
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    if (table.names[i] == "step" || table.names[i] == "wall_time") continue;
    auto line = detail::PlotLine{table.names[i], {}, {}};
    for (auto const row : rows)
      if (drawable(table.columns[i][row])) {
        line.x.push_back(x[row] - origin);
        line.y.push_back(table.columns[i][row]);
      }
    auto const name = detail::panel_of(line.name);
    auto panel      = std::ranges::find(panels, name, &detail::PlotPanel::name);
    if (panel == panels.end()) panel = panels.insert(panels.end(), {name, {}});
    panel->lines.push_back(std::move(line));
  }
  if (panels.empty()) bad("has no column beside step and wall_time");
  return detail::Plot::of(panels, options.by == PlotOptions::By::step ? "step" : "seconds", options.title);
}

}  // namespace chorale
