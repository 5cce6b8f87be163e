// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::loss {

/// A loss whose rows count by their class: the loss of a row is multiplied by the weight of its class. The mean stays
/// over rows, not over weights. On CPUs.
///
///   loss::Weighted{loss::SparseCrossEntropy{}, {1, 1, 20}}               // class 2 is rare
///
/// keeps     the class of a row is its label; of targets that are numbers the largest one's; with a single output, 1 if
///           its target is at least 0.5
/// cost      the loss is computed row by row
/// throws    BadArgument when a weight is negative or not finite, or when there is not one for each class
/// source    class_weight of tf.keras.Model.fit
template <class L> class Weighted {
  static_assert(
      !requires { L::counts_positions; },
      "chorale: put loss::per_position around loss::Weighted, not into it: "
      "loss::per_position(loss::Weighted{loss, {1, 1, 20}})");

 public:
  using target                                     = typename L::target;
  static constexpr bool takes_logits               = requires { requires L::takes_logits; };
  static constexpr bool takes_probabilities        = requires { requires L::takes_probabilities; };
  static constexpr bool takes_binary_logits        = requires { requires L::takes_binary_logits; };
  static constexpr bool takes_binary_probabilities = requires { requires L::takes_binary_probabilities; };
  static constexpr std::size_t least_outputs       = least_outputs_of<L>();
  static constexpr std::size_t targets(std::size_t width) { return targets_of<L>(width); }

  /// weights   one for each class
  Weighted(L loss, std::vector<float> weights) : loss_{std::move(loss)}, weights_{std::move(weights)} {
    for (std::size_t c = 0; c < weights_.size(); ++c)
      CHORALE_EXPECTS(weights_[c] >= 0 && std::isfinite(weights_[c]),
                      "the weight of a class is 0 or more, but that of class " + std::to_string(c) + " is " +
                          number_text(weights_[c]));
  }

  L const& loss() const& { return loss_; }
  L loss() && { return std::move(loss_); }
  Span<float const> weights() const& { return weights_; }
  Span<float const> weights() const&& = delete;

  /// Calls visit(name, value) for each option, first the options of the loss. Ranks compare these.
  void options(auto&& visit) const {
    if constexpr (NamesOptions<L>) loss_.options(visit);
    auto text = std::string{};
    for (auto const weight : weights_) text.append(text.empty() ? "" : ",") += word_of(weight);
    visit("weights", text);
  }

  void check(std::size_t rows, std::size_t width, target const* wanted) const {
    auto const classes = width == 1 ? std::size_t{2} : width;
    CHORALE_EXPECTS(weights_.size() == classes, "loss::Weighted has " + std::to_string(weights_.size()) +
                                                    " weights, but the network tells " + std::to_string(classes) +
                                                    " classes apart with " + std::to_string(width) +
                                                    (width == 1 ? " output" : " outputs"));
    check_targets(loss_, rows, width, wanted);
  }
  template <class D>
  float compute(std::size_t rows, std::size_t width, float const* y, target const* wanted, float* dy) const {
    check(rows, width, wanted);
    auto const each = targets(width);
    return static_cast<float>(sum_over(rows, [&](std::size_t r) {
      auto const* const of_row = wanted + r * each;
      auto* const d            = dy + r * width;
      auto const weight        = weights_[class_of(Span<target const>{of_row, each})];
      auto const sum           = weight * sum_of<D>(loss_, 1, width, y + r * width, of_row, d);
      for (std::size_t i = 0; i < width; ++i) d[i] *= weight;
      return sum;
    }));
  }
  template <class D> void queue(std::size_t, std::size_t, float const*, target const*, float*, SumOfRows) const {
    detail::refuse_device<D, Weighted>();
  }

 private:
  std::size_t class_of(Span<target const> wanted) const {
    if constexpr (std::is_integral_v<target>) {
      auto const label = static_cast<std::size_t>(wanted[0]);
      CHORALE_EXPECTS(label < weights_.size(), "loss::Weighted has weights for classes 0 to " +
                                                   std::to_string(weights_.size() - 1) + ", but a label is " +
                                                   std::to_string(wanted[0]));
      return label;
    } else if (wanted.size() == 1) {
      return wanted[0] >= 0.5F ? 1 : 0;
    } else {
      return static_cast<std::size_t>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin());
    }
  }

  L loss_;
  std::vector<float> weights_;
};

}  // namespace chorale::loss
