// SPDX-License-Identifier: Apache-2.0
//
// Derivatives of a network by its input, as values of the network: what a loss of a differential equation is made of.
//
//   x (B, N) ──▶ parts (B, P, N) ──▶ layer ──▶ layer ──▶ parts (B, P, M) ──▶ u, du/dx0, d2u/dx0dx0, .. (B, M) each
//                                    u, and each derivative of it, by the chain rule
//
// Forward-mode differentiation: a value is carried through each layer with its first and second derivatives. Each layer
// has its own backward, so that gradients by variables and inputs are exact.
#pragma once

#include <chorale/nn/derivatives/derivative_layers.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/stage.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace chorale::nn {

/// A derivative by numbers of an input: By<0> is du/dx0, By<0, 0> and By<0, 1> are second ones. See nn::derivatives.
template <int... I> struct By {
  static constexpr std::array<int, sizeof...(I)> dims{I...};
};

namespace detail {

/// Refuses derivatives of an input that has none like them.
template <class O, class... B> constexpr bool check_derivatives() {
  constexpr bool is_vector =
      std::is_same_v<typename O::type, float> && O::rank == 1 && !O::is_ragged && !graph::has_spread<O>;
  static_assert(is_vector,
                "chorale: nn::derivatives takes an input of numbers (B, N), e.g. of a Field<float, 2>, that "
                "is the same on all ranks");
  constexpr bool orders = sizeof...(B) > 0 && ((B::dims.size() == 1 || B::dims.size() == 2) && ...);
  static_assert(orders, "chorale: nn::derivatives gives first and second derivatives: nn::By<i> and nn::By<i, j>");
  constexpr bool within = !is_vector || ([] {
    for (auto const i : B::dims)
      if (i < 0 || i >= O::back) return false;
    return true;
  }() && ...);
  static_assert(within,
                "chorale: an nn::By<i> or nn::By<i, j> counts the numbers of the input from 0, and the input "
                "has fewer");
  return is_vector && orders && within;
}

/// Refuses a layer that derivatives cannot go through.
template <class L, class... O> constexpr bool check_derivatives_of() {
  constexpr bool alike = [] {
    using First = std::tuple_element_t<0, std::tuple<O...>>;
    if constexpr ((requires { typename O::parts; } && ...))
      return (std::is_same_v<typename First::parts, typename O::parts> && ...);
    else return false;
  }();
  static_assert(alike,
                "chorale: within nn::derivatives a layer combines a value that has derivatives with one that "
                "has none, or other ones. Make all of it from the argument of the function");
  return alike;
}
template <class L, class Form> constexpr bool check_form() {
  constexpr bool has_form = !requires { requires Form::missing; };
  static_assert(has_form,
                "chorale: this layer has no second derivatives for nn::derivatives, which goes through "
                "nn::Dense, + - *, concatenate, Tanh, Sigmoid, Softplus, SiLU, GELU, and an nn::Elementwise "
                "with d2f and d3f");
  return has_form;
}

}  // namespace detail

namespace graph {

// Declared in call.hpp: the call of a layer with values that have derivatives.
template <class D, class L, class... O> struct CallWithDerivatives {
  static constexpr auto run(int& id, std::string_view name, Tensor<D, O>... x) {
    auto& trace = *std::get<0>(std::tuple{x.trace...});
    if constexpr (nn::detail::check_derivatives_of<L, O...>()) {
      using S    = typename std::tuple_element_t<0, std::tuple<O...>>::parts;
      using Form = nn::detail::WithDerivatives<L, S>;
      if constexpr (nn::detail::check_form<L, Form>())
        return wrapped<S>(call<D, Form>(id, name, Tensor<D, typename O::packed>{x.trace, x.value}...));
      else return refused(trace);
    } else {
      return refused(trace);
    }
  }

 private:
  static constexpr Tensor<D, Refused> refused(Trace& trace) {
    trace.mistake = Mistake::refused;
    return {&trace, 0};
  }
  template <class S, int Parts, int N> static constexpr auto wrapped(Tensor<D, Of<float, Parts, N>> y) {
    return Tensor<D, WithParts<Of<float, N>, S>>{y.trace, y.value};
  }
  template <class S> static constexpr auto wrapped(Tensor<D, Refused> y) { return y; }
};

}  // namespace graph

/// A value of a network with its derivatives by numbers of an input, in a call operator:
///
///   auto const [u, u_t, u_xx] = nn::derivatives<nn::By<1>, nn::By<0, 0>>(layers, place);
///   return nn::outputs<Residual>(u_t - scaled(u_xx));                       // a loss makes it 0
///
/// net       a Block, or a function of a tensor, of Dense, + - *, concatenate, Tanh, Sigmoid, Softplus, SiLU, GELU, and
///           an Elementwise that has d2f(x, y) and d3f(x, y) beside df; its layers may be called without derivatives
///           as well
/// x         (B, N); By<i> is the derivative by its number i, By<i, j> a second one
/// returns   the value, then each derivative that was asked for, (B, M) all
/// keeps     gradients by variables and by x are exact: the derivatives of each layer have their own backward
/// cost      the layers' cost, times 1 + the number of carried derivatives: each one that was asked for, and the first
///           ones by i and by j for each By<i, j>
/// source    Raissi, Perdikaris & Karniadakis, "Physics-informed neural networks", 2019; torch.autograd.grad with
///           create_graph=True, which gives the same numbers
template <class... B, class Net, class D, class O> constexpr auto derivatives(Net const& net, Tensor<D, O> x) {
  using S            = detail::PartsOf<B...>;
  auto const refused = [&] {
    x.trace->mistake = graph::Mistake::refused;
    auto all         = std::array<Tensor<D, Refused>, 1 + sizeof...(B)>{};
    all.fill({x.trace, 0});
    return all;
  };
  if constexpr (std::is_same_v<O, Refused>) {
    return refused();
  } else if constexpr (!detail::check_derivatives<O, B...>()) {
    return refused();
  } else {
    auto const begin = detail::BeginDerivatives<S>{}(x);
    auto const y     = net(Tensor<D, WithParts<O, S>>{begin.trace, begin.value});
    using Y          = typename decltype(y)::of;
    if constexpr (std::is_same_v<Y, Refused>) return refused();
    else return detail::EndDerivatives<S>{}(Tensor<D, typename Y::packed>{y.trace, y.value});
  }
}

}  // namespace chorale::nn
