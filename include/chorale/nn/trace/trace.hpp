// SPDX-License-Identifier: Apache-2.0
//
// Runs the call operator of a network in the compiler, and writes down what it calls.
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/data/field.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/stage.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// The gradient by an input is computed by each step, and read by copy.gradient_by(F{}).
struct InEachStep {};
/// The gradient by an input is computed by copy.gradient_by(F{}, batch) alone: steps do not pay for it.
struct OnRequest {};

/// An input of a Graph whose gradient somebody asks for: nn::Graph<nn::Differentiable<Image>>. Options: InEachStep,
/// OnRequest.
template <class F, class When = InEachStep> struct Differentiable : F {
  static_assert(std::is_same_v<When, InEachStep> || std::is_same_v<When, OnRequest>,
                "chorale: the option of nn::Differentiable is nn::InEachStep or nn::OnRequest");
};

/// What a network's call operator returns: see nn::outputs.
///
/// Names    List of fields, one for each output
template <class D, class Names, class... O> struct Outputs {
  using fields = Names;

  std::array<int, sizeof...(O)> values;
};

namespace graph {

/// The outputs of a network, where some are not I along all axes; defined in nn/parallel/distribution/outputs.hpp.
template <class D, class Names, class... O> struct SpreadOutputs;

template <class T, int... Dims>
Of<typename Field<T, Dims...>::element_type, Dims...> of_field(Field<T, Dims...> const&);

/// True if a network can take a field: all dimensions are fixed, or the first one alone is ragged.
template <class F>
inline constexpr bool ragged_first = [] {
  for (std::size_t i = 1; i < F::rank; ++i)
    if (F::dims[i] == ragged) return false;
  return true;
}();

/// The Of of input number I of a network, whose ragged dimension is -1 - I.
template <class F, int I> struct InputOf {
  using type = decltype(of_field(std::declval<F const&>()));
};
// A field whose first dimension is ragged.
template <class F, int I> requires(F::is_ragged && ragged_first<F>) struct InputOf<F, I> {
  template <class T, int First, int... Dims> static Of<T, -1 - I, Dims...> renamed(Of<T, First, Dims...>);
  using type = decltype(renamed(of_field(std::declval<F const&>())));
};
// Other ragged fields, which check_input refuses.
template <class F, int I> requires(F::is_ragged && !ragged_first<F>) struct InputOf<F, I> {
  using type = Refused;
};

/// What the call operator of a network is called with: for each field a Tensor of the Of of that input.
template <class D, class Fields> struct ArgumentsOf;
// A List of fields.
template <class D, class... F> struct ArgumentsOf<D, List<F...>> {
  template <std::size_t... I>
  static std::tuple<Tensor<D, typename InputOf<F, static_cast<int>(I)>::type>...> list(std::index_sequence<I...>);
  using type = decltype(list(std::index_sequence_for<F...>{}));
};

template <class Net, class Arguments> inline constexpr bool takes_arguments = false;
template <class Net, class... A>
inline constexpr bool takes_arguments<Net, std::tuple<A...>> = std::is_invocable_v<Net&, A...>;

/// What a call operator returns for such arguments.
template <class Net, class Arguments> struct ReturnedBy;
// Arguments in a tuple.
template <class Net, class... A> struct ReturnedBy<Net, std::tuple<A...>> : std::invoke_result<Net&, A...> {};

template <class F> inline constexpr bool is_asked                                      = false;
template <class F, class When> inline constexpr bool is_asked<Differentiable<F, When>> = true;
template <class F> inline constexpr bool is_on_request                                 = false;
template <class F> inline constexpr bool is_on_request<Differentiable<F, OnRequest>>   = true;

/// The field of an input, without the request for its gradient.
template <class F> struct WithoutRequest {
  using type = F;
};
// An input whose gradient is asked for.
template <class F, class When> struct WithoutRequest<Differentiable<F, When>> {
  using type = F;
};

/// True for what a call operator may return.
template <class T> inline constexpr bool is_outputs                                                   = false;
template <class D, class Names, class... O> inline constexpr bool is_outputs<Outputs<D, Names, O...>> = true;
template <class D> inline constexpr bool is_outputs<Tensor<D, Refused>>                               = true;

template <bool takes_fields, bool gives_outputs> constexpr bool check_operator() {
  static_assert(takes_fields,
                "chorale: the call operator of this network does not take what nn::Graph<...> names: one parameter for "
                "each field, in that order");
  static_assert(gives_outputs,
                "chorale: the call operator of this network must return nn::outputs<Fields...>(...), "
                "with a field for each output");
  return takes_fields && gives_outputs;
}

/// Refuses a field that no network can take. A function, as clang abandons a class with a failed static_assert.
template <class F> constexpr void check_input() {
  static_assert(ragged_first<F>,
                "chorale: a network takes fields whose first dimension alone may be ragged: struct Body "
                ": Field<int, ragged> {}");
}

/// Adds the input of field F, an argument of type Tensor<D, O>, to a trace.
template <class F, class D, class O> constexpr void add_input(Trace& trace, Tensor<D, O>& x) {
  x = {&trace, static_cast<int>(trace.values.size())};
  if constexpr (!std::is_same_v<O, Refused>) {
    auto value  = ValueRecord{.size       = O::size,
                              .bytes      = O::size * sizeof(typename O::type),
                              .ragged     = O::ragged_field,
                              .number     = std::is_same_v<typename O::type, float>,
                              .asked      = is_asked<F>,
                              .on_request = is_on_request<F>,
                              .shape      = &text_of_dimensions<O>};
    value.field = &type_name<typename WithoutRequest<F>::type>;
    trace.values.push_back(value);
    trace.inputs.push_back(x.value);
  } else {
    check_input<F>();
    trace.mistake = Mistake::refused;
  }
}

/// Calls the network with one value for each field, and adds its outputs to the trace.
template <class Net, class D, class... F> constexpr void run(Net& net, Trace& trace, List<F...>) {
  using Arguments = typename ArgumentsOf<D, List<F...>>::type;
  if constexpr (takes_arguments<Net, Arguments>) {
    auto in = Arguments{};
    std::apply([&](auto&... x) { (add_input<F>(trace, x), ...); }, in);
    using Made = typename ReturnedBy<Net, Arguments>::type;
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
    check_operator<takes_arguments<Net, Arguments>, true>();
  }
}

/// The trace of a network on a device. It is empty after a mistake that was reported.
template <class Net, class D> constexpr Trace trace() {
  auto made = Trace{};
  auto net  = Net{};  // not const: layers are marked as called
  run<Net, D>(net, made, typename Net::inputs{});
  if (made.mistake == Mistake::refused) {
    made         = Trace{};
    made.mistake = Mistake::refused;
  }
  for (auto const value : made.outputs)
    if (made.mistake != Mistake::none) break;
    else if (made.values[at(value)].call < 0) made.mistake = Mistake::output_is_input;
    else if (!made.values[at(value)].held.positions.empty()) made.mistake = Mistake::output_of_positions;
  return made;
}

/// Reports a mistake that the trace found. A function, as clang abandons a class with a failed static_assert.
template <Mistake M, bool is_unique> constexpr bool report() {
  static_assert(M != Mistake::two_shapes_of_one_layer,
                "chorale: a layer is called twice with inputs that would give its variables other shapes. Use two "
                "layers");
  static_assert(M != Mistake::two_calls_of_moving_layer,
                "chorale: an nn::BatchNorm is called twice, which would move its statistics twice. Use two layers");
  static_assert(M != Mistake::moving_layer_in_recompute,
                "chorale: an nn::BatchNorm is in an nn::Recompute, which would move its statistics twice. Use "
                "nn::LayerNorm or nn::GroupNorm there, or leave nn::Recompute out");
  static_assert(
      M != Mistake::part_of_vectors,
      "chorale: a layer needs whole vectors, but each rank has a part of them, as nn::ColumnDense and logits(x) "
      "of an nn::SplitEmbedding give them. Put nn::RowDense before it; activations, a + b, a - b, a * b and "
      "nn::ColumnHeads take parts");
  static_assert(M != Mistake::part_of_positions,
                "chorale: a layer needs whole sequences, but each rank has a part of their positions. Put "
                "nn::gather_sequence<axis> before it, or give nn::ColumnDense the option nn::SplitSequence; attention "
                "over such parts is nn::RingHeads");
  static_assert(
      M != Mistake::no_part_of_vectors,
      "chorale: nn::RowDense and nn::ColumnHeads take vectors of which each rank along their axis has a part, "
      "as nn::ColumnDense gives them. Put nn::ColumnDense over the same axis before it, or use nn::Dense");
  static_assert(
      M != Mistake::no_part_of_positions,
      "chorale: nn::gather_sequence, nn::RingHeads, nn::SplitLayerNorm and nn::SplitSequence need sequences of "
      "which each rank along their axis has a part. Put nn::scatter_sequence<axis> before it");
  static_assert(M != Mistake::other_parts,
                "chorale: a layer combines values of which a rank has different parts: one is split over an axis, and "
                "another is whole or split over another axis");
  static_assert(M != Mistake::variables_of_other_parts,
                "chorale: a layer is called with whole sequences and with sequences of which each rank has a part, so "
                "its gradients would be added up over ranks by one call only. Use two layers");
  static_assert(M != Mistake::output_of_positions,
                "chorale: an output of this network has a part of the positions on each rank. Put "
                "nn::gather_sequence<axis> before nn::outputs");
  static_assert(is_unique,
                "chorale: two layers of this network have the same name, so their variables could not be told "
                "apart in a checkpoint. Give them different names");
  static_assert(M != Mistake::output_is_input,
                "chorale: an output of this network is one of its inputs, which no layer has changed");
  return true;
}

/// The type to which products of a network may round their factors; and that in which its activations are stored, on
/// devices that can.
template <class Net> constexpr Products products_of() {
  if constexpr (requires {
                  { Net::products } -> std::convertible_to<Products>;
                })
    return Net::products;
  else return Products::f32;
}
template <class Net> constexpr Elements activations_of() {
  if constexpr (requires {
                  { Net::activations } -> std::convertible_to<Elements>;
                })
    return Net::activations;
  else return Elements::f32;
}

/// True if device D stores the activations of Net in 16 bits.
template <class D, class Net>
inline constexpr bool keeps_halves = requires {
  requires Kernels<D>::keeps_halves;
  requires activations_of<Net>() != Elements::f32;
};

/// Numbers of records of a network. They are equal on all devices, but for a conversion where activations are halves.
template <class Net> inline constexpr Counts counts_of = trace<Net, NoDevice>().counts();

/// The calls of a network on a device, as constant arrays.
template <class Net, class D> struct Traced {
  static constexpr Counts counts = [] {
    if constexpr (keeps_halves<D, Net>) return trace<Net, D>().counts();
    else return counts_of<Net>;
  }();
  static constexpr auto calls = Fixed<counts>{trace<Net, D>()};
};

/// The names of a network's variables. A constant beside the trace, as compilers limit the steps of each.
template <class Net>
inline constexpr auto names_of = Names<Traced<Net, NoDevice>::counts>{Traced<Net, NoDevice>::calls};

/// Reports a mistake in the calls of a network. Returns false then.
template <class Net> constexpr bool check_calls() {
  constexpr auto mistake = Traced<Net, NoDevice>::calls.mistake;
  constexpr bool unique  = names_of<Net>.is_unique();
  report<mistake, unique>();
  return mistake == Mistake::none && unique;
}

/// The plan of a traced network.
template <class Net> constexpr auto plan_of() {
  using Calls             = Traced<Net, NoDevice>;
  constexpr auto const& g = Calls::calls;
  constexpr auto count    = Calls::counts.variables;
  check_calls<Net>();
  auto specs  = std::array<VariableSpec, count>{};
  auto layers = std::array<int, count>{};
  for (std::size_t v = 0; v < count; ++v) {
    specs[v]         = g.variables[v].spec;
    specs[v].by_rows = g.variables[v].users_by_rows == g.variables[v].users && g.variables[v].summed.empty();
    layers[v]        = g.calls[at(g.variables[v].call)].number;
  }
  auto made = make_plan<count, Calls::counts.numbers>(specs, names_of<Net>.names(), layers);
  for (auto const& value : g.values) made.activations_per_row += value.call < 0 ? 0 : value.size;
  for (auto const& call : g.calls) made.products_per_row += call.products;
  return made;
}

}  // namespace graph
}  // namespace chorale::nn
