// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/little_endian.hpp>

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::wire {

inline constexpr std::size_t max_plan_bytes = 64 * 1024;

/// The payload of a plan frame: what a rank computes, a line for each variable, name and then shape. Two ranks whose
/// hashes differ send it to each other, so that both can name the first line that differs.
///
///   dense/kernel f32[784,256]
///
/// keeps   parse() takes any bytes: nothing when they are too many or a line is empty. write() sends whole lines, as
///         many from the front as there is room for
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

/// What Identity::plan_hash is to be: SHA-256 of all lines, each with a line break.
inline std::array<std::byte, 32> plan_hash(Span<std::string const> lines) {
  auto text = std::string{};
  for (auto const& line : lines) text += line + "\n";
  auto hash = std::array<std::byte, 32>{};
  SHA256(reinterpret_cast<unsigned char const*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

/// The first line in which two plans differ: what they have, and we have.
///
///   dense/kernel f32[784,256] vs f32[784,512]              one name: it stands once
///   dense/bias f32[10] vs nothing                          our plan ends before
inline std::string first_difference(Span<std::string const> mine, Span<std::string const> theirs) {
  auto const line = [](Span<std::string const> plan, std::size_t i) {
    return i < plan.size() ? std::string_view{plan[i]} : std::string_view{"nothing"};
  };
  auto const [a, b] = std::ranges::mismatch(mine, theirs);
  if (a == mine.end() && b == theirs.end())
    return "no difference in the " + std::to_string(mine.size()) + " lines sent";
  auto const i    = static_cast<std::size_t>(a - mine.begin());
  auto const ours = line(mine, i), other = line(theirs, i);
  auto const name = ours.substr(0, ours.find(' '));
  auto const same = ours.size() > name.size() && other.starts_with(name) && other.substr(name.size()).starts_with(' ');
  return std::string{other} + " vs " + std::string{same ? ours.substr(name.size() + 1) : ours};
}

}  // namespace chorale::wire
