// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers turn a text into ids from 0 to size() - 1, and back: of bytes, and of the characters of a text. The
// tokenizer of GPT-2 is in bpe.hpp.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/text/read_text.hpp>
#include <chorale/data/text/utf8.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::data {

/// A tokenizer of any kind.
///
///   size()          ids are from 0 to size() - 1: the rows of the nn::Embedding
///   encode(text)    the ids of a text
///   decode(ids)     the text of ids
template <class T>
concept Tokenizer = requires(T const& tokenizer, std::string_view text, Span<int const> ids) {
  { tokenizer.size() } -> std::convertible_to<std::size_t>;
  { tokenizer.encode(text) } -> std::same_as<std::vector<int>>;
  { tokenizer.decode(ids) } -> std::same_as<std::string>;
};

namespace detail {

[[noreturn]] inline void refuse_id(int id, std::size_t position, std::size_t size) {
  throw BadArgument{"id " + std::to_string(id) + " at position " + std::to_string(position) +
                        " is no token: they are 0 to " + std::to_string(size - 1) + ".",
                    "ids that this tokenizer gave."};
}

/// A character in an error: U+00E9.
inline std::string code_text(std::uint32_t code) { return formatted("U+%04X", static_cast<unsigned>(code)); }

[[noreturn]] inline void refuse_utf8(std::size_t at) {
  throw BadArgument{"the text is not UTF-8 from byte " + std::to_string(at) + " on.",
                    "to convert it, or data::ByteTokenizer, which takes any bytes."};
}

}  // namespace detail

/// The bytes of a text as ids, 0 to 255. Any bytes are a text.
struct ByteTokenizer {
  static constexpr std::size_t size() { return 256; }

  std::vector<int> encode(std::string_view text) const {
    auto ids = std::vector<int>(text.size());
    std::ranges::transform(text, ids.begin(), [](char c) { return static_cast<int>(static_cast<unsigned char>(c)); });
    return ids;
  }
  /// throws    BadArgument when an id is not from 0 to 255
  std::string decode(Span<int const> ids) const {
    auto text = std::string{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > 255) detail::refuse_id(ids[i], i, size());
      text += static_cast<char>(static_cast<unsigned char>(ids[i]));
    }
    return text;
  }
};

/// The characters that occur in a text, numbered in the order of their code points.
///
///   auto const characters = data::CharacterTokenizer::of(text);               // 65 in tiny Shakespeare
///   characters.save("characters.txt");
///
/// source   stoi and itos of nanoGPT's data/shakespeare_char
class CharacterTokenizer {
 public:
  /// throws    BadArgument when the text is empty or not UTF-8
  static CharacterTokenizer of(std::string_view text) {
    CHORALE_EXPECTS(!text.empty(), "an empty text has no characters to number");
    auto made = CharacterTokenizer{};
    auto has  = std::vector<bool>(0x11'0000);  // of each code point
    each(text, [&](std::uint32_t code, std::size_t) { has[code] = true; });
    for (std::uint32_t code = 0; code < has.size(); ++code)
      if (has[code]) made.codes_.push_back(code);
    return made;
  }
  /// The tokenizer that save() wrote.
  ///
  /// throws    BadFile when the file cannot be read, or has characters in another order than save() writes
  static CharacterTokenizer load(std::filesystem::path const& path) {
    auto const text = read_text(path);
    auto made       = of(text);
    if (made.text() != text)
      throw BadFile{path.string() + ": has characters that repeat, or not in the order of their code points.",
                    "the file that CharacterTokenizer::save wrote."};
    return made;
  }
  /// Writes the characters as a text, each once.
  ///
  /// throws    BadFile when the file cannot be written
  void save(std::filesystem::path const& path) const {
    auto const to = output_file(path);
    auto file     = std::ofstream{to, std::ios::binary};
    file << text();
    file.close();
    if (!file) throw BadFile{path.string() + ": cannot be written.", "a folder that exists, and may be written to."};
  }

  std::size_t size() const { return codes_.size(); }

  /// throws    BadArgument when the text is not UTF-8, or has a character that is not in the vocabulary
  std::vector<int> encode(std::string_view text) const {
    auto ids = std::vector<int>{};
    ids.reserve(text.size());
    each(text, [&](std::uint32_t code, std::size_t at) {
      auto const found = std::ranges::lower_bound(codes_, code);
      if (found == codes_.end() || *found != code)
        throw BadArgument{"the text has " + detail::code_text(code) + " at byte " + std::to_string(at) +
                              ", which is none of the " + std::to_string(size()) + " characters of the vocabulary.",
                          "CharacterTokenizer::of a text with all characters."};
      ids.push_back(static_cast<int>(found - codes_.begin()));
    });
    return ids;
  }
  /// throws    BadArgument when an id is not from 0 to size() - 1
  std::string decode(Span<int const> ids) const {
    auto text = std::string{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= size()) detail::refuse_id(ids[i], i, size());
      append_utf8(text, codes_[static_cast<std::size_t>(ids[i])]);
    }
    return text;
  }

 private:
  std::string text() const {
    auto all = std::string{};
    for (auto const code : codes_) append_utf8(all, code);
    return all;
  }
  template <class F> static void each(std::string_view text, F&& f) {
    for (std::size_t at = 0; at < text.size();) {
      auto const [code, bytes] = character_at(text, at);
      if (bytes == 0) detail::refuse_utf8(at);
      f(code, at);
      at += bytes;
    }
  }

  std::vector<std::uint32_t> codes_;  // ascending
};

}  // namespace chorale::data
