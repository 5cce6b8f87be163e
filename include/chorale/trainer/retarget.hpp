// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/one_thread.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/trainer/take_over.hpp>
#include <chorale/trainer/trainer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// A trainer that leaves its job when another one has taken over all that it has; until then it stays as it is.
///
///   all processes of the old job are here ─▶ each makes its part of the new job ─▶ all have made it ─▶ numbers move
///   ─▶ all have got theirs ─▶ each leaves the old job
///
/// keeps   the ranks of the old job stay connected meanwhile: what one process refuses, and the loss of one, ends the
///         wait of all others
template <class M, class S, class R, class T> class Departing {
  using Copy = typename Trainer<M, S, R, T>::instance;

 public:
  PerReplica<Copy>& copies;
  std::vector<Rank> ranks{};  // of the copies, in the old job
  GoesOn numbers{};

  /// throws  BadArgument if the trainer is in use, or has left its job; PeerLost
  explicit Departing(Trainer<M, S, R, T>& old) : copies{old.copies()}, live_{old.live()}, mine_{live_.hold()} {
    CHORALE_EXPECTS(mine_.is_first(), "retarget was called of a trainer that is in fit, evaluate or predict, and has " +
                                          std::to_string(live_.num_replicas()) + " replicas at work");
    for (std::size_t i = 0; i < copies.size(); ++i) ranks.push_back(live_.local_replica(i).id());
    live_.listen(false);  // the new job may have the same addresses
    try {
      meet();
    } catch (...) {
      live_.listen(true);
      throw;
    }
  }

  /// True if old copy j has its own numbers.
  bool keeps(std::size_t j) const { return keeps_numbers<S>(j, ranks[j]); }

  /// To be called while ranks of the new job are missing.
  std::function<void()> look_around() {
    if (live_.is_all_local()) return {};
    return [this, lives = std::weak_ptr<void>{lives_}] {  // the new job keeps the function
      if (!lives.expired()) tell(Stand::under_way);
    };
  }

  /// Returns when all processes of the old job have called it.
  ///
  /// throws  PeerLost if one is lost; the error of one that refuses
  void meet() {
    while (!tell(Stand::here)) {}
  }

  /// Brings replicas that learn apart together.
  void finish() {
    live_.finish(copies);
    auto const& rule = copies[0].optimizer;
    numbers          = {rule.now, rule.loss_scale, rule.skipped};
  }

  /// Leaves the old job, after all processes have what they want.
  void leave() {
    meet();
    copies = PerReplica<Copy>{std::vector<Copy>{}};
    live_.leave();
  }

  /// Stays in the old job, after the exception that is being handled.
  ///
  /// throws  it, or where it only follows from what another process refused, that
  [[noreturn]] void stay() {
    live_.listen(true);
    if (!over_) {
      try {
        throw;
      } catch (PeerLost const& lost) { tell(Stand::lost, lost.what()); } catch (std::exception const& error) {
        tell(is_a<BadArgument>(error) ? Stand::refuses_argument : Stand::refuses, error.what());
      }
    }
    throw;
  }

 private:
  enum class Stand { under_way, here, lost, refuses, refuses_argument };
  using Text = std::array<char, 1'000>;

  template <class V> std::vector<V> gather(V const& value) {
    auto all = PerReplica<V>(copies.size());
    for (auto& one : all) one = value;
    return live_.gather(all);
  }

  /// Tells all other processes how far this one is, as often as they tell it: true if all are here.
  ///
  /// throws   PeerLost if a rank is lost; what another process refuses, unless this one refuses something itself
  bool tell(Stand mine, std::string const& why = {}) {
    over_           = true;  // unless all can go on
    auto const all  = gather(mine);
    auto const last = std::ranges::max(all);
    over_           = last >= Stand::lost;
    if (!over_) return std::ranges::min(all) == Stand::here;
    auto text = Text{};
    std::ranges::copy_n(why.begin(), static_cast<std::ptrdiff_t>(std::min(why.size(), text.size() - 1)), text.begin());
    auto const texts = gather(text);
    if (mine >= Stand::refuses || mine == last) return false;  // it throws its own error
    auto const rank = std::ranges::find(all, last) - all.begin();
    auto said       = std::string{texts[static_cast<std::size_t>(rank)].data()};
    said            = said.substr(0, said.find('\n'));
    if (said.starts_with("chorale: ")) said.erase(0, std::string_view{"chorale: "}.size());
    auto const what =
        "rank " + std::to_string(rank) + " cannot go on in the new job, so all stay in the old one: " + said;
    if (last == Stand::refuses_argument) throw BadArgument{what};
    if (last == Stand::lost) throw PeerLost{static_cast<int>(rank), what};
    throw Error{what};
  }

  Live<S, R, T>& live_;
  OneThread::Hold mine_;
  std::shared_ptr<void> lives_ = std::make_shared<int>();
  bool over_                   = false;  // nothing is left to tell
};

/// Gives a transport between processes a function to call while ranks are missing, if it has a place for one.
template <class T> void set_while_joining(T& transport, std::function<void()> const& f) {
  if (!f) return;
  if constexpr (requires { transport.while_joining = f; })
    transport.while_joining = [f, own = transport.while_joining] {
      f();
      if (own) own();
    };
  if constexpr (requires { transport.transport; }) set_while_joining(transport.transport, f);  // Staged, ..
  if constexpr (requires { transport.far; }) set_while_joining(transport.far, f);
  if constexpr (requires { transport.near; }) set_while_joining(transport.near, f);
}

/// Refuses to move variables that are split over replicas, on all ranks alike, before any has left its job.
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
template <class S> constexpr bool can_move() {
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
template <class S0, class R0, class T0, class S> constexpr bool can_retarget() {
  constexpr bool moves = can_move<S0>() && can_move<S>();
  constexpr bool owes  = keeps_residual<typename operation_of<R0, typename T0::endpoint>::type>;
  static_assert(!moves || !owes,
                "chorale: retarget does not move the parts of gradients that a Reduce such as TopK has still to send. "
                "Save a checkpoint, and resume from it under the other strategy");
  return moves && !owes;
}

}  // namespace detail

/// Continues under another strategy, reduction, transport or number of ranks, between two steps and without a file:
/// moves variables, the optimizer's state and its step to where the new strategy wants them, each number at most once
/// to each rank that does not have it.
///
///   auto small = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
///   small.fit(data, {.epochs = 1});
///   auto large = retarget(std::move(small), ShardedStrategy<Zero::one>{Cpu::split(4)}, RingAllReduce{},
///                         LocalTransport{});
///   large.fit(data, {.epochs = 3, .initial_epoch = 1});
///
/// Every process of the old job calls it, and continues in the new one; processes that join it call join_retargeted.
///
/// moved     receives how many bytes went from one rank to another, in the whole job
/// keeps     under Reproducible the bits of a run that never changed. The old trainer has then left its job, and
///           refuses what it is asked. When retarget throws, it is as it was, in every process of the old job: it can
///           fit, save, predict, and go on by another retarget. Both have their memory until the new one has all
/// throws    what the new strategy, reduction and transport throw, on the process whose parts are refused; BadArgument
///           or Error, with its sentence, on all others, at once. PeerLost if a process of the old job is lost
///           meanwhile, as soon as the old transport detects it. BadArgument if ranks have parts of a variable, or the
///           trainer is in use; Disagreement if the processes call it for different models
template <class S, class R, class T, class M, class S0, class R0, class T0>
Trainer<M, S, R, T> retarget(Trainer<M, S0, R0, T0>&& old, S strategy, R reduce, T transport, Moved* moved = nullptr) {
  if constexpr (detail::can_retarget<S0, R0, T0, S>()) {
    detail::refuse_parts(old.model().plan);
    auto left = detail::Departing<M, S0, R0, T0>{old};
    detail::set_while_joining(transport, left.look_around());
    try {
      return Trainer<M, S, R, T>{
          old.model(), std::move(strategy), std::move(reduce), std::move(transport), old.seed(), left, moved};
    } catch (...) { left.stay(); }
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
    return Trainer<M, S, R, T>{
        std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed, nothing, moved};
  } else {
    return Trainer<M, S, R, T>{std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed};
  }
}

}  // namespace chorale
