// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/text/added_tokens.hpp>
#include <chorale/observe/json.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

/// What tokenizer.json files of the package tokenizers have in common.
namespace chorale::data::detail {

inline constexpr std::size_t most_tokenizer_bytes = JsonLimits{}.bytes;

/// Throws a BadFile that begins with the path: "what is wrong".
using RefuseTokenizer = std::function<void(std::string const& what)>;

/// Calls read(json) for the text of a tokenizer.json.
///
/// throws  what refuse throws, also for what nlohmann::json throws
template <class Read> void read_tokenizer_json(std::string_view text, RefuseTokenizer const& refuse, Read&& read) {
  auto const json = parse_json(text, {}, [&](std::string const& what, std::string const&) { refuse(what); });
  try {
    read(json);
  } catch (nlohmann::json::exception const& error) {
    refuse("is not a tokenizer.json: " + printable(std::string_view{error.what()}.substr(0, 160)));
  }
}

/// The vocabulary of a model: an object of ids by tokens.
inline nlohmann::json const& vocabulary_of(nlohmann::json const& model, RefuseTokenizer const& refuse) {
  if (!model.at("vocab").is_object()) refuse("its vocab is no object of tokens and their ids");
  return model["vocab"];
}

/// The id of a token: a whole number below `all`, the number of tokens.
inline std::size_t token_id(nlohmann::json const& id, std::string const& token, std::size_t all,
                            RefuseTokenizer const& refuse) {
  if (!id.is_number_integer())
    refuse("token " + in_quotes(token) + " has id " + printable(id.dump().substr(0, 40)) +
           ", which is no whole number");
  auto const number = id.is_number_unsigned() ? id.get<std::uint64_t>() : all;  // else it is negative
  if (number >= all)
    refuse("token " + in_quotes(token) + " has id " + id.dump() + ", but there are " + std::to_string(all) + " tokens");
  return static_cast<std::size_t>(number);
}

/// Calls take(content, id) for each added token, and adds it to `to`.
///
/// unsupported  options that no added token may have
template <class Take>
void each_added_token(nlohmann::json const& added, std::initializer_list<char const*> unsupported, std::size_t all,
                      AddedTokens& to, RefuseTokenizer const& refuse, Take&& take) {
  for (auto const& token : added) {
    auto const content = token.at("content").get<std::string>();
    for (auto const* key : unsupported)
      if (token.value(key, false))
        refuse("the added token " + in_quotes(content) + " has " + key + ", which is not supported");
    if (content.empty()) refuse("an added token is empty");
    if (to.id_of(content) >= 0) refuse("the added token " + in_quotes(content) + " is there twice");
    auto const id = token_id(token.at("id"), content, all, refuse);
    if (to.has(static_cast<int>(id)))
      refuse("the added token " + in_quotes(content) + " has id " + std::to_string(id) + ", and so has another one");
    take(content, id);
    to.add(content, static_cast<int>(id));
  }
}

}  // namespace chorale::data::detail
