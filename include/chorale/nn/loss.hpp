// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/tensor/ops.hpp>

#include <cstddef>
#include <string>

/// What is minimised. A loss is a sum over rows; its count travels with it, and the mean is formed once, at the end.
///
///   using target                      element type of what a row should become
///   targets(width)                    how many of them a row has, for a network with `width` outputs
///   check(rows, width, target)        optional: throws where a target of the host is none
///   compute<D>(rows, width, output, target, d_output)
///                                     the sum over rows, and its gradient by the outputs
///   queue<D>(.., sum)                 the same of a device that QueuesWork: target is there, and the sum is left there
namespace chorale::loss {

/// -log softmax(logits)[label]
///
/// logits    (B, classes); labels (B), each in [0, classes)
/// throws    BadArgument when a label is out of range
/// source    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
struct SparseCrossEntropy {
  using target = int;
  static constexpr std::size_t targets(std::size_t) { return 1; }

  void check(std::size_t rows, std::size_t classes, int const* labels) const {
    for (std::size_t r = 0; r < rows; ++r)
      CHORALE_EXPECTS(labels[r] >= 0 && labels[r] < static_cast<int>(classes),
                      "row " + std::to_string(r) + " of the batch has label " + std::to_string(labels[r]) +
                          ", but the network has outputs for 0 to " + std::to_string(classes - 1));
  }
  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* logits, int const* labels, float* d_logits) const {
    check(rows, classes, labels);
    return Kernels<D>::sparse_cross_entropy(rows, classes, logits, labels, d_logits);
  }
  template <class D>
  void queue(std::size_t rows, std::size_t classes, float const* logits, int const* labels, float* d_logits,
             SumOfRows to) const {
    Kernels<D>::sparse_cross_entropy(rows, classes, logits, labels, d_logits, to);
  }
};

/// -Σ target · log softmax(logits)
///
/// logits, targets    (B, classes), each row of targets sums to 1
/// source             tf.keras.losses.CategoricalCrossentropy(from_logits=True)
struct CrossEntropy {
  using target = float;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* logits, float const* wanted,
                float* d_logits) const {
    return Kernels<D>::cross_entropy(rows, classes, logits, wanted, d_logits);
  }
  template <class D>
  void queue(std::size_t rows, std::size_t classes, float const* logits, float const* wanted, float* d_logits,
             SumOfRows to) const {
    Kernels<D>::cross_entropy(rows, classes, logits, wanted, d_logits, to);
  }
};

/// The mean over outputs of (output - target)^2
///
/// outputs, targets    (B, width)
/// source              tf.keras.losses.MeanSquaredError
struct MeanSquaredError {
  using target = float;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* outputs, float const* wanted,
                float* d_outputs) const {
    return Kernels<D>::squared_error(rows, width, outputs, wanted, d_outputs);
  }
  template <class D>
  void queue(std::size_t rows, std::size_t width, float const* outputs, float const* wanted, float* d_outputs,
             SumOfRows to) const {
    Kernels<D>::squared_error(rows, width, outputs, wanted, d_outputs, to);
  }
};

}  // namespace chorale::loss
