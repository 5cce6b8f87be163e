// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// A pattern of names with numbers in them, that reads a name and writes one.
///
///   h.{i}.attn.weight      i is any number; {2i+1} is one that is 2 i + 1 for some i
///   dense{_4i}/kernel      the number 4 i as layers are numbered: "dense" for 0, else "dense_4"
///   h.*.bias               '*' is any text, also none, which is forgotten: such a pattern only reads
///
/// keeps    each '*' is as short as the rest of the pattern allows, whatever the numbers are; only then are numbers of
///          one letter compared
/// cost     read: the length of the pattern times the length of the name
/// source   str_replace of names in tools that convert weights; chorale/checkpoint/weight_regex.hpp makes patterns of
///          regular expressions
class NamePattern {
 public:
  /// What a name has in the places of i, j, ..: numbers, or, from a regular expression, any text.
  using Values = std::map<char, std::string>;
  using Reader = std::function<std::optional<Values>(std::string const&)>;

  NamePattern(char const* text) : NamePattern{std::string{text}} {}
  /// throws    BadArgument when what is in braces is not {i}, {2i+1}, {_i} or the like
  NamePattern(std::string text) : text_{std::move(text)} { parse(); }
  /// A pattern that only reads.
  NamePattern(std::string text, Reader read) : text_{std::move(text)}, read_{std::move(read)} {}

  std::string const& text() const { return text_; }

  /// What the name has in the places of letters; nothing if it does not fit.
  std::optional<Values> read(std::string const& name) const {
    if (read_) return read_(name);
    auto found = Values{};
    if (!may_fit(name)) return std::nullopt;
    auto const n    = name.size() + 1;
    auto const rest = fitting(name);
    auto at         = std::size_t{0};
    if (!rest[0]) return std::nullopt;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      auto const after = [&](std::size_t end) { return rest[(i + 1) * n + end]; };
      if (parts_[i].any) {
        while (!after(at)) ++at;
        continue;
      }
      auto took = false;
      for (auto const& [end, value] : ends(parts_[i], name, at)) {
        if (took || end == none || !after(end)) continue;
        auto const letter = parts_[i].letter;
        took = letter == 0 || found.emplace(letter, std::to_string(value)).first->second == std::to_string(value);
        if (took) at = end;
      }
      if (!took) return std::nullopt;
    }
    return found;
  }
  bool fits(std::string const& name) const { return read(name).has_value(); }

  /// True if it fits names that it does not tell apart: it has a '*', or is a regular expression.
  bool forgets() const {
    return read_ != nullptr || std::ranges::any_of(parts_, [](Part const& part) { return part.any; });
  }

  /// True if values are enough for write().
  bool writes(Values const& values) const {
    if (read_) return false;
    for (auto const& part : parts_)
      if (part.any || (part.letter != 0 && !values.contains(part.letter))) return false;
    return true;
  }
  /// The name with these values.
  std::string write(Values const& values) const {
    auto name = std::string{};
    for (auto const& part : parts_) {
      if (part.letter == 0) {
        name += part.literal;
        continue;
      }
      auto const& value = values.at(part.letter);
      if (part.plain()) {
        name += value;
        continue;
      }
      auto const digits = number(value);
      CHORALE_EXPECTS(digits, "the pattern \"" + text_ + "\" counts with " + std::string{part.letter} +
                                  ", which is \"" + value + "\" and not a number");
      auto const n = *digits * part.times + part.plus;
      if (!part.numbered) name += std::to_string(n);
      else if (n != 0) name.append("_") += std::to_string(n);
    }
    return name;
  }

 private:
  /// A text, or times · letter + plus.
  struct Part {
    std::string literal{};
    char letter        = 0;
    std::int64_t times = 1, plus = 0;
    bool numbered = false, any = false;

    bool plain() const { return times == 1 && plus == 0 && !numbered; }
  };

  static std::optional<std::int64_t> number(std::string_view digits) {
    if (digits.empty() || digits.size() > 9 || (digits[0] == '0' && digits.size() > 1)) return std::nullopt;
    auto n = std::int64_t{0};
    for (char const c : digits) {
      if (c < '0' || c > '9') return std::nullopt;
      n = 10 * n + (c - '0');
    }
    return n;
  }
  static std::size_t digits_at(std::string_view text, std::size_t at) {
    auto const begin = at;  // stops after 11 digits, which number() refuses
    while (at < text.size() && at - begin <= 10 && text[at] >= '0' && text[at] <= '9') ++at;
    return at - begin;
  }

  void parse() {
    for (std::size_t at = 0; at < text_.size();) {
      if (text_[at] == '*') {
        parts_.push_back({.any = true});
        ++at;
      } else if (text_[at] == '{') {
        auto const end = text_.find('}', at);
        CHORALE_EXPECTS(end != text_.npos, "the pattern \"" + text_ + "\" has a { without its }");
        parts_.push_back(counted(text_.substr(at + 1, end - at - 1)));
        at = end + 1;
      } else {
        if (parts_.empty() || parts_.back().literal.empty()) parts_.push_back({});
        parts_.back().literal += text_[at++];
      }
    }
  }
  /// "i", "2i", "i+1", "_4i+2"
  Part counted(std::string const& inside) const {
    auto part = Part{};
    auto at   = std::size_t{0};
    if (at < inside.size() && inside[at] == '_') part.numbered = true, ++at;
    if (auto const n = digits_at(inside, at); n > 0) part.times = number(inside.substr(at, n)).value_or(0), at += n;
    if (at < inside.size() && inside[at] >= 'a' && inside[at] <= 'z') part.letter = inside[at++];
    if (at < inside.size() && inside[at] == '+') {
      part.plus = number(inside.substr(at + 1)).value_or(-1);
      at        = inside.size();
    }
    CHORALE_EXPECTS(part.letter != 0 && part.times > 0 && part.plus >= 0 && at == inside.size(),
                    "the pattern \"" + text_ + "\" has {" + inside +
                        "}, but braces hold a letter, perhaps times a "
                        "number and plus one: {i}, {2i+1}, {_i}");
    return part;
  }

  /// Where a part may end that begins at a byte of a name, and the value of its letter.
  struct End {
    std::size_t at     = none;
    std::int64_t value = 0;
  };
  static constexpr auto none = std::string::npos;

  /// The ends of a part other than '*': the number first, then what stands for 0.
  static std::array<End, 2> ends(Part const& part, std::string_view name, std::size_t at) {
    auto const rest = name.substr(at);
    if (part.letter == 0) return {End{rest.starts_with(part.literal) ? at + part.literal.size() : none}};
    auto made        = std::array<End, 2>{};
    auto const value = [&](std::int64_t n) { return (n - part.plus) / part.times; };
    auto const holds = [&](std::int64_t n) { return n >= part.plus && (n - part.plus) % part.times == 0; };
    auto const bar   = part.numbered ? std::size_t{1} : 0;
    auto const n     = !part.numbered || rest.starts_with('_') ? digits_at(rest, bar) : 0;
    if (auto const read = number(rest.substr(std::min(bar, rest.size()), n)))
      if (!(part.numbered && *read == 0) && holds(*read)) made[0] = {at + bar + n, value(*read)};
    if (part.numbered && holds(0)) made[1] = {at, value(0)};
    return made;
  }

  /// False for most names that do not fit, after a look at their first and last characters.
  bool may_fit(std::string_view name) const {
    if (parts_.empty()) return name.empty();
    return name.starts_with(parts_.front().literal) && name.ends_with(parts_.back().literal);
  }

  /// Whether the parts from number i on fit a name from byte `at` on, whatever their numbers are: bit i (n + 1) + at.
  std::vector<bool> fitting(std::string_view name) const {
    auto const n = name.size() + 1;
    auto fit     = std::vector<bool>((parts_.size() + 1) * n);
    fit.back()   = true;
    for (auto i = parts_.size(); i-- > 0;)
      for (auto at = n; at-- > 0;)
        if (parts_[i].any) {
          fit[i * n + at] = fit[(i + 1) * n + at] || (at + 1 < n && fit[i * n + at + 1]);
        } else {
          for (auto const& end : ends(parts_[i], name, at))
            if (end.at != none && fit[(i + 1) * n + end.at]) fit[i * n + at] = true;
        }
    return fit;
  }

  std::string text_;
  Reader read_;
  std::vector<Part> parts_;
};

}  // namespace chorale
