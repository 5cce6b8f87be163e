// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/clock_offset.hpp>
#include <chorale/reduce/step_time.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/bucket_ends.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/trainer/compare_lines.hpp>
#include <chorale/trainer/equal_parts.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/metric_states.hpp>
#include <chorale/trainer/plan_lines.hpp>
#include <chorale/trainer/shown_scalars.hpp>
#include <chorale/trainer/whole_state.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// The lines of a model, the names of a strategy of several ranks and of its reduce, its own lines(model), and the
/// operations of its step, so that ranks whose steps would not meet refuse each other. Devices may differ.
///
///   strategy MultiWorkerMirroredStrategy
///   reduce RingAllReduce
template <class Model, class S, class R>
std::vector<std::string> plan_lines(Model const& model, Seed seed, S const& strategy, R const& reduce) {
  auto lines = plan_lines(model, seed);
  if (num_ranks(strategy) > 1) {
    auto name = type_name<S>();
    detail::replace_words(name, type_name<typename S::device>(), "device");
    for (std::string const without : {",device", "<device>", "<>"})  // where compilers leave out defaults
      for (auto at = name.find(without); at != name.npos; at = name.find(without)) name.erase(at, without.size());
    constexpr auto has_lines = requires { strategy.lines(model); };
    lines.push_back("strategy " + (has_lines ? name.substr(0, name.find('<')) : name));
    lines.push_back("reduce " + type_name<R>());
    if constexpr (has_lines)
      for (auto& line : strategy.lines(model)) lines.push_back(std::move(line));
  }
  for (auto& line : step_operations(model, strategy, reduce).lines()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace chorale

namespace chorale::detail {

/// A model whose host may run a step ahead of its device.
template <class Model> concept RunsAhead = requires { requires Model::runs_ahead; };

/// The copies of a model in this process, one on each local device, and the connected strategy that trains them.
///
/// keeps   replicas that were connected again after a failure are the same objects
template <class M, class S, class R, class T> class ModelReplicas {
 public:
  using instance      = InstanceUnder<M, S>;
  using strategy_type = S;
  using Shown         = ShownScalars<M>;

  /// budget   checked before anything is allocated; a replica that has too small a one tells the others
  ModelReplicas(M model, S strategy, R reduce, T transport, Seed seed, MemoryBudget budget = {})
      : model_{std::move(model)}, reduce_{reduce}, lines_{plan_lines(model_, seed, strategy, reduce)},
        live_{std::move(strategy), std::move(reduce),
              with_plan(std::move(transport), model_.plan, lines_, shards_gradients<S> ? 2 : 1)},
        copies_{live_.telling(
            [&] {
              expect_within(budget);
              return live_.create(model_, seed);
            },
            true)},
        totals_(copies_.size()), seed_{seed} {
    if constexpr (StrategyTraits<S>::deals_shares)
      for (std::size_t i = 0; i < copies_.size(); ++i)
        counted_.push_back(live_.counts_rows(live_.local_replica(i).id()) ? 1 : 0);
    if constexpr (!HasServers<S> && !compares_plans<T>())  // other transports compare when they connect
      if (!live_.is_all_local()) {
        auto lines       = lines_;
        auto const group = live_.strategy().group();
        for (auto const& line : group.meeting().lines) lines.push_back(line);
        expect_same_lines(live_, copies_.size(), lines);
      }
  }

  M const& model() const { return model_; }
  R const& reduce() const { return reduce_; }
  Seed seed() const { return seed_; }
  PlanView plan() const { return model_.plan; }  // valid as long as this object
  Live<S, R, T>& live() { return live_; }
  Live<S, R, T> const& live() const { return live_; }
  PerReplica<instance>& copies() { return copies_; }
  PerReplica<instance> const& copies() const { return copies_; }
  PerReplica<Totals>& totals() { return totals_; }  // of an epoch so far

  /// Number of steps made in all fits, with those whose update was left out.
  std::uint64_t step() const { return static_cast<std::uint64_t>(copies_[0].optimizer.now.step); }

  /// Offset of this process' steady clock from rank 0's, for traces of several hosts. Every process calls it.
  ///
  /// keeps   0 with parameter servers, whose workers do not wait for one another, and if one process has all replicas
  ClockOffset clock_offset() {
    auto offset = ClockOffset{};
    if constexpr (!HasServers<S>) {
      if (live_.is_all_local()) return offset;
      auto const now = [] { return std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}; };
      auto answers   = PerReplica<std::int64_t>(copies_.size());
      auto pings     = std::vector<Ping>(16);
      for (auto& ping : pings) {
        ping.sent = now();
        live_.run(
            [&](auto& replica, std::int64_t& answer) {
              replica.barrier();  // all have sent: now rank 0 reads its clock
              answer = now().count();
              replica.broadcast(Span<std::int64_t>{&answer, 1});
            },
            answers);
        ping.received = now();
        ping.answered = std::chrono::nanoseconds{answers[0]};
      }
      if (!live_.is_chief()) offset = ClockOffset::of(pings);
    }
    return offset;
  }

  /// Measures an all-reduce of the gradients while no rank computes. Every process calls it, between fits.
  ///
  /// returns   the shortest of five; empty if a step has no all-reduce, as with shards, or one that is not
  ///           of plain sums in host memory
  std::optional<StepPrediction> expected_step() {
    if constexpr (ReducesEveryStep<S> && !shards_optimizer<S> && gives_plain_sums<R> &&
                  S::device::memory == Memory::host && !RunsItsRanks<typename T::endpoint>) {
      auto shortest = PerReplica<double>(copies_.size());
      live_.run(
          [](auto& replica, instance& copy, double& seconds) {
            seconds        = std::numeric_limits<double>::infinity();
            auto gradients = copy.gradients();
            std::ranges::fill(gradients.values, 0.0F);
            for (int round = 0; round < 5; ++round) {
              replica.barrier();
              auto const begin = std::chrono::steady_clock::now();
              replica.all_reduce(gradients);
              seconds =
                  std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
            }
          },
          copies_, shortest);
      auto buckets = plan().buckets;
      if constexpr (CutsBuckets<R>) buckets = bucket_ends<R>(plan().variables, plan().ends(), plan().elements).size();
      return StepPrediction{shortest[0], static_cast<int>(buckets)};
    }
    return {};
  }

  /// True at its first call alone.
  bool is_first_telling() { return !std::exchange(told_, true); }

  /// Waits for the steps that replicas have enqueued, and adds them to the totals.
  void catch_up() {
    if constexpr (RunsAhead<instance>)
      for (std::size_t i = 0; i < copies_.size(); ++i)
        if (auto const header = copies_[i].finish_ahead()) count(totals_[i], copies_[i], *header);
  }

  /// Adds the header of a step to the totals, unless its update was skipped.
  static void count(Totals& totals, instance& copy, Span<float const> header) {
    bool const counts = std::isfinite(StepHeader{header}.loss()) || copy.optimizer.on_non_finite == NonFinite::allow;
    if (counts) totals += header;
    if constexpr (KeepsStates<instance>) copy.states().end_step(counts);
  }

  /// True if this process has servers and no replica; it then returns only after all workers have left.
  bool only_serves() {
    if constexpr (HasServers<S>) {
      if (live_.only_serves()) {
        live_.served();
        return true;
      }
    }
    return false;
  }

  /// Compares the variables of all replicas, by hashes of their bits, where they should be equal: after a step, or at
  /// the end of an epoch under a strategy whose replicas train separately until then. Every process calls it. With
  /// compare_every 0 it does nothing.
  ///
  /// throws  NumericFault if they differ, the same on all ranks: it names replica and variable
  /// cost    one pass over the variables and one all_gather of 8 bytes for each replica
  void expect_equal_copies() {
    if constexpr (!HasServers<S> && !shares_variables<S> && !shards_variables<S> && !StrategyTraits<S>::has_stages &&
                  (ReducesEveryStep<S> || StrategyTraits<S>::template finishes<Live<S, R, T>, instance>)) {
      if (copies_[0].compare_every <= 0 || live_.num_ranks() == 1) return;
      if (whole().is_split()) return expect_equal_parts<S>(live_, copies_);
      auto const gathered = [this](auto const& hash) {
        auto hashes = PerReplica<std::uint64_t>(copies_.size());
        live_.run([&](auto&, instance& copy, std::uint64_t& to) { to = hash(copy); }, copies_, hashes);
        return live_.gather(hashes);
      };
      auto const whole = gathered([](instance const& copy) { return copy.hash(); });
      if (std::ranges::count(whole, whole[0]) == std::ssize(whole)) return;
      auto const variables = copies_[0].net.variables();
      auto const n         = variables.size();
      auto all             = std::vector<std::uint64_t>(whole.size() * n);  // (replicas, variables)
      for (std::size_t i = 0; i < n; ++i) {
        auto const one = gathered([i](instance const& copy) { return hash_of(copy.net.variables()[i].value); });
        for (std::size_t r = 0; r < one.size(); ++r) all[r * n + i] = one[r];
      }
      throw_diverged(variables, all);  // not in run(): there one rank's error makes
    }  // the others throw a different one
  }

  /// Sends the chief's numbers to every process with replicas. Returns when all of them have called it.
  std::vector<double> tell_all(std::vector<double> numbers) requires HasServers<S> {
    auto const n = std::max<std::size_t>(numbers.size(), 1);  // of no numbers, all still synchronize
    numbers.resize(n);
    for (std::size_t at = 0; at < n; at += plan::header) {
      auto const part = Span<double>{numbers}.subspan(at, std::min(plan::header, n - at));
      auto totals     = PerReplica<Totals>(copies_.size());
      if (live_.is_chief()) std::ranges::copy(part, totals[0].sums.begin());
      auto const all = live_.reduce(totals);
      std::copy_n(all.sums.begin(), part.size(), part.begin());
    }
    return numbers;
  }

  /// Copies the optimizer state of the servers to the chief's first replica. Returns, on the chief, their updates.
  std::int64_t fetch_from_servers() requires HasServers<S> {
    auto steps = PerReplica<std::uint64_t>(copies_.size());
    live_.run(
        [](auto& replica, instance& copy, std::uint64_t& step) {
          if (replica.id() == 0)
            step = replica.pull_slots(copy.net.variables(), copy.optimizer.slots(), copy.gradients());
        },
        copies_, steps);
    return static_cast<std::int64_t>(steps[0]);
  }

  using Whole = WholeState<S, instance>;
  /// Memory for variables and slots as one device has them.
  Whole whole() const { return Whole{plan()}; }

  /// Totals of all replicas in the epoch so far. Every process calls it, unless each step reduces its gradients.
  Totals totals_of_all() {
    if constexpr (ReducesEveryStep<S>) return totals_[0];
    else return live_.reduce(totals_);
  }

  void forget_totals() {
    for (auto& totals : totals_) totals = {};
    states().forget_epoch();
  }

  /// Scores of the epoch so far, for which nothing is sent: totals of the first replica here, to which each step adds
  /// the sums of all, and results of metrics with a state over the rows of this process.
  Scores scores_here() {
    auto scores = Scores{M::metric_names, totals_[0]};
    states().score_here(scores);
    return scores;
  }

  /// Scores of all replicas in the epoch so far. Every process calls it.
  Scores scores_of_all() {
    auto scores = Scores{M::metric_names, totals_of_all()};
    states().score_all(live_, metric::Over::epoch, scores);
    return scores;
  }

  /// The states of metrics.
  MetricStates<M, instance> states() { return MetricStates<M, instance>{copies_, counted_}; }

 private:
  /// throws   BadArgument if what one replica of the model takes is not within the budget
  void expect_within(MemoryBudget budget) const {
    auto const& strategy = live_.strategy();
    auto const devices   = strategy.local_devices();
    auto const ranks     = StrategyTraits<S>::has_stages ? num_ranks(strategy) : 1;  // one: it has the largest shard
    for (Rank rank = 0; rank < ranks && budget.bytes != 0 && !devices.empty(); ++rank)
      check_budget(memory_plan<S>(model_, reduce_, devices[0], budget.rows, shard_of(strategy, rank)), budget.bytes);
  }

  M model_;
  R reduce_;
  std::vector<std::string> lines_;  // what all ranks must have alike
  Live<S, R, T> live_;
  PerReplica<instance> copies_;
  PerReplica<Totals> totals_;
  Seed seed_;
  std::vector<char> counted_;  // see MetricStates
  bool told_ = false;
};

}  // namespace chorale::detail
