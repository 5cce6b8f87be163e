// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/trace/records.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale::nn::graph {

/// Numbers of the messages between stages: one for each value, or part of a gradient, of each micro-batch. Both
/// ends of a message count them alike.
class MessageNumbers {
 public:
  MessageNumbers() = default;
  MessageNumbers(Records const& g, std::size_t sections, int micro_batches)
      : values_{g.values.size()}, ins_{g.ins.size()}, outputs_{g.outputs.size()}, sections_{sections},
        micro_batches_{at(micro_batches)} {}

  /// A value on its way to section `to`.
  std::uint32_t value(Crossing const& one, int to, int k) const {
    return numbered(at(one.value) * sections_ + at(to), k);
  }
  /// The gradient of a value by one of its readers, on its way back.
  std::uint32_t gradient(Crossing const& one, int k) const {
    auto const reader = one.reader >= 0 ? at(one.reader) : ins_ + at(-1 - one.reader);
    return numbered(values_ * sections_ + reader, k);
  }
  /// The gradient of a variable of the network that several sections use, on its way to section `to`, or from it.
  std::uint32_t tie(int variable, int section, int k) const {
    return numbered(values_ * sections_ + ins_ + outputs_ + at(variable) * sections_ + at(section), k);
  }

 private:
  std::uint32_t numbered(std::size_t what, int k) const {
    return static_cast<std::uint32_t>(what * micro_batches_ + at(k));
  }

  std::size_t values_ = 0, ins_ = 0, outputs_ = 0;  // of the network
  std::size_t sections_ = 0, micro_batches_ = 1;
};

}  // namespace chorale::nn::graph
