// SPDX-License-Identifier: Apache-2.0
//
// From the layers that a program writes to the layers that are called, and to the nodes of a plan. The compiler
// rewrites the list in four steps, each a template below.
//
//   as written      Conv2D │ ReLU │ MaxPool2D │ Block<Flatten, Dense> │ Residual<Dense, ReLU, Dense>
//   1 Flat          Conv2D │ ReLU │ MaxPool2D │ Flatten │ Dense │ Residual<Dense, ReLU, Dense>
//   2 MovePool      Conv2D │ MaxPool2D │ ReLU │ Flatten │ Dense │ Residual<Dense, ReLU, Dense>
//   3 FusePool      ConvPool<Conv2D, MaxPool2D> │ ReLU │ Flatten │ Dense │ Residual<Dense, ReLU, Dense>
//   4 Chain         the same, each a Node with the shape of its input, and of the Residual a node for each of
//                   Fork │ Dense │ ReLU │ Dense │ Sum
//
// Steps 1 to 3 rewrite the branches of a Residual as they do a network.
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>

namespace chorale::nn::detail {

/// A list of layers with its blocks flattened.
template <class Done, class... Rest> struct Flat;
template <class... Done> struct Flat<List<Done...>> {
  using type = List<Done...>;
};
template <class... Done, class A, class... Rest>
struct Flat<List<Done...>, A, Rest...> : Flat<List<Done..., A>, Rest...> {};
template <class... Done, class... L, class... Rest>
struct Flat<List<Done...>, Block<L...>, Rest...> : Flat<List<Done...>, L..., Rest...> {};
template <class... Done, int N, class... L, class... Rest> requires(N > 0)
struct Flat<List<Done...>, Repeat<N, L...>, Rest...> : Flat<List<Done...>, L..., Repeat<N - 1, L...>, Rest...> {};
template <class... Done, class... L, class... Rest>
struct Flat<List<Done...>, Repeat<0, L...>, Rest...> : Flat<List<Done...>, Rest...> {};

/// A list in which a rule has replaced pairs of neighbours, from the front: Rule<A, B>::type is the list that takes
/// their place. A pair without it stays, and a layer that a rule has placed is not a part of another pair.
template <template <class, class> class Rule, class Done, class... Rest> struct Rewritten;
template <template <class, class> class Rule, class... Done> struct Rewritten<Rule, List<Done...>> {
  using type = List<Done...>;
};
template <template <class, class> class Rule, class... Done, class A, class... Rest>
struct Rewritten<Rule, List<Done...>, A, Rest...> : Rewritten<Rule, List<Done..., A>, Rest...> {};
template <template <class, class> class Rule, class... Done, class A, class B, class... Rest>
requires requires { typename Rule<A, B>::type; } struct Rewritten<Rule, List<Done...>, A, B, Rest...>
    : Rewritten<Rule, typename Rule<A, B>::template after<Done...>, Rest...> {};

/// What a rule puts in the place of two layers.
template <class... L> struct Replaced {
  using type                           = List<L...>;
  template <class... Done> using after = List<Done..., L...>;
};

template <class L> concept monotone_layer = requires { requires L::monotone; };
template <class L> concept picking_layer  = requires { requires L::picks; };

/// Rule that moves an activation f, which never decreases, after the max pool that follows it, where it computes fewer
/// numbers: max(f(a), f(b)) = f(max(a, b)).
template <class A, class B> struct MovePool {};
template <monotone_layer A, picking_layer B> struct MovePool<A, B> : Replaced<B, A> {};

/// A convolution and the pool after it as one layer: a device may compute them slice by slice, without storing the
/// activation between them. Sequential fuses the two.
template <class Conv, class Pool> struct ConvPool {
  static constexpr std::string_view name = Conv::name;

  template <class In> using between = typename Conv::template apply<In>::type;

  static constexpr bool is_sized = !graph::Sizeless<Conv> && !graph::Sizeless<Pool>;
  static constexpr void check_size() {
    if constexpr (graph::Sizeless<Conv>) Conv::check_size();
    else Pool::check_size();
  }
  template <class In> static constexpr void check() {
    Conv::template check<In>();
    Pool::template check<between<In>>();
  }

  template <class In> struct apply : Conv::template apply<In> {
    using type = typename Pool::template apply<between<In>>::type;
  };

  template <class D, class In> struct stage : Kernels<D>::ConvPool {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::ConvPool{site.runtime,  site.in,
                               site.rows,     Conv::template window_on<In>(),
                               Conv::filters, Pool::template window_on<between<In>>(),
                               Pool::kind,    site.wants_dx,
                               Conv::biased} {}
  };
};

template <class L> concept convolution = requires { L::filters; } && !requires { requires !L::is_plain; };
template <class L> concept pool        = requires { L::kind; };

/// Rule that fuses a convolution with the pool that follows it.
template <class A, class B> struct FusePool {};
template <convolution A, pool B> struct FusePool<A, B> : Replaced<ConvPool<A, B>> {};

template <template <class, class> class Rule, class Layers> struct RewrittenList;
template <template <class, class> class Rule, class... L>
struct RewrittenList<Rule, List<L...>> : Rewritten<Rule, List<>, L...> {};

/// Layers in the order of computation: blocks flattened, activations after max pools, pools fused with convolutions.
template <class... L>
struct Ordered : RewrittenList<FusePool, typename RewrittenList<MovePool, typename Flat<List<>, L...>::type>::type> {};

template <class Layers> struct OrderedList;
template <class... L> struct OrderedList<List<L...>> : Ordered<L...> {};

/// A layer with the shape of its input.
template <class L, class InShape> struct Node {
  using layer                            = L;
  using in                               = InShape;
  using apply                            = typename L::template apply<InShape>;
  using out                              = typename apply::type;
  static constexpr std::size_t variables = apply::variables.size();
};

/// A layer that adds up over all replicas in the middle of a step.
template <class L> concept joining_layer = requires { requires L::joins; };

/// Index of the first node whose layer adds up over all replicas; the number of nodes if there is none.
template <class... N> constexpr std::size_t first_joining(List<N...>) {
  std::size_t i = 0;
  static_cast<void>(((joining_layer<typename N::layer> || (++i, false)) || ...));
  return i;
}

/// Splits a Residual's arguments into main branch and shortcut.
template <class Main, class... L> struct Branches;
template <class... Main> struct Branches<List<Main...>> {
  using main     = List<Main...>;
  using shortcut = List<>;
};
template <class... Main, class... S> struct Branches<List<Main...>, Shortcut<S...>> {
  using main     = List<Main...>;
  using shortcut = List<S...>;
};
template <class... Main, class A, class... Rest>
struct Branches<List<Main...>, A, Rest...> : Branches<List<Main..., A>, Rest...> {};

/// Nodes of layers that follow one another from shape In on, and the shape of the output.
template <class Done, class In, class... Rest> struct Chain;
template <class... Done, class In> struct Chain<List<Done...>, In> {
  using nodes  = List<Done...>;
  using output = In;
};
template <class... Done, class In, class L, class... Rest>
struct Chain<List<Done...>, In, L, Rest...>
    : Chain<List<Done..., Node<L, In>>, typename L::template apply<In>::type, Rest...> {};

template <class L, class In> concept has_apply = requires { typename L::template apply<In>; };

template <class L>
concept has_layer_name = requires {
  { L::name } -> std::convertible_to<std::string_view>;
};
template <class L, class In> concept has_check = requires { L::template check<In>(); };
/// What has a stage by its name: a program for one device alone has no kernels of others, and so names no stage.
template <template <class, class> class Stage> struct StageTemplate;
template <class L, class In>
concept has_stage = requires { typename StageTemplate<L::template stage>; } ||
                    requires { typename L::template stage<Cpu, In>; } || branch_of<L>() == Branch::sum;
template <class L, class In>
concept has_out = requires {
  typename L::template apply<In>::type;
  { L::template apply<In>::variables.size() } -> std::convertible_to<std::size_t>;
};
template <class L, class In>
concept has_members = has_apply<L, In> && has_layer_name<L> && has_check<L, In> && has_stage<L, In> && has_out<L, In>;

/// Takes the place of a layer that a Sequential cannot have, or of one of size zero, and computes nothing.
template <class L> struct Misplaced {
  static constexpr std::string_view name = "misplaced";

  template <class In> static constexpr void check() {
    if constexpr (graph::Sizeless<L>) L::check_size();
    else check_members<In>();
  }
  template <class In> static constexpr void check_members() {
    constexpr bool some = has_apply<L, In> || has_stage<L, In>;
    constexpr bool two  = has_layer_name<L> && has_check<L, In>;
    static_assert(some,
                  "chorale: a layer of this nn::Sequential computes in networks derived from nn::Graph "
                  "alone. Write struct Net : nn::Graph<Field> with a call operator, or take layers "
                  "that docs/28-models.md marks with S; one of your own needs what "
                  "nn::SequentialLayer lists");
    static_assert(!some || has_layer_name<L>,
                  "chorale: a layer of this nn::Sequential has no name. Write static "
                  "constexpr std::string_view name. See nn::SequentialLayer in "
                  "nn/trace/layer.hpp");
    static_assert(!some || !has_layer_name<L> || has_check<L, In>,
                  "chorale: a layer of this nn::Sequential has no check. Write template <class In> static constexpr "
                  "void check(), which refuses shapes. See nn::SequentialLayer in nn/trace/layer.hpp");
    static_assert(!some || !two || has_apply<L, In>,
                  "chorale: a layer of this nn::Sequential has no apply. Write template <class In> struct apply, with "
                  "type, the shape that comes out, and variables. See nn::SequentialLayer in nn/trace/layer.hpp");
    static_assert(!some || !two || !has_apply<L, In> || has_out<L, In>,
                  "chorale: a layer of this nn::Sequential has an apply<In> without type, the shape that comes out, or "
                  "without variables, a std::array<VariableSpec, n>. See nn::SequentialLayer in nn/trace/layer.hpp");
    static_assert(!some || !two || !has_out<L, In> || has_stage<L, In>,
                  "chorale: a layer of this nn::Sequential has no stage. Write template <class D, class In> struct "
                  "stage, how it computes on a device. See nn::SequentialLayer in nn/trace/layer.hpp");
  }
  template <class In> using apply = SameShape<In>;
  template <class D, class In> struct stage;
};

/// True if one of the nodes has the place of a layer that was refused.
template <class L> inline constexpr bool is_misplaced               = false;
template <class L> inline constexpr bool is_misplaced<Misplaced<L>> = true;
template <class... N> constexpr bool has_misplaced(List<N...>) { return (is_misplaced<typename N::layer> || ...); }

/// Nodes up to a layer that check() refuses whatever comes in. The rest would say more of the same.
template <class... Done, class In, class L, class... Rest> requires(graph::Sizeless<L> || !has_members<L, In>)
struct Chain<List<Done...>, In, L, Rest...> : Chain<List<Done..., Node<Misplaced<L>, In>>, In> {};

/// Takes the place of a Residual that has a shortcut alone, and computes nothing.
struct ShortcutAlone {
  static constexpr std::string_view name = "shortcut_alone";

  template <class In> static constexpr void check() {
    static_assert(sizeof(In) == 0, "chorale: a Residual needs at least one layer before its Shortcut");
  }
  template <class In> using apply = SameShape<In>;
};
template <class... Done, class In, class... L, class... Rest> requires(Branches<List<>, L...>::main::size == 0)
struct Chain<List<Done...>, In, Residual<L...>, Rest...> : Chain<List<Done..., Node<ShortcutAlone, In>>, In> {};

template <class In, class Layers> struct ChainOf;
template <class In, class... L> struct ChainOf<In, List<L...>> : Chain<List<>, In, L...> {};

template <class In, class Layers> struct OrderedChain;
template <class In, class... L> struct OrderedChain<In, List<L...>> : ChainOf<In, typename Ordered<L...>::type> {};

/// Nodes of a Residual: | fork | layers | sum |, or | fork | layers | turn | shortcut | sum |.
template <class... Done, class In, class... L, class... Rest> struct Chain<List<Done...>, In, Residual<L...>, Rest...> {
 private:
  using branches = Branches<List<>, L...>;
  using main     = OrderedChain<In, typename branches::main>;
  using shortcut = OrderedChain<In, typename branches::shortcut>;

  template <class A, class B> struct Rejoined;
  template <class... A, class... B>
  struct Rejoined<List<A...>, List<B...>>
      : Chain<List<Done..., Node<Fork, In>, A..., Node<Turn<In>, typename main::output>, B...>,
              typename shortcut::output, Sum<typename main::output>, Rest...> {};
  template <class... A>
  struct Rejoined<List<A...>, List<>>
      : Chain<List<Done..., Node<Fork, In>, A...>, typename main::output, Sum<In>, Rest...> {};
  using all = Rejoined<typename main::nodes, typename shortcut::nodes>;

 public:
  using nodes  = typename all::nodes;
  using output = typename all::output;
};

}  // namespace chorale::nn::detail
