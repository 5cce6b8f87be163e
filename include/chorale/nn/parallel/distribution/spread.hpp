// SPDX-License-Identifier: Apache-2.0
//
// How the type of a value of a network says what ranks have of it: Tensor<D, Spread<Of<float, 8>, OnAxis<A, partial>>>.
#pragma once

#include <chorale/nn/parallel/distribution/rules.hpp>
#include <chorale/nn/parallel/distribution/types.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>

#include <type_traits>

namespace chorale::nn {

/// What the ranks along axis A have of a value.
///
/// A     an Axis<name, ranks>
template <class A, Distribution what> struct OnAxis {
  using axis                       = A;
  static constexpr Distribution is = what;
};

/// The type of a value that is not I along all axes: what layers take and return in place of O.
///
/// O     Of<T, dims...> of what this rank has
/// On    OnAxis<A, distribution> of each axis along which it is not I
template <class O, class... On> struct Spread {
  using own                       = O;
  using spread                    = detail::List<On...>;
  using type                      = typename O::type;
  static constexpr int rank       = O::rank;
  static constexpr bool is_ragged = O::is_ragged;
};

namespace detail {

template <class O> struct SpreadParts {
  using own  = O;
  using axes = List<>;
};
// What has axes.
template <class O, class... On> struct SpreadParts<Spread<O, On...>> {
  using own  = O;
  using axes = List<On...>;
};

/// The value of this rank, without what others have.
template <class O> using OwnOf = typename SpreadParts<O>::own;

/// The list of OnAxis of a value.
template <class O> inline constexpr typename SpreadParts<O>::axes axes_of{};

template <class A, class... On> constexpr Distribution find_axis(List<On...>) {
  auto found = invariant;
  (
      [&] {
        if constexpr (std::is_same_v<A, typename On::axis>) found = On::is;
      }(),
      ...);
  return found;
}
/// What the ranks along axis A have of a value O.
template <class A, class O> inline constexpr Distribution along_axis = find_axis<A>(typename SpreadParts<O>::axes{});

template <class Axes, class A> inline constexpr bool has_axis                = false;
template <class... B, class A> inline constexpr bool has_axis<List<B...>, A> = (std::is_same_v<A, B> || ...);

/// A list of axes, then the axes of a value that it lacks.
template <class Axes, class On> struct WithAxes;
template <class... B> struct WithAxes<List<B...>, List<>> {
  using type = List<B...>;
};
template <class... B, class First, class... On> struct WithAxes<List<B...>, List<First, On...>> {
  using A    = typename First::axis;
  using Next = std::conditional_t<has_axis<List<B...>, A>, List<B...>, List<B..., A>>;
  using type = typename WithAxes<Next, List<On...>>::type;
};
template <class Axes, class... O> struct AllAxes {
  using type = Axes;
};
template <class Axes, class First, class... O> struct AllAxes<Axes, First, O...> {
  using type = typename AllAxes<typename WithAxes<Axes, typename SpreadParts<First>::axes>::type, O...>::type;
};
/// The axes of a list, then others along which some of these values are not I, each once.
template <class Axes, class... O> using AxesOf = typename AllAxes<Axes, O...>::type;

template <class O, class... On> struct Spreading {
  using type = Spread<O, On...>;
};
template <class O> struct Spreading<O> {
  using type = O;
};
/// O with another distribution along A, which its list of axes lacks.
template <class S, class A, Distribution what> struct AddAxis;
template <class O, class A, Distribution what> struct AddAxis {
  using type = std::conditional_t<what == invariant, O, Spread<O, OnAxis<A, what>>>;
};
template <class O, class... On, class A, Distribution what> struct AddAxis<Spread<O, On...>, A, what> {
  using type = std::conditional_t<what == invariant, Spread<O, On...>, Spread<O, On..., OnAxis<A, what>>>;
};

/// True if no two of the axes have one name.
template <class... A> constexpr bool differ_in_name(List<A...>) {
  auto count = 0;
  (
      [&] {
        auto const name = A::name;
        ((count += name == A::name ? 1 : 0), ...);
      }(),
      ...);
  return count == static_cast<int>(sizeof...(A));
}

/// True if some axis other than A shards dimension `dim` of O.
template <class A, class... On> constexpr bool shards_elsewhere(List<On...>, [[maybe_unused]] int dim) {
  return ((!std::is_same_v<A, typename On::axis> && On::is.kind == Distribution::Kind::sharded && On::is.dim == dim) ||
          ...);
}

}  // namespace detail

/// What the ranks along axis A have of a value in a network: nn::spread_along<A>(x).
template <class A, class D, class O> constexpr Distribution spread_along(Tensor<D, O>) {
  return detail::along_axis<A, O>;
}

}  // namespace chorale::nn
