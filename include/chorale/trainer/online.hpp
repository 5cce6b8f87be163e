// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/elements.hpp>
#include <chorale/data/stages/map.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/model/model.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/runtime/row_numbers.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/metric_states.hpp>
#include <chorale/trainer/model_replicas.hpp>
#include <chorale/trainer/refused_calls.hpp>
#include <chorale/trainer/trainer.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale::detail {

/// The batches of a model that takes one type of them; void if it takes several.
template <class M> struct TakenFrom : std::type_identity<void> {};
template <class M> requires requires { typename M::batch; }
struct TakenFrom<M> : std::type_identity<typename M::batch> {};

}  // namespace chorale::detail

namespace chorale {

/// Training on rows that a program makes while it runs, such as a solver: each process has its own rows, in its own
/// memory, and they are learned from where they lie, one batch at a time.
///
///   auto online = OnlineTraining{trainer};
///   auto const batch = BasicBatch<float, float>{.x = states, .y = results, .rows = n};    views of its arrays
///   if (step % 10 == 0) loss = online.train(batch).loss();
///   else online.predict(batch, Span<float>{expected});
///
/// A global batch is the rows of all processes, rank 0's first: a step is the same as on one replica that has them all.
/// A batch with first_row and global_rows, such as the part(i, n) of a global one, has these rows of it; otherwise
/// ranks tell each other how many rows they have.
///
/// batches   x (B, width), y (B, targets), of the types that the model takes; or doubles, which are rounded to floats
///           into memory that is kept. B may differ between processes, and be 0 in some of them
/// keeps     the trainer outlives it. After its first step with a number of rows, a step allocates nothing, except
///           under Reproducible and with metrics that have a state
/// throws    BadArgument if a batch does not fit the model, or, under Reproducible, if a process does not have the rows
///           of its logical shards; NumericFault and PeerLost as Trainer::fit. What one process throws ends the step in
///           all of them
template <class M, class S, class R, class T> class OnlineTraining {
  using Replicas                     = detail::ModelReplicas<M, S, R, T>;
  using instance                     = typename Replicas::instance;
  static constexpr bool has_own_rows = ReducesEveryStep<S> && !HasServers<S> && !StrategyTraits<S>::deals_shares;
  static_assert(has_own_rows,
                "chorale: OnlineTraining needs a Strategy whose replicas each have rows of their own, "
                "and add up their gradients in every step. Use MirroredStrategy, "
                "MultiWorkerMirroredStrategy or ShardedStrategy");

 public:
  explicit OnlineTraining(Trainer<M, S, R, T>& trainer)
      : trainer_{&trainer}, here_(trainer.copies().size()), totals_(here_.size()) {
    for (std::size_t i = 0; i < here_.size(); ++i) here_[i] = i;
  }

  /// Makes one step on the rows of all processes. Every process calls it.
  ///
  /// returns   loss and metrics of the global batch, before the update: the same in every process
  template <class B> Scores train(B const& batch) {
    if constexpr (expect_taken<B>()) return train_on([&] { return taken(batch); });
    else return {};
  }

  /// Loss and metrics over the rows of all processes. Every process calls it.
  template <class B> Scores evaluate(B const& batch) {
    if constexpr (expect_taken<B>()) return evaluate_on([&] { return taken(batch); });
    else return {};
  }

  /// Writes the outputs for the rows of this process; targets are ignored, and may be missing.
  ///
  /// out       (B, Output) floats or doubles
  /// keeps     nothing is sent, other processes need not call it, and a batch or memory that does not fit ends nothing
  ///           in them; but where replicas have shards of the variables, every process calls it
  template <class B, std::floating_point Y> void predict(B const& batch, Span<Y> out) {
    if constexpr (expect_taken<B>()) predict_on([&] { return taken(batch); }, out);
  }

  /// Makes one step as train() does, on what `make` returns.
  ///
  /// make      called in this thread: returns a batch of the type that the model takes. What it throws is reported to
  ///           all processes
  template <class Make> Scores train_on(Make&& make) {
    auto& live      = trainer_->live();
    auto const mine = live.hold();
    auto const made = Made<std::remove_reference_t<Make>>{make};
    states().forget_epoch();
    live.run(
        [&](auto& replica, instance& copy, std::size_t i, Totals& totals) {
          auto batch = numbered(replica, made, i);
          replica.begin_step(static_cast<std::uint64_t>(copy.optimizer.now.step));
          auto result = replica.value_and_gradient_ahead(copy, batch);
          live.strategy().update(replica, copy, result.gradients);
          totals = {};
          Replicas::count(totals, copy, result.gradients.header().all());
        },
        trainer_->copies(), here_, totals_);
    auto scores = Scores{M::metric_names, totals_[0]};
    states().score_all(live, metric::Over::epoch, scores);
    return scores;
  }

  /// Evaluates as evaluate() does, on what `make` returns: see train_on().
  template <class Make> Scores evaluate_on(Make&& make) {
    auto& live      = trainer_->live();
    auto const mine = live.hold();
    auto const made = Made<std::remove_reference_t<Make>>{make};
    states().forget(metric::Over::evaluation);
    live.run(
        [&](auto& replica, instance& copy, std::size_t i, Totals& totals) {
          if constexpr (shards_gradients<S>) replica.connect(copy);
          auto sums = std::array<float, plan::header>{};
          copy.evaluate(part_of(made, i), sums);
          totals = {};
          totals += sums;
        },
        trainer_->copies(), here_, totals_);
    auto scores = Scores{M::metric_names, live.reduce(totals_)};
    states().score_all(live, metric::Over::evaluation, scores);
    return scores;
  }

  /// Predicts as predict() does, for what `make` returns: see train_on().
  template <class Make, std::floating_point Y> void predict_on(Make&& make, Span<Y> out) {
    if constexpr (requires { M::output_width; }) {
      constexpr auto width = M::output_width;
      auto const fitting   = [&] {
        auto batch        = make();
        auto const wanted = batch.rows * width;
        CHORALE_EXPECTS(out.size() == wanted,
                          sentence("predict writes {} outputs for each of {} rows, {} in all, but there is room for {}",
                                   width, batch.rows, wanted, out.size()));
        return batch;
      };
      auto const made = Made<decltype(fitting)>{fitting};
      if (made.failure && !shards_gradients<S>) std::rethrow_exception(made.failure);  // outside a step: not sent
      trainer_->live().run(
          [&](auto& replica, instance& copy, std::size_t i) {
            if constexpr (shards_gradients<S>) replica.connect(copy);
            auto const part = part_of(made, i);
            auto const y    = copy.predict(part);  // (rows of the part, Output)
            auto const to   = out.subspan((part.first_row - made.batch.first_row) * width);
            std::ranges::transform(y, to.begin(), [](float value) { return static_cast<Y>(value); });
          },
          trainer_->copies(), here_);
    } else {
      static_assert(sizeof(Y) == 0,
                    "chorale: this model does not predict online. Give its learner output_width and "
                    "predict(variables, batch). See docs/60-write-your-own.md");
    }
  }

 private:
  /// What a batch is made of, or why it could not be made, which the step then throws: so other processes are told.
  template <class Make> struct Made {
    explicit Made(Make& make) {
      try {
        batch = make();
        expect_rows(batch);
      } catch (...) { failure = std::current_exception(); }
    }

    static void expect_rows(auto const& batch) {
      if constexpr (requires {
                      batch.x.size();
                      batch.y.size();
                    })
        CHORALE_EXPECTS(
            batch.rows != 0 ? batch.x.size() % batch.rows == 0 && batch.y.size() % batch.rows == 0
                            : batch.x.empty() && batch.y.empty(),
            sentence("{} numbers and {} targets are not {} rows", batch.x.size(), batch.y.size(), batch.rows));
    }

    std::invoke_result_t<Make&> batch{};
    std::exception_ptr failure{};
  };

  detail::MetricStates<M, instance> states() { return detail::MetricStates<M, instance>{trainer_->copies()}; }

  /// The part of replica i of this process.
  auto part_of(auto const& made, std::size_t i) const {
    if (made.failure) std::rethrow_exception(made.failure);
    auto const& batch = made.batch;
    if (here_.size() == 1) return batch;
    auto const mine = static_cast<int>(i), parts = static_cast<int>(here_.size());
    if constexpr (ShardedReduce<R>)
      if (trainer_->live().num_ranks() == parts) return batch.part(mine, parts, R::logical_shards);
    return batch.part(mine, parts);
  }

  /// The part of replica i of this process, with the place of its rows in the global batch.
  auto numbered(auto& replica, auto const& made, std::size_t i) const {
    auto part = part_of(made, i);
    if constexpr (requires { part.global_rows; }) {
      if (replica.num_replicas() == static_cast<int>(here_.size())) {  // all are here: part(i, n) has the place
        if (part.global_rows == 0) part.global_rows = part.rows;
      } else if (made.batch.global_rows == 0) {
        auto const numbers = detail::number_rows(replica, part.rows);
        part.first_row     = static_cast<std::size_t>(numbers.first);
        part.global_rows   = static_cast<std::size_t>(numbers.all);
      }
      if (part.global_rows == 0)
        throw BadArgument{sentence("a step of {} replicas has 0 rows in all of them.", replica.num_replicas()),
                          "no call of train() where no process has a row."};
      if constexpr (ShardedReduce<R>) expect_shards(replica, part);
    }
    return part;
  }

  static void expect_shards(auto& replica, auto const& part) {
    constexpr auto shards = R::logical_shards;
    auto const wanted     = detail::rows_of_shards(part.global_rows, replica.id(), replica.num_replicas(), shards);
    if (part.first_row == wanted.begin && part.rows == wanted.size()) return;
    throw BadArgument{sentence("under Reproducible rank {} of {} has rows {} to {} of the {} rows of a step, its part "
                               "of {} logical shards, but it was given rows {} to {}.",
                               replica.id(), replica.num_replicas(), wanted.begin, wanted.end, part.global_rows, shards,
                               part.first_row, part.first_row + part.rows),
                      "part(rank, ranks, shards) of the global batch, or a Reduce that takes any rows."};
  }

  static constexpr bool takes_numbers = detail::is_basic_batch<typename detail::TakenFrom<M>::type>;
  using Targets                       = typename detail::NumbersTaken<M>::y;

  template <class From, class To>
  static constexpr bool becomes = std::same_as<From, To> || (std::floating_point<From> && std::same_as<To, float>) ||
                                  (std::integral<From> && std::same_as<To, int>);
  template <class B>
  static constexpr bool takes = LearnsFrom<M, B> || (takes_numbers && detail::is_basic_batch<B> &&
                                                     becomes<typename detail::NumbersOfBatch<B>::x, float> &&
                                                     becomes<typename detail::NumbersOfBatch<B>::y, Targets>);

  template <class B> static constexpr bool expect_taken() {
    static_assert(takes<B>,
                  "chorale: OnlineTraining takes batches of the types that the model takes, such as "
                  "BasicBatch<float, int>, or with doubles for floats, or with other integers for labels");
    return takes<B>;
  }

  /// The batch as the model takes it: its numbers where they are, if they are of that type, else in memory that stays.
  template <class B> auto taken(B const& batch) {
    if constexpr (LearnsFrom<M, B>) return BatchOf<M, B>{batch};
    else
      return typename M::batch{.x           = as_taken(batch.x, x_),
                               .y           = as_taken(batch.y, y_),
                               .rows        = batch.rows,
                               .first_row   = batch.first_row,
                               .global_rows = batch.global_rows};
  }

  template <class From, class To> static Span<To const> as_taken(Span<From const> from, std::vector<To>& kept) {
    if constexpr (std::is_same_v<From, To>) {
      return from;
    } else {
      kept.resize(from.size());  // which never gives memory back
      if constexpr (std::is_integral_v<From>) std::ranges::transform(from, kept.begin(), data::int_label<From>);
      else std::ranges::transform(from, kept.begin(), [](From number) { return static_cast<To>(number); });
      return kept;
    }
  }

  Trainer<M, S, R, T>* trainer_;
  PerReplica<std::size_t> here_;  // 0, 1, ..: the replicas of this process
  PerReplica<Totals> totals_;
  std::vector<float> x_;  // rounded numbers
  std::vector<std::conditional_t<takes_numbers, Targets, int>> y_;
};

}  // namespace chorale
