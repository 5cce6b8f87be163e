// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/wire/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::wire {

inline constexpr std::size_t max_plan_bytes = 64 * 1024;

/// Payload of a plan frame: what a rank computes, in lines: loss, optimizer, metrics, variables, layers. Two ranks send
/// it to each other, so that both can name the first line that differs.
///
///   optimizer Adam learning_rate 0.001
///   dense/kernel f32[784,256]
///   layer 2 ReLU
///
/// keeps   parse() accepts any bytes, and returns nothing when they are too many, or a line is empty or has no end.
///         write() writes whole lines, as many from the front as there is room for
struct PlanPayload {
  std::vector<std::string> lines;

  std::vector<std::byte> write() const {
    auto text = std::string{};
    for (auto const& line : lines) {
      if (text.size() + line.size() + 1 > max_plan_bytes) break;
      text += line + "\n";
    }
    auto const bytes = std::as_bytes(Span<char const>{text});
    return {bytes.begin(), bytes.end()};
  }

  static std::optional<PlanPayload> parse(ConstBytes in) {
    if (in.size() > max_plan_bytes || (!in.empty() && in.back() != line_end)) return std::nullopt;
    auto result = PlanPayload{};
    while (!in.empty()) {
      auto const size = static_cast<std::size_t>(std::ranges::find(in, line_end) - in.begin());
      if (size == 0) return std::nullopt;
      result.lines.push_back(Reader{in}.text(size));
      in = in.subspan(size + 1);
    }
    return result;
  }

 private:
  static constexpr auto line_end = std::byte{'\n'};
};

namespace detail {

/// Shortens two texts to at most 80 characters each, around the first place where they differ.
inline void shorten(std::string_view a, std::string_view b, std::string& short_a, std::string& short_b) {
  constexpr std::size_t most = 80, before = 24;
  auto const same = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  auto const cut  = [&](std::string_view text) {
    if (text.size() <= most) return std::string{text};
    auto const begin = same + before > most && same > before ? same - before : 0;
    auto const shown = text.substr(begin, most);
    return (begin == 0 ? "" : "..") + std::string{shown} + (begin + shown.size() == text.size() ? "" : "..");
  };
  short_a = cut(a);
  short_b = cut(b);
}

}  // namespace detail

/// Returns the first line in which two plans differ: the peer's text vs this rank's. A common start appears once.
///
///   dense/kernel f32[784,256] vs f32[784,512]
///   layer 2 Tanh vs ReLU
///   optimizer Adam learning_rate 0.01 vs 0.001
///   dense/bias f32[10] vs nothing                          this rank's plan has ended
///
/// keeps   at most 80 characters of each value, around the place where they differ, and 64 of the common start
inline std::string first_difference(Span<std::string const> mine, Span<std::string const> theirs) {
  auto const line = [](Span<std::string const> plan, std::size_t i) {
    return i < plan.size() ? std::string_view{plan[i]} : std::string_view{"nothing"};
  };
  auto const [a, b] = std::ranges::mismatch(mine, theirs);
  if (a == mine.end() && b == theirs.end())
    return "no difference in the " + std::to_string(mine.size()) + " lines sent";
  auto const i    = static_cast<std::size_t>(a - mine.begin());
  auto const ours = line(mine, i), other = line(theirs, i);
  auto const same = static_cast<std::size_t>(std::ranges::mismatch(ours, other).in1 - ours.begin());
  auto const gap  = same == 0 ? ours.npos : ours.rfind(' ', same - 1);  // the last space in the common start
  auto const key  = gap == ours.npos ? 0 : gap + 1;
  auto x = std::string{}, y = std::string{};
  detail::shorten(ours.substr(key), other.substr(key), x, y);
  constexpr std::size_t most = 64;
  return (key <= most ? std::string{ours.substr(0, key)} : ".." + std::string{ours.substr(key - most, most)}) + y +
         " vs " + x;
}

}  // namespace chorale::wire
