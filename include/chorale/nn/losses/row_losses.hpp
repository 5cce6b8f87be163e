// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

/// Losses of the library that are functions of a row.
namespace chorale::loss {

/// The mean over outputs of -(t log sigmoid(z) + (1 - t) log(1 - sigmoid(z))), for outputs that each decide between two
/// classes. On CPUs.
///
/// logits, targets    (B, width), each target in [0, 1]
/// keeps              the loss and its gradient are exact for logits of any size
/// source             tf.keras.losses.BinaryCrossentropy(from_logits=True)
struct BinaryCrossEntropy {
  using target                              = float;
  static constexpr bool takes_binary_logits = true;

  float label_smoothing = 0;  // targets become (1 - it) t + it / 2

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  float row(Span<float const> logits, Span<float const> wanted, Span<float> d_logits) const {
    detail::check_smoothing(label_smoothing);
    auto const scale = 1 / static_cast<float>(logits.size());
    auto const sum   = sum_over(logits.size(), [&](std::size_t i) {
      auto const z = logits[i], t = (1 - label_smoothing) * wanted[i] + label_smoothing / 2;
      auto const tail = std::exp(-std::abs(z));  // at most 1: no overflow
      d_logits[i]     = scale * ((z >= 0 ? 1 : tail) / (1 + tail) - t);
      return std::max(z, 0.0F) - z * t + std::log1p(tail);
    });
    return scale * static_cast<float>(sum);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* logits, float const* wanted, float* d_logits) const {
    return detail::sum_of_rows(*this, rows, width, logits, wanted, d_logits);
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows) const {
    detail::refuse_device<D, BinaryCrossEntropy>();
  }
  static constexpr std::size_t targets(std::size_t width) { return width; }
};

/// The mean over outputs of -(t log p + (1 - t) log(1 - p)) of the probabilities p that nn::Sigmoid gives. On CPUs.
///
/// Without nn::Sigmoid and with BinaryCrossEntropy the same network learns the same, with a gradient that is exact even
/// if a probability is near 0 or 1.
///
/// probabilities, targets    (B, width), each target in [0, 1]; a probability below 1e-7 counts as 1e-7, and one above
///                           1 - 1e-7 as that, also in the gradient, so that a row which is certain and wrong still
///                           learns
/// source                    tf.keras.losses.BinaryCrossentropy(from_logits=False), whose gradient is 0 beyond 1e-7
struct BinaryCrossEntropyOfProbabilities {
  using target                                     = float;
  static constexpr bool takes_binary_probabilities = true;

  float label_smoothing = 0;  // targets become (1 - it) t + it / 2

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("label_smoothing", label_smoothing); }

  float row(Span<float const> probabilities, Span<float const> wanted, Span<float> d_probabilities) const {
    detail::check_smoothing(label_smoothing);
    auto const scale = 1 / static_cast<float>(probabilities.size());
    auto const sum   = sum_over(probabilities.size(), [&](std::size_t i) {
      auto const p       = std::clamp(probabilities[i], 1e-7F, 1 - 1e-7F);
      auto const t       = (1 - label_smoothing) * wanted[i] + label_smoothing / 2;
      d_probabilities[i] = scale * ((1 - t) / (1 - p) - t / p);
      return -(t * std::log(p) + (1 - t) * std::log1p(-p));
    });
    return scale * static_cast<float>(sum);
  }
};

/// The mean over outputs of |output - target|. On CPUs.
///
/// outputs, targets    (B, width); where both are equal, the gradient is 0
/// source              tf.keras.losses.MeanAbsoluteError
struct MeanAbsoluteError {
  using target = float;
  static constexpr std::size_t targets(std::size_t width) { return width; }

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const d = outputs[i] - wanted[i];
      d_outputs[i] = d > 0 ? scale : d < 0 ? -scale : 0;
      return std::abs(d);
    });
    return scale * static_cast<float>(sum);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* outputs, float const* wanted,
                float* d_outputs) const {
    return detail::sum_of_rows(*this, rows, width, outputs, wanted, d_outputs);
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows) const {
    detail::refuse_device<D, MeanAbsoluteError>();
  }
};

/// The mean over outputs of d^2 / 2 where d = output - target is at most `delta`, else of delta (|d| - delta / 2): rows
/// that are far off pull no harder than those at delta. On CPUs.
///
/// outputs, targets    (B, width)
/// throws              BadArgument when delta is not above 0
/// source              Huber, 1964; tf.keras.losses.Huber
struct Huber {
  using target = float;

  float delta = 1;

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("delta", delta); }
  void check_options() const {
    CHORALE_EXPECTS(delta > 0, "delta of loss::Huber is above 0, got " + number_text(delta));
  }

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    check_options();
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const d = outputs[i] - wanted[i], far = std::abs(d);
      d_outputs[i] = scale * std::clamp(d, -delta, delta);
      return far <= delta ? d * d / 2 : delta * (far - delta / 2);
    });
    return scale * static_cast<float>(sum);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* outputs, float const* wanted,
                float* d_outputs) const {
    return detail::sum_of_rows(*this, rows, width, outputs, wanted, d_outputs);
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, float const*, float*, SumOfRows) const {
    detail::refuse_device<D, Huber>();
  }
  static constexpr std::size_t targets(std::size_t width) { return width; }
};

/// The mean over outputs of log(cosh(output - target)): half the square of small differences, and the absolute value of
/// large ones. On CPUs.
///
/// outputs, targets    (B, width)
/// source              tf.keras.losses.LogCosh
struct LogCosh {
  using target = float;

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const d = outputs[i] - wanted[i], far = std::abs(d);
      d_outputs[i] = scale * std::tanh(d);
      return far + std::log1p(std::expm1(-2 * far) / 2);  // exact near 0, and no overflow
    });
    return scale * static_cast<float>(sum);
  }
};

/// The mean over outputs of output - target · log(output + 1e-7), for targets that count events. On CPUs.
///
/// outputs    (B, width), the expected counts: above 0, as nn::Softplus gives; else the loss is not finite
/// targets    (B, width)
/// source     tf.keras.losses.Poisson
struct Poisson {
  using target = float;

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const y = outputs[i] + 1e-7F;
      d_outputs[i] = scale * (1 - wanted[i] / y);
      return outputs[i] - wanted[i] * std::log(y);
    });
    return scale * static_cast<float>(sum);
  }
};

/// Σ target · log(target / p) of the probabilities p that nn::Softmax gives. On CPUs.
///
/// probabilities, targets    (B, classes); one below 1e-7 counts as 1e-7, also in the gradient, as in
///                           CrossEntropyOfProbabilities; one above 1 counts as 1
/// source                    Kullback & Leibler, 1951; tf.keras.losses.KLDivergence, whose gradient is 0 below 1e-7
struct KLDivergence {
  using target                               = float;
  static constexpr bool takes_probabilities  = true;
  static constexpr std::size_t least_outputs = 2;

  float row(Span<float const> probabilities, Span<float const> wanted, Span<float> d_probabilities) const {
    auto const sum = sum_over(probabilities.size(), [&](std::size_t i) {
      auto const p = std::clamp(probabilities[i], 1e-7F, 1.0F), t = std::clamp(wanted[i], 1e-7F, 1.0F);
      d_probabilities[i] = probabilities[i] > 1 ? 0 : -t / p;
      return t * std::log(t / p);
    });
    return static_cast<float>(sum);
  }
};

/// Minus the cosine of the angle between outputs and targets of a row: -1 where they point the same way. On CPUs.
///
/// outputs, targets    (B, width); a row whose outputs or targets have a norm below 1e-7 has no direction: loss and
///                     gradient are 0, where Keras gives a gradient of up to 1e7
/// source              tf.keras.losses.CosineSimilarity
struct CosineSimilarity {
  using target                               = float;
  static constexpr std::size_t least_outputs = 2;

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto product = 0.0, of_outputs = 0.0, of_wanted = 0.0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      product += double{outputs[i]} * double{wanted[i]};
      of_outputs += double{outputs[i]} * double{outputs[i]};
      of_wanted += double{wanted[i]} * double{wanted[i]};
    }
    if (of_outputs < 1e-14 || of_wanted < 1e-14) return 0;  // dy is zeros
    auto const norms  = std::sqrt(of_outputs) * std::sqrt(of_wanted);
    auto const cosine = product / norms;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      d_outputs[i] = static_cast<float>(cosine * double{outputs[i]} / of_outputs - double{wanted[i]} / norms);
    return static_cast<float>(-cosine);
  }
};

/// Σ target · output: the gradient by the outputs is what the targets say. For a network whose outputs go into another
/// model, such as the generator of a GAN: the targets are the gradients by that model's input. On CPUs.
///
/// outputs, targets    (B, width)
struct Given {
  using target = float;

  float row(Span<float const> outputs, Span<float const> gradients, Span<float> d_outputs) const {
    auto const sum = sum_over(outputs.size(), [&](std::size_t i) {
      d_outputs[i] = gradients[i];
      return outputs[i] * gradients[i];
    });
    return static_cast<float>(sum);
  }
};

}  // namespace chorale::loss
