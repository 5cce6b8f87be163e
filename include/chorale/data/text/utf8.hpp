// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale::data {

/// A character of a text: its code point, and how many bytes it takes; 0 bytes where the text is not UTF-8.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes  = 0;
};

/// The character that begins at a byte of a text.
///
/// keeps    overlong forms, surrogates and code points above U+10FFFF are not UTF-8
/// source   RFC 3629
constexpr Character character_at(std::string_view text, std::size_t at) {
  auto const byte  = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  auto const first = byte(at);
  if (first < 0x80) return {first, 1};
  auto const n = first >= 0xF0 ? std::size_t{4} : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - at < n) return {};
  auto code = first & (0x7FU >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  auto const is_short = (n == 3 && code < 0x800) || (n == 4 && code < 0x1'0000);
  if (is_short || (code >= 0xD800 && code < 0xE000) || code > 0x10'FFFF) return {};
  return {code, n};
}

/// The first byte of a text that is not UTF-8; text.size() if all is.
constexpr std::size_t first_not_utf8(std::string_view text) {
  auto at = std::size_t{0};
  while (at < text.size()) {
    auto const n = character_at(text, at).bytes;
    if (n == 0) break;
    at += n;
  }
  return at;
}

/// Appends a code point as UTF-8.
inline void append_utf8(std::string& text, std::uint32_t code) {
  auto const put = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) put(0xC0 | code >> 6);
  else if (code < 0x1'0000) put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F));
  else put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

}  // namespace chorale::data
