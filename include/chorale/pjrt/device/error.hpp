// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace chorale::pjrt {

/// Name of an error code of PJRT, which uses gRPC's codes.
constexpr std::string_view code_name(int code) {
  constexpr auto names = std::array<std::string_view, 17>{
      "ok",        "cancelled",      "unknown",           "invalid argument",   "deadline exceeded",
      "not found", "already exists", "permission denied", "resource exhausted", "failed precondition",
      "aborted",   "out of range",   "unimplemented",     "internal",           "unavailable",
      "data loss", "unauthenticated"};
  return code >= 0 && code < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(code)] : "no known code";
}

/// A call of a plug-in failed. The message has the call, what the plug-in said, and its code.
class PluginError : public Error {
 public:
  PluginError(int code, std::string said, std::string const& what_and_where, std::string const& what_to_try = {})
      : Error{what_and_where, what_to_try}, code_{code}, said_{std::move(said)} {}

  int code() const noexcept { return code_; }                 // code_name() has its name
  std::string const& said() const noexcept { return said_; }  // the plug-in's own words

 private:
  int code_;
  std::string said_;
};

/// A plug-in could not compile a program. Where the plug-in named a line, the message shows it.
class CompileError : public PluginError {
 public:
  CompileError(int code, std::string said, int line, int column, std::string const& what_and_where,
               std::string const& what_to_try = {})
      : PluginError{code, std::move(said), what_and_where, what_to_try}, line_{line}, column_{column} {}

  int line() const noexcept { return line_; }  // of the text, from 1; 0: none was named
  int column() const noexcept { return column_; }

 private:
  int line_, column_;
};

namespace detail {

/// Where a plug-in found a fault in a text: "-:3:26: error: expected ','".
struct TextPosition {
  int line   = 0;  // from 1; 0: it names none
  int column = 0;
  std::string fault{};  // the rest of that line
};

/// The first position that a plug-in names in what it said.
inline TextPosition position_in(std::string_view said) {
  for (auto at = said.find("-:"); at != said.npos; at = said.find("-:", at + 2)) {
    auto place      = TextPosition{};
    auto const last = said.data() + said.size();
    auto const line = std::from_chars(said.data() + at + 2, last, place.line);
    if (line.ec != std::errc{} || line.ptr == last || *line.ptr != ':') continue;
    auto const column = std::from_chars(line.ptr + 1, last, place.column);
    if (column.ec != std::errc{} || column.ptr == last || *column.ptr != ':') continue;
    auto rest = said.substr(static_cast<std::size_t>(column.ptr + 1 - said.data()));
    rest      = rest.substr(0, rest.find('\n'));
    if (rest.starts_with(" error: ")) rest.remove_prefix(8);
    place.fault = printable(rest);
    return place;
  }
  return {};
}

/// A line of a text, at most 100 characters of it around a column, without the spaces before it.
inline std::string line_of(std::string_view text, int line, int column) {
  for (int i = 1; i < line; ++i) {
    auto const end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  text             = text.substr(0, text.find('\n'));
  auto const begin = std::min(text.find_first_not_of(' '), text.size());
  auto const at    = static_cast<std::size_t>(std::max(column, 1) - 1);
  auto const from  = std::max(begin, at > 60 ? at - 60 : 0);
  auto const shown = text.substr(std::min(from, text.size()), 100);
  return (from > begin ? "..." : "") + printable(shown) + (from + 100 < text.size() ? "..." : "");
}

/// The first line of what a plug-in said: what follows are often addresses of its code.
inline std::string first_line(std::string_view said) { return printable(said.substr(0, said.find('\n'))); }

/// What to do about an error, where its words are known.
inline std::string what_to_try(std::string_view said) {
  auto const says = [&](std::string_view words) { return said.find(words) != said.npos; };
  if (says("No jellyfish device found"))
    return "a machine with a TPU, /dev/accel* or /dev/vfio readable by this process, and no other process that has it; "
           "without one, a plug-in for CPUs, or compile_for(), which needs no TPU.";
  if (says("No visible GPU devices"))
    return "a machine with an NVIDIA GPU and its driver, CUDA_VISIBLE_DEVICES that names one, or a plug-in for CPUs.";
  if (says("ut of memory")) return "a smaller batch or model, or more devices.";
  if (says("already in use"))
    return "one process for each host of TPUs: another one has the device, or left its lock file.";
  return {};
}

}  // namespace detail

}  // namespace chorale::pjrt
