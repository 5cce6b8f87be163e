// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace chorale {

/// Reads the JSON of a manifest from front to back: the caller names what must come next. No recursion, and nothing is
/// allocated but the texts that are asked for.
///
/// throws  BadFile with the byte where the text differs; from the constructor when the text is too long, or its
///         last line is not the checksum of all lines before it
class ManifestText {
 public:
  ManifestText(std::string_view all, std::string where, std::size_t most) : where_{std::move(where)} {
    if (all.size() > most)
      fail("it has " + std::to_string(all.size()) + " bytes, above the limit of " + std::to_string(most));
    auto const last = seal(0).size();
    if (all.size() < last) fail("it ends after " + std::to_string(all.size()) + " bytes");
    all_         = all.substr(0, all.size() - last);
    auto const crc = crc32c(std::as_bytes(Span<char const>{all_}));
    if (all.substr(all_.size()) != seal(crc))
      fail("bytes 0 to " + std::to_string(all_.size()) + " have the CRC-32C " + hex(crc) +
           ", but the last line says something else");
  }

  void expect(char wanted) {
    if (!next_is(wanted)) fail(std::string{"'"} + wanted + "' is needed");
    ++at_;
  }

  /// Skips white space; true if `wanted` comes next.
  bool next_is(char wanted) {
    while (at_ < all_.size() && std::string_view{" \n\t\r"}.find(all_[at_]) != std::string_view::npos) ++at_;
    return at_ < all_.size() && all_[at_] == wanted;
  }

  void key(std::string_view name) {
    auto const before = at_;
    if (text(64) != name) {
      at_ = before;
      fail("the key \"" + std::string{name} + "\" is needed");
    }
    expect(':');
  }

  std::string text(std::size_t most) {
    expect('"');
    auto out = std::string{};
    for (; at_ < all_.size() && all_[at_] != '"'; ++at_) {
      if (all_[at_] == '\\' && (++at_ == all_.size() || (all_[at_] != '"' && all_[at_] != '\\')))
        fail("an escape that no manifest has");
      if (!is_printable(all_.substr(at_, 1))) fail("a text has a byte that is not printable ASCII");
      if (out.size() == most) fail("a text has more than " + std::to_string(most) + " bytes");
      out += all_[at_];
    }
    if (at_ == all_.size()) fail("a text does not end");
    ++at_;
    return out;
  }

  /// Calls read_one() for each of [a, b, ...].
  template <class ReadOne>
  void list(ReadOne&& read_one) {
    expect('[');
    if (!next_is(']')) {
      for (read_one(); next_is(','); read_one()) expect(',');
    }
    expect(']');
  }

  /// Reads a whole number below 2^64, without a sign and without leading zeros.
  std::uint64_t number() {
    next_is('0');                                          // steps over white space
    auto const begin = at_;
    auto n           = std::uint64_t{0};
    for (; at_ < all_.size() && all_[at_] >= '0' && all_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(n, 10, &n) ||
          __builtin_add_overflow(n, static_cast<unsigned>(all_[at_] - '0'), &n)) fail("a number is not below 2^64");
    if (at_ == begin || (all_[begin] == '0' && at_ != begin + 1)) fail("a whole number is needed");
    return n;
  }

  std::uint32_t checksum() {
    auto const digits = text(8);
    auto n            = std::uint32_t{0};
    for (char const c : digits) n = n << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (hex(n) != digits) fail("a checksum has eight digits, 0 to 9 and a to f");
    return n;
  }

  /// Checks that the last value has been read, and that only the comma before the checksum follows.
  void end() {
    expect(',');
    if (next_is('"') || at_ != all_.size()) fail("something follows what should be the last value");
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw BadFile{where_ + ": byte " + std::to_string(at_) + ": " + what + ".",
                  "another checkpoint: this one is cut off, was changed, or is of another version."};
  }

  /// Returns a text with the line of its checksum added.
  static std::string sealed(std::string text) {
    auto const crc = crc32c(std::as_bytes(Span<char const>{text}));
    return std::move(text) + seal(crc);
  }

  static std::string hex(std::uint32_t n) {
    auto digits = std::string(8, '0');
    for (auto i = digits.rbegin(); i != digits.rend(); ++i, n >>= 4) *i = "0123456789abcdef"[n & 15U];
    return digits;
  }

  static bool is_printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  }

 private:
  static std::string seal(std::uint32_t crc) { return "  \"crc32c\": \"" + hex(crc) + "\"\n}\n"; }

  std::string where_;
  std::string_view all_;                                   // all but the line of the checksum
  std::size_t at_ = 0;
};

}  // namespace chorale
