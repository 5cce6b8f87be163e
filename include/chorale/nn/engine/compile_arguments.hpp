// SPDX-License-Identifier: Apache-2.0
//
// The arguments of nn::compile: which of them is the loss, the optimizer and a metric, whatever their order, and the
// sentence for one that is none, or lacks a member.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/optim/optimizer.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// What the numbers of an output are, as far as the layer says that gives them.
enum class Ending { unknown, logits, softmax, sigmoid };

}  // namespace chorale::nn

namespace chorale::nn::detail {

template <class L> concept takes_logits               = requires { requires L::takes_logits; };
template <class L> concept takes_binary_logits        = requires { requires L::takes_binary_logits; };
template <class L> concept takes_probabilities        = requires { requires L::takes_probabilities; };
template <class L> concept takes_binary_probabilities = requires { requires L::takes_binary_probabilities; };

/// Refuses a loss of an output that ends as it does not take, or has too few numbers to compare. Returns false then.
template <class L, Ending ending, std::size_t width> constexpr bool check_loss_fits() {
  constexpr bool twice  = ending == Ending::sigmoid && (takes_logits<L> || takes_binary_logits<L>);
  constexpr bool softly = ending == Ending::softmax && takes_binary_logits<L>;
  constexpr bool never  = ending == Ending::logits && takes_binary_probabilities<L>;
  constexpr bool few    = width < loss::least_outputs_of<L>();
  static_assert(!twice,
                "chorale: this output ends with nn::Sigmoid, and its loss takes logits, to which it applies "
                "sigmoid or softmax itself. Remove nn::Sigmoid, or use "
                "loss::BinaryCrossEntropyOfProbabilities");
  static_assert(!softly,
                "chorale: this output ends with nn::Softmax, and its loss takes logits, to each of which it "
                "applies sigmoid itself. Remove nn::Softmax, or use loss::BinaryCrossEntropyOfProbabilities");
  static_assert(!never,
                "chorale: this output ends with logits, and its loss takes probabilities. Put nn::Sigmoid at "
                "its end, or use loss::BinaryCrossEntropy, which takes logits");
  static_assert(!few || twice || never,
                "chorale: this loss compares several outputs, and here is one: it would teach the network nothing. Use "
                "loss::BinaryCrossEntropy or loss::MeanSquaredError, or give the network an output for each class");
  return !twice && !softly && !never && !few;
}

/// Refuses a metric of an output, as check_loss_fits() refuses a loss.
template <class M, Ending ending, std::size_t width> constexpr bool check_metric_fits() {
  constexpr bool twice = takes_logits<M> && (ending == Ending::softmax || ending == Ending::sigmoid);
  constexpr bool one   = width == 1 && loss::least_outputs_of<M>() > 1;
  constexpr bool few   = width < loss::least_outputs_of<M>() && !one;
  static_assert(!twice || one,
                "chorale: this output ends with nn::Softmax or nn::Sigmoid, and its metric takes "
                "logits, to which it applies softmax itself. Remove that layer and use "
                "loss::SparseCrossEntropy or loss::CrossEntropy, or leave the metric out");
  static_assert(!one,
                "chorale: this metric compares the outputs of several classes, and here is one output: it would "
                "always be the same. Use metric::BinaryAccuracy, metric::Precision, metric::Recall or "
                "metric::F1");
  static_assert(!few,
                "chorale: this metric needs more outputs than the network has. metric::TopKAccuracy<K> needs "
                "more than K, or it would always be 1; a metric of a class needs an output of that class");
  return !twice && !one && !few;
}

/// Refuses options of a metric that do not fit what the outputs are.
///
/// throws  BadArgument
template <Ending ending, class M> void check_metric_options(M const& metric) {
  constexpr bool probabilities = ending == Ending::softmax || ending == Ending::sigmoid;
  if constexpr (ending != Ending::unknown && requires { metric.check_outputs(probabilities); })
    metric.check_outputs(probabilities);
}

template <class T, class Target>
concept has_row_of_loss =
    requires(T const& t, Span<float const> y, Span<Target const> wanted, Span<float> dy) { t.row(y, wanted, dy); };
template <class T, class Target>
concept has_row_of_metric = requires(T const& t, Span<float const> y, Span<Target const> wanted) { t.row(y, wanted); };
template <class T, class Target>
concept computes_loss = requires(T const& t, float const* y, Target const* wanted, float* dy) {
  t.template compute<Cpu>(std::size_t{}, std::size_t{}, y, wanted, dy);
};

/// What an argument is meant to be, by one of the members that only its kind has.
template <class T> struct Meant {
  static constexpr bool optimizer = requires { T::slots; } || requires { &T::global_clipnorm; } ||
                                    requires(T const& t, optim::Moment now) { t.rate(now); };
  static constexpr bool loss = !optimizer && (requires {
    typename T::target;
  } || has_row_of_loss<T, float> || has_row_of_loss<T, int> || computes_loss<T, float> || computes_loss<T, int>);
  static constexpr bool metric =
      !optimizer && !loss &&
      (requires { T::name; } || requires { typename T::state; } || has_row_of_metric<T, float> || has_row_of_metric<T, int>);
};
template <class F, class T, class W> struct Meant<OfOutput<F, T, W>> {  // T itself is checked with its output
  static constexpr bool optimizer = false, metric = Meant<T>::metric, loss = !metric;
};
template <class... Terms> struct Meant<Objective<Terms...>> {
  static constexpr bool optimizer = false, metric = false, loss = true;
};

/// Numbers of the arguments that are the loss, the optimizer and, in their order, the metrics.
template <class... Parts> struct Arguments {
  static constexpr std::size_t size = sizeof...(Parts);

  static constexpr std::size_t count(std::array<bool, size + 1> const& are) {
    auto n = std::size_t{0};
    for (bool const one : are) n += one ? 1 : 0;
    return n;
  }
  static constexpr std::size_t first(std::array<bool, size + 1> const& are) {
    std::size_t i = 0;
    while (i < size && !are[i]) ++i;
    return i;
  }

  static constexpr std::array<bool, size + 1> losses{Meant<Parts>::loss...}, optimizers{Meant<Parts>::optimizer...},
      are_metrics{Meant<Parts>::metric...}, numbers{std::is_arithmetic_v<Parts>...};
  static constexpr std::size_t loss = first(losses), optimizer = first(optimizers), num_metrics = count(are_metrics);
  static constexpr std::array<std::size_t, num_metrics> metrics = [] {
    auto all = std::array<std::size_t, num_metrics>{};
    for (std::size_t i = 0, n = 0; i < size; ++i)
      if (are_metrics[i]) all[n++] = i;
    return all;
  }();

  /// Refuses arguments if one is missing, is there twice, or is none of the three. Returns false then.
  static constexpr bool check() {
    constexpr bool of_a_kind  = count(losses) + count(optimizers) + num_metrics == size;
    constexpr bool has_number = count(numbers) > 0;
    constexpr bool has_both   = count(losses) > 0 && count(optimizers) > 0;
    static_assert(!has_number,
                  "chorale: the optimizer argument is not an Optimizer, but a number. Write "
                  "optim::SGD{.learning_rate = 0.01F}, or another optimizer with its learning_rate");
    static_assert(has_number || count(losses) > 0 || of_a_kind,
                  "chorale: the loss argument is not a loss. It needs `using target`, which is int for labels, else "
                  "float, and row(y, wanted, dy). Use loss::SparseCrossEntropy, loss::CrossEntropy, or "
                  "loss::MeanSquaredError");
    static_assert(has_number || count(losses) == 0 || count(optimizers) > 0 || of_a_kind,
                  "chorale: the optimizer argument is not an Optimizer. It needs slots, rate(Moment), global_clipnorm "
                  "and update<Device>(Update). Use optim::SGD, optim::Adam, or optim::AdamW");
    static_assert(has_number || !has_both || of_a_kind,
                  "chorale: a metric argument is not a metric. It needs a static constexpr std::string_view name, and "
                  "float row(Span<float const> y, Span<target const> wanted) const. See docs/60-write-your-own.md");
    static_assert(!of_a_kind || count(losses) > 0,
                  "chorale: nn::compile has no loss. Give it one, such as loss::SparseCrossEntropy{} for labels, or "
                  "loss::MeanSquaredError{} for numbers");
    static_assert(!of_a_kind || count(losses) == 0 || count(optimizers) > 0,
                  "chorale: nn::compile has no optimizer. Give it one, such as optim::Adam{} or "
                  "optim::SGD{.learning_rate = 0.01F}");
    static_assert(!of_a_kind || count(losses) < 2,
                  "chorale: nn::compile has two losses, and a network has one. Those of several outputs are added up: "
                  "nn::of<A>(loss) + nn::of<B>(loss)");
    static_assert(!of_a_kind || count(losses) > 1 || count(optimizers) < 2,
                  "chorale: nn::compile has two optimizers, and a network has one. optim::Grouped gives parts of a "
                  "network optimizers of their own");
    return of_a_kind && !has_number && count(losses) == 1 && count(optimizers) == 1;
  }
};

/// Refuses an optimizer that lacks a member, which it names. Returns false then.
template <class O> constexpr bool check_optimizer() {
  constexpr bool slots = requires {
    { O::slots } -> std::convertible_to<int>;
  };
  constexpr bool rate = requires(O const& o, optim::Moment now) {
    { o.rate(now) } -> std::same_as<float>;
  };
  constexpr bool clips = requires(O const& o) {
    { o.global_clipnorm } -> std::convertible_to<float>;
  };
  static_assert(slots,
                "chorale: the optimizer argument is not an Optimizer: it has no slots. Write static constexpr "
                "int slots = 0, the floats that it keeps for each trained number. See "
                "docs/60-write-your-own.md");
  static_assert(!slots || rate,
                "chorale: the optimizer argument is not an Optimizer: it has no rate. Write float "
                "rate(optim::Moment const& now) const, the learning rate of a step. See "
                "docs/60-write-your-own.md");
  static_assert(!slots || !rate || clips,
                "chorale: the optimizer argument is not an Optimizer: it has no global_clipnorm. Write static "
                "constexpr float global_clipnorm = 0: gradients are not clipped. See docs/60-write-your-own.md");
  if constexpr (slots && rate && clips) {
    constexpr bool updates =
        optim::UpdatesByVariable<O> || requires(O const& o, optim::Update const& u) { o.template update<Cpu>(u); };
    static_assert(updates,
                  "chorale: the optimizer argument is not an Optimizer: it has no update. Write template "
                  "<class Device> void update(optim::Update const& u) const, which changes u.values and "
                  "u.slot(i). See docs/60-write-your-own.md");
    return updates;
  }
  return false;
}

/// Refuses a loss that lacks a member, which it names. Returns false then.
template <class L> constexpr bool check_loss_members() {
  constexpr bool has_target = requires { typename L::target; };
  static_assert(has_target,
                "chorale: the loss argument is not a loss: it has no target. Write using target = int for "
                "labels, or using target = float for numbers. See docs/60-write-your-own.md");
  if constexpr (has_target) {
    constexpr bool has_row = loss::RowLoss<L> || computes_loss<L, typename L::target> || requires { typename L::axis; };
    static_assert(has_row,
                  "chorale: a loss needs float row(Span<float const> y, Span<target const> wanted, "
                  "Span<float> dy) const, or compute<D>(rows, width, y, wanted, dy). See "
                  "docs/60-write-your-own.md");
    return has_row;
  }
  return false;
}

/// Refuses a metric that lacks a member, which it names, for targets of type T. Returns false then.
template <class M, class T> constexpr bool check_metric_members() {
  constexpr bool has_name = requires {
    { M::name } -> std::convertible_to<std::string_view>;
  };
  static_assert(has_name || metric::HasState<M>,
                "chorale: this metric has no name. A metric has a static constexpr std::string_view name, and float "
                "row(Span<float const> y, Span<target const> wanted) const. See docs/60-write-your-own.md");
  if constexpr (metric::HasState<M>) {
    return metric::check_state<M, T>();
  } else if constexpr (has_name) {
    constexpr bool sums = metric::RowMetric<M, T> || requires(M const& m, float const* y, T const* wanted) {
      m.sum(std::size_t{}, std::size_t{}, y, wanted);
    };
    constexpr bool of_others = has_row_of_metric<M, std::conditional_t<std::is_same_v<T, int>, float, int>>;
    static_assert(sums || of_others,
                  "chorale: a metric needs a name, and float row(Span<float const> y, Span<target const> wanted) "
                  "const, with the targets of the loss. See docs/60-write-your-own.md");
    static_assert(sums || !of_others,
                  "chorale: a metric and the loss take different targets: one takes labels, which are int, the other "
                  "numbers, which are float. metric::Accuracy takes both; metric::MeanAbsoluteError and "
                  "metric::BinaryAccuracy go with losses of numbers");
    return sums;
  }
  return false;
}

}  // namespace chorale::nn::detail
