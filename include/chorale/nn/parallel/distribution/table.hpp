// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/parallel/distribution/rules.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::nn::distribution {

/// A name of an operation, as the page has it.
constexpr std::string_view text_of(Operation of) {
  constexpr auto names = std::array<std::string_view, operations>{"linear",
                                                                  "sum of a dimension",
                                                                  "nonlinear",
                                                                  "with variables",
                                                                  "a + b, a - b, mean, concatenate",
                                                                  "a * b",
                                                                  "another function of a and b",
                                                                  "contraction of a and b"};
  return names[static_cast<std::size_t>(of)];
}

/// The name of a conversion: its function in namespace nn.
constexpr std::string_view text_of(Change of) {
  constexpr auto names = std::array<std::string_view, changes>{
      "all_reduce",  "all_gather", "reduce_scatter", "all_to_all", "scatter",  "pad",
      "on_one_rank", "replicate",  "count_once",     "vary",       "as_parts", "as_shards"};
  return names[static_cast<std::size_t>(of)];
}

/// I, R, V, P, S, and S* for a dimension that the operation works over.
constexpr std::string_view text_of(Like of) {
  constexpr auto names = std::array<std::string_view, 8>{"I", "R", "V", "P", "S", "S*", "any", ""};
  return names[static_cast<std::size_t>(of)];
}

/// Why an operation is refused, in some words.
constexpr std::string_view text_of(Reason of) {
  constexpr auto names = std::array<std::string_view, 12>{
      "",
      "f(p + q) is not f(p) + f(q): reduce P before it",
      "(p + q) (r + s) is not p r + q s: reduce one of them before it",
      "each rank would add the whole to its part: on_one_rank before it, or reduce P",
      "a part of a sum beside a value of each rank: reduce P before it",
      "the gradient of I would be a part on each rank: replicate or scatter it before",
      "the gradient of mirrored variables would be a part on each rank: make x I before it",
      "each element needs the whole dimension that is sharded: all_gather before it",
      "elements would have to move from one shard to another: all_gather before it",
      "the whole values have different shapes: scatter or all_gather one of them",
      "each rank would have one block of many: all_gather one of them",
      "a shard needs the whole sum: reduce P before it"};
  return names[static_cast<std::size_t>(of)];
}

/// What one cell of the tables says: the kind that comes out, or the number of a reason.
inline std::string cell_of(Rule const& rule) {
  return rule.why == Reason::none ? std::string{text_of(rule.y)} : std::to_string(static_cast<int>(rule.why));
}

/// The rules and the conversions as the tables of docs/44-distribution.md.
inline std::string text(Span<Rule const> all = rules, Span<Conversion const> ways = conversions) {
  constexpr auto kinds =
      std::array{Like::invariant, Like::replicated, Like::varying, Like::partial, Like::sharded, Like::across};
  auto made       = std::string{"| operation |"};
  auto const line = [&](std::size_t cells) {
    made += "\n|";
    for (std::size_t i = 0; i < cells; ++i) made += " --- |";
    made += "\n";
  };
  auto const add_cell = [&](std::string_view of) { made.append(" ") += std::string{of} + " |"; };
  for (auto const kind : kinds) add_cell(text_of(kind));
  line(kinds.size() + 1);
  for (auto o = Operation::linear; o < Operation::add; o = static_cast<Operation>(static_cast<int>(o) + 1)) {
    made.append("| ") += std::string{text_of(o)} + " |";
    for (auto const a : kinds) add_cell(cell_of(rule_of(all, o, a, Like::none)));
    made += "\n";
  }
  for (auto o = Operation::add; o <= Operation::contract; o = static_cast<Operation>(static_cast<int>(o) + 1)) {
    made.append("\n| ") += std::string{text_of(o)} + " |";
    for (auto const b : kinds) add_cell("b " + std::string{text_of(b)});
    line(kinds.size() + 1);
    for (auto const a : kinds) {
      made.append("| a ") += std::string{text_of(a)} + " |";
      for (auto const b : kinds) add_cell(cell_of(rule_of(all, o, a, b)));
      made += "\n";
    }
  }
  made += "\n| | why not |\n| --- | --- |\n";
  for (std::size_t r = 1; r <= static_cast<std::size_t>(Reason::part_of_whole); ++r)
    made.append("| ") += std::to_string(r) + " | " + std::string{text_of(static_cast<Reason>(r))} + " |\n";
  made += "\n| conversion | takes | gives | backward |";
  line(4);
  for (auto const& way : ways) {
    made.append("| `") += std::string{text_of(way.change)} + "` |";
    add_cell(text_of(way.from)), add_cell(text_of(way.to));
    add_cell("`" + std::string{text_of(way.backward)} + "`, " + std::string{text_of(dual(way.to))} + " to " +
             std::string{text_of(dual(way.from))});
    made += "\n";
  }
  return made;
}

}  // namespace chorale::nn::distribution
