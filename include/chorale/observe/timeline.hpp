// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "chorale: <nlohmann/json.hpp> is not on the include path. Try: apt-get install nlohmann-json3-dev \
(Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install \
nlohmann-json"
#endif

#include <chorale/observe/clock_offset.hpp>
#include <chorale/observe/event.hpp>
#include <chorale/observe/run_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Options of a Timeline.
struct TimelineOptions {
  std::size_t buffer = 8192;  // events that wait in memory, 64 bytes each
  std::string host   = {};    // shown next to the rank
};

/// A sink that writes the events of each rank for ui.perfetto.dev and chrome://tracing. One file per process.
///
///   rank 0   step           ├── 1180 ───────────────────┤
///            compute        ├ forward ┤├ backward ┤
///            communication           ├ bucket 0 ┤├ 1 ┤
///            wait, input, checkpoint
///
/// keeps   the file is complete JSON after every write: it can be opened during the run, and after a crash. A
///         resumed run needs another file
/// order   events are in the file in the order in which they were taken; times are of this process's clock, and its
///         offset to rank 0's is stored with them, for merge_timelines()
/// cost    take(): a lock and 64 bytes; one write for each `buffer` events; no allocation between writes
/// throws  BadFile when the file cannot be opened, and from flush() when it could not be written: events are then lost,
///         and dropped() is their number
/// source  the Trace Event Format of Chrome, events X and M, with process = rank and thread = category
class Timeline {
 public:
  explicit Timeline(std::filesystem::path file, ClockOffset clock = {}, TimelineOptions options = {})
      : file_{std::move(file), RunFile::Open::fresh}, clock_{clock}, options_{std::move(options)} {
    CHORALE_EXPECTS(options_.buffer > 0, "a timeline needs room for at least one event");
    waiting_.reserve(options_.buffer);
    write();
  }
  ~Timeline() {
    try {
      flush();
    } catch (...) {  // a destructor does not throw: flush() reports errors
    }
  }
  Timeline(Timeline const&)            = delete;
  Timeline& operator=(Timeline const&) = delete;

  void take(Event const& event) noexcept {
    auto const lock = std::lock_guard{mutex_};
    if (waiting_.size() == options_.buffer) try_to_write();
    waiting_.push_back(event);
  }

  /// Sets the offset of this process's clock to rank 0's, if it is known only after the start.
  void align(ClockOffset clock) {
    auto const lock = std::lock_guard{mutex_};
    clock_          = clock;
  }

  void flush() {
    auto const lock = std::lock_guard{mutex_};
    try_to_write();
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

  /// Events that are not in the file because it could not be written.
  std::size_t dropped() const {
    auto const lock = std::lock_guard{mutex_};
    return dropped_;
  }

 private:
  void try_to_write() noexcept {
    try {
      write();
    } catch (...) {
      failed_ = std::current_exception();
      dropped_ += waiting_.size();
    }
    waiting_.clear();
  }

  /// Writes new events over the closing, and the closing after them.
  void write() {
    auto text       = std::string{end_ == 0 ? "{\"traceEvents\":[" : ""};
    auto any        = any_;  // two copies: a failed write leaves the members as they are
    auto introduced = introduced_;
    auto const line = [&](std::string_view object) {
      text.append(any ? ",\n" : "\n").append(object);
      any = true;
    };
    for (auto const& event : waiting_) {
      if (std::ranges::find(introduced, event.rank) == introduced.end()) {
        introduced.push_back(event.rank);
        introduce(event.rank, line);
      }
      line(object_of(event));
    }
    auto const closing =
        "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"clock_offset_ns\":" + std::to_string(clock_.offset.count()) +
        ",\"clock_error_ns\":" + std::to_string(clock_.error.count()) + "}}\n";
    file_.write_at(end_, text + closing);
    end_ += text.size();
    any_        = any;
    introduced_ = std::move(introduced);
  }

  /// Writes the names of the rank and of its rows.
  void introduce(Rank rank, auto&& line) const {
    auto const say = [&](std::string_view what, std::string const& row, std::string const& arguments) {
      line("{\"name\":\"" + std::string{what} + "\",\"ph\":\"M\",\"pid\":" + std::to_string(rank) + row +
           ",\"args\":{" + arguments + "}}");
    };
    auto const on = options_.host.empty() ? "" : " on " + options_.host;
    say("process_name", "", "\"name\":" + in_quotes("rank " + std::to_string(rank) + on));
    say("process_sort_index", "", "\"sort_index\":" + std::to_string(rank));
    for (auto const category : categories) {
      auto const row = ",\"tid\":" + std::to_string(static_cast<int>(category));
      say("thread_name", row, "\"name\":" + in_quotes(name_of(category)));
      say("thread_sort_index", row, "\"sort_index\":" + std::to_string(static_cast<int>(category)));
    }
  }

  static std::string object_of(Event const& event) {
    auto text = "{\"name\":" + in_quotes(event.name.text()) + ",\"cat\":\"" + std::string{name_of(event.category)} +
                "\",\"ph\":\"X\",\"ts\":" + microseconds(event.begin.time_since_epoch()) +
                ",\"dur\":" + microseconds(event.duration()) + ",\"pid\":" + std::to_string(event.rank) +
                ",\"tid\":" + std::to_string(static_cast<int>(event.category)) +
                ",\"args\":{\"step\":" + std::to_string(event.step);
    if (event.messages != 0 || event.bytes != 0)
      text += ",\"bytes\":" + std::to_string(event.bytes) + ",\"messages\":" + std::to_string(event.messages);
    return text + "}}";
  }

  /// A time in microseconds, as text: 1234567 ns is 1234.567.
  static std::string microseconds(std::chrono::nanoseconds time) {
    auto const ns   = time.count();
    auto const abs  = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
    auto const part = std::to_string(1000 + abs % 1000);
    return (ns < 0 ? "-" : "") + std::to_string(abs / 1000) + "." + part.substr(1);
  }

  /// A text as a JSON string; bytes that are not UTF-8 become U+FFFD.
  static std::string in_quotes(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::mutex mutable mutex_;
  RunFile file_;
  ClockOffset clock_;
  TimelineOptions options_;
  std::vector<Event> waiting_;
  std::vector<Rank> introduced_;
  std::uint64_t end_   = 0;  // where the closing begins, in bytes
  bool any_            = false;
  std::size_t dropped_ = 0;
  std::exception_ptr failed_;
};

}  // namespace chorale
