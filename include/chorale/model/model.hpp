// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/plan.hpp>

#include <concepts>
#include <string_view>
#include <type_traits>

namespace chorale {

namespace detail {

template <class M>
concept NamesBatches = requires { typename M::batch; } || requires {
  M::template learns_from<int>;
  M::template predicts_from<int>;
};

}  // namespace detail

/// True if model M learns from batches of type B, and is evaluated with them.
template <class M, class B>
concept LearnsFrom = requires { requires std::convertible_to<B&, typename M::batch&>; } ||
                     requires { requires M::template learns_from<B>; };

/// True if model M predicts from batches of type B, which need not have targets.
template <class M, class B>
concept PredictsFrom = requires { requires std::convertible_to<B&, typename M::batch&>; } ||
                       requires { requires M::template predicts_from<B>; };

namespace detail {

template <class M, class B> struct BatchTaken {
  using type = B;
};
template <class M, class B> requires requires { typename M::batch; } struct BatchTaken<M, B> {
  using type = typename M::batch;
};

}  // namespace detail

/// The type as which model M takes a batch of type B.
template <class M, class B> using BatchOf = typename detail::BatchTaken<M, B>::type;

/// What is learned, as a value that has no variables and knows no device: nn::compile makes one of a network, and
/// custom_model one of a function or a Learner. A copy for each device is made by instantiate().
///
///   M::batch            the batches that it learns from, such as BasicBatch<float, int>; or, for a model that takes
///                       batches of several types, the constants learns_from<B> and predicts_from<B>, and optionally
///                       refuse<B>(), whose static_asserts say why it does not take batches of type B
///   M::metric_names     of the metrics, in the order in which the header of the gradients has them
///   M::instance<D>      one copy on a device D: variables, gradients and the optimizer's state
///   model.plan          a Plan, or a RunTimePlan
///   model.optimizer     servers apply it as well
///   lines()             optional: what ranks compare before they train together. Without it, the plan's lines
///   instantiate_reader(device, owner)   optional: a copy that reads the variables of another one in place, for
///                       strategies that share variables
///   instantiate_shard(device, seed, shard)   optional: a copy whose optimizer has the state of one shard of all
///                       variables, for strategies that shard it
///   instantiate_units(device, seed, shard, splits)   optional: a copy that has the gradients of a shard alone, and if it
///                       `splits` the variables of it: see UnitMemory
///   M::output_width     optional: numbers that predict() gives for each row
///   M::computes_on<D>   optional: false on a device for which the model has no copies
template <class M, class D>
concept ModelOn =
    (!requires { requires !M::template computes_on<D>; }) && requires(M const& model, D const& device, Seed seed) {
      requires detail::NamesBatches<M>;
      PlanView{model.plan};
      Span<std::string_view const>{M::metric_names};
      requires optim::Optimizer<std::remove_cvref_t<decltype(model.optimizer)>>;
      { model.instantiate(device, seed) } -> std::same_as<typename M::template instance<D>>;  // a function of the seed
    };

/// Models whose copies can read the variables of another copy in place, as strategies that share variables need it.
template <class M, class D>
concept HasReaders = requires(M const& model, D const& device, typename M::template instance<D> const& owner) {
  model.instantiate_reader(device, owner);
};

/// Models whose copies can have the optimizer's state of one shard of all variables.
template <class M, class D>
concept HasShards = requires(M const& model, D const& device, Seed seed, placement::Shard shard) {
  { model.instantiate_shard(device, seed, shard) } -> std::same_as<typename M::template instance<D>>;
};

/// Models whose copies can have the gradients, or the variables, of one shard alone, while their layers take turns.
template <class M, class D>
concept HasUnits = requires(M const& model, D const& device, Seed seed, placement::Shard shard) {
  { model.instantiate_units(device, seed, shard, true) } -> std::same_as<typename M::template instance<D>>;
};

/// The model in place of one that the compiler has refused with a sentence. What takes a model says nothing more.
struct RefusedModel {};

/// True if optim::LossScaled multiplies the loss of this model.
template <class M> concept ScalesLoss = optim::scales_loss<decltype(M::optimizer)>;

}  // namespace chorale
