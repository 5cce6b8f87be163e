// SPDX-License-Identifier: Apache-2.0
//
// Runs the call operator of a network in the compiler, and writes down what it calls.
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/data/field.hpp>
#include <chorale/nn/graph/call.hpp>
#include <chorale/nn/graph/records.hpp>
#include <chorale/nn/graph/stage.hpp>
#include <chorale/nn/tensor.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// An input of a Graph whose gradient somebody asks for: nn::Graph<nn::Differentiable<Image>>.
template <class F>
struct Differentiable : F {};

/// What a network's call operator returns: see nn::outputs.
///
/// Names    List of fields, one for each output
template <class D, class Names, class... O>
struct Outputs {
  using fields = Names;

  std::array<int, sizeof...(O)> values;
};

namespace graph {

template <class T, int... Dims>
Of<T, Dims...> of_field(Field<T, Dims...> const&);

/// The Of of a field.
template <class F>
using OfField = decltype(of_field(std::declval<F const&>()));

template <class F>
inline constexpr bool is_asked = false;
template <class F>
inline constexpr bool is_asked<Differentiable<F>> = true;

/// The field of an input, without the request for its gradient.
template <class F>
struct WithoutRequest {
  using type = F;
};
// An input whose gradient is asked for.
template <class F>
struct WithoutRequest<Differentiable<F>> {
  using type = F;
};

/// True for what a call operator may return.
template <class T>
inline constexpr bool is_outputs = false;
template <class D, class Names, class... O>
inline constexpr bool is_outputs<Outputs<D, Names, O...>> = true;
template <class D>
inline constexpr bool is_outputs<Tensor<D, Refused>> = true;

template <bool takes_fields, bool gives_outputs>
constexpr bool check_operator() {
  static_assert(takes_fields,
                "chorale: the call operator of this network does not take what nn::Graph<...> names: one parameter for "
                "each field, in that order");
  static_assert(gives_outputs, "chorale: the call operator of this network must return nn::outputs<Fields...>(...), "
                               "with a field for each output");
  return takes_fields && gives_outputs;
}

/// Adds the input of field F to a trace.
template <class D, class F>
constexpr auto add_input(Trace& trace) {
  using O       = OfField<F>;
  auto const id = static_cast<int>(trace.values.size());
  auto value    = ValueRecord{.size = O::size, .bytes = O::size * sizeof(typename O::type),
                              .number = std::is_same_v<typename O::type, float>, .asked = is_asked<F>};
  value.field   = &type_name<typename WithoutRequest<F>::type>;
  trace.values.push_back(value);
  trace.inputs.push_back(id);
  return Tensor<D, O>{&trace, id};
}

/// Calls the network with one value for each field, and adds its outputs to the trace.
template <class Net, class D, class... F>
constexpr void run(Net& net, Trace& trace, List<F...>) {
  if constexpr (std::is_invocable_v<Net&, Tensor<D, OfField<F>>...>) {
    auto const in = std::tuple{add_input<D, F>(trace)...};
    using Made    = std::invoke_result_t<Net&, Tensor<D, OfField<F>>...>;
    if constexpr (!is_outputs<Made>) {
      trace.mistake = Mistake::refused;
      check_operator<true, is_outputs<Made>>();
    } else {
      auto const made = std::apply([&](auto... x) { return net(x...); }, in);
      if constexpr (requires { made.values; })
        for (auto const value : made.values) trace.outputs.push_back(value);
      else trace.mistake = Mistake::refused;
    }
  } else {
    trace.mistake = Mistake::refused;
    check_operator<std::is_invocable_v<Net&, Tensor<D, OfField<F>>...>, true>();
  }
}

/// The trace of a network on a device. It is empty after a mistake that was reported.
template <class Net, class D>
constexpr Trace trace() {
  auto made = Trace{};
  auto net  = Net{};                                                       // not const: layers are marked as called
  run<Net, D>(net, made, typename Net::inputs{});
  if (made.mistake == Mistake::refused) {
    made         = Trace{};
    made.mistake = Mistake::refused;
  }
  for (auto const value : made.outputs)
    if (made.mistake == Mistake::none && made.values[at(value)].call < 0) made.mistake = Mistake::output_is_input;
  return made;
}

/// Reports a mistake that the trace found. A function, as clang abandons a class with a failed static_assert.
template <Mistake M, bool is_unique>
constexpr bool report() {
  static_assert(M != Mistake::two_shapes_of_one_layer,
                "chorale: a layer is called twice with inputs that would give its variables other shapes. Use two "
                "layers");
  static_assert(M != Mistake::two_calls_of_moving_layer,
                "chorale: an nn::BatchNorm is called twice, which would move its statistics twice. Use two layers");
  static_assert(is_unique, "chorale: two layers of this network have the same name, so their variables could not be told "
                           "apart in a checkpoint. Give them different names");
  static_assert(M != Mistake::output_is_input,
                "chorale: an output of this network is one of its inputs, which no layer has changed");
  return true;
}

/// True if device D stores the activations of Net in 16 bits.
template <class D, class Net>
inline constexpr bool keeps_halves = requires {
  requires Kernels<D>::keeps_halves;
  requires Net::activations != Elements::f32;
};

/// Numbers of records of a network. They are equal on all devices, but for a conversion where activations are halves.
template <class Net>
inline constexpr Counts counts_of = trace<Net, NoDevice>().counts();

/// The calls of a network on a device, as constant arrays.
template <class Net, class D>
struct Traced {
  static constexpr Counts counts = [] {
    if constexpr (keeps_halves<D, Net>) return trace<Net, D>().counts();
    else return counts_of<Net>;
  }();
  static constexpr auto calls    = Fixed<counts>{trace<Net, D>()};
};

/// The names of a network's variables. A constant beside the trace, as compilers limit the steps of each.
template <class Net>
inline constexpr auto names_of = Names<Traced<Net, NoDevice>::counts>{Traced<Net, NoDevice>::calls};

/// The plan of a traced network.
template <class Net>
constexpr auto plan_of() {
  using Calls             = Traced<Net, NoDevice>;
  constexpr auto const& g = Calls::calls;
  constexpr auto count    = Calls::counts.variables;
  report<g.mistake, names_of<Net>.is_unique()>();
  auto specs  = std::array<VariableSpec, count>{};
  auto layers = std::array<int, count>{};
  for (std::size_t v = 0; v < count; ++v) {
    specs[v]         = g.variables[v].spec;
    specs[v].by_rows = g.variables[v].users_by_rows == g.variables[v].users;
    layers[v]        = g.calls[at(g.variables[v].call)].number;
  }
  auto made = make_plan<count, Calls::counts.numbers>(specs, names_of<Net>.names(), layers);
  for (auto const& value : g.values) made.activations_per_row += value.call < 0 ? 0 : value.size;
  for (auto const& call : g.calls) made.products_per_row += call.products;
  return made;
}

}  // namespace graph
}  // namespace chorale::nn
