// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <chorale/core/text.hpp>

#include <unistd.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace chorale {

/// The variables of an environment, as a value, so that a test can call the functions that read them.
///
///   auto const env = Environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
///
/// keeps   a variable that is set to an empty text counts as not set
class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<std::string const, std::string>> variables) : variables_{variables} {}

  /// Returns a copy of the variables of this process.
  static Environment of_process() {
    auto env = Environment{};
    for (auto const* const* at = ::environ; at != nullptr && *at != nullptr; ++at) {
      auto const text  = std::string_view{*at};
      auto const equal = text.find('=');
      if (equal != text.npos) env.variables_.emplace(text.substr(0, equal), text.substr(equal + 1));
    }
    return env;
  }

  void set(std::string const& name, std::string value) { variables_[name] = std::move(value); }

  bool has(std::string_view name) const { return !get(name).empty(); }

  /// Value of a variable; empty when it is not set.
  std::string_view get(std::string_view name) const {
    auto const found = variables_.find(name);
    return found == variables_.end() ? std::string_view{} : found->second;
  }

  /// Value of the first of these variables that is set; empty when none is.
  std::string_view first_of(std::initializer_list<std::string_view> names) const {
    auto const name = first_name(names);
    return name.empty() ? name : get(name);
  }

  /// throws  BadArgument when the variable is set and no number from `least` to `most`
  std::optional<int> number(std::string_view name, int least, int most) const {
    if (!has(name)) return std::nullopt;
    auto const n = whole_number(get(name), most);
    if (!n || *n < least)
      throw BadArgument{std::string{name} + " is " + in_quotes(get(name)) + ", and must be a number from " +
                            std::to_string(least) + " to " + std::to_string(most) + ".",
                        "unset it when another job left it behind."};
    return n;
  }

  std::optional<int> number(std::initializer_list<std::string_view> names, int least, int most) const {
    auto const name = first_name(names);
    return name.empty() ? std::nullopt : number(name, least, most);
  }

  /// The first of these names that is set; empty when none is.
  std::string_view first_name(std::initializer_list<std::string_view> names) const {
    for (auto const name : names)
      if (has(name)) return name;
    return {};
  }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace chorale
