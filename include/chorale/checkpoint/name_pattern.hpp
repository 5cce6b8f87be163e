// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>

#include <algorithm>
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
///   h.*.bias               '*' is any text, which is forgotten: such a pattern only reads
///
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
    if (!fits(0, name, found)) return std::nullopt;
    return found;
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
    auto const begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
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
                    "the pattern \"" + text_ + "\" has {" + inside + "}, but braces hold a letter, perhaps times a "
                    "number and plus one: {i}, {2i+1}, {_i}");
    return part;
  }

  bool fits(std::size_t i, std::string_view rest, Values& found) const {
    if (i == parts_.size()) return rest.empty();
    auto const& part = parts_[i];
    if (part.any) {
      for (std::size_t k = 0; k <= rest.size(); ++k)
        if (fits(i + 1, rest.substr(k), found)) return true;
      return false;
    }
    if (part.letter == 0) return rest.starts_with(part.literal) && fits(i + 1, rest.substr(part.literal.size()), found);
    auto const bar = part.numbered ? std::size_t{1} : 0;
    auto const n   = !part.numbered || rest.starts_with('_') ? digits_at(rest, bar) : 0;
    if (auto const value = number(rest.substr(std::min(bar, rest.size()), n)); value && !(part.numbered && *value == 0))
      if (takes(i, *value, rest.substr(bar + n), found)) return true;
    return part.numbered && takes(i, 0, rest, found);
  }
  bool takes(std::size_t i, std::int64_t n, std::string_view rest, Values& found) const {
    auto const& part = parts_[i];
    if (n < part.plus || (n - part.plus) % part.times != 0) return false;
    auto const [at, is_new] = found.emplace(part.letter, std::to_string((n - part.plus) / part.times));
    auto const same         = at->second == std::to_string((n - part.plus) / part.times);
    if (same && fits(i + 1, rest, found)) return true;
    if (is_new) found.erase(part.letter);
    return false;
  }

  std::string text_;
  Reader read_;
  std::vector<Part> parts_;
};

}  // namespace chorale
