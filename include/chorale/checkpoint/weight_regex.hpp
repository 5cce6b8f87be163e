// SPDX-License-Identifier: Apache-2.0
//
// Names of other programs as regular expressions. A header by itself, as <regex> takes a second to compile.
#pragma once

#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/core/error.hpp>

#include <optional>
#include <regex>
#include <string>

namespace chorale::weights {

/// A pattern of names: a regular expression that a whole name fits. Its groups are i, j, .. in their order. It reads names,
/// and writes none: Trainer::save needs patterns with {i}.
///
///   {weights::matching(R"(h\.(\d+)\.ln_(1|2)\.weight)"), "{j}_of_{i}/gamma"}
///
/// throws    BadArgument when it is not a regular expression of ECMAScript
inline NamePattern matching(std::string const& expression) {
  auto compiled = std::regex{};
  try {
    compiled = std::regex{expression};
  } catch (std::regex_error const& error) {
    throw BadArgument{"\"" + expression + "\" is not a regular expression: " + error.what() + ".",
                      "the grammar of ECMAScript, with \\. for a dot."};
  }
  return {expression, [compiled](std::string const& name) -> std::optional<NamePattern::Values> {
            auto groups = std::smatch{};
            if (!std::regex_match(name, groups, compiled)) return std::nullopt;
            auto values = NamePattern::Values{};
            for (std::size_t g = 1; g < groups.size() && g <= 'z' - 'i' + 1; ++g)
              values[static_cast<char>('i' + static_cast<int>(g) - 1)] = groups[g].str();
            return values;
          }};
}

}  // namespace chorale::weights
