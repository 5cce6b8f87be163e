// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/config.hpp>

#include <locale.h>

#include <array>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace chorale {

/// A text from another process or from a file, made safe for one line of a log: every byte that is not printable ASCII
/// becomes '?', so that no peer can move a terminal's cursor, or forge a line.
inline std::string printable(std::string_view text) {
  auto line = std::string{text};
  for (char& c : line)
    if (c < ' ' || c > '~') c = '?';
  return line;
}

/// Returns an untrusted text in quotes, fit for one line of an error: its first 80 characters, made printable.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 80;
  return "\"" + printable(text.substr(0, limit)) + (text.size() > limit ? "...\"" : "\"");
}

namespace detail {

inline void append_formatted(std::string& text, char const* form, std::va_list values) {
  static auto const c = ::newlocale(LC_ALL_MASK, "C", nullptr);
  auto const before   = ::uselocale(c);  // of this thread
  auto made           = std::array<char, 400>{};
  std::vsnprintf(made.data(), made.size(), form, values);
  ::uselocale(before);
  text += made.data();
}

}  // namespace detail

/// Appends a text formatted as by printf, cut to 399 characters. Numbers have a point, whatever setlocale() has chosen.
[[gnu::format(printf, 2, 3)]] inline void append_formatted(std::string& text, char const* form, ...) {
  std::va_list values;
  va_start(values, form);
  detail::append_formatted(text, form, values);
  va_end(values);
}

/// A text formatted as by printf, as append_formatted() does it.
[[gnu::format(printf, 1, 2)]] inline std::string formatted(char const* form, ...) {
  auto text = std::string{};
  std::va_list values;
  va_start(values, form);
  detail::append_formatted(text, form, values);
  va_end(values);
  return text;
}

/// The shortest text that reads back as the same number: "0.1", "1e-05", "inf", "nan".
template <std::floating_point T> std::string number_text(T value) {
  if (value != value) return "nan";  // and not "-nan"
  auto text = std::array<char, 128>{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

namespace detail {

/// The form of a sentence() with that many values: a literal, whose {} the compiler counts.
template <std::size_t values> struct SentenceForm {
  template <std::convertible_to<std::string_view> Text>
  consteval SentenceForm(Text const& form) : text{form} {  // implicit, from a literal
    auto holes = std::size_t{0};
    for (auto at = text.find("{}"); at != text.npos; at = text.find("{}", at + 2)) ++holes;
    if (holes != values) throw "chorale: a sentence() has as many {} as values";
  }
  std::string_view text;
};

}  // namespace detail

/// A text in which each {} is replaced by the next value: a number, as number_text() has it, or a text.
///
///   sentence("rank {} lost rank {}", 2, 0)      "rank 2 lost rank 0"
template <class... Values> std::string sentence(detail::SentenceForm<sizeof...(Values)> form, Values const&... values) {
  auto text                       = std::string{};
  auto left                       = form.text;
  [[maybe_unused]] auto const put = [&](auto const& value) {
    auto const hole = left.find("{}");
    text += left.substr(0, hole);
    if constexpr (std::convertible_to<decltype(value), std::string_view>) text += std::string_view{value};
    else if constexpr (std::floating_point<std::remove_cvref_t<decltype(value)>>) text += number_text(value);
    else text += std::to_string(value);
    left.remove_prefix(hole + 2);
  };
  (put(values), ...);
  return text += left;
}

/// Writes one line with the library's name to the standard error stream, in one piece also when other threads or
/// processes write there.
inline void log_line(std::string const& line) {
  auto const text = "chorale: " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// A time as error messages have it: "1500 ms", "60 s".
inline std::string seconds_text(std::chrono::nanoseconds time) {
  auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return ms % 1'000 == 0 ? std::to_string(ms / 1'000) + " s" : std::to_string(ms) + " ms";
}

/// Returns the number of a text that is digits and nothing else, up to `most`; nothing for others.
inline std::optional<int> whole_number(std::string_view text, int most) {
  int n = 0;
  if (text.empty() || text.front() == '-') return std::nullopt;
  auto const [end, bad] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (bad != std::errc{} || end != text.data() + text.size() || n > most) return std::nullopt;
  return n;
}

}  // namespace chorale
