// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

/// Losses. A loss is a sum over rows; the number of rows is kept with it, and the mean is computed once, at the end.
/// A program's loss is a type with one function of a row, see RowLoss; the losses of the library have
///
///   using target                      element type of a row's targets
///   targets(width)                    number of targets of a row, for a network with `width` outputs
///   check(rows, width, target)        optional: throws if a target, in host memory, is not valid
///   compute<D>(rows, width, output, target, d_output)
///                                     the sum over rows, and its gradient by the outputs
///   options(visit)                    optional: calls visit(name, value) for each option. Ranks compare these and the
///                                     loss' type when they connect; other fields are not compared
///   queue<D>(.., sum)                 compute, enqueued on a device that QueuesWork, with target and sum in its memory
///   overwrites()                      optional: true if, on CPUs, d_output may be output, which saves memory
///   takes_logits                      optional: true when it applies softmax itself. nn::compile then refuses networks
///                                     that end with nn::Softmax
///   takes_probabilities               optional: true when it takes what nn::Softmax gives. nn::compile then refuses a
///                                     network that ends with a Dense or a convolution
///   takes_binary_logits, takes_binary_probabilities      optional: the same for nn::Sigmoid
///   least_outputs                     optional: 2 or more when it would teach a network with fewer outputs nothing
///
/// Callers use targets_of<L>(width) and sum_of<D>(loss, ..), which take both forms.
namespace chorale::loss {

namespace detail {

inline void refuse_smoothing(float smoothing) {
  CHORALE_EXPECTS(smoothing == 0, "label_smoothing is computed on CPUs only, and is " + number_text(smoothing) +
                                      " on another device. Give smoothed targets to loss::CrossEntropy");
}

/// Changes a loss and its gradient from targets t to targets (1 - smoothing) t + smoothing / classes.
///
/// t(r, c)   the target of class c in row r
/// log_p     where the logarithm of a probability comes from: logits, which differ from it by the same number in all
///           classes of a row, as all targets of a row add up to as much before and after
/// slope     of log_p by what dy is the gradient by
/// returns   what is to be added to the loss; d is changed in place
template <class Targets, class LogP, class Slope>
float smooth(float smoothing, std::size_t rows, std::size_t classes, float* d, Targets&& t, LogP&& log_p,
             Slope&& slope) {
  check_smoothing(smoothing);
  if (smoothing == 0) return 0;
  auto const share = 1 / static_cast<float>(classes);
  auto sum         = 0.0;
  for (std::size_t r = 0; r < rows; ++r)
    sum += sum_over(classes, [&](std::size_t c) {
      auto const i     = r * classes + c;
      auto const moved = smoothing * (t(r, c) - share);
      d[i] += moved * slope(i);
      return moved * log_p(i);
    });
  return static_cast<float>(sum);
}
template <class Targets>
float smooth_logits(float smoothing, std::size_t rows, std::size_t classes, float const* logits, float* d,
                    Targets&& t) {
  return smooth(
      smoothing, rows, classes, d, t, [logits](std::size_t i) { return logits[i]; }, [](std::size_t) { return 1.0F; });
}
template <class Targets>
float smooth_probabilities(float smoothing, std::size_t rows, std::size_t classes, float const* p, float* d,
                           Targets&& t) {
  auto const at = [p](std::size_t i) { return std::max(p[i], 1e-7F); };  // the least one that counts
  return smooth(
      smoothing, rows, classes, d, t, [&](std::size_t i) { return std::log(at(i)); },
      [&](std::size_t i) { return 1 / at(i); });
}

/// Targets as smooth() reads them: labels, or numbers for each class.
inline auto one_hot(int const* labels) {
  return [labels](std::size_t r, std::size_t c) { return static_cast<std::size_t>(labels[r]) == c ? 1.0F : 0.0F; };
}
inline auto given(float const* wanted, std::size_t classes) {
  return [=](std::size_t r, std::size_t c) { return wanted[r * classes + c]; };
}

}  // namespace detail

/// -log softmax(logits)[label]
///
/// logits    (B, classes); labels (B), each in [0, classes)
/// throws    BadArgument when a label is out of range
/// source    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
struct SparseCrossEntropy {
  using target                               = int;
  static constexpr bool takes_logits         = true;
  static constexpr std::size_t least_outputs = 2;
  static constexpr std::size_t targets(std::size_t) { return 1; }

  float label_smoothing = 0;  // this part of each target goes to all classes

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  void check(std::size_t rows, std::size_t classes, int const* labels) const {
    for (std::size_t r = 0; r < rows; ++r)
      CHORALE_EXPECTS(labels[r] >= 0 && labels[r] < static_cast<int>(classes),
                      "row " + std::to_string(r) + " of the batch has label " + std::to_string(labels[r]) +
                          ", but the network has outputs for 0 to " + std::to_string(classes - 1));
  }
  bool overwrites() const { return label_smoothing == 0; }
  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* logits, int const* labels, float* d_logits) const {
    check(rows, classes, labels);
    auto const sum = Kernels<D>::sparse_cross_entropy(rows, classes, logits, labels, d_logits);
    if (label_smoothing == 0) return sum;
    return sum + detail::smooth_logits(label_smoothing, rows, classes, logits, d_logits, detail::one_hot(labels));
  }
  template <class D>
  void queue(std::size_t rows, std::size_t classes, float const* logits, int const* labels, float* d_logits,
             SumOfRows to) const {
    detail::refuse_smoothing(label_smoothing);
    Kernels<D>::sparse_cross_entropy(rows, classes, logits, labels, d_logits, to);
  }
};

/// -Σ target · log softmax(logits)
///
/// logits, targets    (B, classes), each row of targets sums to 1
/// source             tf.keras.losses.CategoricalCrossentropy(from_logits=True)
struct CrossEntropy {
  using target                               = float;
  static constexpr bool takes_logits         = true;
  static constexpr std::size_t least_outputs = 2;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  float label_smoothing = 0;  // this part of each target goes to all classes

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* logits, float const* wanted,
                float* d_logits) const {
    auto const sum = Kernels<D>::cross_entropy(rows, classes, logits, wanted, d_logits);
    if (label_smoothing == 0) return sum;
    return sum +
           detail::smooth_logits(label_smoothing, rows, classes, logits, d_logits, detail::given(wanted, classes));
  }
  template <class D>
  void queue(std::size_t rows, std::size_t classes, float const* logits, float const* wanted, float* d_logits,
             SumOfRows to) const {
    detail::refuse_smoothing(label_smoothing);
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
  using target                               = int;
  static constexpr bool takes_probabilities  = true;
  static constexpr std::size_t least_outputs = 2;
  static constexpr std::size_t targets(std::size_t) { return 1; }

  float label_smoothing = 0;  // this part of each target goes to all classes

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  void check(std::size_t rows, std::size_t classes, int const* labels) const {
    SparseCrossEntropy{}.check(rows, classes, labels);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* probabilities, int const* labels,
                float* d_probabilities) const {
    check(rows, classes, labels);
    auto const sum =
        Kernels<D>::sparse_cross_entropy_of_probabilities(rows, classes, probabilities, labels, d_probabilities);
    if (label_smoothing == 0) return sum;
    return sum + detail::smooth_probabilities(label_smoothing, rows, classes, probabilities, d_probabilities,
                                              detail::one_hot(labels));
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, int const*, float*, SumOfRows) const {
    static_assert(
        sizeof(D) == 0,
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
  using target                               = float;
  static constexpr bool takes_probabilities  = true;
  static constexpr std::size_t least_outputs = 2;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  float label_smoothing = 0;  // this part of each target goes to all classes

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  template <class D>
  float compute(std::size_t rows, std::size_t classes, float const* probabilities, float const* wanted,
                float* d_probabilities) const {
    auto const sum = Kernels<D>::cross_entropy_of_probabilities(rows, classes, probabilities, wanted, d_probabilities);
    if (label_smoothing == 0) return sum;
    return sum + detail::smooth_probabilities(label_smoothing, rows, classes, probabilities, d_probabilities,
                                              detail::given(wanted, classes));
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows) const {
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

}  // namespace chorale::loss
