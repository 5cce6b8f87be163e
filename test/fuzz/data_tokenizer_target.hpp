// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/text/bpe.hpp>
#include <chorale/data/text/word_piece.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

/// A text by a tokenizer: every id is one, and has a text.
template <class Tokens> void fuzz_tokens(Tokens const& tokens, std::string_view text, bool keeps_text) {
  auto const size = static_cast<int>(tokens.size());
  auto all        = std::vector<int>(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  static_cast<void>(tokens.decode(all));
  try {
    auto const ids = tokens.encode(text);
    must(std::ranges::all_of(ids, [&](int id) { return id >= 0 && id < size; }), "an id is none");
    auto const again = tokens.decode(ids);
    must(!keeps_text || again == text, "a text is not the same after it was encoded");
  } catch (BadArgument const&) {}
}

/// Any bytes as a tokenizer.json of either kind, and as a vocab.txt.
inline void fuzz_data_tokenizer(ConstBytes in) {
  static auto const memory = MemoryFile{};
  auto const text          = std::string_view{reinterpret_cast<char const*>(in.data()), in.size()};
  auto const path          = memory.holding(in);
  constexpr auto example   = "ab abc <s> [MASK] \xC3\xA9\xE4\xB8\xAD 12!\n ba";
  auto const is_plain      = text.find("content") == text.npos && text.find("\\u") == text.npos;  // no added tokens
  try {
    fuzz_tokens(data::BpeTokenizer::read(path), example, is_plain);
  } catch (BadFile const&) {}
  try {
    auto const tokens = data::WordPieceTokenizer::read(path, data::Letters::as_written);
    fuzz_tokens(tokens, example, false);
    must(tokens.encode(example, 5).size() <= 5, "more ids than were asked for");
    for (auto const* token : {"[CLS]", "[SEP]", "[UNK]"}) must(tokens.id_of(token) >= 0, "a token is missing");
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
