// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/parallel/expert_exchange.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Each expert takes at most that many percent of an even share: of tokens times their experts, divided by the experts.
/// 100 is what all of them need if all are chosen alike.
template <int Percent> struct Capacity {
  static constexpr std::size_t percent = Percent;
};

/// So many experts compute on each token.
template <int Count> struct Top {
  static constexpr std::size_t chosen = Count;
};

/// Adds to the loss so many percent of E Σ f(e) p(e), which is least where all experts are chosen alike: f(e) is the
/// part of the choices of the batch that are e, p(e) the mean of its probability. The loss that is shown is without it.
///
/// source  Fedus et al., "Switch Transformers", JMLR 2022
template <int Percent> struct Balanced {
  static_assert(Percent > 0, "chorale: Balanced<Percent> of nn::Experts needs at least 1 percent");
  static constexpr float balance = static_cast<float>(Percent) / 100.0F;
};

/// nn::Experts without the variable that counts choices without room, so that it may be in an nn::Recompute.
struct Uncounted {
  static constexpr bool counted = false;
};

namespace detail {

template <class T> concept capacity_option = requires { T::percent; };
template <class T> concept top_option      = requires { T::chosen; };
template <class T> concept balance_option  = requires { T::balance; };
template <class T> concept counted_option  = requires { T::counted; };

/// The options of an nn::Experts.
struct ExpertOptions {
  std::size_t percent = 125, chosen = 2;
  float balance = 0;
  bool counted  = true;

  template <class... Options> static constexpr ExpertOptions of() {
    auto all = ExpertOptions{};
    (
        [&] {
          if constexpr (capacity_option<Options>) all.percent = Options::percent;
          else if constexpr (top_option<Options>) all.chosen = Options::chosen;
          else if constexpr (balance_option<Options>) all.balance = Options::balance;
          else if constexpr (counted_option<Options>) all.counted = Options::counted;
        }(),
        ...);
    return all;
  }
};

}  // namespace detail

/// A mixture of experts, which are split over the ranks along an axis of a mesh: a router chooses some experts for each
/// token, each is two dense layers with a ReLU between, and y is the sum of what they give, times their probabilities.
///
///   x ─▶ router ─▶ softmax ─▶ the largest k ─┬─▶ expert 3, on rank 1 ─┬─▶ y = w(3) e(3) + w(7) e(7)
///                                            └─▶ expert 7, on rank 3 ─┘
///
/// A         Axis<name, ranks>. Its ranks have Count / ranks experts each, and different rows of the batch or the same
///           ones
/// Options   Capacity<percent>, 125 if nothing is said; Top<k>, 2; Balanced<percent>; Uncounted
/// x, y      (B, .., C); each vector of the last dimension is a token
/// variables router (C, E); widen (E, C, Hidden) and narrow (E, Hidden, C), each with a bias: Glorot uniform, zeros.
///           dropped (E) counts the choices of all steps for which an expert had no room; under Reproducible the mean
///           over the logical shards of a step, where each shard has separate room
/// keeps     choices are in the order of the global batch, for each token the likelier expert first. An expert takes
///           choices until it is full; those after that add nothing to y. Weights are divided by the sum of the k
///           probabilities, unless k is 1
/// cost      of ranks with different rows: 4 (E + 1) bytes to each rank, a vector for each choice that others have room
///           for, and one back; two more of them in backward. Of ranks with the same rows: the vectors back alone, to
///           all
/// order     y, dx, and the gradients of experts have the bits of one device with all experts. The router's gradient
///           is a sum over the rows of a replica, as for any mirrored variable
/// source    Shazeer et al., ICLR 2017; Lepikhin et al., "GShard", ICLR 2021
template <class A, int Count, int Hidden, class... Options>
struct Experts : Layer<Experts<A, Count, Hidden, Options...>> {
  using Layer<Experts>::Layer;
  using axis                             = A;
  using state                            = detail::ExpertExchange;
  static constexpr auto options          = detail::ExpertOptions::of<Options...>();
  static constexpr std::string_view name = "experts";
  static constexpr bool keeps_x = true, each_position = true, whole_share = true;
  static constexpr bool other_rows = true;
  static constexpr int of_a_rank   = Count / A::size < 1 ? 1 : Count / A::size;

  template <class X> static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank > 0;

  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: Experts takes vectors (B, .., C) of numbers");
    static_assert(Count % A::size == 0,
                  "chorale: Experts<A, experts, hidden> deals out its experts evenly: their number "
                  "must be a multiple of the size of axis A");
    static_assert(options.percent > 0,
                  "chorale: Capacity<Percent> of nn::Experts needs at least 1 percent of an even share");
    static_assert(options.chosen > 0, "chorale: Top<Count> of nn::Experts needs at least 1 expert for each token");
    static_assert(options.chosen <= static_cast<std::size_t>(Count),
                  "chorale: Top<k> of Experts<A, experts, hidden> chooses more experts for a token than there are");
    static_assert(
        ((detail::capacity_option<Options> || detail::top_option<Options> || detail::balance_option<Options> ||
          detail::counted_option<Options>) &&
         ...),
        "chorale: this option is not one of Experts. It takes Capacity<percent>, Top<k>, Balanced<percent> and "
        "Uncounted");
  }
  template <class X> requires fits<X> static constexpr auto output(X x) { return x; }

  static constexpr auto variables(auto x) {
    auto const matrix = [](std::string_view what, int in, int out) {
      return of_ranks(detail::spec_of(what, Init::glorot_uniform, in, out, of_a_rank, in, out));
    };
    auto const trained = std::array{glorot_uniform("router", x.back, Count), matrix("widen", x.back, Hidden),
                                    of_ranks(zeros("widen_bias", of_a_rank, Hidden)), matrix("narrow", Hidden, x.back),
                                    of_ranks(zeros("narrow_bias", of_a_rank, x.back))};
    if constexpr (options.counted) {
      auto count    = zeros("dropped", Count);
      count.tracked = true;
      return std::array{trained[0], trained[1], trained[2], trained[3], trained[4], count};
    } else {
      return trained;
    }
  }
  static constexpr std::size_t products(auto x) {
    return x.size * (static_cast<std::size_t>(Count) + options.chosen * 2 * static_cast<std::size_t>(Hidden));
  }

  static void forward(auto& at) {
    using X = typename std::remove_cvref_t<decltype(at)>::X;
    at.state->route(group_along<A>(at.axes),
                    {.experts = static_cast<std::size_t>(Count),
                     .chosen  = options.chosen,
                     .width   = static_cast<std::size_t>(X::back),
                     .hidden  = static_cast<std::size_t>(Hidden),
                     .percent = options.percent},
                    at.x(), at.v[0].data());
    at.state->compute(at.x(), of_experts(at.v), at.y().data());
  }
  static void backward(auto& at) {
    using X = typename std::remove_cvref_t<decltype(at)>::X;
    at.state->backward(at.x(), at.dy().data(), of_experts(at.v), of_experts(at.dv), at.v[0].data(), at.dv[0].data(),
                       options.balance / static_cast<float>(X::vectors), at.dx(),
                       {at.rows_of[1], at.rows_of[2], at.rows_of[3], at.rows_of[4]});
    if constexpr (options.counted) {
      auto const rows = static_cast<float>(at.ragged[0] == nullptr ? at.rows : at.lengths().size());
      for (std::size_t e = 0; e < at.dv[5].size(); ++e)
        at.dv[5][e] += rows * static_cast<float>(at.state->dropped()[e]);
    }
  }

 private:
  /// A variable that is split over ranks: each has the part of its experts. Along the data axis gradients are a row for
  /// each expert, as these are not added up over ranks.
  static constexpr VariableSpec of_ranks(VariableSpec spec) {
    spec.by_rows = A::name == data_axis;
    if (A::size > 1) spec.split = {.dim = 0, .parts = A::size, .along = A::name};
    return spec;
  }
  static detail::ExpertExchange::OfExperts of_experts(auto const& v) {
    return {v[1].data(), v[2].data(), v[3].data(), v[4].data()};
  }
};

}  // namespace chorale::nn
