// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/trainer/take_over.hpp>
#include <chorale/trainer/trainer.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale {

namespace detail {

/// A trainer that has left its job: the copies of its model, and what they go on with.
template <class M, class S, class R, class T>
struct Left : Brought<typename Trainer<M, S, R, T>::instance> {
  M model;
  Seed seed;

  /// keeps   all processes of the old job have come here before one of them leaves it
  explicit Left(Trainer<M, S, R, T>& old) : model{old.model()}, seed{old.seed()} {
    auto& live = old.live();
    live.finish(old.copies());                                             // of a strategy whose replicas learn apart
    live.run([](auto& replica, auto&) { replica.barrier(); }, old.copies());
    for (std::size_t i = 0; i < old.copies().size(); ++i) this->ranks.push_back(live.local_replica(i).id());
    auto const& rule = old.copies()[0].optimizer;
    this->numbers    = {rule.now, rule.loss_scale, rule.skipped};
    this->copies     = std::move(old.copies());
    live.leave();
  }

  /// True if old copy j has numbers of its own.
  bool keeps(std::size_t j) const { return keeps_numbers<S>(j, this->ranks[j]); }
};

/// Refuses to move variables of which replicas have parts, on all ranks alike, before any has left its job.
inline void refuse_parts(PlanView const& plan) {
  for (auto const& v : plan.variables)
    if (v.spec.split.parts > 1)
      throw BadArgument{"retarget moves whole variables, but of " + std::string{std::string_view{v.name}} +
                            " each of " + std::to_string(v.spec.split.parts) + " ranks along " +
                            std::string{v.spec.split.along} + " has a part.",
                        "a checkpoint, and to resume from it under the other strategy."};
}

/// True if the copies of a strategy are whole networks in host memory, which can be moved; others are refused by one
/// sentence.
template <class S>
constexpr bool can_move() {
  constexpr bool elsewhere = S::device::memory != Memory::host;
  static_assert(!HasServers<S>,
                "chorale: retarget moves the variables of replicas, but under ParameterServerStrategy servers have "
                "them. Save a checkpoint, and resume from it under the other strategy");
  static_assert(HasServers<S> || !elsewhere,
                "chorale: retarget moves what is in host memory. Save a checkpoint, and resume from it under the other "
                "strategy");
  static_assert(HasServers<S> || elsewhere || !StrategyTraits<S>::has_stages,
                "chorale: retarget moves copies of a whole network, but under pipelined<Schedule>() each rank has a "
                "stage of it. Save a checkpoint, and resume from it under the other strategy");
  return !HasServers<S> && !elsewhere && !StrategyTraits<S>::has_stages;
}

/// True if training under S0 can go on under S; what cannot is refused by one sentence.
template <class S0, class R0, class T0, class S>
constexpr bool can_retarget() {
  constexpr bool moves = can_move<S0>() && can_move<S>();
  constexpr bool owes  = keeps_residual<typename operation_of<R0, typename T0::endpoint>::type>;
  static_assert(!moves || !owes,
                "chorale: retarget does not move the parts of gradients that a Reduce such as TopK has still to send. "
                "Save a checkpoint, and resume from it under the other strategy");
  return moves && !owes;
}

}  // namespace detail

/// Goes on under another strategy, reduction, transport or number of ranks, between two steps and without a file: moves
/// variables, the optimizer's state and its step to where the new strategy wants them, each number at most once to
/// each rank that does not have it.
///
///   auto small = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
///   small.fit(data, {.epochs = 1});
///   auto large = retarget(std::move(small), ShardedStrategy<Zero::one>{Cpu::split(4)}, RingAllReduce{},
///                         LocalTransport{});
///   large.fit(data, {.epochs = 3, .initial_epoch = 1});
///
/// Every process of the old job calls it, and goes on in the new one; processes that join it call join_retargeted.
///
/// moved     receives how many bytes went from one rank to another, in the whole job
/// keeps     under Reproducible the bits of a run that never changed. The old trainer has left its job: only its
///           destructor may be called
/// throws    BadArgument, on all ranks alike, if variables or state are in the memory of no process that goes on, or
///           ranks have parts of a variable; Disagreement if the processes call it for different models
template <class S, class R, class T, class M, class S0, class R0, class T0>
Trainer<M, S, R, T> retarget(Trainer<M, S0, R0, T0>&& old, S strategy, R reduce, T transport, Moved* moved = nullptr) {
  if constexpr (detail::can_retarget<S0, R0, T0, S>()) {
    detail::refuse_parts(old.model().plan);
    auto left = detail::Left<M, S0, R0, T0>{old};
    return Trainer<M, S, R, T>{left.model, std::move(strategy), std::move(reduce), std::move(transport), left.seed,
                               left, moved};
  } else {
    return Trainer<M, S, R, T>{old.model(), std::move(strategy), std::move(reduce), std::move(transport), old.seed()};
  }
}

/// Joins a job that other processes go on with by retarget(): with the same model and seed as theirs.
///
/// throws    as retarget()
template <class S, class R, class T, class M>
Trainer<M, S, R, T> join_retargeted(M model, S strategy, R reduce, T transport, Seed seed = {},
                                    Moved* moved = nullptr) {
  if constexpr (detail::can_move<S>()) {
    detail::refuse_parts(model.plan);
    auto nothing = detail::NothingBrought{};
    return Trainer<M, S, R, T>{std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed,
                               nothing, moved};
  } else {
    return Trainer<M, S, R, T>{std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed};
  }
}

}  // namespace chorale
