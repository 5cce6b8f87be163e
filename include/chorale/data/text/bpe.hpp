// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/text/added_tokens.hpp>
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
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

/// The character by which a byte is written in the file of a byte-level tokenizer: itself if it is printable, else one
/// from U+0100 on.
///
/// source   bytes_to_unicode of GPT-2's encoder.py
inline constexpr auto character_of_byte = [] {
  auto made = std::array<std::uint32_t, 256>{};
  auto next = std::uint32_t{256};
  for (std::uint32_t b = 0; b < 256; ++b)
    made[b] = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE ? b : next++;
  return made;
}();

/// The bytes that a token of the file stands for; nothing if a character of it stands for no byte.
inline std::optional<std::string> bytes_of_token(std::string_view token) {
  auto bytes = std::string{};
  for (std::size_t at = 0; at < token.size();) {
    auto const [code, n] = character_at(token, at);
    auto const found     = std::ranges::find(character_of_byte, code);
    if (n == 0 || found == character_of_byte.end()) return std::nullopt;
    bytes += static_cast<char>(static_cast<unsigned char>(found - character_of_byte.begin()));
    at += n;
  }
  return bytes;
}

}  // namespace detail

/// Byte pair encoding of bytes, as GPT-2 has it: a text is cut into words, each word into bytes, and pairs are joined,
/// the one that was learned first before all others.
///
///   auto const tokens = data::BpeTokenizer::read("tokenizer.json");
///
/// keeps    added tokens, such as <|endoftext|>, are found in a text before it is cut into words
/// cost     encode: O(n log n) in the bytes of a word; a word that came before costs a look-up
/// order    the ids are the same as from the package tokenizers, for text of the characters that Unicode 14 has
/// source   Sennrich et al., ACL 2016; Radford et al., 2019; huggingface.co/docs/tokenizers
class BpeTokenizer {
 public:
  /// Reads a tokenizer.json of the package tokenizers.
  ///
  /// throws   BadFile when it cannot be read, or is of another kind: it names the part that differs
  static BpeTokenizer read(std::filesystem::path const& path) {
    auto made = BpeTokenizer{};
    chorale::detail::or_out_of_memory(
        path, [&] { made.parse(path.string(), read_text(path, detail::most_tokenizer_bytes)); });
    return made;
  }

  std::size_t size() const { return bytes_.size(); }

  /// The id of an added token, or of a token by its bytes; -1 if there is none.
  int id_of(std::string_view bytes) const {
    if (auto const id = added_.id_of(bytes); id >= 0) return id;
    auto const at = std::ranges::find(bytes_, bytes);
    return at == bytes_.end() || bytes.empty() ? -1 : static_cast<int>(at - bytes_.begin());
  }

  /// throws   BadArgument when the text is not UTF-8, or has a byte that the vocabulary has no token for
  std::vector<int> encode(std::string_view text) const {
    if (auto const at = first_not_utf8(text); at != text.size()) detail::refuse_utf8(at);
    auto ids  = std::vector<int>{};
    auto seen = std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>>{};  // places in ids
    added_.each(
        text,
        [&](std::string_view part) {
          detail::each_gpt2_word(part, [&](std::size_t from, std::size_t to) {
            auto const word         = part.substr(from, to - from);
            auto const [it, is_new] = seen.try_emplace(word, ids.size(), ids.size());
            if (is_new) {
              encode_word(word, ids);
              it->second.second = ids.size();
            } else {
              auto const [first, last] = it->second;
              for (auto k = first; k < last; ++k) ids.push_back(int{ids[k]});
            }
          });
        },
        [&](int id) { ids.push_back(id); });
    return ids;
  }

  /// The bytes of the tokens: UTF-8 if the ids make up whole characters.
  ///
  /// throws   BadArgument when an id is not from 0 to size() - 1
  std::string decode(Span<int const> ids) const {
    auto text = std::string{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= size()) detail::refuse_id(ids[i], i, size());
      text += bytes_[static_cast<std::size_t>(ids[i])];
    }
    return text;
  }

 private:
  /// Two neighbours that are joined: the earlier learned, the smaller the rank.
  struct Merge {
    std::uint32_t rank;
    int made;
  };

  static std::uint64_t pair_of(int a, int b) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
  }

  void encode_word(std::string_view word, std::vector<int>& ids) const {
    struct Symbol {
      int id;
      std::size_t before, after;  // neighbours; symbols.size(): none
    };
    auto symbols = std::vector<Symbol>(word.size());
    for (std::size_t i = 0; i < word.size(); ++i) {
      auto const byte = static_cast<unsigned char>(word[i]);
      if (of_byte_[byte] < 0)
        throw BadArgument{"the text has byte " + std::to_string(byte) + " in the word " + in_quotes(word) +
                              ", for which the vocabulary has no token.",
                          "a tokenizer that was trained with the whole alphabet of bytes."};
      symbols[i] = {of_byte_[byte], i == 0 ? word.size() : i - 1, i + 1};
    }
    struct Candidate {
      std::uint32_t rank;
      std::size_t at;
      int left, right, made;
      bool operator<(Candidate const& o) const { return std::tie(o.rank, o.at) < std::tie(rank, at); }  // least first
    };
    auto queue     = std::priority_queue<Candidate>{};
    auto const add = [&](std::size_t at) {
      if (at >= symbols.size() || symbols[at].after >= symbols.size()) return;
      auto const left = symbols[at].id, right = symbols[symbols[at].after].id;
      if (auto const found = merges_.find(pair_of(left, right)); found != merges_.end())
        queue.push({found->second.rank, at, left, right, found->second.made});
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) add(i);
    while (!queue.empty()) {
      auto const next = queue.top();
      queue.pop();
      auto& left = symbols[next.at];
      if (left.id != next.left || left.after >= symbols.size() || symbols[left.after].id != next.right) continue;
      symbols[left.after].id = -1;  // is not a symbol any more
      left.id                = next.made;
      left.after             = symbols[left.after].after;
      if (left.after < symbols.size()) symbols[left.after].before = next.at;
      add(left.before);
      add(next.at);
    }
    for (std::size_t i = 0; i < symbols.size(); i = symbols[i].after) ids.push_back(symbols[i].id);
  }

  void parse(std::string const& path, std::string const& text) {
    auto const refuse = [&](std::string const& what) {
      throw BadFile{path + ": " + what + ".", "the tokenizer.json of a GPT-2 or another byte-level BPE."};
    };
    detail::read_tokenizer_json(text, refuse, [&](nlohmann::json const& json) {
      auto const& model = json.at("model");
      auto const kind   = model.at("type").get<std::string>();
      if (kind != "BPE") refuse("its model is " + in_quotes(kind) + ", but BPE is needed");
      auto const is_set = [](nlohmann::json const& in, char const* key) {
        return in.contains(key) && !in[key].is_null() && in[key] != false && in[key] != "";
      };
      for (auto const* key :
           {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
        if (is_set(model, key)) refuse("its model has " + std::string{key} + ", which is not supported");
      if (is_set(json, "normalizer")) refuse("it has a normalizer, but GPT-2 has none");
      auto const& cuts = json.at("pre_tokenizer");
      if (cuts.is_null() || cuts.at("type") != "ByteLevel" || !cuts.value("use_regex", true))
        refuse("its pre_tokenizer is not ByteLevel with the regular expression of GPT-2");
      if (cuts.value("add_prefix_space", false)) refuse("its pre_tokenizer has add_prefix_space, but GPT-2 has not");
      auto const& vocabulary = detail::vocabulary_of(model, refuse);
      read_tokens(vocabulary, json.value("added_tokens", nlohmann::json::array()), refuse);
      read_merges(model.at("merges"), vocabulary, refuse);
    });
  }

  void read_tokens(nlohmann::json const& vocabulary, nlohmann::json const& added,
                   detail::RefuseTokenizer const& refuse) {
    auto const all   = vocabulary.size() + added.size();
    auto const place = [&](std::size_t id) -> std::string& {
      if (bytes_.size() <= id) bytes_.resize(id + 1);
      return bytes_[id];
    };
    detail::each_added_token(added, {"single_word", "lstrip", "rstrip"}, all, added_, refuse,
                             [&](std::string const& content, std::size_t id) { place(id) = content; });
    of_byte_.fill(-1);
    auto names = std::unordered_map<std::size_t, std::string_view>{};  // of the vocabulary, by id
    for (auto const& [token, number] : vocabulary.items()) {
      auto const id           = detail::token_id(number, token, all, refuse);
      auto const [at, is_new] = names.emplace(id, token);
      if (!is_new)
        refuse("tokens " + in_quotes(at->second) + " and " + in_quotes(token) + " both have id " + std::to_string(id));
      if (auto const given = added_.id_of(token); given >= 0 && static_cast<std::size_t>(given) != id)
        refuse("the added token " + in_quotes(token) + " has id " + std::to_string(given) + ", but in the vocabulary " +
               std::to_string(id));
      if (added_.has(static_cast<int>(id))) {
        if (added_.id_of(token) < 0)
          refuse("an added token and " + in_quotes(token) + " both have id " + std::to_string(id));
        continue;
      }
      auto const bytes = detail::bytes_of_token(token);
      if (!bytes) refuse("token " + in_quotes(token) + " has a character that stands for no byte");
      place(id) = *bytes;
      if (bytes->size() == 1) of_byte_[static_cast<unsigned char>((*bytes)[0])] = static_cast<int>(id);
    }
  }

  void read_merges(nlohmann::json const& merges, nlohmann::json const& vocabulary,
                   detail::RefuseTokenizer const& refuse) {
    auto rank = std::uint32_t{0};
    for (auto const& merge : merges) {
      auto const parts = [&]() -> std::array<std::string, 2> {
        if (merge.is_string()) {  // "a b": no token has a space
          auto const both = merge.get<std::string>();
          auto const gap  = both.find(' ');
          if (gap != both.npos && both.find(' ', gap + 1) == both.npos)
            return {both.substr(0, gap), both.substr(gap + 1)};
        } else if (merge.is_array() && merge.size() == 2) {
          return {merge[0].get<std::string>(), merge[1].get<std::string>()};
        }
        refuse("merge " + std::to_string(rank) + " is " + printable(merge.dump().substr(0, 80)) +
               ", but two tokens are needed");
        return {};
      }();
      auto const& [a, b] = parts;
      auto const id      = [&](std::string const& token) {
        auto const at = vocabulary.find(token);
        if (at == vocabulary.end())
          refuse("merge " + std::to_string(rank) + " is of " + in_quotes(parts[0]) + " and " + in_quotes(parts[1]) +
                      ", but the vocabulary has no " + in_quotes(token));
        return at->get<int>();
      };
      auto const left = id(a), right = id(b), made = id(a + b);
      if (!merges_.try_emplace(pair_of(left, right), Merge{rank, made}).second)
        refuse("merge " + std::to_string(rank) + ", of " + in_quotes(a) + " and " + in_quotes(b) + ", is there twice");
      ++rank;
    }
  }

  std::vector<std::string> bytes_;  // of each token
  detail::AddedTokens added_;
  std::array<int, 256> of_byte_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace chorale::data
