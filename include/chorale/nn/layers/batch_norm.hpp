// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/fraction.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <string>
#include <string_view>

namespace chorale::nn {

// Options of batch normalization: BatchNorm<Momentum<0.9>, Epsilon<1e-5>>.

/// Part of a moving statistic that an update keeps: Momentum<0.9>, or in percent, Momentum<90>. Keras' default is 0.99.
template <Fraction Kept> struct Momentum {
  static_assert(Kept.value > 0 && Kept.value < 1,
                "chorale: Momentum<Kept> needs a number above 0 and below 1. Write Momentum<0.9>, or in percent "
                "Momentum<90>");
  static constexpr float momentum = Kept.as_float();
};

/// Constant that is added to a variance: Epsilon<1e-5>, or in millionths, Epsilon<10>. Keras' default is 1e-3.
template <Tiny Added> struct Epsilon {
  static_assert(Added.value > 0 && Added.value < 1,
                "chorale: Epsilon<Added> needs a number above 0 and below 1. Write Epsilon<1e-5>, or in millionths "
                "Epsilon<10>");
  static constexpr float epsilon = static_cast<float>(Added.value);
};

/// Constant that is added to a variance, as a power of ten: EpsilonPower<12> is 1e-12.
template <int Power> struct EpsilonPower {
  static_assert(Power > 0 && Power < 38, "chorale: EpsilonPower<Power> is 10 to the power -Power, from 1 to 37");
  static constexpr float epsilon = [] {
    auto power = 1.0;
    for (int i = 0; i < Power; ++i) power *= 10;
    return static_cast<float>(1 / power);
  }();
};

namespace detail {

template <class T> concept momentum_option = requires { T::momentum; };
template <class T> concept epsilon_option  = requires { T::epsilon; };

template <class... Options> constexpr float epsilon_or(float fallback) {
  auto added = fallback;
  (
      [&] {
        if constexpr (epsilon_option<Options>) added = Options::epsilon;
      }(),
      ...);
  return added;
}

/// Base of both normalizations. Variables have the same names, so that each loads files that the other has saved.
template <Normalize Over, class... Options> struct Normalization {
  static constexpr std::string_view name = "batch_normalization";

  static std::string text() {
    return std::string{Over == Normalize::over_batch ? "SyncBatchNorm" : "BatchNorm"} + "<momentum=" + word_of(kept()) +
           ",epsilon=" + word_of(epsilon()) + ">";
  }

  static constexpr float kept() {
    auto momentum = 0.99F;
    (
        [&] {
          if constexpr (momentum_option<Options>) momentum = Options::momentum;
        }(),
        ...);
    return momentum;
  }
  static constexpr float epsilon() { return epsilon_or<Options...>(1e-3F); }

  template <class In> static constexpr void check() {
    static_assert(((momentum_option<Options> || epsilon_option<Options>) && ...),
                  "chorale: batch normalization takes the options Momentum<percent> and Epsilon<millionths>");
    static_assert(In::rank == 1 || In::rank == 3,
                  "chorale: batch normalization takes images (B, H, W, C) or rows (B, C)");
  }

  template <class In> struct apply {
    using type = In;

    static constexpr int channels = In::dims.empty() ? 1 : In::dims.back();
    static constexpr VariableSpec of_channels(std::string_view which, Init init, float momentum) {
      return {.name = which, .dims = {channels}, .rank = 1, .init = init, .momentum = momentum};
    }
    static constexpr std::array<VariableSpec, 4> variables{
        of_channels("gamma", Init::ones, 0), of_channels("beta", Init::zeros, 0),
        of_channels("moving_mean", Init::zeros, kept()), of_channels("moving_variance", Init::ones, kept())};
  };

  template <class D, class In> struct stage : Kernels<D>::BatchNorm {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::BatchNorm{site.runtime, site.in, plain(site.rows), apply<In>::channels, epsilon(), Over} {}

   private:
    static auto plain(int rows) {
      if constexpr (In::rank == 3) return Kernels<D>::image(rows, In::dims[0], In::dims[1], In::dims[2]);
      else return Kernels<D>::matrix(rows, static_cast<int>(In::size));
    }
  };
};

}  // namespace detail

/// y = gamma · (x - mean) / sqrt(variance + epsilon) + beta, for each channel, with mean and variance over this
/// replica's share of the batch: with more replicas, over fewer rows.
///
/// x, y        (B, H, W, C) or (B, C)
/// keeps       called once in a network derived from nn::Graph: two calls would move its statistics twice
/// variables   gamma (C), ones, and beta (C), zeros: trained. moving_mean (C), zeros, and moving_variance (C), ones:
///             used by evaluation, and in training if both are frozen. An update moves them towards the mean of the
///             replicas' statistics, weighted by rows
/// options     Momentum<percent>, Epsilon<millionths>; default Momentum<99>, Epsilon<1000>
/// source      Ioffe & Szegedy, ICML 2015; tf.keras.layers.BatchNormalization
template <class... Options>
struct BatchNorm : Layer<BatchNorm<Options...>>, detail::Normalization<Normalize::over_share, Options...> {
  using Layer<BatchNorm>::Layer;
};

/// BatchNorm with mean and variance over the whole batch: any number of replicas learns what one replica does.
///
/// cost        in each step two sums over all replicas, of 2 C + 1 and 2 C doubles, for which all wait. No gradient
///             is sent before the last of them
/// source      tf.keras.layers.BatchNormalization(synchronized=True)
template <class... Options>
struct SyncBatchNorm : Layer<SyncBatchNorm<Options...>>, detail::Normalization<Normalize::over_batch, Options...> {
  using Layer<SyncBatchNorm>::Layer;
  static constexpr bool joins = true;
};

}  // namespace chorale::nn
