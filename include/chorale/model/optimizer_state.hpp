// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/parameter_groups.hpp>
#include <chorale/model/row_update.hpp>
#include <chorale/optim/averaged.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/grouped.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// What replicas tell each other of their shards of reduced gradients, before any of them updates its shard: the first
/// variable that is not finite in the shard, and the part of the global norm.
///
///   | rank 0: bad, squares ... | rank 1 | ..     each rank writes its part of the numbers; the rest is 0
///
/// order   the numbers are added up over all ranks, which changes no bit of them
class ShardReport {
 public:
  /// cut     of the gradients' body
  void resize(placement::ShardCut cut, int rank) {
    cut_       = std::move(cut);
    rank_      = rank;
    auto nodes = std::vector<std::size_t>(static_cast<std::size_t>(cut_.world()));
    for (auto const& run : cut_.runs()) nodes[static_cast<std::size_t>(run.rank)] += placement::nodes_in(run.range);
    each_ = 1 + (cut_.parts() == 1 ? SquareTree::most_nodes(SquareTree::lines(cut_.elements()))
                                   : *std::ranges::max_element(nodes));
    read_.resize(nodes.size());
    numbers_.reserve(each_ * nodes.size());
  }

  placement::ShardCut const& cut() const { return cut_; }
  int rank() const { return rank_; }

  /// Begins a report without anything bad.
  ///
  /// with_norm   it will have the squares
  void begin(bool with_norm) {
    size_    = with_norm ? each_ : 1;
    written_ = 1;
    numbers_.assign(size_ * read_.size(), 0.0);
  }
  void bad(std::optional<std::size_t> variable) {
    if (variable) of(rank_)[0] = static_cast<double>(*variable + 1);
  }
  /// Adds the squares of what this rank has of one run; of all its runs in turn.
  void squares(Span<float const> run, Range range, Span<Range const> left_out = {}) {
    auto const placed = placement::Placed<placement::Sharded<0>>{run, range, range.begin};
    written_ += placement::squared_norm(placed, of(rank_).subspan(written_), left_out);
  }

  Span<double> numbers() { return numbers_; }

  /// The first variable that is not finite in any shard.
  std::optional<std::size_t> first_bad() const {
    auto first = std::optional<std::size_t>{};
    for (int rank = 0; rank < cut_.world(); ++rank)
      if (auto const found = static_cast<std::size_t>(of(rank)[0]); found != 0 && (!first || found - 1 < *first))
        first = found - 1;
    return first;
  }
  double squared_norm_of_all() {
    return placement::squared_norm_of_shards(cut_, read_, [this](int rank) { return of(rank).subspan(1); });
  }

 private:
  Span<double> of(int rank) { return Span<double>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_); }
  Span<double const> of(int rank) const {
    return Span<double const>{numbers_}.subspan(static_cast<std::size_t>(rank) * size_, size_);
  }

  placement::ShardCut cut_;
  int rank_         = 0;
  std::size_t each_ = 0, size_ = 0, written_ = 0;  // size_: numbers of each rank in this report
  std::vector<std::size_t> read_;
  std::vector<double> numbers_;
};

/// An optimizer with its state: how one copy of a model's variables is updated.
template <class D, class Optimizer> class OptimizerState {
 public:
  static constexpr bool scales_loss = optim::scales_loss<Optimizer>;

  /// plan      the model's, which outlives it; slots: memory for Optimizer::slots parts that it lays out
  /// throws    BadArgument when an option is out of range, the groups of optim::Grouped do not fit the plan, or the plan
  ///           has gradients that are rows of a table and the rule takes whole variables
  OptimizerState(Optimizer const& rule, PlanView const& plan, Span<float> slots)
      : rule_{rule}, plan_{plan}, slots_{slots}, stride_{plan.slot_stride()}, groups_{rule, plan} {
    optim::check_options(rule);
    if constexpr (scales_loss) loss_scale.value = rule.initial_scale;
    if constexpr (optim::UpdatesByVariable<Optimizer>)
      refuse_rows("takes the norm of each whole variable", "optim::AdamW");
    for (auto const& v : plan.variables)
      CHORALE_EXPECTS(v.spec.split.parts == 1 || !optim::UpdatesByVariable<Optimizer>,
                      "optim::" + type_name<Optimizer>() + " takes the norm of each whole variable, but of " +
                          std::string{std::string_view{v.name}} + " each of " + std::to_string(v.spec.split.parts) +
                          " ranks has a part: use optim::AdamW");
    for (auto const& v : plan.variables) padded_moving_ += v.spec.trained() ? 0 : plan::aligned(v.size);
  }

  /// Makes the state of one shard of all variables, which apply_shard() updates.
  ///
  /// slots     memory for Optimizer::slots times the elements of the shard
  /// throws    BadArgument as above, or when a gradient is rows of a table
  OptimizerState(Optimizer const& rule, PlanView const& plan, Span<float> slots, placement::Shard shard)
      : OptimizerState{rule, plan, slots, placement::ShardCut{plan.body().size(), shard.world}, shard.rank, {}} {}

  /// Where the values and the gradients of a shard lie: in the whole of all variables, or run after run.
  struct InRuns {
    bool values = false, gradients = false;
  };

  /// Makes the state of what one rank holds of all variables, which apply_shard() updates.
  OptimizerState(Optimizer const& rule, PlanView const& plan, Span<float> slots, placement::ShardCut cut, int rank,
                 InRuns lie)
      : OptimizerState{rule, plan, slots} {
    static_assert(!optim::UpdatesByVariable<Optimizer>,
                  "chorale: optim::Lamb takes the norm of each whole variable, but under ShardedStrategy a replica "
                  "updates a shard of them. Use MultiWorkerMirroredStrategy, or optim::AdamW");
    static_assert(!optim::keeps_averages<Optimizer>,
                  "chorale: optim::Averaged keeps averages of all variables beside them, but under ShardedStrategy a "
                  "replica keeps a shard of its state. Use MultiWorkerMirroredStrategy");
    refuse_rows("updates a shard of all variables", "MultiWorkerMirroredStrategy");
    runs_    = cut.runs_of(rank);
    stride_  = cut.held(rank);
    sharded_ = true;
    lie_     = lie;
    report_.resize(std::move(cut), rank);
  }

  /// Progress as the rule counts it: updates that were applied, without steps whose update was left out.
  optim::Moment moment() const {
    auto at = now;
    at.step -= skipped;
    return at;
  }
  float rate() const { return rule_.rate(moment()); }  // of the next update

  /// Makes this object a reader: another instance updates the variables, and this one counts its steps.
  void read_only() {
    slots_ = {};
    reads_ = true;
  }

  /// All slots, one after the other, each laid out as the variables between header and trailer; empty in a reader. Of a
  /// shard, each has the elements that the rank holds, as cut() says.
  Span<float> slots() const {
    constexpr auto n = static_cast<std::size_t>(Optimizer::slots);
    return slots_.first(std::min(slots_.size(), n * stride_));
  }

  /// The elements whose slots these are, from the header on: all dense variables, or a shard that is one range.
  Range mine() const {
    if (!sharded_) return {0, plan_.body().size()};
    return runs_.empty() ? Range{} : Range{runs_.front().range.begin, runs_.back().range.end};
  }
  /// How the dense variables are cut for ranks; of a shard.
  placement::ShardCut const& cut() const { return report_.cut(); }

  /// True if steps have to check that gradients are finite.
  bool checks() const { return scales_loss || on_non_finite != NonFinite::allow; }

  /// True if updates clip gradients to a global norm; and if variable i is in it.
  bool clips() const { return rule_.global_clipnorm > 0; }
  /// For each variable of the plan, 1 if a group freezes it; empty if none does. Valid as long as this object.
  Span<char const> frozen() const { return groups_.are_frozen(); }
  bool is_in_norm(std::size_t i) const { return plan_.variables[i].spec.trained() && !groups_.is_frozen(i); }

  /// True if an update may be enqueued before the host has read its gradients: the host has nothing to decide.
  bool queues() const {
    return optim::QueuesUpdates<Optimizer> && rule_.global_clipnorm <= 0 &&
           !(scales_loss && on_non_finite == NonFinite::allow);
  }

  /// Enqueues the update of these gradients, which are not complete yet; the next apply() then changes no variable.
  /// Does nothing unless queues().
  ///
  /// rows    of the gradients
  /// bad     result of the device's check of the gradients, which is enqueued before
  template <class Bad> void queue(Variables const& variables, Gradients const& gradients, float rows, Bad const* bad) {
    queued_ = queues();
    if (!queued_) return;
    typename Kernels<D>::Unless const here{checks() ? bad : nullptr};
    update(variables, gradients, rows, [&] { return 1 / (rows * loss_scale.value); });
  }

  /// Makes the next apply() update the variables: its gradients are not the ones that the last queue() took.
  void forget_queued() { queued_ = false; }

  /// Applies the mean of reduced gradients: divides their sums by their rows, once. A moving average moves towards the
  /// mean that is stored in place of its gradient, and a tracked variable by it; to the update rule both are variables
  /// without a gradient. A reader of another instance's variables only follow()s.
  ///
  /// throws    NumericFault when the loss or a gradient is not finite and on_non_finite is stop: it names step,
  ///           replica and variable, and the variables keep the values of the step before
  void apply(Variables const& variables, Gradients const& gradients) {
    if (reads_) return follow(gradients);
    auto const scaled_by = loss_scale.value;
    auto const is_done   = std::exchange(queued_, false);
    if (accepts(gradients) && !is_done) {
      update(variables, gradients, gradients.rows(), [&] { return scale(gradients, scaled_by); });
      if constexpr (optim::keeps_averages<Optimizer>) applied_ = true;
      if constexpr (QueuesWork<D>) Kernels<D>::synchronize();  // the host may read variables next
    }
    if (gradients.rows() != 0) ++now.step;
  }

  /// Applies the mean of gradients whose sums this replica has for its shard: updates the shard, and no other
  /// variable. Every replica calls it, with the same header and trailer.
  ///
  /// values    the body of all variables, or the shard, run after run
  /// add_up    called as add_up(numbers) if a norm or a check needs all shards: adds up doubles over all replicas
  /// throws    as apply() does, on every replica
  template <class AddUp> void apply_shard(Span<float> values, Gradients const& gradients, AddUp&& add_up) {
    if (gradients.rows() == 0) return;
    auto const scaled_by = loss_scale.value;
    auto const clips     = rule_.global_clipnorm > 0 && !squared_norm;
    report_.begin(clips);
    if (checks()) report_.bad(first_bad_of_shard(gradients));
    auto const body = gradients.body();
    take_moving(values, body, gradients.rows());
    if (clips)
      for (auto const& run : runs_)
        report_.squares(body.subspan(at(run, lie_.gradients), run.range.size()), run.range, groups_.frozen());
    if (checks() || clips) add_up(report_.numbers());
    if (accepts(gradients)) {
      auto const by = scale(gradients, scaled_by);
      for (auto const& run : runs_)
        update_range(run.range, values.subspan(at(run, lie_.values), run.range.size()),
                     body.subspan(at(run, lie_.gradients), run.range.size()), slots_.subspan(run.at), by);
      put_moving(values);
    }
    ++now.step;
  }

  /// Completes a step that ran ahead: checks it; `now` already counts later steps.
  ///
  /// step      its number; now.step is set to it if this throws
  void settle(Gradients const& gradients, std::int64_t step) {
    auto const next = std::exchange(now.step, step);
    static_cast<void>(accepts(gradients));
    now.step = next;
  }

  /// Counts a step that another instance applies to the variables: checks as apply() does, without an update.
  void follow(Gradients const& gradients) {
    static_cast<void>(accepts(gradients));
    if (gradients.rows() != 0) ++now.step;
  }

  /// Replaces variables by their moving averages; variables that are frozen or not trained stay as they are.
  ///
  /// throws    BadArgument when updates were made elsewhere, and with them the averages: on parameter servers
  void put_averages(Variables const& variables) const requires optim::keeps_averages<Optimizer> {
    if (reads_) return;  // another instance's
    constexpr auto last = static_cast<std::size_t>(Optimizer::slots - 1);
    auto const apart    = slots().subspan(last * plan_.slot_stride());
    CHORALE_EXPECTS(moment().step == 0 || applied_ || std::ranges::any_of(apart, [](float x) { return x != 0; }),
                    "the moving averages of variables are where the optimizer runs, which is not in this process "
                    "after " +
                        std::to_string(moment().step) + " steps");
    for (std::size_t i = 0; i < plan_.variables.size(); ++i) {
      auto const& v = plan_.variables[i];
      if (!v.spec.trained()) continue;  // frozen: the slot is 0
      for (std::size_t k = 0; k < v.size; ++k) variables.values[v.offset + k] += apart[v.slot_offset() + k];
    }
  }

  optim::Moment now;  // steps with those left out: names them, and
                      // their random numbers; the trainer sets the
                      // epoch
  NonFinite on_non_finite = NonFinite::stop;
  std::int64_t skipped    = 0;         // steps without update; below 0 if servers
                                       // had made more updates than steps
  optim::LossScale loss_scale;         // of the next step: multiplies gradients
  std::optional<double> squared_norm;  // of the next update, if other ranks have
                                       // parts of its gradients; else empty
 private:
  bool accepts(Gradients const& gradients) {
    if (gradients.rows() == 0) return false;
    auto const fault = checks() ? non_finite(gradients) : std::string{};
    if constexpr (scales_loss) {
      if (fault.empty()) loss_scale.held(rule_.growth_steps);
      else if (std::isfinite(gradients.loss()) && loss_scale.halve()) return ++skipped, false;
    }
    if (fault.empty() || on_non_finite == NonFinite::allow) return true;
    if (on_non_finite == NonFinite::stop)
      throw NumericFault{fault + "; no variable was changed.",
                         "a lower learning rate, global_clipnorm, a look at the inputs for NaN, or "
                         "FitOptions::on_non_finite."};
    ++skipped;
    return false;
  }

  /// Describes what is not finite in reduced gradients; empty if all is finite. The same on every replica.
  std::string non_finite(Gradients const& g) const {
    auto const step   = " of step " + std::to_string(now.step);
    auto const faults = g.trailer().faults();
    if (!std::isfinite(g.loss()))
      return "the loss" + step + " is " + number_text(g.loss()) + " over " +
             std::to_string(static_cast<long>(g.rows())) + " rows";
    if (faults == 1)
      return "the gradient of " + name_of(g, g.trailer().variable()) + step + " is not finite on replica " +
             std::to_string(index_below(g.trailer().rank(), 65'536));
    if (faults > 1)
      return "gradients" + step + " are not finite on " + std::to_string(static_cast<long>(faults)) + " replicas";
    if (sharded_) {
      if (g.trailer().summed() == 1 || !report_.first_bad()) return {};
      return "the gradient of " + name_of(g, static_cast<float>(*report_.first_bad())) + step +
             " is finite on every replica, but their sum is not";
    }
    auto const rows_finite = [](RowGradients const& table) { return Kernels<D>::finite(table.values()); };
    if (g.trailer().summed() == 1 || (Kernels<D>::finite(g.body()) && std::ranges::all_of(g.tables, rows_finite)))
      return {};
    for (std::size_t i = 0; i < g.plan.size(); ++i)
      if (!Kernels<D>::finite(g[i]))
        return "the gradient of " + name_of(g, static_cast<float>(i)) + step +
               " is finite on every replica, but their sum is not";
    for (auto const& table : g.tables)
      if (!rows_finite(table))
        return "the gradient of " + name_of(g, static_cast<float>(table.variable())) + step +
               " is finite on every replica, but their sum is not";
    return "a gradient" + step + " is not finite";
  }
  std::optional<std::size_t> first_bad_of_shard(Gradients const& g) const {
    for (std::size_t i = 0; i < plan_.variables.size(); ++i)
      for (auto const& run : runs_) {
        auto const part = within(plan_.variables[i], run.range);
        if (!Kernels<D>::finite(g.body().subspan(at(run, lie_.gradients) + part.begin - run.range.begin, part.size())))
          return i;
      }
    return {};
  }
  static std::string name_of(Gradients const& g, float index) {
    auto const i = index_below(index, g.plan.size());
    return i == g.plan.size() ? "a variable" : std::string{std::string_view{g.plan[i].name}};
  }

  /// scale   called when only trained variables have gradients, so that the norm includes nothing else
  template <class Scale>
  void update(Variables const& variables, Gradients const& gradients, float rows, Scale&& scale) {
    take_moving(variables.body(), gradients.body(), rows);
    auto const by = scale();
    update_range({0, plan_.body().size()}, variables.body(), gradients.body(), slots_, by);
    if constexpr (D::memory == Memory::host && !optim::UpdatesByVariable<Optimizer>)
      for (auto const& table : gradients.tables)
        groups_.update_alike(rule_, table.variable(), moment(), [&](auto const& rule, optim::Moment const& at) {
          rows_.template update<D>(rule, variables, table, slots_, {by, at, plan_});
        });
    put_moving(variables.body());
  }

  /// Updates a range of the body.
  void update_range(Range range, Span<float> values, Span<float const> gradients, Span<float> slots, float by) {
    auto const all = optim::Update{values, gradients, slots, by, moment(), stride_};
    if constexpr (optim::HasGroups<Optimizer>) groups_.template update<D>(all, range);
    else if constexpr (optim::UpdatesByVariable<Optimizer>) update_each(all);
    else rule_.template update<D>(all);
  }

  /// Updates each variable by itself.
  void update_each(optim::Update const& u) const {
    for (auto const& v : plan_.variables) {
      if (!v.spec.trained()) continue;
      auto const at = v.slot_offset(), n = plan::aligned(v.size);
      rule_.template update_variable<D>(
          {u.values.subspan(at, n), u.gradients.subspan(at, n), u.slots.subspan(at), u.scale, u.now, u.stride});
    }
  }
  void refuse_rows(std::string const& why, std::string const& instead) const {
    for (auto const& v : plan_.variables)
      CHORALE_EXPECTS(!v.spec.by_rows, "optim::" + type_name<Optimizer>() + " " + why + ", but the gradient of " +
                                           std::string{std::string_view{v.name}} +
                                           " is rows: use nn::Embedding<.., nn::DenseGradient>, or " + instead);
  }

  /// The elements of a variable that lie in a range of the body.
  static Range within(Range elements, Range of) {
    auto const begin = std::max(elements.begin - plan::header, of.begin);
    return {begin, std::max(begin, std::min(elements.end - plan::header, of.end))};
  }
  static Range within(PlannedVariable const& v, Range of) { return within(Range{v.offset, v.end()}, of); }

  /// Where a run lies in values or gradients.
  static std::size_t at(placement::ShardRun const& run, bool in_runs) { return in_runs ? run.at : run.range.begin; }

  /// Computes the next moving averages and tracked variables in separate memory: the update rule may shrink what has no
  /// gradient.
  ///
  /// values, gradients   of the body, or of the shard as it lies
  void take_moving(Span<float const> values, Span<float> gradients, float rows) {
    each_moving([&](std::size_t n, std::size_t value, std::size_t gradient, Movement how, std::size_t to) {
      Kernels<D>::move(n, &values[value], &gradients[gradient], rows, how, moved_.take(padded_moving_) + to);
    });
  }
  void put_moving(Span<float> values) {
    each_moving([&](std::size_t n, std::size_t value, std::size_t, Movement, std::size_t from) {
      Kernels<D>::copy(n, moved_.take(padded_moving_) + from, &values[value]);
    });
  }

  /// Calls f(elements, place of values, of gradients, movement, place among all that moves) for each range of neighbours
  /// that move alike.
  template <class F> void each_moving(F&& f) const {
    if (padded_moving_ == 0) return;
    for (std::size_t i = 0, to = 0; i < plan_.variables.size(); ++i) {
      auto const& first = plan_.variables[i];
      if (first.spec.trained() || groups_.is_frozen(i)) continue;
      auto range = Range{first.offset, first.end()};
      for (; i + 1 < plan_.variables.size(); ++i) {
        auto const& next = plan_.variables[i + 1];
        if (groups_.is_frozen(i + 1) || next.spec.trained() || next.spec.movement() != first.spec.movement() ||
            next.offset != plan::aligned(range.end))
          break;
        range.end = next.end();
      }
      auto const move = [&](Range part, std::size_t value, std::size_t gradient) {
        if (part.size() != 0) f(part.size(), value, gradient, first.spec.movement(), to);
        to += part.size();
      };
      auto const begin = range.begin - plan::header;
      if (!sharded_) move({begin, range.end - plan::header}, begin, begin);
      for (auto const& run : runs_) {
        auto const part   = within(range, run.range);
        auto const inside = part.begin - run.range.begin;
        move(part, at(run, lie_.values) + inside, at(run, lie_.gradients) + inside);
      }
    }
  }

  float scale(Gradients const& gradients, float scaled_by) {
    auto const mean = 1.0F / (std::max(gradients.counted(), 1.0F) * scaled_by);  // of no position: zeros
    if (rule_.global_clipnorm <= 0) return mean;
    auto norm = 0.0;
    if (squared_norm) norm = *squared_norm;
    else if (sharded_) norm = report_.squared_norm_of_all();
    else if constexpr (optim::HasGroups<Optimizer>) norm = groups_.template squared_norm<D>(gradients.body());
    else norm = Kernels<D>::squared_norm(gradients.body());
    for (auto const& table : gradients.tables)
      for (std::size_t i = 0; i < table.size() && !groups_.is_frozen(table.variable()); ++i)
        norm += Kernels<D>::squared_norm(table[i]);
    return mean * optim::clip_factor(norm, mean, rule_.global_clipnorm);
  }

  Optimizer rule_;
  PlanView plan_;
  Span<float> slots_;
  std::size_t stride_;  // from one slot to the next
  bool sharded_ = false;
  std::vector<placement::ShardRun> runs_;  // of this rank, if sharded
  InRuns lie_{};
  ShardReport report_;                 // if sharded
  std::size_t padded_moving_ = 0;      // moving numbers, with padding between them
  bool reads_                = false;  // the variables are another instance's
  bool queued_               = false;  // the update of the next apply() is enqueued
  bool applied_              = false;  // an update was made here
  [[no_unique_address]] detail::GroupsOf<Optimizer> groups_;
  RowUpdate rows_;
  typename Kernels<D>::Scratch moved_;  // the next moving averages, in turn
};

}  // namespace chorale
