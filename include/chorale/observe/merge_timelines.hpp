// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "chorale: <nlohmann/json.hpp> is not on the include path. Try: apt-get install nlohmann-json3-dev \
(Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install \
nlohmann-json"
#endif

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/run_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// The result of merge_timelines().
struct MergedTimelines {
  std::vector<Rank> ranks{};       // ascending
  std::size_t events         = 0;  // without metadata events, which only name things
  std::int64_t largest_error = 0;  // of a clock, in ns: closer events have no certain order
};

namespace detail {

/// Reads files of Timeline one after the other, and puts their events on one clock.
class TimelineMerge {
 public:
  void add(std::filesystem::path const& file) {
    auto json = nlohmann::json{};
    try {
      json = nlohmann::json::parse(read_file(file));
    } catch (nlohmann::json::exception const& error) {
      throw BadFile{file.string() + ": is no JSON: " + error.what() + ".", "a file that Timeline wrote."};
    }
    if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array())
      throw BadFile{file.string() + ": is JSON, but has no list traceEvents.", "a file that Timeline wrote."};
    auto const other  = json.value("otherData", nlohmann::json::object());
    auto const offset = whole(file, other, "clock_offset_ns"), error = whole(file, other, "clock_error_ns");
    largest_error_ = std::max(largest_error_, error);
    auto here      = std::set<Rank>{};
    auto& events   = json["traceEvents"];
    for (std::size_t i = 0; i < events.size(); ++i) take(file, i, std::move(events[i]), offset, here);
    for (auto const rank : here)
      if (auto const [first, is_new] = files_.emplace(rank, file); !is_new)
        throw BadFile{file.string() + ": has events of rank " + std::to_string(rank) + ", but so has " +
                          first->second.string() + ".",
                      "one file per process, and of one run."};
  }

  /// Writes all events to a file. The earliest event is at 0.
  MergedTimelines write(std::filesystem::path const& to) {
    std::ranges::stable_sort(timed_, {}, &Timed::ns);
    auto text = std::string{"{\"traceEvents\":["};
    auto line = std::string{"\n"};
    for (auto const& name : names_) text += std::exchange(line, ",\n") + dump(name);
    for (auto& event : timed_) {
      event.json["ts"] = static_cast<double>(event.ns - timed_.front().ns) / 1e3;
      text += std::exchange(line, ",\n") + dump(event.json);
    }
    text +=
        "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"clock_error_ns\":" + std::to_string(largest_error_) + "}}\n";
    replace_file(to, text);
    auto merged = MergedTimelines{.events = timed_.size(), .largest_error = largest_error_};
    for (auto const& [rank, _] : files_) merged.ranks.push_back(rank);
    return merged;
  }

 private:
  struct Timed {
    std::int64_t ns;
    nlohmann::json json;
  };

  static constexpr double far = 2e18;  // ns, 63 years: differences of sums fit 64 bits

  void take(std::filesystem::path const& file, std::size_t i, nlohmann::json&& event, std::int64_t offset,
            std::set<Rank>& here) {
    auto const bad = [&](std::string const& why) {
      return BadFile{file.string() + ": event " + std::to_string(i) + " " + why + ".", "a file that Timeline wrote."};
    };
    auto const number = [&](char const* key, double low, double high) {
      if (!event.contains(key) || !event[key].is_number()) throw bad(std::string{"has no number \""} + key + "\"");
      auto const value = event[key].get<double>();
      if (!(value >= low && value <= high)) throw bad(std::string{"has a \""} + key + "\" that is out of range");
      return value;
    };
    if (!event.is_object() || !event.contains("ph") || !event["ph"].is_string()) throw bad("has no phase \"ph\"");
    here.insert(static_cast<Rank>(number("pid", 0, std::numeric_limits<Rank>::max())));
    if (event["ph"] == "M") {
      names_.push_back(std::move(event));
      return;
    }
    auto const ns = std::llround(number("ts", -far / 1e3, far / 1e3) * 1e3) + offset;
    timed_.push_back({ns, std::move(event)});
  }

  static std::int64_t whole(std::filesystem::path const& file, nlohmann::json const& data, char const* key) {
    if (!data.is_object() || !data.contains(key)) return 0;
    auto const value = data[key].is_number_integer() ? data[key].get<double>() : far * 2;
    if (std::abs(value) > far)
      throw BadFile{file.string() + ": \"" + key + "\" is no whole number of ns below 2e18.",
                    "a file that Timeline wrote."};
    return data[key].get<std::int64_t>();
  }

  static std::string dump(nlohmann::json const& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::vector<Timed> timed_;
  std::vector<nlohmann::json> names_;
  std::map<Rank, std::filesystem::path> files_;
  std::int64_t largest_error_ = 0;
};

}  // namespace detail

/// Merges the timelines of all processes into one file, on rank 0's clock: it shows what was in transit during waits.
///
/// to      replaced in one step; another order of `files` changes the order of events only where times tie
/// cost    the memory of all events, about 1 KB each
/// throws  BadFile with the file and the event: no JSON, no trace, or a rank that is in two files
inline MergedTimelines merge_timelines(Span<std::filesystem::path const> files, std::filesystem::path const& to) {
  auto merge = detail::TimelineMerge{};
  for (auto const& file : files) merge.add(file);
  return merge.write(to);
}

}  // namespace chorale
