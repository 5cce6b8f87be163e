// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/model_replicas.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/trainer/run_checkpoints.hpp>
#include <chorale/trainer/step_trace.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::detail {

/// The part of a Trainer that saves where it stands, and goes on from there.
template <class M, class S, class R, class T>
class Checkpointed : public ModelReplicas<M, S, R, T> {
  using Base = ModelReplicas<M, S, R, T>;

 protected:
  using Base::copies_, Base::live_, Base::totals_;
  using typename Base::instance;

 public:
  using Base::Base, Base::step;

 protected:
  /// Where to go on, and all replicas as they were there.
  TrainingPosition resume(std::optional<RunCheckpoints>& saved, FitOptions const& options,
                          std::vector<CallbackState> const& states) {
    auto const begin = TrainingPosition{.epoch = options.initial_epoch};
    if (options.checkpoints.folder.empty()) return begin;
    if constexpr (HasServers<S>) return resume_on_servers(saved, begin, states);
    else return resume_on_all(saved, begin, states);
  }

  /// Between two epochs, in every process: saves. Where workers do not wait for one another, ends when any was asked to.
  void save_after(int epoch, FitOptions const& options, auto const& batches, std::optional<RunCheckpoints>& saved,
                  auto& audience) {
    auto const whole = options.steps_per_epoch == 0;
    auto asked       = false;
    if constexpr (HasServers<S>) asked = any_asked(options);
    if (asked && saved) saved->finish();                                   // as in look_after
    if (!options.checkpoints.folder.empty())
      save_at(saved, {.epoch = epoch + 1, .pass = whole ? epoch + 1 : std::int64_t{batches.pass()},
                      .batch = whole ? 0 : static_cast<std::int64_t>(batches.batch())}, audience);
    if (asked) end_early(options, saved);
  }

  /// After an update: saves when it is time to, and ends when any rank was asked to; where workers do not wait for one
  /// another, they do when it is time to save, and only then know who was asked.
  void look_after(auto const& batches, std::int64_t epoch, FitOptions const& options,
                  std::optional<RunCheckpoints>& saved, auto& audience) {
    auto const due = options.checkpoint_every != 0 && step() % options.checkpoint_every == 0;
    auto asked     = false;
    if constexpr (HasServers<S>) asked = due && any_asked(options);
    else if constexpr (ReducesEveryStep<S>) asked = was_asked(copies_[0]);
    if (!due && !asked) return;
    this->catch_up();
    if (asked && saved) saved->finish();                                   // else it might be skipped for an older one
    if (!options.checkpoints.folder.empty())
      save_at(saved, {.epoch = epoch, .steps = static_cast<std::int64_t>(batches.taken()), .pass = batches.pass(),
                      .batch = static_cast<std::int64_t>(batches.batch()), .totals = this->totals_of_all()}, audience);
    if (asked) end_early(options, saved);
  }

 private:
  static bool was_asked(instance const& copy) {
    if constexpr (requires { copy.was_asked(); }) return copy.was_asked();
    else return copy.gradients().trailer()[plan::asked_at] != 0;
  }

  /// Was a process with workers asked to end? All of them call it together.
  bool any_asked(FitOptions const& options)
    requires HasServers<S>
  {
    if (options.asked_to_end == nullptr) return false;
    auto asked       = PerReplica<Totals>(copies_.size());
    asked[0].sums[0] = *options.asked_to_end ? 1 : 0;
    return live_.reduce(asked).sums[0] != 0;
  }

  [[noreturn]] void end_early(FitOptions const& options, std::optional<RunCheckpoints>& saved) const {
    if (saved) saved->finish();
    throw Preempted{"asked to end after update " + std::to_string(step()) +
                        (options.checkpoints.folder.empty() ? "; nothing was saved, for there is no folder."
                                                            : "; a checkpoint is in " +
                                                                  options.checkpoints.folder.string() + "."),
                    "the same command again: it goes on from there."};
  }

  TrainingPosition resume_on_all(std::optional<RunCheckpoints>& saved, TrainingPosition const& begin,
                         std::vector<CallbackState> const& states) {
    auto found   = PerReplica<TrainingPosition>(copies_.size());
    auto numbers = PerReplica<std::vector<double>>(copies_.size());
    auto owed    = PerReplica<ErrorFeedback>(copies_.size());
    live_.run([&](auto& replica, instance& copy, TrainingPosition& position, Totals& totals, std::vector<double>& told,
                  ErrorFeedback& rest) {
      auto const remember = [&] {
        for (auto const& state : states) told.resize(told.size() + state.numbers.size());
      };
      if (replica.id() == 0) {
        remember();
        position = saved->restore(copy.net.variables(), copy.optimizer.slots(), states, told, rest);
      }
      replica.broadcast(Span<TrainingPosition>{&position, 1});
      if (position.found == 0) return;
      if (replica.id() != 0) remember();
      replica.broadcast(Span<double>{told});
      if constexpr (!shares_variables<S>) {
        replica.broadcast(copy.net.variables().values);
        replica.broadcast(copy.optimizer.slots());
      }
      copy.optimizer.now.step = position.update;
      if (position.has_rate != 0) copy.optimizer.now.rate = static_cast<float>(position.rate);
      if (copy.optimizer.scales_loss && position.loss_scale != 0)          // else it begins anew
        copy.optimizer.loss_scale = {static_cast<float>(position.loss_scale), position.loss_scale_steps};
      totals = position.totals;
      if constexpr (lossy<R>) take_residual(replica, copy, rest);
    }, copies_, found, totals_, numbers, owed);
    if (found[0].found == 0) return begin;
    put(states, numbers[0]);
    return found[0];
  }

  TrainingPosition resume_on_servers(std::optional<RunCheckpoints>& saved, TrainingPosition const& begin,
                             std::vector<CallbackState> const& states) {
    auto position = TrainingPosition{};
    auto told     = std::vector<double>{};
    for (auto const& state : states) told.resize(told.size() + state.numbers.size());
    live_.run([&](auto& replica, instance& copy) {
      if (replica.id() != 0) return;
      auto owed = ErrorFeedback{};                                         // nothing that servers would know
      position  = saved->restore(copy.net.variables(), copy.optimizer.slots(), states, told, owed);
      if (position.found == 0) return;
      position.loss_scale = 0;                                             // no worker of servers scales its loss
      replica.assign(copy.net.variables());
      replica.assign_slots(copy.optimizer.slots(), copy.gradients(), static_cast<std::uint64_t>(position.servers));
    }, copies_);
    auto all = position.numbers();
    all.push_back(static_cast<double>(position.found + 1));                // 0: the chief has not come here
    all.insert(all.end(), told.begin(), told.end());
    all = this->tell_all(std::move(all));
    auto const n = position.numbers().size();
    if (all[n] == 0) throw PeerLost{0, "the chief could not bring a checkpoint to the servers."};
    if (all[n] == 1) return begin;
    position = TrainingPosition::of(Span<double const>{all}.first(n));
    put(states, Span<double const>{all}.subspan(n + 1));
    live_.run([&](auto& replica, instance& copy, Totals& totals) {
      copy.optimizer.now.step = position.update;
      totals                  = replica.id() == 0 ? position.totals : Totals{};            // they are added up
      replica.pull(copy.net.variables());
    }, copies_, totals_);
    return position;
  }

  /// What all ranks still owe, in every process.
  ErrorFeedback residuals() {
    auto all = PerReplica<ErrorFeedback>(copies_.size());
    live_.run([](auto& replica, instance& copy, ErrorFeedback& owed) {
      auto const mine = replica.residual(copy.gradients());
      if (mine.empty()) return;
      owed.ranks        = static_cast<std::size_t>(replica.num_replicas());
      auto const counts = std::vector<std::size_t>(owed.ranks, mine.size());
      owed.values.resize(owed.ranks * mine.size());
      replica.all_gather(Span<float const>{mine}, Span<float>{owed.values}, Span<std::size_t const>{counts});
    }, copies_, all);
    return std::move(all[0]);
  }

  /// owed    on rank 0
  static void take_residual(auto& replica, instance& copy, ErrorFeedback& owed) {
    auto size = std::array<std::size_t, 2>{owed.ranks, owed.values.size()};
    replica.broadcast(Span<std::size_t>{size});
    owed.ranks = size[0];
    owed.values.resize(size[1]);
    if (size[1] == 0) return;
    replica.broadcast(Span<float>{owed.values});
    auto const mine = replica.residual(copy.gradients());
    auto const from = owed.of(static_cast<std::size_t>(replica.id()), static_cast<std::size_t>(replica.num_replicas()));
    if (from.size() == mine.size()) std::ranges::copy(from, mine.begin());  // else another algorithm goes on
  }

  static void put(std::vector<CallbackState> const& states, Span<double const> from) {
    for (auto const& state : states) {
      std::ranges::copy(from.first(state.numbers.size()), state.numbers.begin());
      from = from.subspan(state.numbers.size());
    }
  }

  /// In every process, where all have made the same steps.
  void save_at(std::optional<RunCheckpoints>& saved, TrainingPosition position, auto& audience) {
    this->expect_equal_copies();                                           // before an older checkpoint goes for it
    auto owed = ErrorFeedback{};
    if constexpr (lossy<R> && ReducesEveryStep<S>) owed = residuals();
    position.update = copies_[0].optimizer.now.step;
    if constexpr (HasServers<S>) position.servers = this->fetch_from_servers();
    else position.servers = position.update;                               // as many as here
    if (saved) write(*saved, position, owed, audience);
    if constexpr (HasServers<S>) this->tell_all({});                       // until then nobody pushes
  }

  void write(RunCheckpoints& saved, TrainingPosition position, ErrorFeedback& owed, auto& audience) {
    auto const& rule  = copies_[0].optimizer;
    auto const begin  = time_for<std::remove_reference_t<decltype(audience)>>();
    position.has_rate = rule.now.rate.has_value() ? 1 : 0;
    position.rate     = rule.now.rate.value_or(0);
    if (rule.scales_loss) {
      position.loss_scale     = rule.loss_scale.value;
      position.loss_scale_steps = rule.loss_scale.steps;
    }
    saved.save(copies_[0].net.variables(), rule.slots(), position, audience.states(), owed);
    if constexpr (observed<std::remove_reference_t<decltype(audience)>>)
      audience.take(Event{.name = "checkpoint", .category = Category::checkpoint, .step = step(), .begin = begin,
                          .end = std::chrono::steady_clock::now()});
  }
};

}  // namespace chorale::detail
