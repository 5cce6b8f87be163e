// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/text.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/callback_list.hpp>
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
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::detail {

template <class M, class S, class R, class T> class ModelReplicas;

/// Saves the state of one fit, and brings all replicas back to it.
///
/// keeps   only the chief opens the folder; the other processes take part in what replicas do together
template <class M, class S, class R, class T> class Checkpointing {
  using Replicas = ModelReplicas<M, S, R, T>;
  using instance = typename Replicas::instance;

 public:
  Checkpointing(Replicas& replicas, FitOptions const& options) : replicas_{replicas}, options_{options} {
    if (enabled() && live_.is_chief()) {
      saved_.emplace(options.checkpoints, live_.num_ranks(), std::to_string(replicas_.whole().hash()));
      saved_->say_goes_on();
    }
  }

  /// Brings all replicas to the newest checkpoint, and returns where it stands; the first epoch if there is none.
  TrainingPosition resume(std::vector<CallbackState> const& states) {
    auto const begin = TrainingPosition{.epoch = options_.initial_epoch};
    if (!enabled()) return begin;
    forget_counts();
    if (saved_) saved_->read([this] { wait_for_chief(); });
    else wait_for_chief();
    auto const position = [&] {
      if constexpr (HasServers<S>) return resume_on_servers(begin, with_counts(states));
      else return resume_on_all(begin, with_counts(states));
    }();
    if (position.found != 0) replicas_.states().set_epoch(counts_, live_.is_chief());
    return position;
  }

  /// Logs that the run is complete, for a user who started it again.
  void report_nothing_left(TrainingPosition const& at) {
    if (saved_) saved_->say_nothing_left(static_cast<int>(at.epoch), options_.epochs);
  }

  /// Waits in all processes until the chief writes no checkpoint. How many of its saves have failed so far; 0 elsewhere.
  int finish() {
    if (enabled()) wait_for_chief();
    return saved_ ? saved_->finish() : 0;
  }

  /// Writes the marker from which a sidecar evaluator learns that no further checkpoint follows.
  void report_end() {
    finish();
    if (saved_) saved_->say_ended({.epochs = static_cast<std::uint64_t>(options_.epochs), .step = replicas_.step()});
  }

  /// Saves after an epoch; every process calls it. With parameter servers, then ends fit if any process was asked to.
  ///
  /// is_last   no other follows: this one is not skipped
  void save_after(int epoch, bool is_last, auto const& batches, auto& audience) {
    auto const whole = options_.steps_per_epoch == 0;
    auto asked       = false;
    if constexpr (HasServers<S>) asked = any_asked();
    auto const failed = is_last || asked || waits_for_older() ? finish() : 0;  // see WhenBusy
    forget_counts();
    if (enabled())
      save_at({.epoch = epoch + 1,
               .pass  = whole ? epoch + 1 : std::int64_t{batches.pass()},
               .batch = whole ? 0 : static_cast<std::int64_t>(batches.batch())},
              audience);
    if (asked) end_early(failed);
  }

  /// Saves after an update if a save is due, and saves and ends fit if any rank was asked to end. Workers of parameter
  /// servers, which do not wait for one another, learn of the request only when a save is due.
  void save_if_due(auto const& batches, std::int64_t epoch, auto& audience) {
    auto const due = options_.checkpoint_every != 0 && replicas_.step() % options_.checkpoint_every == 0;
    auto asked     = false;
    if constexpr (HasServers<S>) asked = due && any_asked();
    else if constexpr (ReducesEveryStep<S>) asked = was_asked(copies_[0]);
    if (!due && !asked) return;
    replicas_.catch_up();
    auto const failed = asked || waits_for_older() ? finish() : 0;
    if (enabled()) {
      counts_ = replicas_.states().sum_of_all(live_, metric::Over::epoch);
      save_at({.epoch  = epoch,
               .steps  = static_cast<std::int64_t>(batches.taken()),
               .pass   = batches.pass(),
               .batch  = static_cast<std::int64_t>(batches.batch()),
               .totals = replicas_.totals_of_all()},
              audience);
    }
    if (asked) end_early(failed);
  }

 private:
  /// Begins with states of metrics that have counted nothing.
  void forget_counts() {
    auto n = std::size_t{0};
    replicas_.states().each([&](auto, std::size_t size) { n += size; });
    counts_.assign(n, 0);
  }

  /// The states of callbacks, then of metrics, each under its name and size: "metric/auc/400".
  std::vector<CallbackState> with_counts(std::vector<CallbackState> states) {
    auto at = std::size_t{0};
    replicas_.states().each([&](std::string_view name, std::size_t size) {
      states.push_back(
          {"metric/" + std::string{name} + "/" + std::to_string(size), Span<double>{counts_}.subspan(at, size)});
      at += size;
    });
    return states;
  }

  /// Returns in all processes when the chief has written, or read. They meet every second: a transport takes a rank that
  /// moves nothing for Timeouts::stuck for one that hangs.
  void wait_for_chief() {
    for (auto writes = true; writes;) {
      auto all = PerReplica<Totals>(copies_.size());
      if (saved_ && !saved_->is_done_within(std::chrono::seconds{1})) all[0].sums[0] = 1;
      writes = live_.reduce(all).sums[0] != 0;
    }
  }
  bool waits_for_older() const {
    return options_.checkpoints.saving == Saving::behind && options_.checkpoints.when_busy == WhenBusy::wait;
  }
  bool enabled() const { return !options_.checkpoints.folder.empty(); }

  static bool was_asked(instance const& copy) {
    if constexpr (requires { copy.was_asked(); }) return copy.was_asked();
    else return copy.gradients().trailer().asked() != 0;
  }

  /// True if any process with workers was asked to end. All of them call it together.
  bool any_asked() requires HasServers<S> {
    if (options_.asked_to_end == nullptr) return false;
    auto asked       = PerReplica<Totals>(copies_.size());
    asked[0].sums[0] = *options_.asked_to_end ? 1 : 0;
    return live_.reduce(asked).sums[0] != 0;
  }

  /// Ends fit on all ranks, after the chief has committed: no rank says so, or ends, before.
  ///
  /// failed   saves that had failed before this one
  [[noreturn]] void end_early(int failed) {
    auto whole = PerReplica<Totals>(copies_.size());
    if (auto const n = finish(); saved_ && n == failed) whole[0].sums[0] = 1;
    auto const saved   = enabled() && live_.reduce(whole).sums[0] != 0;
    auto const& folder = options_.checkpoints.folder;
    auto const after   = "asked to end after update " + std::to_string(replicas_.step());
    if (saved)
      throw Preempted{after + "; a checkpoint is in " + folder.string() + ".",
                      "the same command again: it goes on from there."};
    if (enabled())
      throw Preempted{after + "; its checkpoint could not be written to " + folder.string() +
                          ", and the log of rank 0 has the reason.",
                      "the same command again: it goes on from the checkpoint before, if there is one."};
    throw Preempted{after + "; nothing was saved, for FitOptions::checkpoints has no folder.",
                    "a folder for checkpoints, from which the same command goes on."};
  }

  TrainingPosition resume_on_all(TrainingPosition const& begin, std::vector<CallbackState> const& states) {
    auto found   = PerReplica<TrainingPosition>(copies_.size());
    auto numbers = PerReplica<std::vector<double>>(copies_.size());
    auto owed    = PerReplica<ErrorFeedback>(copies_.size());
    live_.run(
        [&](auto& replica, instance& copy, TrainingPosition& position, Totals& totals, std::vector<double>& told,
            ErrorFeedback& rest) {
          auto const remember = [&] {
            for (auto const& state : states) told.resize(told.size() + state.numbers.size());
          };
          auto whole = replicas_.whole();
          if (replica.id() == 0) {
            remember();
            whole.make_room();
            position = saved_->restore(whole.variables(copy), whole.slots(copy), states, told, rest);
          }
          replica.broadcast(Span<TrainingPosition>{&position, 1});
          if (position.found == 0) return;
          expect_one(position);
          if (replica.id() != 0) remember();
          replica.broadcast(Span<double>{told});
          if constexpr (!shares_variables<S>) whole.scatter(replica, copy);
          copy.optimizer.now.step = position.update;
          copy.optimizer.skipped  = position.update - position.servers;
          if (position.has_rate != 0) copy.optimizer.now.rate = static_cast<float>(position.rate);
          if (copy.optimizer.scales_loss && position.loss_scale != 0)  // else it starts from its initial value
            copy.optimizer.loss_scale = {static_cast<float>(position.loss_scale), position.loss_scale_steps};
          totals = position.totals;
          if constexpr (LossyReduce<R>) take_residual(replica, copy, rest);
        },
        copies_, found, replicas_.totals(), numbers, owed);
    if (found[0].found == 0) return begin;
    put(states, numbers[0]);
    return found[0];
  }

  TrainingPosition resume_on_servers(TrainingPosition const& begin, std::vector<CallbackState> const& states) {
    auto position = TrainingPosition{};
    auto told     = std::vector<double>{};
    for (auto const& state : states) told.resize(told.size() + state.numbers.size());
    live_.run(
        [&](auto& replica, instance& copy) {
          if (replica.id() != 0) return;
          auto owed = ErrorFeedback{};  // servers keep no error feedback
          position  = saved_->restore(copy.net.variables(), copy.optimizer.slots(), states, told, owed);
          if (position.found == 0) return;
          position.loss_scale = 0;  // workers of servers do not scale the loss
          replica.assign(copy.net.variables());
          replica.assign_slots(copy.net.variables(), copy.optimizer.slots(), copy.gradients(),
                               static_cast<std::uint64_t>(position.servers));
        },
        copies_);
    auto all = position.numbers();
    all.push_back(static_cast<double>(position.found + 1));  // 0: the chief is lost, and sent nothing
    all.insert(all.end(), told.begin(), told.end());
    all          = replicas_.tell_all(std::move(all));
    auto const n = position.numbers().size();
    if (all[n] == 0) throw PeerLost{0, "the chief could not bring a checkpoint to the servers."};
    if (all[n] == 1) return begin;
    position = TrainingPosition::of(Span<double const>{all}.first(n));
    expect_one(position);
    put(states, Span<double const>{all}.subspan(n + 1));
    live_.run(
        [&](auto& replica, instance& copy, Totals& totals) {
          copy.optimizer.now.step = position.update;
          totals                  = replica.id() == 0 ? position.totals : Totals{};  // totals are added up
          replica.pull(copy.net.variables());
        },
        copies_, replicas_.totals());
    return position;
  }

  static void expect_one(TrainingPosition const& at) {
    if (at.is_one()) return;
    throw Disagreement{Fault::collective_mismatch,
                       sentence("rank 0 goes on from step {} in epoch {}, batch {} of pass {}: no run gets there.",
                                at.update, at.epoch, at.batch, at.pass),
                       "a look at the checkpoint, and at the memory of that host."};
  }

  /// Gathers the error feedback of all ranks, in every process.
  ErrorFeedback residuals() {
    auto all = PerReplica<ErrorFeedback>(copies_.size());
    live_.run(
        [](auto& replica, instance& copy, ErrorFeedback& owed) {
          auto const mine = replica.residual(copy.gradients());
          if (mine.empty()) return;
          owed.ranks        = static_cast<std::size_t>(replica.num_replicas());
          auto const counts = std::vector<std::size_t>(owed.ranks, mine.size());
          owed.values.resize(owed.ranks * mine.size());
          replica.all_gather(Span<float const>{mine}, Span<float>{owed.values}, Span<std::size_t const>{counts});
        },
        copies_, all);
    return std::move(all[0]);
  }

  /// Sends the error feedback on rank 0 to all ranks, and restores the residual of each from its part.
  static void take_residual(auto& replica, instance& copy, ErrorFeedback& owed) {
    auto size = std::array<std::size_t, 2>{owed.ranks, owed.values.size()};
    replica.broadcast(Span<std::size_t>{size});
    if (size[1] == 0) return;
    if (size[0] == 0 || size[1] % size[0] != 0)
      throw Disagreement{Fault::collective_mismatch,
                         sentence("rank 0 sends {} values as the error feedback of {} ranks.", size[1], size[0])};
    owed.ranks = size[0];
    for (std::size_t i = 0; i * piece_of<float> < size[1]; ++i) {
      owed.values.resize(std::max(owed.values.size(), std::min(size[1], (i + 1) * piece_of<float>)));
      replica.broadcast(piece(Span<float>{owed.values}.first(std::min(size[1], owed.values.size())), i));
    }
    auto const mine = replica.residual(copy.gradients());
    auto const from = owed.of(static_cast<std::size_t>(replica.id()), static_cast<std::size_t>(replica.num_replicas()));
    if (from.size() == mine.size()) std::ranges::copy(from, mine.begin());  // else the Reduce is a different one
  }

  static void put(std::vector<CallbackState> const& states, Span<double const> from) {
    for (auto const& state : states) {
      std::ranges::copy(from.first(state.numbers.size()), state.numbers.begin());
      from = from.subspan(state.numbers.size());
    }
  }

  /// Saves a checkpoint. Every process calls it, after the same steps.
  void save_at(TrainingPosition position, auto& audience) {
    replicas_.expect_equal_copies();  // before an older checkpoint is replaced
    audience.flush();                 // a run that resumes writes later steps
    auto owed = ErrorFeedback{};
    if constexpr (LossyReduce<R> && ReducesEveryStep<S>) owed = residuals();
    position.update = copies_[0].optimizer.now.step;
    if constexpr (HasServers<S>) position.servers = replicas_.fetch_from_servers();
    else position.servers = copies_[0].optimizer.moment().step;
    auto whole = replicas_.whole();
    if (live_.is_chief()) whole.make_room();
    if constexpr (StrategyTraits<S>::has_mesh || shards_optimizer<S>)
      live_.run([&](auto& replica, instance& copy) { whole.gather(replica, copy); }, copies_);
    if (saved_) write(position, whole.variables(copies_[0]), whole.slots(copies_[0]), owed, audience);
    else if (options_.checkpoints.saving == Saving::now) wait_for_chief();
    if constexpr (HasServers<S>) replicas_.tell_all({});  // no worker pushes gradients before this
  }

  void write(TrainingPosition position, Variables const& variables, Span<float> slots, ErrorFeedback& owed,
             auto& audience) {
    auto const& rule  = copies_[0].optimizer;
    auto const begin  = time_for<std::remove_reference_t<decltype(audience)>>();
    position.has_rate = rule.now.rate.has_value() ? 1 : 0;
    position.rate     = rule.now.rate.value_or(0);
    if (rule.scales_loss) {
      position.loss_scale       = rule.loss_scale.value;
      position.loss_scale_steps = rule.loss_scale.steps;
    }
    saved_->save(variables, slots, position, with_counts(audience.states()), owed, [this] { wait_for_chief(); });
    if constexpr (observed<std::remove_reference_t<decltype(audience)>>)
      audience.take(Event{.name     = "checkpoint",
                          .category = Category::checkpoint,
                          .step     = replicas_.step(),
                          .begin    = begin,
                          .end      = std::chrono::steady_clock::now()});
  }

  Replicas& replicas_;
  FitOptions const& options_;
  Live<S, R, T>& live_          = replicas_.live();
  PerReplica<instance>& copies_ = replicas_.copies();
  std::optional<RunCheckpoints> saved_;  // on the chief
  std::vector<double> counts_;           // of metrics' states, in the epoch so far
};

}  // namespace chorale::detail
