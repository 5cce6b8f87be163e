// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/text/tokenizer.hpp>
#include <chorale/data/text/unicode_classes.hpp>
#include <chorale/data/text/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale::data::detail {

enum class CharacterKind { space, letter, number, other };

constexpr CharacterKind kind_of(std::uint32_t c) {
  if (c < 0x80) {
    if (c == ' ' || (c >= 9 && c <= 13)) return CharacterKind::space;
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return CharacterKind::letter;
    return c >= '0' && c <= '9' ? CharacterKind::number : CharacterKind::other;
  }
  if (c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
      c == 0x202F || c == 0x205F || c == 0x3000)
    return CharacterKind::space;
  if (contains(unicode_letters, c)) return CharacterKind::letter;
  return contains(unicode_numbers, c) ? CharacterKind::number : CharacterKind::other;
}

/// Calls f(begin, end) for each word of a text, as GPT-2 cuts it: all bytes of the text are in one word.
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// throws   BadArgument when the text is not UTF-8
/// source   encoder.py of GPT-2; the pre-tokenizer ByteLevel of Hugging Face's tokenizers
template <class F> void each_gpt2_word(std::string_view text, F&& f) {
  struct At {
    std::size_t end;  // of the character
    CharacterKind kind;
  };
  auto const at = [&](std::size_t place) {
    auto const [code, bytes] = character_at(text, place);
    if (bytes == 0) refuse_utf8(place);
    return At{place + bytes, kind_of(code)};
  };
  /// The end of the run of characters of one kind, and the beginning of its last one.
  struct Run {
    std::size_t last, end;
  };
  auto const run = [&](std::size_t place, CharacterKind kind) {
    auto found = Run{place, place};
    while (found.end < text.size()) {
      auto const [end, its] = at(found.end);
      if (its != kind) break;
      found = {found.end, end};
    }
    return found;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    auto end = begin;
    if (text[begin] == '\'')
      for (auto const* tail : std::array{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
        if (text.substr(begin).starts_with(tail)) {
          end = begin + std::string_view{tail}.size();
          break;
        }
    if (end == begin) {
      auto const first = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
      auto const kind  = at(first).kind;
      if (kind != CharacterKind::space) {
        end = run(first, kind).end;
      } else {
        auto const spaces = run(begin, CharacterKind::space);  // the last one belongs to the word after it
        end               = spaces.end == text.size() || spaces.last == begin ? spaces.end : spaces.last;
      }
    }
    f(begin, end);
    begin = end;
  }
}

}  // namespace chorale::data::detail
