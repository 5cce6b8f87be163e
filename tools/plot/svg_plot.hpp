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
  enum class By { step, wall_time };  // wall_time: seconds since the first row

  By by                         = By::step;
  std::string title             = {};
  std::vector<std::string> log  = {};  // panels whose values are drawn by their logarithm
  std::vector<std::string> only = {};  // panels to draw; empty: all
};

namespace detail {

/// The colours of lines: mid tones, with a contrast of at least 3.5 to 1 to white and to the usual dark pages.
inline constexpr auto plot_colours =
    std::array<char const*, 6>{"#2f81d7", "#d4602f", "#2b9564", "#9a67d0", "#b07f00", "#c2508f"};
inline constexpr auto plot_grey = "#757d87";

/// How a line goes from point to point. steps: to the next value at once, then level up to its x, as a value is that of
/// the steps since the last one. points: straight, with a dot at each. faint: a thin line behind the others, of means so
/// far, which become those of the points.
enum class PlotStyle { curve, steps, points, faint };

/// The numbers of one column, without its empty cells.
struct PlotLine {
  std::string name;
  std::vector<double> x, y;
  PlotStyle style                 = PlotStyle::curve;
  std::vector<std::size_t> breaks = {};  // points before which the line is interrupted, ascending
  std::size_t colour              = 0;   // of a faint line: that of line number `colour` of the panel
};

/// Lines over the same axes, such as loss and val_loss.
struct PlotPanel {
  std::string name;
  std::vector<PlotLine> lines;
  bool log = false;  // the values by their logarithm
};

/// An axis from low to high pixels, with a tick at each multiple of 1, 2 or 5 times a power of ten; by logarithms, with
/// ticks at powers of ten, or within two of them at 1, 2 and 5 times these.
struct PlotAxis {
  double from, to, tick;  // values; of an axis by logarithms, their logarithms
  double first, last;     // pixels
  bool log = false;

  static PlotAxis by_logarithm(double from, double to, double first, double last) {
    auto axis = over(std::log10(from), std::log10(to), first, last);
    axis.tick = std::max(1.0, std::ceil((axis.to - axis.from) / 7));
    axis.log  = true;
    return axis;
  }

  static PlotAxis over(double from, double to, double first, double last) {
    if (!(from < to)) {
      auto const around = std::max(std::abs(from) * 0.1, 1e-6);
      from -= around;
      to += around;
    }
    auto const rough = (to - from) / 6;
    auto const power = std::pow(10, std::floor(std::log10(rough)));
    auto const digit = rough / power;  // from 1 to 10
    return {from, to, power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10), first, last};
  }

  double pixel(double value) const {
    return first + (last - first) * ((log ? std::log10(value) : value) - from) / (to - from);
  }

  /// Calls f(value) at each tick.
  void ticks(auto&& f) const {
    if (log) {
      auto const fine = to - from < 2 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
      for (auto power = std::floor(from / tick) * tick; power <= to; power += tick)
        for (auto const digit : fine)
          if (auto const at = power + std::log10(digit); at >= from && at <= to) f(digit * std::pow(10, power));
      return;
    }
    auto const low = std::ceil(from / tick), high = std::floor(to / tick);
    for (int i = 0; i <= static_cast<int>(high - low); ++i) f((low + i) * tick + 0.0);  // + 0.0: no "-0"
  }
};

/// Builds an SVG picture, element by element.
class SvgPage {
 public:
  SvgPage(double width, double height, std::string const& title) {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %.0f %.0f\"", width, height);
    add(" width=\"%.0f\" height=\"%.0f\"", width, height);
    add(" font-family=\"sans-serif\" font-size=\"15\" fill=\"%s\">\n", plot_grey);
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

  template <class... Values> static std::string print(char const* format, Values... values) {
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
  template <class... Values> void add(char const* format, Values... values) { out_ += print(format, values...); }

  /// The length in bytes of the UTF-8 character at the front; 0 if it is not valid.
  static std::size_t character(std::string_view text) {
    auto const byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    auto const n    = byte(0) < 0x80   ? 1U
                      : byte(0) < 0xC2 ? 0U
                      : byte(0) < 0xE0 ? 2U
                      : byte(0) < 0xF0 ? 3U
                      : byte(0) < 0xF5 ? 4U
                                       : 0U;
    for (std::size_t i = 1; i < n; ++i)
      if (byte(i) >> 6 != 2) return 0;
    auto const two = byte(0) << 8 | byte(1);  // too long, a surrogate, or beyond the last; U+FFFE, U+FFFF
    if ((n == 3 && (two < 0xE0A0 || (two >= 0xEDA0 && two < 0xEE80))) || (n == 4 && (two < 0xF090 || two >= 0xF490)) ||
        (n == 3 && two == 0xEFBF && byte(2) >= 0xBE))
      return 0;
    return n;
  }

  std::string out_;
};

/// Draws panels one below the other: as wide as a column of a paper, where 8 cm leave letters of 7 points.
class Plot {
 public:
  static std::string of(std::vector<PlotPanel> const& panels, std::string const& x_name, std::string const& title) {
    auto bottom = title.empty() ? 4.0 : 32.0;
    auto tops   = std::vector<double>{};
    for (auto const& panel : panels) {
      tops.push_back(bottom);
      bottom += head * static_cast<double>(rows_of(panel)) + height + foot;
    }
    auto plot = Plot{SvgPage{right + 16, bottom + 18, title.empty() ? "curves by " + x_name : title}};
    if (!title.empty()) plot.page_.text(left, 22, "start", title, " font-size=\"17\" font-weight=\"bold\"");
    for (std::size_t i = 0; i < panels.size(); ++i) plot.draw(panels[i], tops[i]);
    plot.page_.text((left + right) / 2, bottom + 8, "middle", x_name);
    return std::move(plot.page_).end();
  }

 private:
  static constexpr double left = 78, right = 464, height = 168, head = 22, foot = 38;  // pixels
  static constexpr double letter = 8.2, sample = 26;  // widths of a letter, and of a line in the legend

  explicit Plot(SvgPage page) : page_{std::move(page)} {}

  void draw(PlotPanel const& panel, double top) {
    auto const upper = top + head * static_cast<double>(rows_of(panel)) + 6, lower = upper + height;
    page_.text(0, 0, "middle", panel.name,
               SvgPage::print(" transform=\"translate(16 %.1f) rotate(-90)\"", (upper + lower) / 2).c_str());
    auto all = PlotLine{};  // for the lowest and the highest of each axis
    for (auto const& line : panel.lines) {
      all.x.insert(all.x.end(), line.x.begin(), line.x.end());
      all.y.insert(all.y.end(), line.y.begin(), line.y.end());
    }
    if (all.x.empty()) return page_.text((left + right) / 2, (upper + lower) / 2, "middle", "no numbers");
    auto const [x_low, x_high] = std::ranges::minmax(all.x);
    auto const [y_low, y_high] = std::ranges::minmax(all.y);
    auto const margin          = 0.04 * (y_high - y_low);
    auto const x               = PlotAxis::over(x_low, x_high, left, right);
    auto const y               = panel.log ? PlotAxis::by_logarithm(y_low / 1.1, y_high * 1.1, lower, upper)
                                           : PlotAxis::over(y_low - margin, y_high + margin, lower, upper);
    y.ticks([&](double value) {
      rule(left, y.pixel(value), right, y.pixel(value), " stroke-opacity=\"0.25\"");
      page_.text(left - 6, y.pixel(value) + 5, "end", number(value));
    });
    x.ticks([&](double value) {
      rule(x.pixel(value), lower, x.pixel(value), lower + 4);
      page_.text(x.pixel(value), lower + 19, "middle", number(value));
    });
    rule(left, lower, right, lower);
    rule(left, upper, left, lower);
    for (auto const faint : {true, false})
      for (std::size_t i = 0; i < panel.lines.size(); ++i) {
        auto const& line = panel.lines[i];
        if ((line.style == PlotStyle::faint) != faint) continue;
        page_.path(curve(line, x, y), colour(panel, i), style(panel, i).c_str());
        if (line.style == PlotStyle::points) dots(line, x, y, colour(panel, i));
      }
    legend(panel, top + 15);
  }

  static std::string label(PlotLine const& line) {
    return line.name + (line.y.empty() ? "" : "  " + number(line.y.back()));
  }
  static double width(PlotLine const& line) { return letter * static_cast<double>(label(line).size()) + 2 * sample; }

  /// Calls f(line, row, pixels from the left) for each line that the legend names.
  static std::size_t lay_out(PlotPanel const& panel, auto&& f) {
    auto row = std::size_t{0};
    auto at  = 0.0;
    for (std::size_t i = 0; i < panel.lines.size(); ++i) {
      auto const& line = panel.lines[i];
      if (line.style == PlotStyle::faint) continue;
      if (at > 0 && at + width(line) > right - left + sample) ++row, at = 0;
      f(i, row, at);
      at += width(line);
    }
    return row + 1;
  }
  static std::size_t rows_of(PlotPanel const& panel) {
    return lay_out(panel, [](std::size_t, std::size_t, double) {});
  }

  /// Draws the legend: a piece of line, the name, and the last value of each line, in as many rows as they need.
  void legend(PlotPanel const& panel, double y) {
    lay_out(panel, [&](std::size_t i, std::size_t row, double at) {
      auto const base = y + head * static_cast<double>(row);
      page_.path(SvgPage::print("M%.1f %.1fh%.0f", left + at, base - 5, sample), colour(panel, i),
                 style(panel, i).c_str());
      page_.text(left + at + sample + 6, base, "start", label(panel.lines[i]));
    });
  }

  /// The path of a line, with at most four points for each column of pixels: the first, lowest, highest and last.
  static std::string curve(PlotLine const& line, PlotAxis const& x, PlotAxis const& y) {
    auto where   = std::string{};
    auto const n = line.x.size();
    for (std::size_t begin = 0, end = 0; begin < n; begin = end) {
      bool const starts = begin == 0 || std::ranges::binary_search(line.breaks, begin);
      auto const until  = std::ranges::upper_bound(line.breaks, begin);
      auto const stop   = until == line.breaks.end() ? n : *until;
      auto low = begin, high = begin;
      for (; end < stop && std::floor(x.pixel(line.x[end])) == std::floor(x.pixel(line.x[begin])); ++end) {
        if (line.y[end] < line.y[low]) low = end;
        if (line.y[end] > line.y[high]) high = end;
      }
      auto points = std::array{begin, low, high, end - 1};
      std::ranges::sort(points);
      for (std::size_t k = 0; k < points.size(); ++k) {
        if (k != 0 && points[k] == points[k - 1]) continue;
        auto const at_x = x.pixel(line.x[points[k]]), at_y = y.pixel(line.y[points[k]]);
        if (k == 0 && starts) where += SvgPage::print("M%.1f %.1f", at_x, at_y);
        else if (line.style == PlotStyle::steps) where += SvgPage::print("V%.1fH%.1f", at_y, at_x);
        else where += SvgPage::print("L%.1f %.1f", at_x, at_y);
      }
    }
    return where.find_first_of("LH") == where.npos ? where + "h0.1" : where;  // one point is a dot
  }

  /// Draws a dot at each point, or, if they are many, at some of them.
  void dots(PlotLine const& line, PlotAxis const& x, PlotAxis const& y, char const* colour) {
    auto const every = line.x.size() / 50 + 1;
    auto where       = std::string{};
    for (auto i = (line.x.size() - 1) % every; i < line.x.size(); i += every)
      where += SvgPage::print("M%.1f %.1fh0.1", x.pixel(line.x[i]), y.pixel(line.y[i]));
    page_.path(where, colour, " stroke-width=\"6\" stroke-linecap=\"round\"");
  }

  void rule(double x1, double y1, double x2, double y2, char const* style = "") {
    page_.path(SvgPage::print("M%.1f %.1fL%.1f %.1f", x1, y1, x2, y2), plot_grey, style);
  }

  /// The number of a line among those that the legend names.
  static std::size_t named(PlotPanel const& panel, std::size_t i) {
    auto const of = panel.lines[i].style == PlotStyle::faint ? panel.lines[i].colour : i;
    return static_cast<std::size_t>(std::count_if(panel.lines.begin(),
                                                  panel.lines.begin() + static_cast<std::ptrdiff_t>(of),
                                                  [](PlotLine const& line) { return line.style != PlotStyle::faint; }));
  }
  static char const* colour(PlotPanel const& panel, std::size_t i) {
    return plot_colours[named(panel, i) % plot_colours.size()];
  }
  static std::string style(PlotPanel const& panel, std::size_t i) {  // every other is dashed: distinct in grey
    if (panel.lines[i].style == PlotStyle::faint) return " stroke-width=\"1\" stroke-opacity=\"0.6\"";
    return named(panel, i) % 2 == 0 ? " stroke-width=\"2\" stroke-linecap=\"round\" stroke-linejoin=\"round\""
                                    : " stroke-width=\"2\" stroke-linejoin=\"round\" stroke-dasharray=\"6 3\"";
  }
  static std::string number(double value) {
    auto text = SvgPage::print(std::abs(value) >= 1e4 && std::abs(value) < 1e9 ? "%.0f" : "%.4g", value);
    if (auto const zero = text.find("e-0"); zero != text.npos) text.erase(zero + 2, 1);  // 1e-5, not 1e-05
    return text;
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
///         dropped. Empty cells, NaN and infinities are skipped, and by logarithms what is not above 0. With a column
///         epoch, lines that have one are drawn as points, and the others, means of the epoch so far, as faint lines
///         that begin again with each epoch. A learning_rate goes in steps
/// throws  BadFile when there is no column step, no other column, or no row with a step; BadArgument when options
///         have a name that is no panel
inline std::string svg_plot(CsvTable const& table, PlotOptions const& options = {}) {
  auto const bad = [&](std::string const& why) {
    throw BadFile{(table.file.empty() ? "a table" : table.file) + ": " + why + ", which a plot needs.",
                  "a file that CsvLog wrote."};
  };
  auto const find = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(table.names, name) - table.names.begin());
  };
  auto const column = [&](std::string_view name) -> std::vector<double> const& {
    if (find(name) == table.names.size()) bad("has no column " + std::string{name});
    return table.columns[find(name)];
  };
  auto const drawable = [](double v) { return std::abs(v) < 1e300; };  // and not NaN
  auto const& steps   = column("step");
  auto const& x       = options.by == PlotOptions::By::step ? steps : column("wall_time");
  auto const epochs   = find("epoch");
  auto const of_epoch = [&](std::size_t row) {
    return epochs < table.names.size() && drawable(table.columns[epochs][row]);
  };
  auto rows = std::vector<std::size_t>{};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (!drawable(steps[row]) || !drawable(x[row])) continue;
    while (!rows.empty() && (steps[rows.back()] > steps[row] ||
                             (steps[rows.back()] == steps[row] && of_epoch(rows.back()) >= of_epoch(row))))
      rows.pop_back();
    rows.push_back(row);
  }
  if (rows.empty()) bad("has " + std::to_string(table.rows()) + " rows, but none with a number in step");
  auto const ends   = epochs < table.names.size() && std::ranges::any_of(rows, of_epoch);
  auto const origin = options.by == PlotOptions::By::step ? 0.0 : x[rows.front()];
  auto panels       = std::vector<detail::PlotPanel>{};
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    if (table.names[i] == "step" || table.names[i] == "wall_time" || table.names[i] == "epoch") continue;
    auto const name = detail::panel_of(table.names[i]);
    if (!options.only.empty() && std::ranges::count(options.only, name) == 0) continue;
    auto panel = std::ranges::find(panels, name, &detail::PlotPanel::name);
    if (panel == panels.end())
      panel = panels.insert(panels.end(), {name, {}, std::ranges::count(options.log, name) != 0});
    auto line   = detail::PlotLine{table.names[i], {}, {}};
    auto so_far = detail::PlotLine{"", {}, {}, detail::PlotStyle::faint, {}, panel->lines.size()};
    line.style  = name == "learning_rate" ? detail::PlotStyle::steps
                  : ends                  ? detail::PlotStyle::points
                                          : detail::PlotStyle::curve;
    for (auto const row : rows) {
      auto& to = line.style == detail::PlotStyle::points && !of_epoch(row) ? so_far : line;
      if (of_epoch(row) && !so_far.x.empty()) so_far.breaks.push_back(so_far.x.size());
      if (!drawable(table.columns[i][row]) || (panel->log && table.columns[i][row] <= 0)) continue;
      to.x.push_back(x[row] - origin);
      to.y.push_back(table.columns[i][row]);
    }
    panel->lines.push_back(std::move(line));
    if (!so_far.x.empty()) panel->lines.push_back(std::move(so_far));
  }
  if (panels.empty() && options.only.empty()) bad("has no column beside step and wall_time");
  for (auto const& names : {options.log, options.only})
    for (auto const& name : names)
      if (std::ranges::find(panels, name, &detail::PlotPanel::name) == panels.end())
        throw BadArgument{"no panel of this plot is named " + name + ".", "loss, or the name of another panel."};
  return detail::Plot::of(panels, options.by == PlotOptions::By::step ? "step" : "seconds", options.title);
}

}  // namespace chorale
