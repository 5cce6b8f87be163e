// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// The name of T as the compiler writes it. g++: "constexpr auto .. [with T = X]", clang: "auto .. [T = X]".
template <class T> constexpr auto raw_type_name() {  // not string_view: g++ would add its meaning
  auto const text  = std::string_view{__PRETTY_FUNCTION__};
  auto const begin = text.find("T = ") + 4;
  return text.substr(begin, text.size() - 1 - begin);
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_in_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Replaces whole words: "long int" is not found in "along int".
inline void replace_words(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at)) {
    auto const end   = at + from.size();
    auto const whole = (at == 0 || !is_in_word(text[at - 1])) &&
                       (end == text.size() || !is_in_word(text[end]) || !is_in_word(from.back()));
    if (whole) text.replace(at, from.size(), to);
    at += whole ? to.size() : from.size();
  }
}

/// Replaces lambdas, which g++ numbers by their parameters and clang by their place in a file, with the word "lambda".
inline void replace_lambdas(std::string& text) {
  for (auto const begin : {std::string_view{"<lambda("}, std::string_view{"(lambda at "}})
    for (auto at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
      auto open = 0;
      auto end  = at + begin.find('(');
      do {
        open += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
        ++end;
      } while (open > 0 && end < text.size());
      if (begin[0] == '<') ++end;  // the closing bracket
      text.replace(at, std::min(end, text.size()) - at, "lambda");
    }
}

/// Removes the function in which a type is declared: g++ writes "main()::Net", clang "Net".
inline void remove_functions(std::string& text) {
  for (auto at = text.find(")::"); at != text.npos; at = text.find(")::")) {
    auto begin = at + 1;
    auto open  = 0;
    for (; begin > 0; --begin) {
      auto const c = text[begin - 1];
      if (open == 0 && (c == '<' || c == ',' || c == ' ' || c == '(')) break;
      if (c == ')' || c == '>') ++open;
      if (c == '(' || c == '<') --open;
    }
    text.erase(begin, at + 3 - begin);
  }
}

/// Removes the suffixes that clang writes after some integers: 3U, 3L.
inline void remove_suffixes(std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i]) || (i > 0 && is_in_word(text[i - 1]))) continue;
    while (i < text.size() && is_digit(text[i])) ++i;
    while (i < text.size() && (text[i] == 'U' || text[i] == 'L')) text.erase(i, 1);
  }
}

/// Removes spaces, or writes '_' where they separate two words.
inline void remove_spaces(std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != ' ') ++i;
    else if (i > 0 && i + 1 < text.size() && is_in_word(text[i - 1]) && is_in_word(text[i + 1])) text[i++] = '_';
    else text.erase(i, 1);
  }
}

inline std::string normalized_type_name(std::string_view raw) {
  using Pair = std::pair<std::string_view, std::string_view>;
  auto name  = std::string{raw};
  for (auto const& [from, to] :
       std::array{Pair{"{anonymous}::", ""}, Pair{"(anonymous namespace)::", ""}, Pair{"std::__cxx11::", "std::"},
                  Pair{"long long unsigned int", "unsigned long long"}, Pair{"long unsigned int", "unsigned long"},
                  Pair{"short unsigned int", "unsigned short"}, Pair{"long long int", "long long"},
                  Pair{"long int", "long"}, Pair{"short int", "short"}})
    replace_words(name, from, to);
  replace_lambdas(name);
  remove_functions(name);
  remove_suffixes(name);
  remove_spaces(name);
  for (auto const space :
       {"chorale::nn::", "chorale::loss::", "chorale::metric::", "chorale::optim::", "chorale::data::", "chorale::"})
    replace_words(name, space, "");
  return name;
}

}  // namespace detail

/// Name of a type in one word, the same from g++ and clang: "Dense<10>", "my::Layer<4,float>".
///
/// keeps   namespaces stay, except this library's, unnamed ones, and functions. A lambda is the word "lambda".
///         Compilers may differ for inline namespaces, and for template arguments that are values of a class, or of an
///         enumeration that has no name for them
template <class T> std::string type_name() { return detail::normalized_type_name(detail::raw_type_name<T>()); }

/// A type whose objects name their options: `options(visit)` calls visit(name, value) for each of them.
template <class T>
concept NamesOptions = requires(T const& object) { object.options([](std::string_view, auto const&) {}); };

/// A value as one word without spaces: a number in the fewest digits that restore it, or the value's text().
template <class V> std::string word_of(V const& value) {
  if constexpr (std::convertible_to<V const&, std::string_view>) {
    return std::string{std::string_view{value}};
  } else if constexpr (requires {
                         { value.text() } -> std::convertible_to<std::string>;
                       }) {
    return value.text();
  } else if constexpr (std::same_as<V, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_enum_v<V>) {
    return word_of(static_cast<std::underlying_type_t<V>>(value));
  } else if constexpr (std::is_integral_v<V>) {
    return std::to_string(value);
  } else if constexpr (std::is_floating_point_v<V>) {
    return number_text(value);
  } else {
    static_assert(sizeof(V) == 0,
                  "chorale: options(visit) may give numbers, enumerations, texts, and objects with a text()");
    return {};
  }
}

/// Name of a type as ranks compare it: its static text() if it has one, else its type_name().
template <class T> std::string text_of() {
  if constexpr (requires {
                  { T::text() } -> std::convertible_to<std::string>;
                })
    return T::text();
  else return type_name<T>();
}

/// Appends the description of an object, in lines that ranks compare: its type, then each of its options.
///
///   optimizer Adam
///   optimizer Adam learning_rate 0.001
///
/// keeps   fields of an object that does not name its options are not included
template <class T> void describe(std::string const& what, T const& object, std::vector<std::string>& lines) {
  auto const begin = what + " " + text_of<T>();
  lines.push_back(begin);
  if constexpr (NamesOptions<T>)
    object.options([&](std::string_view name, auto const& value) {
      lines.push_back(begin + " " + std::string{name} + " " + word_of(value));
    });
}

}  // namespace chorale
