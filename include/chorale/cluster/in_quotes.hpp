// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/printable.hpp>

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace chorale {

/// Returns an untrusted text in quotes, fit for one line of an error: its first 80 characters, made printable.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 80;
  return "\"" + printable(text.substr(0, limit)) + (text.size() > limit ? "...\"" : "\"");
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
