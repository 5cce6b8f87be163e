// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/records.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// Stands for the device of a trace whose layers write themselves as operations of a Program.
struct AsText {};

/// What random numbers of a step are a function of: scalars of Element::u32.
struct Drawn {
  Value seed_low, seed_high;  // of StepNumbers::drawn()
  Value first_row;            // of this replica, in the global batch
};

/// A variable that moves instead of being trained, and what stands in place of its gradient.
struct Moved {
  std::size_t variable = 0;  // of the layer
  Value to{};                // times the rows of this replica
};

/// One call of a layer, while a program is written.
///
/// in, variables    values (B, ..) and the layer's variables, in its order
/// real             (B), 1 for each row of the batch; 0 for rows that fill up the last places, which must change no
///                  other row's results, and nothing that is added up over rows
struct Call {
  Program& program;
  bool training;
  std::vector<Value> in, variables;
  Value real;
  Drawn drawn;
  int number = 0;  // of the call: its stream of random numbers
  std::vector<Value> out{};
  std::vector<Moved> moved{};

  Value x() const { return in[0]; }
  std::int64_t rows() const { return real.dim(0); }
};

/// How a layer is written in operations; its gradient follows from them. Specialised for layers of the library in
/// layers.hpp and others; for a layer with custom kernels, by a program.
///
///   template <int Units, class... Options>
///   struct Lowering<Dense<Units, Options...>> {
///     static Value write(Call& at);                       // or std::vector<Value>, of a layer with several outputs
///   };
template <class L> struct Lowering;

// Here, as the Stage of sums below names it.
template <> struct Lowering<Add> {
  static Value write(Call& at) { return at.in[0] + at.in[1]; }
};

}  // namespace chorale::nn::stablehlo

namespace chorale::nn::graph {

/// True if a layer says how it is written in operations.
template <class L>
inline constexpr bool is_written = requires(stablehlo::Call& at) { stablehlo::Lowering<L>::write(at); };

/// The Ops of a layer on AsText.
template <class L> constexpr Ops ops_as_text() {
  static_assert(is_written<L>,
                "chorale: this layer is not written in operations of StableHLO, so no PJRT device "
                "computes it. Use layers that docs/46-tpu.md lists, specialise nn::stablehlo::Lowering, "
                "or use a strategy over Cpu");
  auto made = Ops{};
  if constexpr (requires { requires L::joins; }) made.joined = 1;
  if constexpr (is_written<L>)
    made.write = [](stablehlo::Call& at) {
      if constexpr (requires { stablehlo::Value{stablehlo::Lowering<L>::write(at)}; })
        at.out = {stablehlo::Lowering<L>::write(at)};
      else at.out = stablehlo::Lowering<L>::write(at);
    };
  return made;
}

// Layers of two functions over a Place.
template <class L, class... In, class... Out> struct Stage<stablehlo::AsText, L, List<In...>, List<Out...>> {
  static constexpr Ops ops() { return ops_as_text<L>(); }
};
// Layers of kernels.
template <KernelLayer L, class In, class Out> struct Stage<stablehlo::AsText, L, List<In>, List<Out>> {
  static constexpr Ops ops() { return ops_as_text<L>(); }
};
// Sums.
template <class O> struct Stage<stablehlo::AsText, Add, List<O, O>, List<O>> {
  static constexpr Ops ops() { return ops_as_text<Add>(); }
};

}  // namespace chorale::nn::graph
