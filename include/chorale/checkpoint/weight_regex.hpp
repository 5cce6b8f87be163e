// SPDX-License-Identifier: Apache-2.0
//
// Names of other programs as regular expressions. A header by itself, as <regex> takes a second to compile.
#pragma once

#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <optional>
#include <regex>
#include <string>

namespace chorale::weights {

namespace detail {

#ifdef __GLIBCXX__
inline constexpr auto bounded = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
#else
inline constexpr auto bounded = std::regex_constants::ECMAScript;  // libc++ counts its steps, and gives up
#endif

}  // namespace detail

/// A pattern of names: a regular expression that a whole name fits. Its groups are i, j, .. in their order. It reads names,
/// and writes none: Trainer::save needs patterns with {i}.
///
///   {weights::matching(R"(h\.(\d+)\.ln_(1|2)\.weight)"), "{j}_of_{i}/gamma"}
///
/// cost      in proportion to the length of a name: libstdc++ follows all ways at once; another library gives up
/// throws    BadArgument when it is not a regular expression of ECMAScript, or has a back-reference; and, while a name
///           is read, when the library gives up
inline NamePattern matching(std::string const& expression) {
  auto compiled = std::regex{};
  try {
    compiled = std::regex{expression, detail::bounded};
  } catch (std::regex_error const& error) {
    throw BadArgument{"\"" + expression + "\" is not a regular expression: " + error.what() + ".",
                      "the grammar of ECMAScript, with \\. for a dot."};
  }
  return {expression, [compiled](std::string const& name) -> std::optional<NamePattern::Values> {
            auto groups = std::smatch{};
            try {
              if (!std::regex_match(name, groups, compiled)) return std::nullopt;
            } catch (std::regex_error const& error) {
              throw BadArgument{
                  "the regular expression takes too long on " + in_quotes(name) + ": " + error.what() + ".",
                  "one without * or + within * or +."};
            }
            auto values = NamePattern::Values{};
            for (std::size_t g = 1; g < groups.size() && g <= 'z' - 'i' + 1; ++g)
              values[static_cast<char>('i' + static_cast<int>(g) - 1)] = groups[g].str();
            return values;
          }};
}

}  // namespace chorale::weights
