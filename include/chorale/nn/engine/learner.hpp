// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class: every call finds the executor of its batch, and leaves what the next call reads.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/field.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/work.hpp>
#include <chorale/nn/engine/empty_share.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/engine/queued_terms.hpp>
#include <chorale/nn/engine/sliced_executor.hpp>
#include <chorale/nn/engine/split_calls.hpp>
#include <chorale/nn/engine/term_losses.hpp>
#include <chorale/nn/engine/term_scores.hpp>
#include <chorale/nn/engine/work.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// Gathers, for predictions, outputs of a network where each rank along an axis has a part of every vector.
template <class Net> class SplitOutputs {
  static constexpr auto const& g = Traced<Net, NoDevice>::calls;

 public:
  /// The axis along which each rank has a part of output o; empty: the output is whole.
  static constexpr std::string_view axis(std::size_t o) { return g.values[at(g.outputs[o])].held.columns; }
  /// Ranks that have a part of output o.
  static constexpr std::size_t ranks(std::size_t o) {
    if (axis(o).empty()) return 1;
    for (auto const& call : g.calls)
      if (call.ops->axis == axis(o)) return static_cast<std::size_t>(call.ops->axis_size);
    return 1;
  }

  /// All of output o, the same on all ranks. Valid until the next call for it.
  ///
  /// part    this rank's n numbers
  float const* whole(std::size_t o, float const* part, std::size_t n, AxisGroups axes) {
    auto const count = ranks(o), columns = last_dimension[o];
    if (count == 1) return part;
    auto& memory = wholes_[o];
    memory.resize(2 * n * count);
    auto const by_rank = Span<float>{memory}.last(n * count);
    along::all_gather(group_along(axes, axis(o), static_cast<int>(count)), Span<float const>{part, n}, by_rank);
    auto* to = memory.data();
    for (std::size_t vector = 0; vector < n / columns; ++vector)
      for (std::size_t r = 0; r < count; ++r) to = std::copy_n(&by_rank[r * n + vector * columns], columns, to);
    return memory.data();
  }

 private:
  template <class... O> static constexpr std::array<std::size_t, sizeof...(O)> last_of(List<O...>) {
    return {static_cast<std::size_t>(O::back)...};
  }
  static constexpr auto last_dimension = last_of(typename OutputsIn<Net>::values{});

  std::array<std::vector<float>, last_dimension.size()> wholes_;
};

/// True if a batch has all fields that a network takes.
template <class Batch, class... F> constexpr bool has_fields(List<F...>) {
  return (has_field<Batch, typename WithoutRequest<F>::type> && ...);
}

/// Refuses a network that device D does not compute. A function, as clang abandons a class with a failed static_assert.
template <class D, bool ragged, bool tables> constexpr auto check_network_on() {
  static_assert(
      D::memory == Memory::host || !ragged,
      "chorale: a network with rows of different lengths runs on CPUs only. Give its fields one length, or use "
      "a strategy over Cpu");
  static_assert(D::memory == Memory::host || ragged || !tables,
                "chorale: gradients that are rows of a table run on CPUs only. Write nn::Embedding<rows, width, "
                "nn::DenseGradient>, or use a strategy over Cpu");
}

/// How one copy of a traced network computes: the Learner of nn::compile<Net>(...), for a network derived from
/// nn::Graph.
///
/// Losses    std::tuple of OfOutput<F, loss>
/// Metrics   std::tuple of OfOutput<F, metric>
/// keeps     a step allocates nothing once its number of rows was seen and, of ragged fields, a batch with as many
///           positions. Without a copy constructor: see another()
template <class Net, class D, class Losses, class Metrics> class GraphLearner {
  using checked = decltype(check_network_on<D, has_ragged(Traced<Net, NoDevice>::calls), has_tables<Net>()>());

  // Rows of different lengths are computed by one executor, as is what ranks of an axis compute together.
  static constexpr bool in_slices = std::is_same_v<D, Cpu> && !has_ragged(Traced<Net, NoDevice>::calls) &&
                                    !is_in_one_piece(Traced<Net, NoDevice>::calls);
  using Executing = std::conditional_t<in_slices, SlicedExecutor<Net>, ExecutorOf<Net, D>>;
  template <class F, class When>
  static constexpr std::size_t input_of                  = index_of<Differentiable<F, When>, typename Net::inputs>;
  template <class F> static constexpr bool is_on_request = input_of<F, OnRequest> < Executing::num_inputs;
  using Scoring                                          = TermScores<Net, D, Executing, Losses, Metrics>;
  /// Elements of one row of output o on all ranks of an axis, or of one position.
  static constexpr std::size_t whole_width(std::size_t o) { return Executing::width(o) * SplitOutputs<Net>::ranks(o); }

 public:
  static constexpr Memory memory = D::memory;  // in which it computes

  static constexpr std::size_t output_width = [] {
    auto sum = std::size_t{0};
    for (std::size_t o = 0; o < Executing::num_outputs; ++o) sum += whole_width(o);
    return sum;
  }();

  /// See Copy: set by the first layer that adds up over all replicas.
  static constexpr std::size_t joins_below = [] {
    for (auto const& call : Traced<Net, D>::calls.calls)
      if (call.ops->joined > 0) return nn::plan_of<Net>.ready[at(call.number)];
    return std::size_t{0};
  }();

  /// The axes of several ranks over which layers are split.
  static constexpr auto axes_asked() { return graph::axes_asked(Traced<Net, NoDevice>::calls); }

  /// What a step of this network must compute for each row, and for each ragged position.
  static constexpr NetworkWork work = work_of(Traced<Net, D>::calls);

  /// Bytes that computing with so many rows takes, beside the arena.
  ///
  /// positions   of each ragged input, in all rows of the first batch
  ShareMemory planned(D const& device, std::size_t rows, std::size_t positions) const {
    if (rows == 0) return {};
    if constexpr (in_slices) {
      return Executing::planned(device, static_cast<int>(rows), scores_.overwritten());
    } else {
      auto rooms = typename Executing::Rooms{};
      each_input([&]<class F>(std::size_t i) { rooms[i] = F::is_ragged ? with_reserve(positions) : 0; });
      return {.activations = Executing::planned_bytes(static_cast<int>(rows), rooms, scores_.overwritten())};
    }
  }

  /// Positions of the first ragged field in a batch; 0 if no input is ragged.
  template <class Batch> static std::size_t ragged_positions(Batch const& batch) {
    auto positions = std::size_t{0};
    each_input([&]<class F>(std::size_t) {
      if (F::is_ragged && positions == 0)
        for (auto const length : lengths_of<F>(batch)) positions += static_cast<std::size_t>(length);
    });
    return positions;
  }

  /// Names of the losses of all outputs, if there are several, and of all metrics.
  static constexpr auto metric_names     = Scoring::metric_names;
  static constexpr bool counts_positions = Scoring::counts_positions;

  GraphLearner(D device, Losses losses, Metrics metrics)
      : GraphLearner{std::move(device), Scoring{std::move(losses), std::move(metrics)}} {}

  /// A learner with the same losses and metrics for another copy, on its device.
  GraphLearner another(D device) const { return {std::move(device), scores_.another()}; }

  void place(Variables const& variables, Gradients const& gradients) {
    variables_ = variables.values;
    gradients_ = gradients.values;
    tables_    = gradients.tables;
    executors_.clear();
    empty_.reset();
    last_  = nullptr;
    begun_ = {};
    slice_threads_.reset();
  }

  /// Sets where variables and gradients are while units of the network take turns. It outlives the learner.
  void place_units(UnitMemory& units) {
    units_ = &units;
    place({}, {});
  }

  /// Sets the ranks with which layers that are split over an axis of a mesh compute. They outlive the learner.
  void join(AxisGroups axes) { axes_ = axes; }

  /// Takes part in the sums over all replicas of one step, without rows.
  void take_part(Together const& together, Span<char const> frozen) { Executing::take_part(together, frozen, zeros_); }

  /// Takes part, without rows, in what the ranks of an axis that deals out rows compute together: forward and, in
  /// training, backward.
  void take_part(Pass pass) requires(is_split(Traced<Net, NoDevice>::calls)) {
    pass.axes = groups_for(pass);
    if (!empty_) empty_ = std::make_unique<EmptyShare<Net, D>>(plan_for<Net>(), variables_, gradients_, tables_);
    empty_->forward(pass);
    if (pass.training) empty_->backward(pass);
  }

  /// True if learning from such a batch continues what outputs() has begun, as it has no inputs.
  template <class Batch> static constexpr bool continues = !has_fields<Batch>(typename Net::inputs{});

  template <class Step, class Batch> void learn(Step& step, Batch const& batch) {
    auto pass = step.pass;
    pass.axes = groups_for(pass);
    if constexpr (continues<Batch>) pass.now.first_row = begun_.first_row;
    auto& executor = begun_or_forward(batch, pass);
    auto scores    = scores_.of(batch, executor, pass.training ? metric::Over::step : metric::Over::evaluation, axes_);
    if constexpr (counts_positions) step.positions(static_cast<float>(scores.positions));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step.loss(scores.loss, scores.metrics[I]...);
    }(std::make_index_sequence<metric_names.size()>{});
    auto summed         = std::size_t{0};
    auto const is_final = [&](std::size_t end) {
      if constexpr (has_sums(Traced<Net, NoDevice>::calls)) sum_along_axes(std::exchange(summed, end), end);
      step.done_below(end);
    };
    if constexpr (in_slices) {
      executor.backward(pass, is_final, Step::looks_at_end);
    } else if constexpr (QueuesWork<D>) {
      executor.backward(executor.step().tell(pass), [&](std::size_t end) {
        if constexpr (!Step::looks_at_end) executor.settle();  // the host may send the gradients
        is_final(end);
      });
      executor.settle();
    } else {
      executor.backward(pass, is_final);
    }
  }

  template <class Batch> void evaluate(Variables const&, Batch const& batch, StepHeader<float> header) {
    auto const scores = scores_.of(batch, forward(batch, {.axes = axes_}), metric::Over::evaluation, axes_);
    header.loss()     = scores.loss;
    if constexpr (counts_positions) header.positions() = static_cast<float>(scores.positions);
    for (std::size_t i = 0; i < metric_names.size(); ++i) header.metric(i) = scores.metrics[i];
  }

  /// All outputs of each row, one after another: (B, output_width); of ragged outputs the positions of each row,
  /// without padding. Outputs that are split over ranks are gathered. Valid until the next call.
  template <class Batch> Span<float const> predict(Variables const&, Batch const& batch) {
    return outputs_of(forward(batch, {.axes = axes_}), batch.rows);
  }

  /// All outputs of each row, as predict() gives them, computed as in a training step, which learn() of a batch without
  /// inputs then continues. The inputs live until then.
  template <class Batch> Span<float const> outputs(Pass pass, Batch const& batch) {
    static_assert(!QueuesWork<D>, "chorale: outputs(batch) begins a step on Cpu only. Use predict(batch) there");
    pass.axes      = axes_;
    auto& executor = forward(batch, pass);
    begun_         = {batch.rows, pass.now.first_row, pass.now.step};
    return outputs_of(executor, batch.rows);
  }

  /// True if an output has as many positions in each row as one of the inputs.
  static constexpr bool has_ragged_outputs = [] {
    for (std::size_t o = 0; o < Executing::num_outputs; ++o)
      if (Executing::ragged_of(o) >= 0) return true;
    return false;
  }();

  /// Numbers that predict() gives for row r of a batch.
  template <class Batch> static std::size_t outputs_of_row(Batch const& batch, std::size_t r) {
    auto sum = std::size_t{0};
    for (std::size_t o = 0; o < Executing::num_outputs; ++o) {
      auto n = std::size_t{1};
      each_input([&]<class F>(std::size_t i) {
        if (static_cast<int>(i) == Executing::ragged_of(o)) n = static_cast<std::size_t>(lengths_of<F>(batch)[r]);
      });
      sum += n * whole_width(o);
    }
    return sum;
  }

  /// The gradient of the loss by input F, which is Differentiable, for the rows of the last step: (B, F), sums as the
  /// gradients of variables are; of a ragged field the positions of each row, without padding. Valid until the next
  /// step.
  template <class F> Span<float const> gradient_by(F) const {
    static_assert(
        !is_on_request<F>,
        "chorale: no step computes the gradient by an input that is nn::Differentiable<F, nn::OnRequest>. Ask "
        "with gradient_by(F{}, batch), or remove nn::OnRequest");
    return last_ == nullptr ? Span<float const>{} : gradient_of<F>(*last_);
  }
  /// The gradient by input F, which is Differentiable, of the loss of this batch. Changes gradients of variables.
  template <class F, class Batch> Span<float const> gradient_by(F, Pass pass, Batch const& batch) {
    static_assert(!QueuesWork<D>, "chorale: gradient_by(F, batch) computes on Cpu only. Use a strategy over Cpu");
    pass.axes      = axes_;
    auto& executor = begun_or_forward(batch, pass);
    scores_.losses(batch, executor, axes_);
    executor.backward_to_inputs(pass);
    return gradient_of<F>(executor);
  }

  /// The states of the metrics: of the steps that the trainer has counted, and of evaluate().
  auto& states() requires(!std::is_same_v<typename StatesOfTerms<Metrics>::type, metric::NoStates>) {
    return scores_.states();
  }

 private:
  GraphLearner(D device, Scoring scores) : device_{std::move(device)}, scores_{std::move(scores)} {}

  /// Returns the groups of a pass. Where its rows are one logical shard, each rank has a separate shard.
  AxisGroups groups_for(Pass const& pass) {
    if (!is_split(Traced<Net, NoDevice>::calls) || !pass.in_shards) return axes_;
    in_shards_.assign(axes_.begin(), axes_.end());
    for (auto& group : in_shards_) group.in_shards = true;
    return in_shards_;
  }

  Span<float const> outputs_of(Executing& executor, std::size_t rows) {
    if constexpr (QueuesWork<D>) executor.settle();
    auto const whole = [&](std::size_t o) {
      return split_outputs_.whole(o, executor.output(o), executor.size(o), axes_);
    };
    if constexpr (Executing::num_outputs == 1) {
      return {whole(0), executor.size(0) * SplitOutputs<Net>::ranks(0)};
    } else {
      auto size    = std::size_t{0};
      auto outputs = std::array<float const*, Executing::num_outputs>{};
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        outputs[o] = whole(o);
        size += executor.size(o) * SplitOutputs<Net>::ranks(o);
      }
      predicted_.resize(size);
      auto* to = predicted_.data();
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t o = 0; o < outputs.size(); ++o) {
          auto const row = TermLosses<Net, D, Executing>::row_of(executor, o, r);
          to             = std::copy_n(outputs[o] + row.begin * whole_width(o), row.size() * whole_width(o), to);
        }
      return predicted_;
    }
  }

  /// Adds up, over the ranks of an axis that have other positions, the gradients of variables in [begin, end).
  void sum_along_axes(std::size_t begin, std::size_t end) {
    constexpr auto const& g    = Traced<Net, NoDevice>::calls;
    constexpr auto const& plan = nn::plan_of<Net>;
    for (std::size_t v = 0; v < plan.variables.size(); ++v) {
      auto const& of = plan.variables[v];
      if (g.variables[v].summed.empty() || of.offset < begin || of.end() > end) continue;
      for (auto const& group : axes_) {
        if (group.name != g.variables[v].summed) continue;
        auto const n = along::scratch_for(of.size, group.size);
        along::all_reduce(group, gradients_.subspan(of.offset, of.size), Span<float>{along_axes_.take(n), n});
      }
    }
  }

  /// Positions that the buffers of a ragged input have room for after a batch with so many.
  static std::size_t with_reserve(std::size_t positions) { return positions + positions / 4; }

  /// Calls f.operator()<F>(i) for the field F of each input i.
  static void each_input(auto&& f) {
    [&]<class... F>(List<F...>) {
      auto i = std::size_t{0};
      (f.template operator()<typename WithoutRequest<F>::type>(i++), ...);
    }(typename Net::inputs{});
  }
  template <class F> static Span<float const> gradient_of(Executing const& executor) {
    constexpr auto i = is_on_request<F> ? input_of<F, OnRequest> : input_of<F, InEachStep>;
    static_assert(i < Executing::num_inputs,
                  "chorale: gradient_by asks for an input that the network does not take as "
                  "nn::Differentiable. Write nn::Graph<nn::Differentiable<F>>");
    if (executor.d_input(i) == nullptr) return {};
    auto const rows = F::is_ragged ? executor.ragged(i).positions : static_cast<std::size_t>(executor.rows());
    return {executor.d_input(i), rows * targets_in<F>};
  }

  /// The executor of a batch after forward, which outputs() has done for a batch without inputs.
  ///
  /// throws  BadArgument when it has not
  template <class Batch> Executing& begun_or_forward(Batch const& batch, Pass const& pass) {
    if constexpr (!continues<Batch>) {
      return forward(batch, pass);
    } else {
      auto const [rows, first_row, step] = std::exchange(begun_, {});
      CHORALE_EXPECTS(rows == batch.rows && step == pass.now.step,
                      "a batch of " + std::to_string(batch.rows) +
                          " rows without the inputs of the network follows "
                          "outputs() of as many rows in the same step, but outputs() was called with " +
                          std::to_string(rows));
      return *last_;
    }
  }
  template <class Batch> Executing& forward(Batch const& batch, Pass const& pass) {
    begun_         = {};
    auto positions = typename Executing::Rooms{};
    each_input([&]<class F>(std::size_t i) { positions[i] = positions_in<F>(batch); });
    auto& executor = executor_for(static_cast<int>(batch.rows), positions);
    each_input([&]<class F>(std::size_t i) {
      auto const* const x = batch[F{}].data();
      if constexpr (F::is_ragged) executor.read(i, x, batch.width(F{}) / targets_in<F>, batch.lengths(F{}));
      else executor.read(i, x);
    });
    if constexpr (QueuesWork<D>) {
      auto const told = executor.step().tell(pass);
      executor.step().begin();
      executor.forward(told);
    } else {
      executor.forward(pass);
    }
    return executor;
  }
  /// The executor for batches of so many rows. It has room for more positions than any batch had so far, as steps with
  /// other lengths should find one; how many that is changes no result.
  Executing& executor_for(int rows, typename Executing::Rooms positions) {
    auto place = std::find_if(executors_.begin(), executors_.end(), [&](auto const& e) { return e->rows() == rows; });
    if (place != executors_.end() && (*place)->has_room(positions)) return *(last_ = place->get());
    if (place == executors_.end()) place = executors_.insert(place, nullptr);
    if constexpr (in_slices) {
      *place = std::make_unique<Executing>(device_, rows, variables_, gradients_, tables_, slice_threads_,
                                           scores_.overwritten(), units_);
    } else {
      for (std::size_t i = 0; i < positions.size(); ++i) {
        positions[i] = with_reserve(positions[i]);
        if (*place != nullptr) positions[i] = std::max(positions[i], (*place)->ragged(i).room);
      }
      place->reset();  // before the next one takes memory
      *place = std::make_unique<Executing>(rows, variables_, gradients_, tables_, device_, positions,
                                           scores_.overwritten(), units_);
    }
    return *(last_ = place->get());
  }
  D device_;
  Scoring scores_;
  Span<float> variables_, gradients_;
  Span<RowGradients> tables_;
  UnitMemory* units_ = nullptr;
  std::unique_ptr<SliceThreads> slice_threads_;        // null until needed
  std::vector<std::unique_ptr<Executing>> executors_;  // one for each number of rows seen so far
  Executing* last_ = nullptr;                          // that computed last
  struct Begun {
    std::size_t rows = 0, first_row = 0;
    std::uint64_t step = 0;
  } begun_;  // by outputs()
  std::vector<float> predicted_;
  SplitOutputs<Net> split_outputs_;          // put together for predictions
  typename Kernels<D>::Scratch along_axes_;  // for what ranks of an axis exchange
  struct NeverEmpty {};
  std::unique_ptr<std::conditional_t<is_split(Traced<Net, NoDevice>::calls), EmptyShare<Net, D>, NeverEmpty>>
      empty_;                  // null until needed
  std::vector<double> zeros_;  // what a share without rows adds
  AxisGroups axes_;
  std::vector<AxisGroup> in_shards_;  // the same, see groups_for
};

}  // namespace chorale::nn::graph
