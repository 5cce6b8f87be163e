// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/trace/trace.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// The outputs of a network that is written into a program, and what its moving variables move to.
struct Written {
  std::vector<Value> outputs;  // (B, ..)
  std::vector<Value> moved;    // for each variable of the plan; or none
};

/// A value with its rows and the dimensions of a row: (B, 28, 28, 1).
template <class F> Dims dims_of(std::int64_t rows) {
  auto dims = Dims{rows};
  for (auto const d : F::dims) dims.push_back(d);
  return dims;
}

/// Writes the forward pass of a traced network: each call of a layer, in turn. Of one that keeps activations in halves,
/// inputs and what each layer gives are rounded; layers compute in float.
///
/// inputs      (B, ..), one for each input of the network
/// variables   in the order of the network's plan
/// frozen      see Pass
template <class Net>
Written write_network(Program& program, std::vector<Value> const& inputs, std::vector<Value> const& variables,
                      bool training, Value real, Drawn const& drawn, Span<char const> frozen = {}) {
  constexpr auto const& g = graph::Traced<Net, AsText>::calls;
  constexpr auto halves   = graph::activations_of<Net>();
  auto const kept         = [](Value x) {
    if (halves == Elements::f32 || !is_float(x.element())) return x;
    return convert(x, halves == Elements::bf16 ? Element::bf16 : Element::f16);
  };
  auto const as_float = [](Value x) { return is_float(x.element()) ? convert(x, Element::f32) : x; };
  auto values         = std::vector<Value>(g.values.size());
  auto made           = Written{.outputs = {}, .moved = std::vector<Value>(variables.size())};
  for (std::size_t i = 0; i < g.inputs.size(); ++i) values[graph::at(g.inputs[i])] = kept(inputs[i]);
  for (auto const& call : g.calls) {
    auto const uses  = Span<int const>{g.uses}.subspan(graph::at(call.first_use), graph::at(call.uses));
    auto const keeps = graph::keeps_averages(uses, frozen, [](int v) { return g.variables[graph::at(v)].spec; });
    auto at          = Call{.program   = program,
                            .training  = training && !keeps,
                            .in        = {},
                            .variables = {},
                            .real      = real,
                            .drawn     = drawn,
                            .number    = call.number};
    for (int i = 0; i < call.ins; ++i)
      at.in.push_back(as_float(values[graph::at(g.ins[graph::at(call.first_in + i)])]));
    for (int i = 0; i < call.uses; ++i)
      at.variables.push_back(variables[graph::at(g.uses[graph::at(call.first_use + i)])]);
    call.ops->write(at);
    for (int i = 0; i < call.outs; ++i) values[graph::at(call.first_out + i)] = kept(at.out[graph::at(i)]);
    for (auto const& moved : at.moved) made.moved[graph::at(uses[moved.variable])] = moved.to;
    for (auto const v : uses)  // they move to nothing
      if (keeps && g.variables[graph::at(v)].spec.momentum != 0)
        made.moved[graph::at(v)] = program.constant(0, variables[graph::at(v)].dims());
  }
  for (auto const output : g.outputs) made.outputs.push_back(as_float(values[graph::at(output)]));
  return made;
}

}  // namespace chorale::nn::stablehlo
