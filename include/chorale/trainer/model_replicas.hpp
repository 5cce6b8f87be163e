// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/observe/clock_offset.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/runtime/divergence.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/trainer/compare_lines.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/step_prediction.hpp>
#include <chorale/trainer/transport_plan.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// A model whose host may be a step ahead of its device.
template <class Model>
concept RunsAhead = requires { requires Model::runs_ahead; };

/// True if the strategy brings replicas together at the end of an epoch.
template <class S, class L, class Model>
concept finishes = requires(S const& strategy, typename L::replica& replica, Model& model) {
  strategy.finish(replica, model);
};

/// The part of a Trainer that holds the replicas of the model, and what everybody may ask about them.
template <class M, class S, class R, class T>
class ModelReplicas {
 public:
  using Batch    = BasicBatch<float, typename M::target>;
  using instance = typename M::template instance<typename S::device>;

  ModelReplicas(M model, S strategy, R reduce, T transport, Seed seed)
      : model_{std::move(model)},
        live_{std::move(strategy), std::move(reduce),
              with_plan(std::move(transport), M::plan, plan_lines(model_, seed))},
        copies_{live_.create(model_, seed)},
        totals_(copies_.size()) {
    if constexpr (!HasServers<S> && !compares_plans<T>())                  // others have compared it as they connected
      if (!live_.is_all_local()) expect_same_lines(live_, copies_.size(), plan_lines(model_, seed));
  }

  int  num_replicas() const { return live_.num_replicas(); }
  bool is_chief() const { return live_.is_chief(); }                       // the process that writes files

  /// One number for each replica of this process; they are equal as long as all copies of all variables are.
  std::vector<std::uint64_t> hashes() const {
    auto all = std::vector<std::uint64_t>{};
    for (auto const& copy : copies_) all.push_back(copy.hash());
    return all;
  }

  /// Updates that were made, in all fits.
  std::uint64_t step() const { return static_cast<std::uint64_t>(copies_[0].optimizer.now.step); }

  float learning_rate() const { return copies_[0].optimizer.rate(); }      // of the next step

  /// Replaces what the optimizer was made with, schedule or number. Every process calls it with the same rate, or none.
  void set_learning_rate(float rate) {
    static_assert(!HasServers<S>, "chorale: under ParameterServerStrategy the servers apply the optimizer, and a worker "
                                  "cannot set its learning rate. A schedule of the optimizer works there");
    CHORALE_EXPECTS(rate >= 0, "a learning rate is 0 or more, got " + std::to_string(rate));
    for (auto& copy : copies_) copy.optimizer.now.rate = rate;
  }

  /// How far this process' steady clock is from that of rank 0, for traces of several hosts. Every process calls it.
  ///
  /// keeps   0 with parameter servers, whose workers do not wait for one another, and where all live here
  ClockOffset clock_offset() {
    auto offset = ClockOffset{};
    if constexpr (!HasServers<S>) {
      if (live_.is_all_local()) return offset;
      auto const now = [] { return std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}; };
      auto answers   = PerReplica<std::int64_t>(copies_.size());
      auto pings     = std::vector<Ping>(16);
      for (auto& ping : pings) {
        ping.sent = now();
        live_.run([&](auto& replica, std::int64_t& answer) {
          replica.barrier();                                               // all have sent, then rank 0 looks
          answer = now().count();
          replica.broadcast(Span<std::int64_t>{&answer, 1});
        }, answers);
        ping.received = now();
        ping.answered = std::chrono::nanoseconds{answers[0]};
      }
      if (!live_.is_chief()) offset = ClockOffset::of(pings);
    }
    return offset;
  }

  /// What an all-reduce of the gradients takes while nobody computes. Every process calls it, between fits.
  ///
  /// returns   the shortest of five; nothing where a step has none, or one that is not made of plain sums in host memory
  std::optional<StepPrediction> expected_step() {
    if constexpr (ReducesEveryStep<S> && gives_plain_sums<R> && S::device::memory == Memory::host &&
                  !RunsItsRanks<typename T::endpoint>) {
      auto shortest = PerReplica<double>(copies_.size());
      live_.run([](auto& replica, instance& copy, double& seconds) {
        seconds = std::numeric_limits<double>::infinity();
        auto gradients = copy.gradients();
        std::ranges::fill(gradients.values, 0.0F);
        for (int round = 0; round < 5; ++round) {
          replica.barrier();
          auto const begin = std::chrono::steady_clock::now();
          replica.all_reduce(gradients);
          seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
      }, copies_, shortest);
      return StepPrediction{shortest[0], static_cast<int>(M::plan.buckets)};
    }
    return {};
  }

  /// What sinks are told of: loss, metrics, the same of validation, the learning rate.
  static std::vector<std::string> const& scalar_names() {
    static auto const names = [] {
      auto all = std::vector<std::string>{};
      for (auto const* before : {"", "val_"}) {
        all.push_back(before + std::string{"loss"});
        for (auto const name : M::metric_names) all.push_back(before + std::string{name});
      }
      all.push_back("learning_rate");
      return all;
    }();
    return names;
  }

  Variables variables() const { return copies_[0].net.variables(); }       // of the first replica of this process

  /// Replaces all variables. Every process calls it with the same values, or none.
  ///
  /// values    as variables().values are
  void set_variables(Span<float const> values)
    requires(!HasServers<S>)
  {
    CHORALE_EXPECTS(values.size() == variables().values.size(),
                    "this model has " + std::to_string(variables().values.size()) + " numbers, got " +
                        std::to_string(values.size()));
    for (auto& copy : copies_) std::ranges::copy(values, copy.net.variables().values.begin());
  }

  PerReplica<instance>& copies() { return copies_; }
  Live<S, R, T>& live() { return live_; }

 protected:
  /// What a replica has queued and not looked at is done, and counted.
  void catch_up() {
    if constexpr (RunsAhead<instance>)
      for (std::size_t i = 0; i < copies_.size(); ++i)
        if (auto const header = copies_[i].finish_ahead()) count(totals_[i], copies_[i], *header);
  }

  /// Adds what a step came to, unless its update was left out.
  static void count(Totals& totals, instance const& copy, Span<float const> header) {
    if (std::isfinite(header[plan::loss_at]) || copy.optimizer.on_non_finite == NonFinite::allow) totals += header;
  }

  /// Is there no replica in this process? Then it serves those of others, until they have ended.
  bool only_serves() {
    if constexpr (HasServers<S>) {
      if (live_.only_serves()) {
        live_.served();
        return true;
      }
    }
    return false;
  }

  /// Compares the variables of all replicas, bit by bit, where they should be equal: after a step, or at the end of an
  /// epoch under a strategy whose replicas learn apart until then. Every process calls it. With compare_every 0 it does
  /// nothing.
  ///
  /// throws  NumericFault when they differ, the same on all ranks: it names replica and variable
  /// cost    one pass over the variables and one all_gather of 8 bytes for each replica
  void expect_equal_copies() {
    if constexpr (!HasServers<S> && !shares_variables<S> &&
                  (ReducesEveryStep<S> || finishes<S, Live<S, R, T>, instance>)) {
      if (copies_[0].compare_every <= 0 || num_replicas() == 1) return;
      auto const gathered = [this](auto const& hash) {
        auto hashes = PerReplica<std::uint64_t>(copies_.size());
        live_.run([&](auto&, instance& copy, std::uint64_t& to) { to = hash(copy); }, copies_, hashes);
        return live_.gather(hashes);
      };
      auto const whole = gathered([](instance const& copy) { return copy.hash(); });
      if (std::ranges::count(whole, whole[0]) == std::ssize(whole)) return;
      auto const n = variables().size();
      auto all     = std::vector<std::uint64_t>(whole.size() * n);         // (replicas, variables)
      for (std::size_t i = 0; i < n; ++i) {
        auto const one = gathered([i](instance const& copy) { return hash_of(copy.net.variables()[i].value); });
        for (std::size_t r = 0; r < one.size(); ++r) all[r * n + i] = one[r];
      }
      throw_diverged(variables(), all);                                    // not within run(): there a rank tells the
    }                                                                      // others, which then throw something else
  }

  /// What the chief has, in every process that computes; returns when all have called it.
  std::vector<double> tell_all(std::vector<double> numbers)
    requires HasServers<S>
  {
    auto const n = std::max<std::size_t>(numbers.size(), 1);               // of nothing, all meet all the same
    numbers.resize(n);
    for (std::size_t at = 0; at < n; at += plan::header) {
      auto const part = Span<double>{numbers}.subspan(at, std::min(plan::header, n - at));
      auto totals     = PerReplica<Totals>(copies_.size());
      if (is_chief()) std::ranges::copy(part, totals[0].sums.begin());
      auto const all = live_.reduce(totals);
      std::copy_n(all.sums.begin(), part.size(), part.begin());
    }
    return numbers;
  }

  /// The chief's first replica gets what servers know of the optimizer. All workers have ended their epoch.
  std::int64_t fetch_from_servers()
    requires HasServers<S>
  {
    auto steps = PerReplica<std::uint64_t>(copies_.size());
    live_.run([](auto& replica, instance& copy, std::uint64_t& step) {
      if (replica.id() == 0) step = replica.pull_slots(copy.net.variables(), copy.optimizer.slots(), copy.gradients());
    }, copies_, steps);
    return static_cast<std::int64_t>(steps[0]);
  }

  /// Of all replicas in the epoch so far; where they learn apart, all processes meet here.
  Totals totals_of_all() {
    if constexpr (ReducesEveryStep<S>) return totals_[0];
    else return live_.reduce(totals_);
  }

  void forget_totals() {
    for (auto& totals : totals_) totals = {};
  }

  /// The numbers of an epoch, named as scalar_names() does; the learning rate comes last.
  struct Shown {
    std::array<MetricValue, 2 * plan::header + 1> values{};
    std::size_t size = 0;

    explicit Shown(Epoch const& epoch) {
      auto const& names = scalar_names();
      add(epoch.scores, names, 0);
      if (epoch.validation) add(*epoch.validation, names, names.size() / 2);
      values[size++] = {names.back(), epoch.learning_rate};
    }
    Span<MetricValue const> all() const { return Span<MetricValue const>{values}.first(size); }
    Span<MetricValue const> scores() const { return all().first(size - 1); }

   private:
    void add(Scores const& scores, std::vector<std::string> const& names, std::size_t at) {
      values[size++] = {names[at++], scores.loss()};
      for (std::size_t i = 0; i < scores.metrics(); ++i) values[size++] = {names[at++], scores.metric(i)};
    }
  };

 private:
  M model_;

 protected:
  Live<S, R, T> live_;
  PerReplica<instance> copies_;
  PerReplica<Totals> totals_;                                              // of an epoch or an evaluation so far
};

}  // namespace chorale::detail
