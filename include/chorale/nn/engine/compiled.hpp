// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/field.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/model/copy.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/model.hpp>
#include <chorale/nn/engine/compile_arguments.hpp>
#include <chorale/nn/engine/learner.hpp>
#include <chorale/nn/engine/units.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn {

namespace detail {

template <class Net> concept MultipliesHalves = requires { requires Net::products == Products::fp16; };

}  // namespace detail

namespace graph {

/// Lines for the calls of a network, which ranks compare: what is called with which values, and what it gives.
///
///   call 2 Dense<64> 5 -> 6
template <class Net> void describe_calls(std::vector<std::string>& lines) {
  constexpr auto const& g = Traced<Net, NoDevice>::calls;
  auto number             = std::size_t{0};
  for (auto const& call : g.calls) {
    auto line = "call " + std::to_string(number++) + " " + call.text();
    for (int i = 0; i < call.ins; ++i) line.append(" ") += std::to_string(g.ins[at(call.first_in + i)]);
    line.append(" -> ") += std::to_string(call.first_out) + " layer " + std::to_string(call.layer);
    lines.push_back(line);
  }
  auto outputs = std::string{"outputs"};
  for (auto const value : g.outputs) outputs.append(" ") += std::to_string(value);
  lines.push_back(outputs);
}

/// How output o ends, by the layer that gives it, not counting layers that only change its shape.
template <class Net, std::size_t O> constexpr Ending ending_of() {
  constexpr auto const& g = Traced<Net, NoDevice>::calls;
  if constexpr (O < g.outputs.size()) {
    for (auto value = g.outputs[O]; g.values[at(value)].call >= 0;) {
      auto const& call = g.calls[at(g.values[at(value)].call)];
      auto const kind  = g.layers[at(call.layer)].kind;
      if (kind == "softmax") return Ending::softmax;
      if (kind == "sigmoid") return Ending::sigmoid;
      if (kind == "dense" || kind == "conv1d" || kind.ends_with("conv2d") || kind == "conv2d_transpose")
        return Ending::logits;
      if (kind != "flatten" && kind != "reshape" && kind != "permute" && kind != "slice") break;
      value = g.ins[at(call.first_in)];
    }
  }
  return Ending::unknown;
}

/// What a rank has of output o.
template <class Net, std::size_t O> constexpr Held held_of_output() {
  constexpr auto const& g = Traced<Net, NoDevice>::calls;
  if constexpr (O >= g.outputs.size()) return {};
  else return g.values[at(g.outputs[O])].held;
}
/// The axis over which a loss adds up; empty: its outputs are whole.
template <class L> constexpr std::string_view axis_of() {
  if constexpr (requires { typename L::axis; }) return L::axis::name;
  else return {};
}

/// Checks a loss or a metric of an output. A function for each kind of mistake, so that there is one error.
template <class Net, class Term> constexpr bool check_field() {
  constexpr bool is_output =
      index_of<typename Term::field, typename OutputsIn<Net>::fields> < OutputsIn<Net>::fields::size;
  static_assert(is_output || OutputsIn<Net>::fields::size == 0,
                "chorale: nn::of<F>(...) names a field that this network has no output for. Name an output of "
                "nn::outputs<...>");
  return is_output;
}
template <class Net, class Term> constexpr bool check_loss() {
  using L = decltype(Term::what);
  using F = typename Term::field;
  if constexpr (nn::detail::check_loss_members<L>()) {
    constexpr auto o         = index_of<F, typename OutputsIn<Net>::fields>;
    constexpr auto end       = ending_of<Net, o>();
    using O                  = typename Nth<o, typename OutputsIn<Net>::values>::type;
    using C                  = Compared<L, O, F>;
    constexpr bool same_type = std::is_same_v<typename L::target, typename F::element_type>;
    static_assert(same_type,
                  "chorale: this loss and the field of its output have different element types: losses of "
                  "labels take a Field<int, ..>, all others a Field<float, ..>");
    constexpr bool same_rows = O::is_ragged == F::is_ragged;
    static_assert(same_rows,
                  "chorale: of an output and the field that it is compared with, one has rows of different "
                  "lengths and the other has not. Targets of a ragged output are a Field<.., ragged>; "
                  "nn::GlobalAveragePool1D makes one vector of each row");
    if constexpr (same_type && same_rows)
      static_assert(C::positions * loss::targets_of<L>(C::width) == targets_in<F>,
                    "chorale: this loss takes another number of targets for its output than the field has. Labels: one "
                    "for each vector of the last dimension; numbers: one for each number of the output");
    constexpr bool twice = detail::takes_logits<L> && end == Ending::softmax;
    constexpr bool never = detail::takes_probabilities<L> && end == Ending::logits;
    static_assert(!twice,
                  "chorale: this output ends with nn::Softmax, and its loss takes logits, to which it applies softmax "
                  "itself. Remove nn::Softmax, or use loss::SparseCrossEntropyOfProbabilities or "
                  "loss::CrossEntropyOfProbabilities");
    static_assert(!never,
                  "chorale: this output ends with logits, and its loss takes probabilities. Put nn::Softmax at its "
                  "end, or use loss::SparseCrossEntropy or loss::CrossEntropy, which take logits");
    constexpr auto held = held_of_output<Net, o>().columns;
    constexpr auto axis = axis_of<L>();
    static_assert(held == axis || held.empty(),
                  "chorale: each rank has a part of the logits of this output, and its loss needs all of them. Use "
                  "loss::SplitSparseCrossEntropy<axis> with the axis over which they are split, or put nn::RowDense "
                  "last");
    static_assert(held == axis || !held.empty(),
                  "chorale: loss::SplitSparseCrossEntropy takes logits of which each rank has a part, as logits(x) of "
                  "an nn::SplitEmbedding and nn::ColumnDense give them. Use loss::SparseCrossEntropy");
    if constexpr (same_type && same_rows && !twice && !never && held == axis)
      return detail::check_loss_fits<L, end, C::width>();
  }
  return false;
}
template <class Net, class Term> constexpr bool check_metric() {
  static_assert(held_of_output<Net, index_of<typename Term::field, typename OutputsIn<Net>::fields>>().whole(),
                "chorale: each rank has a part of this output, and a metric needs all of it. Leave the metric out: the "
                "exp of the loss is the perplexity");
  static_assert(
      requires { decltype(Term::what)::name; },
      "chorale: this metric has no name. A metric has a static constexpr std::string_view name, and "
      "sum(rows, width, outputs, targets)");
  if constexpr (requires { decltype(Term::what)::name; }) {
    using M          = decltype(Term::what);
    constexpr auto o = index_of<typename Term::field, typename OutputsIn<Net>::fields>;
    using C          = Compared<M, typename Nth<o, typename OutputsIn<Net>::values>::type, typename Term::field>;
    if constexpr (metric::check_state<M, typename Term::field::element_type>())
      return detail::check_metric_fits<M, ending_of<Net, o>(), C::width>();
    else return false;
  }
  return true;
}

template <class Net, class... Term> constexpr bool check_losses(std::type_identity<std::tuple<Term...>>) {
  return ([] {
    if constexpr (check_field<Net, Term>()) return check_loss<Net, Term>();
    else return false;
  }() && ...);
}
template <class Net, class... Term> constexpr bool check_metrics(std::type_identity<std::tuple<Term...>>) {
  return ([] {
    if constexpr (check_field<Net, Term>()) return check_metric<Net, Term>();
    else return false;
  }() && ...);
}

/// What a loss or a metric is about: the output that it names, or the only one.
template <class Net, class T> constexpr auto term_of(T const& what) {
  if constexpr (detail::is_of_output<T> || detail::IsObjective<T>) {
    return what;
  } else {
    using Fields = typename OutputsIn<Net>::fields;
    static_assert(Fields::size < 2,
                  "chorale: this network has several outputs, so a loss or a metric must name its "
                  "output: nn::of<Field>(loss)");
    if constexpr (Fields::size == 1) return of<typename Nth<0, Fields>::type>(what);
    else return Objective<>{};
  }
}

/// What the speed of a network is counted in.
template <class First, class... F> constexpr CountedAs counted_by(detail::List<First, F...>) {
  using Field = typename WithoutRequest<First>::type;
  return counted_as(Field::dims, std::is_integral_v<typename Field::element_type>);
}

template <class Batch, class... Term> constexpr bool has_targets(std::type_identity<std::tuple<Term...>>) {
  return ((has_field<Batch, typename Term::field> &&
           [] {
             if constexpr (std::is_void_v<typename Term::row_weight>) return true;
             else return has_field<Batch, typename Term::row_weight>;
           }()) &&
          ...);
}
template <class Batch> inline constexpr bool has_named_fields            = false;
template <class... F> inline constexpr bool has_named_fields<Rows<F...>> = true;

}  // namespace graph

/// A network derived from nn::Graph, with its losses, optimizer and metrics: a value, independent of devices and
/// replicas. A model, see ModelOn. It learns from Rows that have its inputs and the fields of its losses and metrics, in
/// any order; for predictions the inputs are enough.
///
/// source  tf.keras.Model.compile
template <class Net, class Losses, class Optimizer, class Metrics> struct CompiledGraph {
  template <class D> using learner  = graph::GraphLearner<Net, D, Losses, Metrics>;
  template <class D> using instance = custom::Copy<D, learner<D>, Optimizer, PlanView>;
  using network                     = Net;

  static constexpr auto const& plan         = plan_of<Net>;
  static constexpr std::size_t output_width = learner<Cpu>::output_width;  // of ragged outputs, one position
  static constexpr bool has_ragged_outputs  = learner<Cpu>::has_ragged_outputs;
  static constexpr auto metric_names        = learner<Cpu>::metric_names;
  static constexpr CountedAs counted        = graph::counted_by(typename Net::inputs{});

  /// Numbers that predict() gives for row r of a batch.
  static std::size_t outputs_of_row(auto const& batch, std::size_t r) { return learner<Cpu>::outputs_of_row(batch, r); }

  template <class B> static constexpr bool predicts_from = graph::has_fields<B>(typename Net::inputs{});
  template <class B>
  static constexpr bool learns_from = predicts_from<B> && graph::has_targets<B>(std::type_identity<Losses>{}) &&
                                      graph::has_targets<B>(std::type_identity<Metrics>{});

  /// Says why the model does not take batches of type B.
  template <class B> static constexpr void refuse() {
    static_assert(graph::has_named_fields<B>,
                  "chorale: the network takes batches of named fields, and the elements of this dataset are not. Let "
                  "map<Fields...>() make rows of fields, and end the dataset with .batch(n)");
    static_assert(!graph::has_named_fields<B> || predicts_from<B>,
                  "chorale: the network takes a field that the batches do not have. Name it in map<...>");
    static_assert(!predicts_from<B> || learns_from<B>,
                  "chorale: a loss or a metric compares an output with a field that the batches do not have. Name it "
                  "in map<...>");
  }

  Losses losses;
  Optimizer optimizer;
  Metrics metrics;

  /// Lines that ranks compare before they train together: losses, optimizer and metrics with their options, variables
  /// with their shapes, calls of layers with their options.
  std::vector<std::string> lines() const {
    auto all        = std::vector<std::string>{};
    auto const term = [&](std::string const& what, auto const& of_output) {
      auto const name = what + " of " + type_name<typename std::remove_cvref_t<decltype(of_output)>::field>();
      describe(name, of_output.what, all);
      all.push_back(name + " weight " + word_of(of_output.weight));
    };
    std::apply([&](auto const&... loss) { (term("loss", loss), ...); }, losses);
    optim::describe_optimizer(optimizer, all);
    std::apply([&](auto const&... metric) { (term("metric", metric), ...); }, metrics);
    for (auto& line : lines_of(plan)) all.push_back(std::move(line));
    graph::describe_calls<Net>(all);
    all.push_back("products " + std::string{text_of(graph::products_of<Net>())});
    return all;
  }

  /// Bytes that a copy takes to compute with so many rows, beside the arena.
  ///
  /// positions   of each ragged input, in all rows of the first batch
  template <class D>
  ShareMemory planned(D const& device, std::size_t rows, std::size_t positions = 0) const
      requires requires(learner<D> const& one) { one.planned(device, rows, positions); } {
    return learner<D>{device, losses, metrics}.planned(device, rows, positions);
  }

  /// Creates variables and optimizer state on one device; the same seed gives the same bits everywhere.
  template <class D> instance<D> instantiate(D const& device, Seed seed) const {
    return {device, learner<D>{device, losses, metrics}, PlanView{plan}, optimizer, seed};
  }

  /// Creates a copy whose optimizer has the state of one shard of all variables.
  template <class D> instance<D> instantiate_shard(D const& device, Seed seed, placement::Shard shard) const {
    return {device, learner<D>{device, losses, metrics}, PlanView{plan}, optimizer, seed, shard};
  }

  /// How the network is cut into units on a device.
  template <class D> static constexpr UnitsView units_on() { return graph::UnitsOf<Net, D>::view; }

  /// Creates a copy that keeps a shard of its gradients and, if it `splits`, of its variables: see UnitMemory.
  template <class D>
  instance<D> instantiate_units(D const& device, Seed seed, placement::Shard shard, bool splits) const {
    return {
        device,         learner<D>{device, losses, metrics},
        PlanView{plan}, optimizer,
        seed,           std::make_unique<UnitMemory>(PlanView{plan}, units_on<D>(), shard, Optimizer::slots, splits)};
  }

  /// Creates a copy on another device that reads the variables of `owner` in place.
  template <class D> instance<D> instantiate_reader(D const& device, instance<D> const& owner) const {
    return {device, owner.learner().another(device), owner};
  }
};

namespace detail {

template <class Net, class Losses, class Optimizer, class Metrics>
auto compiled_graph(Losses losses, Optimizer optimizer, Metrics metrics) {
  constexpr bool fits = [] {
    if constexpr (graph::check_losses<Net>(std::type_identity<Losses>{}))
      return graph::check_metrics<Net>(std::type_identity<Metrics>{});
    else return false;
  }();
  constexpr auto counting = []<class... Term>(std::type_identity<std::tuple<Term...>>) {
    return (std::size_t{graph::counts_positions<decltype(Term::what)>} + ... + 0);
  }(std::type_identity<Losses>{});
  constexpr bool counts = counting != 0;
  constexpr bool apart  = fits && counts && counting != std::tuple_size_v<Losses>;
  constexpr auto all    = std::tuple_size_v<Losses> + std::tuple_size_v<Metrics> + (counts ? 1 : 0);
  constexpr bool many   = fits && all > StepHeader<float>::max_metrics;
  static_assert(!apart,
                "chorale: gradients are divided once, by the rows or by the positions of all replicas, and "
                "one of several losses is not loss::per_position. Use that for all of them, or for none: the "
                "loss of a row is then the mean over its positions");
  constexpr bool scales = optim::scales_loss<Optimizer>;
  constexpr bool halves = MultipliesHalves<Net> && !scales;
  static_assert(!many, "chorale: a model has at most 14 losses and metrics");
  static_assert(!scales,
                "chorale: optim::LossScaled does not fit a network derived from nn::Graph, which computes in "
                "float. Use the optimizer that it contains");
  static_assert(!halves,
                "chorale: in fp16 small gradients round to zero, and a network derived from nn::Graph does "
                "not scale its loss. Use nn::Precision<bf16>");
  if constexpr (fits && std::tuple_size_v<Losses> != 0 && !apart && !many && !scales && !halves &&
                check_optimizer<Optimizer>()) {
    std::apply(
        []<class... Term>(Term const&... term) {
          using Fields = typename graph::OutputsIn<Net>::fields;
          (check_metric_options<graph::ending_of<Net, graph::index_of<typename Term::field, Fields>>()>(term.what),
           ...);
        },
        metrics);
    return CompiledGraph<Net, Losses, Optimizer, Metrics>{std::move(losses), std::move(optimizer), std::move(metrics)};
  } else {
    return RefusedModel{};
  }
}

}  // namespace detail

/// Combines a network derived from nn::Graph with its losses, optimizer and metrics, in any order. A network with one
/// output takes a loss and metrics as they are; of several outputs each loss and each metric names its own.
///
///   nn::compile<Tickets>(nn::of<Priority>(loss::MeanSquaredError{}) +
///                            0.2F * nn::of<Department>(loss::SparseCrossEntropy{}),
///                        optim::Adam{.learning_rate = 1e-3F}, nn::of<Department>(metric::Accuracy{}))
///
/// returns   a model, see ModelOn; a RefusedModel if an argument was refused
/// throws    BadArgument when a metric has a threshold of logits, and its output ends with nn::Sigmoid or nn::Softmax
template <GraphNetwork Net, class... Parts> auto compile(Parts... parts) {
  using Of = detail::Arguments<Parts...>;
  if constexpr (!graph::check_calls<Net>()) {
    return RefusedModel{};
  } else if constexpr (Of::check()) {
    auto all = std::tie(parts...);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return detail::compiled_graph<Net>(
          detail::terms_of(graph::term_of<Net>(std::get<Of::loss>(all))), std::move(std::get<Of::optimizer>(all)),
          std::tuple_cat(detail::terms_of(graph::term_of<Net>(std::get<Of::metrics[I]>(all)))...));
    }(std::make_index_sequence<Of::num_metrics>{});
  } else {
    return RefusedModel{};
  }
}

}  // namespace chorale::nn
