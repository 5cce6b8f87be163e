// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/text/added_tokens.hpp>
#include <chorale/data/text/bert_characters.hpp>
#include <chorale/data/text/gpt2_words.hpp>
#include <chorale/data/text/read_text.hpp>
#include <chorale/data/text/tokenizer.hpp>
#include <chorale/data/text/tokenizer_json.hpp>
#include <chorale/data/text/utf8.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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

namespace chorale::data {

/// Whether a tokenizer tells letters from capitals and accents from none. `folded`: it does not, as models that are
/// called uncased.
enum class Letters { folded, as_written };

/// WordPiece, as BERT has it: a text is cut into words, and each word into the longest pieces that the vocabulary has,
/// from left to right; pieces after the first one begin with ##. The ids of a text begin with [CLS] and end with [SEP].
///
///   auto const tokens = data::WordPieceTokenizer::read("vocab.txt");         // or tokenizer.json
///   tokens.encode("Unbelievable!", 128);                                     // [CLS] un ##bel ##iev ##able ! [SEP]
///
/// keeps    special tokens such as [MASK] are found in a text as they are. A word of over 100 characters, or one that
///          cannot be put together of pieces, is [UNK]. What a tokenizer.json says of truncation and padding is left to
///          the program
/// order    the ids are the same as from the package tokenizers, and from BertTokenizer in the package transformers
/// source   Devlin et al., NAACL 2019; Schuster and Nakajima, ICASSP 2012; huggingface.co/docs/tokenizers
class WordPieceTokenizer {
 public:
  static constexpr std::size_t longest_word = 100;  // characters
  static constexpr auto unlimited           = std::numeric_limits<std::size_t>::max();

  /// Reads a vocab.txt, which has a token in each line, or a tokenizer.json of the package tokenizers.
  ///
  /// letters  of a vocab.txt; a tokenizer.json says it itself
  /// throws   BadFile when it cannot be read, or is of another kind: it names the part that differs
  static WordPieceTokenizer read(std::filesystem::path const& path, Letters letters = Letters::folded) {
    auto made   = WordPieceTokenizer{};
    made.folds_ = letters == Letters::folded;
    chorale::detail::or_out_of_memory(path, [&] {
      auto const text = read_text(path, detail::most_tokenizer_bytes);
      if (auto const first = text.find_first_not_of(" \t\r\n"); first != text.npos && text[first] == '{')
        made.parse(path.string(), text);
      else made.add_lines(path.string(), text);
    });
    return made;
  }
  /// The tokenizer with these tokens, numbered from 0 on; [UNK], [CLS] and [SEP] are among them.
  ///
  /// throws   BadArgument when one is missing, empty or there twice
  static WordPieceTokenizer of(std::vector<std::string> tokens, Letters letters = Letters::folded) {
    auto made   = WordPieceTokenizer{};
    made.folds_ = letters == Letters::folded;
    made.add(std::move(tokens), [](std::string const& what) {
      throw BadArgument{"a vocabulary of WordPiece: " + what + ".", "each token once, with [UNK], [CLS], [SEP]."};
    });
    made.add_special();
    return made;
  }

  std::size_t size() const { return tokens_.size(); }

  /// The id of a token; -1 if there is none.
  int id_of(std::string_view token) const {
    auto const found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }

  /// The ids of a text between the ids of [CLS] and [SEP].
  ///
  /// most     ids, these two included, at least 2: the rest of the text is left out
  /// throws   BadArgument when the text is not UTF-8
  std::vector<int> encode(std::string_view text, std::size_t most = unlimited) const {
    CHORALE_EXPECTS(most >= 2, "a text has at least 2 ids, [CLS] and [SEP], but at most " + std::to_string(most) +
                                   " are asked for");
    if (auto const at = first_not_utf8(text); at != text.size()) detail::refuse_utf8(at);
    auto ids = std::vector<int>{begin_};
    added_.each(
        text,
        [&](std::string_view part) {
          if (ids.size() >= most) return;
          detail::each_bert_word(
              part, folds_, [&](std::string_view word, std::size_t characters) { encode_word(word, characters, ids); });
        },
        [&](int id) { ids.push_back(id); });
    if (ids.size() >= most) ids.resize(most - 1);
    ids.push_back(end_);
    return ids;
  }

  /// The tokens with a space before each word. Case, accents and spaces of the text are lost.
  ///
  /// throws   BadArgument when an id is not from 0 to size() - 1
  std::string decode(Span<int const> ids) const {
    auto text = std::string{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= size()) detail::refuse_id(ids[i], i, size());
      auto const& token = tokens_[static_cast<std::size_t>(ids[i])];
      if (i > 0 && token.starts_with("##")) text += token.substr(2);
      else text.append(i > 0 ? " " : "") += token;
    }
    return text;
  }

 private:
  /// So that a part of a text is looked up without a copy.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  void encode_word(std::string_view word, std::size_t characters, std::vector<int>& ids) const {
    if (characters > longest_word) return ids.push_back(unknown_);
    auto const before = ids.size();
    auto piece        = std::string{};
    for (std::size_t begin = 0; begin < word.size();) {
      auto end = word.size(), found = begin;
      for (; end > begin; --end) {
        if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) continue;  // in a character
        piece.assign(begin > 0 ? "##" : "").append(word.substr(begin, end - begin));
        if (auto const id = id_of(piece); id >= 0) {
          ids.push_back(id), found = end;
          break;
        }
      }
      if (found == begin) {
        ids.resize(before);
        return ids.push_back(unknown_);
      }
      begin = found;
    }
  }

  template <class Refuse> void add(std::vector<std::string> tokens, Refuse const& refuse) {
    tokens_ = std::move(tokens);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].empty()) refuse("token " + std::to_string(i) + " is empty");
      auto const [at, is_new] = ids_.emplace(tokens_[i], static_cast<int>(i));
      if (!is_new)
        refuse("tokens " + std::to_string(at->second) + " and " + std::to_string(i) + " are both " +
               in_quotes(tokens_[i]));
    }
    auto const needed = [&](char const* token) {
      auto const id = id_of(token);
      if (id < 0) refuse("there is no " + std::string{token} + " among " + std::to_string(size()) + " tokens");
      return id;
    };
    unknown_ = needed("[UNK]"), begin_ = needed("[CLS]"), end_ = needed("[SEP]");
  }
  /// The tokens that BERT finds in a text as they are.
  void add_special() {
    for (auto const* token : std::array{"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"})
      if (auto const id = id_of(token); id >= 0) added_.add(token, id);
  }

  void add_lines(std::string const& path, std::string const& text) {
    auto tokens = std::vector<std::string>{};
    for (std::size_t begin = 0; begin < text.size();) {
      auto const end = std::min(text.find('\n', begin), text.size());
      auto line      = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.pop_back();
      tokens.push_back(std::move(line));
      begin = end + 1;
    }
    add(std::move(tokens), [&](std::string const& what) {
      throw BadFile{path + ": " + what + ".", "the vocab.txt of a BERT, a token in each line, or its tokenizer.json."};
    });
    add_special();
  }

  void parse(std::string const& path, std::string const& text) {
    auto const refuse = [&](std::string const& what) {
      throw BadFile{path + ": " + what + ".", "the tokenizer.json of a BERT, or its vocab.txt."};
    };
    detail::read_tokenizer_json(text, refuse, [&](nlohmann::json const& json) {
      auto const& model = json.at("model");
      auto const kind   = model.at("type").get<std::string>();
      if (kind != "WordPiece") refuse("its model is " + in_quotes(kind) + ", but WordPiece is needed");
      auto const has = [&](char const* key, nlohmann::json const& wanted) {
        if (model.contains(key) && model[key] != wanted)
          refuse("its " + std::string{key} + " is " + printable(model[key].dump()) + ", but BERT has " + wanted.dump());
      };
      has("unk_token", "[UNK]"), has("continuing_subword_prefix", "##"), has("max_input_chars_per_word", longest_word);
      read_normalizer(json.at("normalizer"), refuse);
      if (auto const& cuts = json.at("pre_tokenizer"); cuts.is_null() || cuts.at("type") != "BertPreTokenizer")
        refuse("its pre_tokenizer is not BertPreTokenizer");
      auto const& ends = json.at("post_processor");
      auto const form  = ends.is_null() ? std::string{} : ends.at("type").get<std::string>();
      if (form != "BertProcessing" && form != "TemplateProcessing")
        refuse("its post_processor puts no [CLS] before a text and no [SEP] behind it");
      if (form == "TemplateProcessing") read_template(ends.at("single"), refuse);
      read_tokens(detail::vocabulary_of(model, refuse), json.value("added_tokens", nlohmann::json::array()), refuse);
    });
  }
  void read_normalizer(nlohmann::json const& normalizer, detail::RefuseTokenizer const& refuse) {
    if (normalizer.is_null() || normalizer.at("type") != "BertNormalizer")
      refuse("its normalizer is not BertNormalizer");
    for (auto const* key : {"clean_text", "handle_chinese_chars"})
      if (!normalizer.value(key, true)) refuse("its normalizer does without " + std::string{key});
    folds_ = normalizer.at("lowercase").get<bool>();
    if (auto const& accents = normalizer.at("strip_accents"); !accents.is_null() && accents != folds_)
      refuse("its normalizer has strip_accents " + accents.dump() + " and lowercase " + (folds_ ? "true" : "false") +
             ", but both are needed or neither");
  }
  static void read_template(nlohmann::json const& single, detail::RefuseTokenizer const& refuse) {
    auto words = std::string{};
    for (auto const& part : single)
      words += part.contains("SpecialToken") ? part["SpecialToken"].at("id").get<std::string>() : "text";
    if (words != "[CLS]text[SEP]") refuse("its post_processor is not [CLS], the text, [SEP]");
  }
  void read_tokens(nlohmann::json const& vocabulary, nlohmann::json const& added,
                   detail::RefuseTokenizer const& refuse) {
    auto tokens     = std::vector<std::string>(vocabulary.size());
    auto const take = [&](std::string const& token, std::size_t id) {
      auto& place = tokens[id];
      if (!place.empty() && place != token)
        refuse("tokens " + in_quotes(place) + " and " + in_quotes(token) + " both have id " + std::to_string(id));
      place = token;
    };
    for (auto const& token : added)
      if (!vocabulary.contains(token.at("content").get<std::string>())) tokens.emplace_back();
    for (auto const& [token, id] : vocabulary.items()) take(token, detail::token_id(id, token, tokens.size(), refuse));
    detail::each_added_token(added, {"single_word", "lstrip", "rstrip", "normalized"}, tokens.size(), added_, refuse,
                             take);
    add(std::move(tokens), refuse);
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int, Hash, std::equal_to<>> ids_;
  detail::AddedTokens added_;
  int unknown_ = 0, begin_ = 0, end_ = 0;
  bool folds_ = true;
};

}  // namespace chorale::data
