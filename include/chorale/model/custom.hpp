// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/model/copy.hpp>
#include <chorale/model/model.hpp>
#include <chorale/model/step.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/run_time_plan.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

namespace custom {

/// The Learner of a function f(step, batch).
template <class F> struct Function {
  F f;
  template <class S, class Batch> requires std::invocable<F&, S&, Batch const&>
  auto learn(S& step, Batch const& batch) {
    return f(step, batch);
  }
};

template <class L> struct Outputs {};

/// The width of the outputs of a model whose Learner predicts.
template <class L> requires requires { L::output_width; } struct Outputs<L> {
  static constexpr std::size_t output_width = L::output_width;
};

/// A model of a Learner: a value without variables. Each device gets a copy, see custom_model.
template <class L, class B, class Optimizer> struct Model : Outputs<L> {
  using batch                                          = B;
  template <class D> using instance                    = Copy<D, L, Optimizer>;
  template <class D> static constexpr bool computes_on = requires { sizeof(Kernels<D>); };

  static constexpr auto metric_names = [] {
    if constexpr (requires { L::metric_names; }) return L::metric_names;
    else return std::array<std::string_view, 0>{};
  }();

  L learner;
  RunTimePlan plan;
  Optimizer optimizer;

  /// Lines that ranks compare before they train together: learner and optimizer with their options, and variables with
  /// their shapes.
  std::vector<std::string> lines() const {
    auto all = std::vector<std::string>{};
    describe("learner", learner, all);
    optim::describe_optimizer(optimizer, all);
    for (auto& line : lines_of(plan)) all.push_back(std::move(line));
    return all;
  }

  /// Creates variables and optimizer state on one device; the same seed gives the same bits everywhere.
  template <class D> instance<D> instantiate(D const& device, Seed seed) const {
    return {device, learner, plan, optimizer, seed};
  }

  /// Creates a copy whose optimizer has the state of one shard of all variables.
  template <class D> instance<D> instantiate_shard(D const& device, Seed seed, placement::Shard shard) const {
    return {device, learner, plan, optimizer, seed, shard};
  }
};

}  // namespace custom

/// Makes a model of a function that computes a loss and its gradients: f(step, batch), or of a Learner.
///
///   auto const model = custom_model<BasicBatch<float, float>>({{"slope", {1}}, {"offset", {1}}},
///                                                             [](auto& step, auto const& batch) {
///     auto const a = step.value(0)[0], b = step.value(1)[0];
///     auto loss    = 0.0F;
///     for (std::size_t r = 0; r < batch.rows; ++r) {
///       auto const e = a * batch.x[r] + b - batch.y[r];
///       loss += e * e;
///       step.gradient(0)[0] += 2 * e * batch.x[r];
///       step.gradient(1)[0] += 2 * e;
///     }
///     return loss;                                                        // sums over the rows, as the gradients are
///   }, optim::SGD{.learning_rate = 0.1F});
///
/// Batch      that the dataset gives
/// variables  their names, shapes and first values, in the order of step.value(i)
/// f          a function, or a Learner; each copy of the model gets its own copy of f
/// throws     BadArgument when a variable does not fit: see RunTimePlan
template <class Batch, class F, class Optimizer>
auto custom_model(std::vector<NamedShape> const& variables, F f, Optimizer optimizer) {
  using L               = std::conditional_t<Learner<F, Batch>, F, custom::Function<F>>;
  constexpr bool learns = Learner<L, Batch>, optimizes = optim::Optimizer<Optimizer>;
  constexpr bool scales = optim::scales_loss<Optimizer>;
  static_assert(learns,
                "chorale: the learner of a custom_model is a function of (step, batch) that returns a loss, or an "
                "object with learn(step, batch). Take the step by auto&, and the batch by Batch const&. See "
                "docs/60-write-your-own.md");
  static_assert(!learns || optimizes,
                "chorale: the optimizer argument is not an Optimizer. It needs slots, rate(Moment), global_clipnorm "
                "and update<Device>(Update). Use optim::SGD, optim::Adam, or optim::AdamW");
  static_assert(!learns || !scales,
                "chorale: optim::LossScaled does not fit custom_model, whose learner does not scale its loss. Use the "
                "optimizer that it contains");
  if constexpr (learns && optimizes && !scales)
    return custom::Model<L, Batch, Optimizer>{{}, L{std::move(f)}, RunTimePlan{variables}, std::move(optimizer)};
  else return RefusedModel{};
}

}  // namespace chorale
