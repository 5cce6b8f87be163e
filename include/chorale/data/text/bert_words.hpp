// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/text/bert_characters.hpp>
#include <chorale/data/text/gpt2_words.hpp>
#include <chorale/data/text/tokenizer.hpp>
#include <chorale/data/text/utf8.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale::data::detail {

/// The characters that one becomes in lower case and without accents: none if it is a mark.
struct FoldedCharacter {
  std::array<std::uint32_t, 3> codes{};
  std::size_t size = 1;
};

/// Canonical decomposition, without marks, in lower case.
///
/// source   NFD and Hangul syllables of the Unicode Standard, chapter 3
constexpr FoldedCharacter folded(std::uint32_t c) {
  if (c < 0x80) return {{c >= 'A' && c <= 'Z' ? c | 0x20 : c}};
  if (c >= 0xAC00 && c <= 0xD7A3) {
    auto const syllable = c - 0xAC00, tail = syllable % 28;
    return {{0x1100 + syllable / 588, 0x1161 + syllable % 588 / 28, 0x11A7 + tail}, tail == 0 ? std::size_t{2} : 3};
  }
  if (c >= 0xF900 && c - 0xF900 < bert_compatible_ideographs.size()) {
    auto const to = bert_compatible_ideographs[c - 0xF900];
    return {{to == 0 ? c : to}};
  }
  if (c >= 0x2F800 && c - 0x2F800 < bert_more_compatible_ideographs.size()) {
    auto const to = bert_more_compatible_ideographs[c - 0x2F800];
    return {{to == 0 ? c : to}};
  }
  if (contains(bert_marks, c)) return {{}, 0};
  auto const before = [](auto const& table, std::uint32_t code) {  // the entry that begins at or before it
    auto const after = std::upper_bound(table.begin(), table.end(), code,
                                        [](std::uint32_t x, auto const& entry) { return x < entry.first; });
    return after == table.begin() ? table.end() : after - 1;
  };
  if (auto const at = before(bert_folded, c);
      at != bert_folded.end() && c <= at->last && (c - at->first) % at->step == 0)
    return {{at->to + (c - at->first)}};
  if (auto const at = before(bert_folded_to_several, c); at != bert_folded_to_several.end() && at->first == c)
    return {at->to, at->to[2] == 0 ? std::size_t{2} : 3};
  return {{c}};
}

/// True for punctuation, and for all of ASCII that is neither a letter nor a digit.
constexpr bool is_bert_punctuation(std::uint32_t c) {
  if (c >= 0x80) return contains(bert_punctuation, c);
  return c > ' ' && c < 0x7F && kind_of(c) == CharacterKind::other;
}

/// Calls f(word, characters) for each word of a text, as BERT cuts it: at spaces, and around punctuation and
/// ideographs, which are words of their own.
///
/// folds    lower case without accents, as for models that are called uncased
/// throws   BadArgument when the text is not UTF-8
/// source   BasicTokenizer of BERT's tokenization.py; BertNormalizer and BertPreTokenizer of Hugging Face's tokenizers
template <class F> void each_bert_word(std::string_view text, bool folds, F&& f) {
  auto word       = std::string{};
  auto characters = std::size_t{0};
  auto const end  = [&] {
    if (characters > 0) f(std::string_view{word}, characters);
    word.clear(), characters = 0;
  };
  auto const put = [&](std::uint32_t code) { append_utf8(word, code), ++characters; };
  for (std::size_t at = 0; at < text.size();) {
    auto const [code, bytes] = character_at(text, at);
    if (bytes == 0) refuse_utf8(at);
    at += bytes;
    if (contains(bert_removed, code)) continue;
    if (kind_of(code) == CharacterKind::space) {
      end();
      continue;
    }
    auto const alone = contains(bert_alone, code);
    auto const made  = folds ? folded(code) : FoldedCharacter{{code}};
    if (alone) end();
    for (std::size_t i = 0; i < made.size; ++i) {
      auto const cuts = is_bert_punctuation(made.codes[i]);
      if (cuts) end();
      put(made.codes[i]);
      if (cuts) end();
    }
    if (alone) end();
  }
  end();
}

}  // namespace chorale::data::detail
