// SPDX-License-Identifier: Apache-2.0
//
// The outputs of a network on the stage of a pipeline that has them.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/engine/ragged_inputs.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// The outputs of a network on the stage that has them all, as losses and metrics read them.
template <class Net, class D> struct StageOutputs {
  static constexpr std::size_t num_outputs = Traced<Net, NoDevice>::counts.outputs;
  using Overwritten                        = std::array<bool, num_outputs>;
  static constexpr int ragged_of(std::size_t) { return -1; }
  /// Elements of one row of an output.
  static std::size_t width(std::size_t o) {
    auto const& g = Lowered<Net, D>::calls;
    return g.values[at(g.outputs[o])].size;
  }

  /// Returns the outputs that the last section computes, or that arrive at it.
  template <class Executor> static StageOutputs of(Section const& section, Executor& executor) {
    auto made       = StageOutputs{.rows = static_cast<std::size_t>(executor.rows())};
    auto const& out = section.departures();
    auto const& in  = section.arrivals();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].reader < 0) {
        made.y[at(-1 - out[i].reader)]  = executor.departure(i);
        made.dy[at(-1 - out[i].reader)] = executor.d_departure(i);
      }
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].reader < 0) {
        made.y[at(-1 - in[i].reader)]  = executor.arrival(i);
        made.dy[at(-1 - in[i].reader)] = executor.d_arrival(i);
      }
    return made;
  }

  std::size_t rows = 0;  // of the micro-batch
  std::array<float const*, num_outputs> y{};
  std::array<float*, num_outputs> dy{};

  float const* output(std::size_t o) const { return y[o]; }
  float* d_output(std::size_t o) const { return dy[o]; }
  std::size_t size(std::size_t o) const { return rows * width(o); }
  RaggedRows const& ragged(std::size_t) const { return none; }

 private:
  static inline RaggedRows const none{};
};

}  // namespace chorale::nn::graph
