// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/device/device.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <string>

/// Losses. A loss is a sum over rows; the number of rows is kept with it, and the mean is computed once, at the end.
///
///   using target                      element type of a row's targets
///   targets(width)                    number of targets of a row, for a network with `width` outputs
///   check(rows, width, target)        optional: throws if a target, in host memory, is not valid
///   compute<D>(rows, width, output, target, d_output)
///                                     the sum over rows, and its gradient by the outputs
///   options(visit)                    optional: calls visit(name, value) for each option. Ranks compare these and the
///                                     loss' type when they connect; other fields are not compared
///   queue<D>(.., sum)                 compute, enqueued on a device that QueuesWork, with target and sum in its memory
///   takes_logits                      optional: true when it applies softmax itself. nn::compile then refuses networks
///                                     that end with nn::Softmax
///   takes_probabilities               optional: true when it takes what nn::Softmax gives. nn::compile then refuses a
///                                     network that ends with a Dense or a convolution
namespace chorale::loss {

/// -log softmax(logits)[label]
///
/// logits    (B, classes); labels (B), each in [0, classes)
/// throws    BadArgument when a label is out of range
/// source    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
struct SparseCrossEntropy {
  using target = int;
  static constexpr bool takes_logits = true;
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
  static constexpr bool takes_logits = true;
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

/// -log p[label] of the probabilities p that nn::Softmax gives. On CPUs.
///
/// Without nn::Softmax and with SparseCrossEntropy the same network learns the same, in one pass less and with a
/// gradient that is exact even if a probability is near 0.
///
/// probabilities   (B, classes); one below 1e-7 counts as 1e-7, also in the gradient, so that a row which is certain
///                 and wrong has a finite loss and still learns
/// labels          (B), each in [0, classes)
/// throws          BadArgument when a label is out of range
/// source          tf.keras.losses.SparseCategoricalCrossentropy(from_logits=False), whose epsilon is the same
struct SparseCrossEntropyOfProbabilities {
  using target = int;
  static constexpr bool takes_probabilities = true;
  static constexpr std::size_t targets(std::size_t) { return 1; }

  void check(std::size_t rows, std::size_t classes, int const* labels) const {
    SparseCrossEntropy{}.check(rows, classes, labels);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* probabilities, int const* labels,
                float* d_probabilities) const {
    check(rows, classes, labels);
    return Kernels<D>::sparse_cross_entropy_of_probabilities(rows, classes, probabilities, labels, d_probabilities);
  }
  template <class D>
  void queue(std::size_t, std::size_t, float const*, int const*, float*, SumOfRows) const {
    static_assert(sizeof(D) == 0,
                  "chorale: loss::SparseCrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of "
                  "the network and use loss::SparseCrossEntropy, which takes logits and learns the same");
  }
};

/// -Σ target · log p of the probabilities p that nn::Softmax gives. On CPUs. See SparseCrossEntropyOfProbabilities.
///
/// probabilities, targets    (B, classes); a probability below 1e-7 counts as 1e-7
/// source                    tf.keras.losses.CategoricalCrossentropy(from_logits=False), which also divides each row of
///                           probabilities by its sum
struct CrossEntropyOfProbabilities {
  using target = float;
  static constexpr bool takes_probabilities = true;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* probabilities, float const* wanted,
                float* d_probabilities) const {
    return Kernels<D>::cross_entropy_of_probabilities(rows, classes, probabilities, wanted, d_probabilities);
  }
  template <class D>
  void queue(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows) const {
    static_assert(sizeof(D) == 0,
                  "chorale: loss::CrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of the "
                  "network and use loss::CrossEntropy, which takes logits and learns the same");
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

/// Σ target · output: the gradient by the outputs is what the targets say. For a network whose outputs go into another
/// model, such as the generator of a GAN: the targets are the gradients by that model's input.
///
/// outputs, targets    (B, width)
struct Given {
  using target = float;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* outputs, float const* gradients,
                float* d_outputs) const {
    static_assert(D::memory == Memory::host, "chorale: loss::Given runs on CPUs only");
    auto sum = 0.0F;
    for (std::size_t i = 0; i < rows * width; ++i) {
      sum += outputs[i] * gradients[i];
      d_outputs[i] = gradients[i];
    }
    return sum;
  }
};

}  // namespace chorale::loss
