// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <tuple>

namespace chorale::nn {

/// A block whose values are not kept for backward, which computes them again from its inputs: less memory for one more
/// forward of the block, with the same bits. All blocks of a network compute again in the same memory.
///
///   std::array<nn::Recompute<Part>, 12> blocks;                            // in place of std::array<Part, 12>
///
/// B         a layer, an nn::Block, or a struct with a call operator
/// keeps     inputs and outputs of the block stay in memory. What backward does not need is not computed again, such as
///           the last product of a block. Within another Recompute it is a part of that one. Dropout drops the same
///           again. In networks derived from nn::Graph, on Cpu; layers whose statistics move, as nn::BatchNorm, are
///           refused
/// source    Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; torch.utils.checkpoint
template <class B> struct Recompute {
  B block;

  template <class D, class... O> requires(sizeof...(O) > 0) constexpr auto operator()(Tensor<D, O>... x) const {
    auto& trace       = *std::get<0>(std::tuple{x.trace...});
    auto const within = trace.recompute;
    if (within < 0) trace.recompute = trace.recomputes++;
    auto const y    = block(x...);
    trace.recompute = within;
    return y;
  }
};

}  // namespace chorale::nn
