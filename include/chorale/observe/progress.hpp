// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace chorale {

/// A metric shown next to the progress bar: its current value, such as the mean since the epoch began.
struct MetricValue {
  std::string_view name;
  double value;
};

/// The output of a progress line.
struct Terminal {
  enum class Kind { plain, moving };  // plain: a file, a pipe, a terminal that cannot go back

  Kind kind           = Kind::plain;
  std::size_t columns = 0;  // 0: as many as needed

  /// Standard output, as the system and the environment describe it. A terminal that tells no width has 80 columns.
  static Terminal standard_output() {
    auto size = winsize{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = 80;
    return of(::isatty(STDOUT_FILENO) == 1 ? Kind::moving : Kind::plain, size.ws_col,
              [](char const* name) -> char const* { return std::getenv(name); });
  }

  /// Applies the environment: plain if TERM is "dumb", NO_COLOR is set, or a launcher of MPI has given this process a
  /// terminal whose output it forwards with the output of others; COLUMNS, if a number, replaces the width.
  template <class Lookup> static Terminal of(Kind kind, std::size_t columns, Lookup&& environment) {
    auto const text = [&](char const* name) {
      char const* const value = environment(name);
      return std::string_view{value == nullptr ? "" : value};
    };
    auto const wanted = text("COLUMNS");
    if (!wanted.empty() && wanted.size() < 6 && wanted.find_first_not_of("0123456789") == wanted.npos)
      columns = std::stoul(std::string{wanted});
    auto const is_forwarded = [&] {
      constexpr auto launchers = std::array{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID"};
      return std::ranges::any_of(launchers, [&](char const* name) { return !text(name).empty(); });
    };
    return {text("TERM") == "dumb" || !text("NO_COLOR").empty() || is_forwarded() ? Kind::plain : kind, columns};
  }
};

/// A progress line for each epoch: redrawn on a terminal, written once, at the end, to a file.
///
///   Epoch 1/12
///   936/938 [============================>.] - ETA: 0s - accuracy: 0.9442 - loss: 0.1924
///
///   progress.begin_epoch(1, 12, 938);
///   for (…) progress.update(step, metrics);              // step: how many are done
///   progress.end_epoch(metrics);
///
/// epoch   1-based; with one epoch in all, the "Epoch" line is left out; steps: per epoch, if known
/// keeps   the bytes of tf.keras.utils.Progbar when the terminal is wide enough, else a shorter bar, then none, and
///         then a line that is cut to its width; one thread
/// cost    at most one line each 0.05 s; update() reads the clock once and, after the first, allocates nothing
/// source  tf_keras generic_utils.py, Progbar, with metrics that are shown unchanged. Two things differ: the line
///         is redrawn on terminals only, and small negative metrics look the same in both forms
class ProgressLine {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  using Write = std::function<void(std::string_view)>;

  ProgressLine() : ProgressLine{Terminal::standard_output(), to(std::cout)} {}
  ProgressLine(
      Terminal terminal, Write write, Clock clock = [] { return std::chrono::steady_clock::now(); })
      : terminal_{terminal}, write_{std::move(write)}, clock_{std::move(clock)} {}

  /// A Write to a stream, which must outlive it; each line is flushed.
  static Write to(std::ostream& stream) {
    return [&stream](std::string_view text) { stream << text << std::flush; };
  }

  void begin_epoch(int epoch, int epochs, std::optional<std::size_t> steps) {
    CHORALE_EXPECTS(!steps || *steps > 0, "an epoch has at least one step");
    if (epochs > 1) write_("Epoch " + std::to_string(epoch) + "/" + std::to_string(epochs) + "\n");
    steps_ = steps;
    done_ = width_ = 0;
    after_first_.reset();
    shown_.reset();
    begun_ = clock_();
    line_.reserve(4096);
  }

  /// Writes whole lines, each with its end, and breaks them between words where a terminal is narrower. Between
  /// begin_epoch() and the first update().
  void note(std::string_view lines) {
    auto text = std::string{lines};
    auto line = std::size_t{0}, space = text.npos;  // where the line begins, and the last place to break it
    for (std::size_t i = 0; i < text.size() && terminal_.kind == Terminal::Kind::moving && terminal_.columns > 0; ++i) {
      bool const full = i - line >= terminal_.columns && space != text.npos;
      if (full && text[i] != '\n') text[space] = '\n';
      if (text[i] == '\n' || full) line = (text[i] == '\n' ? i : space) + 1, space = text.npos;
      if (text[i] == ' ') space = i;
    }
    write_(text);
  }

  void update(std::size_t step, Span<MetricValue const> metrics) {
    done_ = step;
    if (terminal_.kind == Terminal::Kind::plain) return;
    auto const now = clock_();
    if (shown_ && now - *shown_ < std::chrono::milliseconds{50}) return;
    shown_ = now;
    show(now, metrics, steps_ ? Last::no : Last::unknown);
  }

  /// Shows the last state, whatever the time since the last update, and ends the line.
  ///
  /// more    text after the metrics
  void end_epoch(Span<MetricValue const> metrics, std::string_view more = {}) {
    auto const now = clock_();
    if (!steps_) steps_ = std::max<std::size_t>(done_, 1);
    if (terminal_.kind == Terminal::Kind::moving) return show(now, metrics, Last::yes, more);
    auto const elapsed = seconds(now - begun_);
    line_.clear();
    append_formatted(line_, "%*zu/%zu - %.0fs", digits(*steps_), done_, *steps_, elapsed);
    add_metrics(metrics);
    line_ += " -";
    add_time(elapsed, "epoch");
    line_ += " -";
    add_time(elapsed / static_cast<double>(*steps_), "step");
    line_.append(more) += '\n';
    write_(line_);
  }

 private:
  enum class Last { no, yes, unknown };  // unknown: the number of steps is not given

  static double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }
  static int digits(std::size_t n) { return n < 10 ? 1 : 1 + digits(n / 10); }

  void show(std::chrono::steady_clock::time_point now, Span<MetricValue const> metrics, Last last,
            std::string_view more = {}) {
    line_.assign(width_, '\b');
    line_ += '\r';
    auto const start = line_.size();
    if (last == Last::unknown) append_formatted(line_, "%7zu/Unknown", done_);
    else append_formatted(line_, "%*zu/%zu [", digits(*steps_), done_, *steps_);
    auto const bar = line_.size();
    if (last != Last::unknown) line_ += ']';
    auto const per_step = time_per_step(now);
    if (last == Last::no) {
      add_remaining(per_step * static_cast<double>(*steps_ - std::min(done_, *steps_)));
    } else {
      append_formatted(line_, " - %.0fs", seconds(now - begun_));
      add_time(per_step, "step");
    }
    add_metrics(metrics);
    line_ += more;
    auto const room = terminal_.columns > 0 ? std::max<std::size_t>(terminal_.columns, 2) - 1 : line_.max_size();
    if (last != Last::unknown) add_bar(bar, room - std::min(room, line_.size() - start));
    if (last != Last::yes)  // the first part of a line that wraps would remain
      line_.resize(start + std::min(line_.size() - start, room));
    auto const width = line_.size() - start;
    if (width < width_) line_.append(width_ - width, ' ');
    width_ = width;
    if (last == Last::yes) line_ += '\n';
    write_(line_);
  }

  /// Inserts the cells of the bar at a place of the line, 30 or as many as there is room for; without room for 5 the
  /// line has no bar: 936/938 [============================>.]
  void add_bar(std::size_t at, std::size_t room) {
    if (room < 5) {
      line_.erase(at - 2, 3);  // " []"
      return;
    }
    auto const cells  = std::min<std::size_t>(room, 30);
    auto const part   = static_cast<double>(done_) / static_cast<double>(*steps_);
    auto const filled = std::min(cells, static_cast<std::size_t>(static_cast<double>(cells) * part));
    line_.insert(at, cells, '.');
    if (filled == 0) return;
    std::fill_n(line_.begin() + static_cast<std::ptrdiff_t>(at), filled - 1, '=');
    line_[at + filled - 1] = done_ < *steps_ ? '>' : '=';
  }

  /// The mean time of a step, without the first step of an epoch, which also waits for data and caches.
  double time_per_step(std::chrono::steady_clock::time_point now) {
    if (done_ == 0) return 0;
    auto const mean = after_first_ && done_ > 1 ? seconds(now - *after_first_) / static_cast<double>(done_ - 1)
                                                : seconds(now - begun_) / static_cast<double>(done_);
    if (done_ == 1) after_first_ = now;
    return mean;
  }

  void add_remaining(double time) {
    auto const whole = static_cast<long long>(time);
    if (time > 3600) append_formatted(line_, " - ETA: %lld:%02lld:%02lld", whole / 3600, whole % 3600 / 60, whole % 60);
    else if (time > 60) append_formatted(line_, " - ETA: %lld:%02lld", whole / 60, whole % 60);
    else append_formatted(line_, " - ETA: %llds", whole);
  }

  void add_time(double time, char const* unit) {
    if (time >= 1 || time == 0) append_formatted(line_, " %.0fs/%s", time, unit);
    else if (time >= 1e-3) append_formatted(line_, " %.0fms/%s", time * 1e3, unit);
    else append_formatted(line_, " %.0fus/%s", time * 1e6, unit);
  }

  void add_metrics(Span<MetricValue const> metrics) {
    for (auto const& [name, value] : metrics) {
      line_.append(" - ").append(name).append(": ");
      if (std::isnan(value)) line_ += "nan";  // printf may add a sign
      else append_formatted(line_, std::abs(value) > 1e-3 ? "%.4f" : "%.4e", value);
    }
  }

  Terminal terminal_;
  Write write_;
  Clock clock_;
  std::optional<std::size_t> steps_;
  std::size_t done_ = 0, width_ = 0;  // steps; bytes of the line that is shown
  std::chrono::steady_clock::time_point begun_{};
  std::optional<std::chrono::steady_clock::time_point> after_first_, shown_;
  std::string line_;
};

}  // namespace chorale
