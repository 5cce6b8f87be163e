// SPDX-License-Identifier: Apache-2.0
//
// The rules of distribution types as two tables: what ranks may compute by themselves, and the conversions, each
// with another one as its backward. docs/44-distribution.md shows both.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/parallel/distribution/types.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn::distribution {

/// What a layer does with its inputs, where each rank computes it by itself.
enum class Operation {
  linear,     // y = f(x), f(a + b) = f(a) + f(b)
  sum,        // linear, of all of one dimension
  nonlinear,  // any function, x + 1 too; no variables
  trained,    // a function with mirrored variables, whose
              // gradients are added up where x is S
  add,        // a + b, a - b, mean, concatenate
  multiply,   // a * b, element by element
  combine,    // any function of two elements
  contract    // the sum over one dimension of a times b
};
inline constexpr std::size_t operations = 8;

/// What one input is like along an axis. Sharded: along a dimension that the operation leaves alone; across: along one
/// that it works over, as softmax over the last. None: the operation has one input.
enum class Like { invariant, replicated, varying, partial, sharded, across, any, none };

/// Why an operation is refused.
enum class Reason {
  none,
  not_linear,            // f(a + b) is not f(a) + f(b)
  product_of_parts,      // (a + b)(c + d) is not a c + b d
  added_by_each,         // each rank would add the whole
  part_with_own,         // a part of a sum, and a value of each rank
  invariant_with_other,  // the gradient of I would be a part
  variables,             // and so would the gradient of variables
  needs_whole,           // of the dimension that is sharded
  moves,                 // elements from one shard to another
  shapes,                // whole values have other shapes
  diagonal,              // each rank would have one block of many
  part_of_whole          // each shard needs the whole sum
};

/// One rule: what comes of these inputs, or why nothing does. y = sharded: along the dimension of the sharded input; of
/// a contraction whose b is sharded, along the last one.
struct Rule {
  Operation operation;
  Like a, b, y;
  Reason why = Reason::none;
};

/// All rules. The first that fits holds.
inline constexpr auto rules = [] {
  using enum Operation;
  constexpr auto I = Like::invariant, R = Like::replicated, V = Like::varying, P = Like::partial, S = Like::sharded,
                 X = Like::across, any = Like::any, no = Like::none;
  // clang-format off
  return std::array{
      Rule{linear, I, no, I}, Rule{linear, R, no, R}, Rule{linear, V, no, V}, Rule{linear, P, no, P},
      Rule{linear, S, no, S}, Rule{linear, X, no, no, Reason::moves},

      Rule{sum, I, no, I}, Rule{sum, R, no, R}, Rule{sum, V, no, V}, Rule{sum, P, no, P}, Rule{sum, S, no, S},
      Rule{sum, X, no, P},

      Rule{nonlinear, I, no, I}, Rule{nonlinear, R, no, R}, Rule{nonlinear, V, no, V}, Rule{nonlinear, S, no, S},
      Rule{nonlinear, P, no, no, Reason::not_linear}, Rule{nonlinear, X, no, no, Reason::needs_whole},

      Rule{trained, I, no, I}, Rule{trained, S, no, S}, Rule{trained, any, no, no, Reason::variables},

      Rule{add, I, I, I}, Rule{add, R, R, R}, Rule{add, V, V, V}, Rule{add, P, P, P}, Rule{add, S, S, S},
      Rule{add, R, V, V}, Rule{add, V, R, V},
      Rule{add, X, X, no, Reason::moves}, Rule{add, X, any, no, Reason::shapes}, Rule{add, any, X, no, Reason::shapes},
      Rule{add, S, any, no, Reason::shapes}, Rule{add, any, S, no, Reason::shapes},
      Rule{add, P, V, no, Reason::part_with_own}, Rule{add, V, P, no, Reason::part_with_own},
      Rule{add, P, any, no, Reason::added_by_each}, Rule{add, any, P, no, Reason::added_by_each},
      Rule{add, I, any, no, Reason::invariant_with_other}, Rule{add, any, I, no, Reason::invariant_with_other},

      Rule{multiply, I, I, I}, Rule{multiply, R, R, R}, Rule{multiply, V, V, V}, Rule{multiply, S, S, S},
      Rule{multiply, R, V, V}, Rule{multiply, V, R, V}, Rule{multiply, P, R, P}, Rule{multiply, R, P, P},
      Rule{multiply, P, P, no, Reason::product_of_parts},
      Rule{multiply, X, X, no, Reason::needs_whole}, Rule{multiply, X, any, no, Reason::shapes},
      Rule{multiply, any, X, no, Reason::shapes},
      Rule{multiply, S, any, no, Reason::shapes}, Rule{multiply, any, S, no, Reason::shapes},
      Rule{multiply, P, V, no, Reason::part_with_own}, Rule{multiply, V, P, no, Reason::part_with_own},
      Rule{multiply, I, any, no, Reason::invariant_with_other},
      Rule{multiply, any, I, no, Reason::invariant_with_other},

      Rule{combine, I, I, I}, Rule{combine, R, R, R}, Rule{combine, V, V, V}, Rule{combine, S, S, S},
      Rule{combine, R, V, V}, Rule{combine, V, R, V},
      Rule{combine, P, any, no, Reason::not_linear}, Rule{combine, any, P, no, Reason::not_linear},
      Rule{combine, X, X, no, Reason::needs_whole}, Rule{combine, X, any, no, Reason::shapes},
      Rule{combine, any, X, no, Reason::shapes},
      Rule{combine, S, any, no, Reason::shapes}, Rule{combine, any, S, no, Reason::shapes},
      Rule{combine, I, any, no, Reason::invariant_with_other}, Rule{combine, any, I, no, Reason::invariant_with_other},

      Rule{contract, I, I, I}, Rule{contract, R, R, R}, Rule{contract, V, V, V}, Rule{contract, R, V, V},
      Rule{contract, V, R, V}, Rule{contract, P, R, P}, Rule{contract, R, P, P}, Rule{contract, S, R, S},
      Rule{contract, R, S, S}, Rule{contract, X, X, P},
      Rule{contract, P, P, no, Reason::product_of_parts},
      Rule{contract, X, any, no, Reason::shapes}, Rule{contract, any, X, no, Reason::shapes},
      Rule{contract, S, S, no, Reason::diagonal}, Rule{contract, S, V, no, Reason::diagonal},
      Rule{contract, V, S, no, Reason::diagonal},
      Rule{contract, S, P, no, Reason::part_of_whole}, Rule{contract, P, S, no, Reason::part_of_whole},
      Rule{contract, P, V, no, Reason::part_with_own}, Rule{contract, V, P, no, Reason::part_with_own},
      Rule{contract, I, any, no, Reason::invariant_with_other},
      Rule{contract, any, I, no, Reason::invariant_with_other}};
  // clang-format on
}();

/// What makes one distribution of another. What a rank does, and what travels, is the same for all rows of a name.
enum class Change {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,  // bytes travel
  scatter,
  pad,
  on_one_rank,
  replicate,
  count_once,
  vary,
  as_parts,
  as_shards  // none do
};
inline constexpr std::size_t changes = 12;

/// One conversion, and the one that its backward is: from the dual of `to` to the dual of `from`.
struct Conversion {
  Change change;
  Like from, to;
  Change backward;
};

/// All conversions.
inline constexpr auto conversions = [] {
  using enum Change;
  constexpr auto I = Like::invariant, R = Like::replicated, V = Like::varying, P = Like::partial, S = Like::sharded;
  return std::array{Conversion{all_reduce, P, R, all_reduce},
                    Conversion{all_reduce, P, I, replicate},
                    Conversion{replicate, I, R, all_reduce},
                    Conversion{all_reduce, V, I, vary},
                    Conversion{vary, I, V, all_reduce},
                    Conversion{all_gather, S, R, reduce_scatter},
                    Conversion{reduce_scatter, P, S, all_gather},
                    Conversion{all_gather, S, I, scatter},
                    Conversion{scatter, I, S, all_gather},
                    Conversion{scatter, R, S, pad},
                    Conversion{pad, S, P, scatter},
                    Conversion{all_to_all, S, S, all_to_all},
                    Conversion{on_one_rank, R, P, on_one_rank},
                    Conversion{on_one_rank, I, P, count_once},
                    Conversion{count_once, R, I, on_one_rank},
                    Conversion{vary, R, V, as_parts},
                    Conversion{as_parts, V, P, vary},
                    Conversion{vary, S, V, as_shards},
                    Conversion{as_shards, V, S, vary}};
}();

/// What an operation gives along one axis, or why it gives nothing.
struct Result {
  Distribution y{};
  Reason why = Reason::none;
};

/// What a distribution is like to an operation that works over the last `over` dimensions of a value of so many.
constexpr Like like(Distribution of, int over, int rank) {
  using Kind = Distribution::Kind;
  switch (of.kind) {
    case Kind::invariant: return Like::invariant;
    case Kind::replicated: return Like::replicated;
    case Kind::varying: return Like::varying;
    case Kind::partial: return Like::partial;
    case Kind::sharded: break;
  }
  return of.dim >= rank - over ? Like::across : Like::sharded;
}

/// The distribution of a kind, along dimension `dim` if it is sharded.
constexpr Distribution made(Like like, int dim) {
  switch (like) {
    case Like::replicated: return replicated;
    case Like::varying: return varying;
    case Like::partial: return partial;
    case Like::sharded: return {Distribution::Kind::sharded, dim};
    default: return invariant;
  }
}

constexpr Like dual(Like of) {
  if (of == Like::replicated) return Like::partial;
  if (of == Like::partial) return Like::replicated;
  return of;
}

/// The rule for an operation of such inputs; b is none for one input.
constexpr Rule rule_of(Span<Rule const> table, Operation operation, Like a, Like b) {
  for (auto const& rule : table)
    if (rule.operation == operation && (rule.a == a || rule.a == Like::any) && (rule.b == b || rule.b == Like::any))
      return rule;
  return {operation, a, b, Like::none, Reason::shapes};
}

/// The conversion of that name; its `to` is none if there is none.
constexpr Conversion conversion_of(Span<Conversion const> table, Change change, Like from, Like to) {
  for (auto const& c : table)
    if (c.change == change && c.from == from && c.to == to) return c;
  return {change, from, Like::none, change};
}

/// What comes of one input of so many dimensions, by an operation that works over its last `over` ones.
constexpr Result result_of(Span<Rule const> table, Operation operation, int over, Distribution a, int rank) {
  auto const rule = rule_of(table, operation, like(a, over, rank), Like::none);
  return {made(rule.y, a.dim), rule.why};
}
/// What comes of two inputs of so many dimensions.
constexpr Result result_of(Span<Rule const> table, Operation operation, int over, Distribution a, int rank_of_a,
                           Distribution b, int rank_of_b) {
  using enum Operation;
  auto const of_a = like(a, over, rank_of_a), of_b = like(b, over, rank_of_b);
  if (of_a == Like::sharded && of_b == Like::sharded && operation != contract && a.dim != b.dim)
    return {{}, Reason::shapes};
  auto const rule = rule_of(table, operation, of_a, of_b);
  auto const dim  = of_a == Like::sharded ? a.dim : operation == contract ? rank_of_a - 1 : b.dim;
  return {made(rule.y, dim), rule.why};
}

/// True if the backward of each conversion is a conversion, from the dual of what it gives to the dual of what it
/// takes, whose backward is the first.
constexpr bool is_closed(Span<Conversion const> table) {
  for (auto const& c : table) {
    auto const back = conversion_of(table, c.backward, dual(c.to), dual(c.from));
    if (back.to == Like::none || back.backward != c.change) return false;
  }
  return true;
}
static_assert(is_closed(conversions));

/// True if a rule holds for each operation of each inputs, at most one of them without `any`, and if all rules either
/// give something or say why not.
constexpr bool is_complete(Span<Rule const> table) {
  for (std::size_t o = 0; o < operations; ++o) {
    auto const operation = static_cast<Operation>(o);
    auto const is_unary  = operation < Operation::add;
    for (int a = 0; a < static_cast<int>(Like::any); ++a)
      for (int b = 0; b < static_cast<int>(Like::any); ++b) {
        auto named = 0, found = 0;
        for (auto const& rule : table) {
          if (rule.operation != operation) continue;
          auto const second = is_unary ? Like::none : static_cast<Like>(b);
          auto const fits =
              (rule.a == static_cast<Like>(a) || rule.a == Like::any) && (rule.b == second || rule.b == Like::any);
          found += fits ? 1 : 0;
          named += fits && rule.a != Like::any && rule.b != Like::any ? 1 : 0;
        }
        if (found == 0 || named > 1) return false;
      }
  }
  for (auto const& rule : table)
    if ((rule.y == Like::none) != (rule.why != Reason::none)) return false;
  return true;
}
static_assert(is_complete(rules));

}  // namespace chorale::nn::distribution
