// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/observe/run_file.hpp>
#include <chorale/observe/tally.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Counters and gauges with their current values, in the text format that Prometheus reads.
///
///   page.counter("chorale_step_total", "Steps done.", 1180);
///   page.gauge("chorale_loss", "Loss of the last step.", 0.25, {{"replica", "all"}});
///   page.write("/var/lib/node_exporter/chorale.prom");
///
/// keeps   families are in the order of their names, with their help once. A new value of the same name and labels
///         replaces the old one. A counter never decreases
/// throws  BadArgument for a name that Prometheus would refuse, a family that is both counter and gauge, or a counter
///         that decreases
/// source  Prometheus text exposition format, version 0.0.4
class Prometheus {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  static constexpr std::string_view content_type = "text/plain; version=0.0.4; charset=utf-8";

  /// Sets a counter to its value since the run began.
  void counter(std::string const& name, std::string_view help, double value, Labels const& labels = {}) {
    CHORALE_EXPECTS(!std::isnan(value), "counter " + name + " counts NaN");
    auto& sample = set("counter", name, help, labels, value);
    CHORALE_EXPECTS(value >= sample, "counter " + name + " goes back from " + number(sample) + " to " + number(value));
    sample = value;
  }
  void gauge(std::string const& name, std::string_view help, double value, Labels const& labels = {}) {
    set("gauge", name, help, labels, value) = value;
  }

  /// Sets the counters of a Tally: events, seconds, bytes and messages of each operation of each rank.
  void counters(Tally const& tally) {
    for (auto const& line : tally.lines()) {
      auto const labels = Labels{{"operation", std::string{line.name.text()}},
                                 {"category", std::string{name_of(line.category)}},
                                 {"rank", std::to_string(line.rank)}};
      counter("chorale_operations_total", "Times that an operation was done.", static_cast<double>(line.events),
              labels);
      counter("chorale_operation_seconds_total", "Time in an operation.",
              std::chrono::duration<double>(line.time).count(), labels);
      if (line.messages == 0 && line.bytes == 0) continue;
      counter("chorale_sent_bytes_total", "Bytes sent in an operation.", static_cast<double>(line.bytes), labels);
      counter("chorale_sent_messages_total", "Messages sent in an operation.", static_cast<double>(line.messages),
              labels);
    }
  }

  std::string text() const {
    auto out = std::string{};
    for (auto const& [name, family] : families_) {
      out += "# HELP " + name + " " + escaped(family.help, "\\\n") + "\n# TYPE " + name + " " + family.type + "\n";
      for (auto const& [labels, value] : family.samples) out += name + labels + " " + number(value) + "\n";
    }
    return out;
  }

  /// Replaces a file in one step, for node_exporter's textfile collector.
  void write(std::filesystem::path const& file) const { replace_file(file, text()); }

 private:
  struct Family {
    std::string type, help;
    std::map<std::string, double> samples;  // by their labels, as written
  };

  double& set(char const* type, std::string const& name, std::string_view help, Labels const& labels, double first) {
    check("metric", name, "_:");
    for (auto const& [label, _] : labels) check("label", label, "_");
    auto const [found, is_new] = families_.try_emplace(name, Family{type, std::string{help}, {}});
    CHORALE_EXPECTS(found->second.type == type, "metric " + name + " is a " + found->second.type + " and a " + type);
    auto text = std::string{};
    for (auto const& [label, value] : labels)
      text.append(text.empty() ? "{" : ",") += label + "=\"" + escaped(value, "\\\n\"") + "\"";
    if (!text.empty()) text += "}";
    return found->second.samples.try_emplace(text, first).first->second;
  }

  static void check(char const* what, std::string const& name, std::string_view signs) {
    auto const fits = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || signs.find(c) != signs.npos;
    };
    CHORALE_EXPECTS(!name.empty() && std::ranges::all_of(name, fits) && !(name[0] >= '0' && name[0] <= '9'),
                    std::string{what} + " name \"" + name + "\" has more than letters, digits and " +
                        std::string{signs} + ", or begins with a digit");
  }

  static std::string escaped(std::string_view text, std::string_view signs) {
    auto out = std::string{};
    for (auto const c : text) {
      if (signs.find(c) != signs.npos) out += '\\';
      out += c == '\n' && signs.find(c) != signs.npos ? 'n' : c;
    }
    return out;
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
    return number_text(value);
  }

  std::map<std::string, Family> families_;
};

}  // namespace chorale
