// SPDX-License-Identifier: Apache-2.0
//
// Calls of layers with values that are not I along all axes: the rule of the layer along each axis, or one sentence.
#pragma once

#include <chorale/core/fraction.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/parallel/distribution/rules.hpp>
#include <chorale/nn/parallel/distribution/spread.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/host_layer.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

template <Fraction Rate> struct Dropout;
struct Flatten;
struct UnitNorm;

/// How a layer computes on its inputs, along each axis over which it is not split: which rule holds for it.
///
///   static constexpr auto spreads_as = nn::SpreadsAs{nn::distribution::Operation::linear, 1};   in a layer
///
/// over    the last dimensions over which it works: a value may be sharded along the others. Without a number: all
/// keeps   a layer that says nothing is taken for any function of all its inputs; one with variables takes I alone
struct SpreadsAs {
  distribution::Operation operation = distribution::Operation::nonlinear;
  int over                          = std::numeric_limits<int>::max() / 2;
};

namespace detail {

template <Activation F> constexpr bool is_activation(Elementwise<F> const*) { return true; }
constexpr bool is_activation(void const*) { return false; }

/// The rule of layer L without variables.
template <class L>
inline constexpr SpreadsAs spreads_as = [] {
  using enum distribution::Operation;
  if constexpr (requires { L::spreads_as; }) return L::spreads_as;
  else if constexpr (graph::each_element<L> || is_activation(static_cast<L const*>(nullptr)) ||
                     std::derived_from<L, nn::Elementwise<L>>)
    return SpreadsAs{nonlinear, 0};
  else return SpreadsAs{};
}();
template <> inline constexpr SpreadsAs spreads_as<Add>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Subtract>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Average>{distribution::Operation::add, 0};
template <> inline constexpr SpreadsAs spreads_as<Concatenate>{distribution::Operation::add, 1};
template <> inline constexpr SpreadsAs spreads_as<Multiply>{distribution::Operation::multiply, 0};
template <> inline constexpr SpreadsAs spreads_as<Maximum>{distribution::Operation::combine, 0};
template <> inline constexpr SpreadsAs spreads_as<Minimum>{distribution::Operation::combine, 0};
template <> inline constexpr SpreadsAs spreads_as<Dot>{distribution::Operation::contract, 1};
template <> inline constexpr SpreadsAs spreads_as<Softmax>{distribution::Operation::nonlinear, 1};
template <> inline constexpr SpreadsAs spreads_as<UnitNorm>{distribution::Operation::nonlinear, 1};
template <> inline constexpr SpreadsAs spreads_as<Flatten>{distribution::Operation::linear};
template <int... To> inline constexpr SpreadsAs spreads_as<Reshape<To...>>{distribution::Operation::linear};
template <int... Axes> inline constexpr SpreadsAs spreads_as<Permute<Axes...>>{distribution::Operation::linear};
template <int Begin, int End, int Axis> requires(Axis < 0)
inline constexpr SpreadsAs spreads_as<Slice<Begin, End, Axis>>{distribution::Operation::linear, -Axis};
template <int Begin, int End, int Axis> requires(Axis >= 0)
inline constexpr SpreadsAs spreads_as<Slice<Begin, End, Axis>>{distribution::Operation::linear};
template <Fraction Rate> inline constexpr SpreadsAs spreads_as<Dropout<Rate>>{distribution::Operation::linear};

}  // namespace detail

namespace detail {

/// Refuses what a rule refuses.
template <distribution::Reason why> constexpr void check_rule() {
  using enum distribution::Reason;
  static_assert(why != not_linear,
                "chorale: this layer is not linear, and what comes in is a part of a sum over an axis (P): put "
                "nn::all_reduce<Axis>(x) before it");
  static_assert(why != product_of_parts,
                "chorale: two parts of sums over one axis (P) are multiplied, and a product of sums is not the sum of "
                "products: put nn::all_reduce<Axis, nn::replicated>(x) around one of them");
  static_assert(why != added_by_each,
                "chorale: a part of a sum over an axis (P) and a whole value are added, so that each rank would add "
                "the whole: put nn::on_one_rank<Axis>(x) around the whole value, or nn::all_reduce<Axis>(x) around the "
                "part");
  static_assert(why != part_with_own,
                "chorale: a part of a sum over an axis (P) meets a value that each rank has of its own (V): put "
                "nn::all_reduce<Axis, nn::replicated>(x) around the part");
  static_assert(why != invariant_with_other,
                "chorale: a value whose gradient is complete on each rank of an axis (I) meets one whose gradient is "
                "not (R, V, P or S), so that it would get a part: put nn::replicate<Axis>(x) around the first");
  static_assert(why != variables,
                "chorale: this layer has variables that the ranks of an axis share, and what comes in is not the same "
                "on all of them with a complete gradient (I), so that the gradients of the variables would be parts: "
                "put nn::all_reduce<Axis>(x), nn::all_gather<Axis>(x) or nn::count_once<Axis>(x) before it");
  static_assert(why != needs_whole && why != moves,
                "chorale: this layer works over a dimension that is sharded over an axis (S): put "
                "nn::all_gather<Axis>(x) before it");
  static_assert(why != shapes,
                "chorale: a shard of a value (S) meets a value that is not sharded alike over this axis: put "
                "nn::scatter<Axis, dim>(x) around that one, or nn::all_gather<Axis, nn::replicated>(x) around the "
                "shard");
  static_assert(why != diagonal,
                "chorale: both factors of a product differ between the ranks of one axis, so that each rank would have "
                "one block of many: put nn::all_gather<Axis, nn::replicated>(x) around one of them");
  static_assert(why != part_of_whole,
                "chorale: a shard (S) is multiplied with a part of a sum over the same axis (P), and needs the whole "
                "sum: put nn::all_reduce<Axis, nn::replicated>(x) around the part");
}

/// Refuses axes of one name with different numbers of ranks.
template <class Axes> constexpr bool check_axes() {
  static_assert(differ_in_name(Axes{}),
                "chorale: two axes of one name have different numbers of ranks. Give the axis "
                "a name in C++, by using, and write that name everywhere");
  return differ_in_name(Axes{});
}

/// Refuses what a layer that is split over an axis does not take along it.
template <bool is_taken> constexpr void check_stated() {
  static_assert(is_taken,
                "chorale: this layer is split over an axis, and does not take what the ranks of the axis "
                "have of its input. Its function spread(...) says which of I, R, V, P and S it takes");
}

template <class L, class A> constexpr bool is_split_over() {
  if constexpr (requires { typename L::axis; }) return std::is_same_v<typename L::axis, A>;
  else return false;
}

/// True if layer L says what it takes of parts that other layers give, see graph::Held.
template <class L> inline constexpr bool knows_parts = requires { L::refuses(graph::Held{}); };

/// The parts of a value as the records of a trace have them: of vectors, and of the positions of sequences.
template <class O, class... On> constexpr graph::Held parts_of_type(List<On...>) {
  auto held = graph::Held{};
  (
      [&] {
        if (On::is.kind != Distribution::Kind::sharded) return;
        constexpr bool ids = !std::is_same_v<typename O::type, float>;
        if (!ids && On::is.dim == O::rank - 1) held.columns = On::axis::name;
        else if (On::is.dim == 0) held.positions = On::axis::name;
      }(),
      ...);
  return held;
}
template <class O> inline constexpr graph::Held held_of = parts_of_type<OwnOf<O>>(typename SpreadParts<O>::axes{});

/// What a layer that is split, or one with variables, has against the parts of its inputs, in a sentence that names the
/// layers that are split.
template <class L, class... O> constexpr graph::Mistake mistake_of_parts() {
  constexpr bool has_variables = graph::DescribedCall<L, OwnOf<O>...>::variables().size() > 0;
  if (!has_variables && !knows_parts<L>) return graph::Mistake::none;
  using Made = decltype(graph::DescribedCall<L, OwnOf<O>...>::output());
  auto trace = graph::Trace{};
  (trace.values.push_back({.held = held_of<O>}), ...);
  auto in = std::array<int, sizeof...(O)>{};
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
  graph::held_by<L>(trace, List<OwnOf<O>...>{}, typename graph::OutputsOf<Made>::type{}, in);
  return trace.mistake;
}

/// Counts the last dimensions of an input: all, or with `each` all but the first, the positions; each id is a position.
template <class L, bool each> constexpr int over_all_but_positions(bool ids, int rank) {
  if (!each) return rank;
  return ids ? 0 : std::max(rank - 1, 1);
}
template <class First, class... O, class... Out> constexpr bool keeps_positions(List<Out...>) {
  return graph::keeps_positions<First, Out...>();
}

/// What layer L gives along axis A for inputs O, or why it gives nothing; nothing of both: the layer itself refuses.
template <class L, class A, class... O> constexpr std::optional<distribution::Result> result_along() {
  using distribution::Operation, distribution::Result;
  constexpr auto in    = std::array{along_axis<A, O>...};
  constexpr auto ranks = std::array{O::rank...};
  constexpr auto ids   = std::array{!std::is_same_v<typename OwnOf<O>::type, float>...};
  if constexpr (is_split_over<L, A>()) {
    if constexpr (requires { L::spread(along_axis<A, O>...); }) {
      auto const stated = L::spread(along_axis<A, O>...);
      return stated ? std::optional{Result{*stated}} : std::nullopt;
    } else {  // it says nothing: I of I
      return ((along_axis<A, O> == invariant) && ...) ? std::optional{Result{}} : std::nullopt;
    }
  } else if constexpr (graph::DescribedCall<L, OwnOf<O>...>::variables().size() > 0) {
    constexpr bool each = graph::each_position<L> || knows_parts<L>;  // may be sharded along positions
    auto y              = Result{};
    for (std::size_t i = 0; i < in.size() && y.why == distribution::Reason::none; ++i)
      y = distribution::result_of(distribution::rules, Operation::trained,
                                  over_all_but_positions<L, each>(ids[i], ranks[i]), in[i], ranks[i]);
    return y;
  } else {
    using Made            = typename graph::OutputsOf<decltype(graph::DescribedCall<L, OwnOf<O>...>::output())>::type;
    constexpr auto stated = spreads_as<L>;
    constexpr bool each   = graph::each_position<L> && keeps_positions<OwnOf<O>...>(Made{});
    constexpr auto as =
        SpreadsAs{stated.operation,
                  each ? std::min(stated.over, over_all_but_positions<L, true>(ids[0], ranks[0])) : stated.over};
    if (in.size() == 1) {
      auto const unary = as.operation < Operation::add    ? as.operation
                         : as.operation == Operation::add ? Operation::linear
                                                          : Operation::nonlinear;
      return distribution::result_of(distribution::rules, unary, as.over, in[0], ranks[0]);
    }
    auto y = Result{in[0]};
    for (std::size_t i = 1; i < in.size() && y.why == distribution::Reason::none; ++i)
      y = distribution::result_of(distribution::rules,
                                  as.operation < Operation::add ? Operation::combine : as.operation, as.over, y.y,
                                  ranks[0], in[i], ranks[i]);
    return y;
  }
}

/// True if layer L takes what comes in along an axis.
template <class L, class A, class... O> constexpr bool fits_along() {
  constexpr auto result = result_along<L, A, O...>();
  return result && result->why == distribution::Reason::none;
}

/// Reports the first mistake of layer L along the axes.
template <class L, class... O, class First, class... A> constexpr void report_spread(List<O...>, List<First, A...>) {
  if constexpr (fits_along<L, First, O...>()) {
    report_spread<L>(List<O...>{}, List<A...>{});
  } else {
    constexpr auto result = result_along<L, First, O...>();
    if constexpr (!result) check_stated<result.has_value()>();
    else check_rule<result->why>();
  }
}

/// What is made of a call: it fits, it is refused here, or the trace refuses the parts.
enum class Fits { yes, no, parts_no };

/// Checks layer L along all axes.
template <class L, class... O, class... A> constexpr Fits check_spread(List<O...>, List<A...>) {
  if constexpr (!check_axes<List<A...>>()) return Fits::no;
  else if constexpr ((fits_along<L, A, O...>() && ...)) return Fits::yes;
  else if constexpr (mistake_of_parts<L, O...>() != graph::Mistake::none) return Fits::parts_no;
  else {
    report_spread<L>(List<O...>{}, List<A...>{});
    return Fits::no;
  }
}

/// A list of axes with that over which layer L is split.
template <class L, class Axes> struct WithOwnAxis {
  using type = Axes;
};
template <class L, class Axes> requires requires { typename L::axis; } struct WithOwnAxis<L, Axes> {
  using type = typename WithAxes<Axes, List<OnAxis<typename L::axis, invariant>>>::type;
};

/// The output Y of layer L as a type that says what ranks have of it.
template <class L, class Y, class Inputs, class Axes> struct OutputSpread;
template <class L, class Y, class... O> struct OutputSpread<L, Y, List<O...>, List<>> {
  using type = Y;
};
template <class L, class Y, class... O, class First, class... A>
struct OutputSpread<L, Y, List<O...>, List<First, A...>> {
  static constexpr auto stated = result_along<L, First, O...>()->y;
  static constexpr auto last   = stated.kind == Distribution::Kind::sharded && stated.dim < 0;
  static constexpr auto what   = last ? Distribution{stated.kind, Y::rank + stated.dim} : stated;
  using type = typename OutputSpread<L, typename AddAxis<Y, First, what>::type, List<O...>, List<A...>>::type;
};

}  // namespace detail

namespace graph {

// Declared in call.hpp: the call of a layer with values that are not I along all axes, or of one that is split.
template <class D, class L, class... O> struct CallWithSpread {
  using Axes = typename nn::detail::WithOwnAxis<L, nn::detail::AxesOf<List<>, O...>>::type;

  static constexpr auto run(int& id, std::string_view name, Tensor<D, O>... x) {
    auto& trace = *std::get<0>(std::tuple{x.trace...});
    DescribedCall<L, nn::detail::OwnOf<O>...>::check();
    if constexpr (!DescribedCall<L, nn::detail::OwnOf<O>...>::takes) {
      trace.mistake = Mistake::refused;
      return Tensor<D, Refused>{&trace, 0};
    } else {
      constexpr auto fits = nn::detail::check_spread<L>(List<O...>{}, Axes{});
      using Made          = typename OutputsOf<decltype(DescribedCall<L, nn::detail::OwnOf<O>...>::output())>::type;
      if constexpr (fits == nn::detail::Fits::no) {
        trace.mistake = Mistake::refused;
        return Tensor<D, Refused>{&trace, 0};
      } else if constexpr (fits == nn::detail::Fits::parts_no) {  // record() notes the mistake
        return record<D, L, nn::detail::OwnOf<O>...>(Made{}, trace, id, name, std::array{x.value...});
      } else {
        constexpr bool typed =
            DescribedCall<L, nn::detail::OwnOf<O>...>::variables().size() == 0 && !nn::detail::knows_parts<L>;
        auto const forget = [&](Held const& held, int value) {  // of what the types have checked
          if (typed) trace.values[at(value)].held = held;
        };
        (forget({}, x.value), ...);
        auto const y = record<D, L, nn::detail::OwnOf<O>...>(Made{}, trace, id, name, std::array{x.value...});
        (forget(nn::detail::held_of<O>, x.value), ...);
        return wrapped(y);
      }
    }
  }

 private:
  template <class Y> static constexpr auto wrapped(Tensor<D, Y> y) {
    using Type = typename nn::detail::OutputSpread<L, Y, List<O...>, Axes>::type;
    if (!nn::detail::knows_parts<L>) y.trace->values[at(y.value)].held = nn::detail::held_of<Type>;
    return Tensor<D, Type>{y.trace, y.value};
  }
  template <class... Y> static constexpr auto wrapped(std::tuple<Y...> const& all) {
    return std::apply([](auto... y) { return std::tuple{wrapped(y)...}; }, all);
  }
};

}  // namespace graph
}  // namespace chorale::nn
