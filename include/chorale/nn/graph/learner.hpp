// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/field.hpp>
#include <chorale/nn/graph/executor.hpp>
#include <chorale/nn/graph/trace.hpp>
#include <chorale/nn/metric.hpp>
#include <chorale/nn/metric_state.hpp>
#include <chorale/nn/objective.hpp>
#include <chorale/nn/row_loss.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// The outputs in what a call operator returns. None after a mistake, which the trace reports.
template <class Made>
struct OutputList {
  using fields = List<>;
  using values = List<>;
};
// Those of nn::outputs.
template <class D, class Names, class... O>
struct OutputList<Outputs<D, Names, O...>> {
  using fields = Names;
  using values = List<O...>;
};

template <class Net, class Inputs>
struct OutputsOfNet : OutputList<void> {};
template <class Net, class... F>
  requires std::is_invocable_v<Net&, Tensor<NoDevice, OfField<F>>...>
struct OutputsOfNet<Net, List<F...>> : OutputList<std::invoke_result_t<Net&, Tensor<NoDevice, OfField<F>>...>> {};

/// The outputs of a network: `fields` that name them, and `values`, an Of for each.
template <class Net>
using OutputsIn = OutputsOfNet<Net, typename Net::inputs>;

template <class F, class Fields>
inline constexpr std::size_t index_of = 0;
/// Index of F in a list of fields; their number if F is not among them.
template <class F, class... G>
inline constexpr std::size_t index_of<F, List<G...>> = [] {
  auto const same = std::array<bool, sizeof...(G)>{std::is_same_v<F, G>...};
  return static_cast<std::size_t>(std::find(same.begin(), same.end(), true) - same.begin());
}();

template <std::size_t I, class T>
struct Nth;
template <std::size_t I, class... T>
struct Nth<I, List<T...>> : std::tuple_element<I, std::tuple<T...>> {};

/// How a loss or a metric T compares values O with the field F: as `positions` groups of `width` numbers, each with its
/// own targets. The result for a row is the mean over its positions.
template <class T, class O, class F>
struct Compared {
  static constexpr bool over_last_dimension =
      requires { requires T::takes_logits; } || requires { requires T::takes_probabilities; } ||
      !requires { typename T::target; };                                   // a metric
  static constexpr bool labels_of_groups = std::is_same_v<typename F::element_type, int> && F::size == O::vectors;
  static constexpr bool in_groups = O::rank > 1 && over_last_dimension &&
                                    (labels_of_groups || !std::is_same_v<typename F::element_type, int>);
  static constexpr std::size_t positions = in_groups ? O::vectors : 1;
  static constexpr std::size_t width     = O::size / positions;
};

/// The last part of a type's name in lower case, with _ between words: "department" of my::Department.
template <class F>
constexpr Name field_name() {
  auto raw = chorale::detail::raw_type_name<F>();
  raw      = raw.substr(0, raw.find('<'));
  if (auto const colon = raw.rfind(':'); colon != raw.npos) raw = raw.substr(colon + 1);
  auto name = Name{};
  for (std::size_t i = 0; i < raw.size(); ++i) {
    auto const upper = raw[i] >= 'A' && raw[i] <= 'Z';
    if (upper && i > 0 && raw[i - 1] >= 'a' && raw[i - 1] <= 'z') name += "_";
    auto const c = upper ? static_cast<char>(raw[i] - 'A' + 'a') : raw[i];
    name += std::string_view{&c, 1};
  }
  return name;
}

/// The name of a metric of an output; of a loss, "loss".
template <class F, class T>
inline constexpr Name score_name = [] {
  auto name = field_name<F>();
  name += "_";
  if constexpr (requires { T::name; }) name += T::name;
  else name += "loss";
  return name;
}();

/// The states of metrics of outputs.
template <class Metrics>
struct StatesOfTerms;
// Those of a tuple of OfOutput.
template <class... Term>
struct StatesOfTerms<std::tuple<Term...>> {
  using type = metric::StatesOf<decltype(Term::what)...>;
  static type make(std::tuple<Term...> const& metrics) {
    return std::apply([](auto const&... term) { return type{std::make_tuple(term.what...)}; }, metrics);
  }
};

/// How one copy of a traced network computes: the Learner of nn::compile<Net>(...), for a network derived from
/// nn::Graph.
///
/// Losses    std::tuple of OfOutput<F, loss>
/// Metrics   std::tuple of OfOutput<F, metric>
/// keeps     a step allocates nothing once its number of rows was seen. Without a copy constructor: see another()
template <class Net, class D, class Losses, class Metrics>
class GraphLearner {
  using Executing = GraphExecutor<Net, D>;
  using All       = OutputsIn<Net>;
  template <class Term>
  static constexpr std::size_t output_of = index_of<typename Term::field, typename All::fields>;
  template <class Term>
  using ValueOf = typename Nth<output_of<Term>, typename All::values>::type;

 public:
  static constexpr std::size_t output_width = [] {
    auto sum = std::size_t{0};
    for (std::size_t o = 0; o < Executing::num_outputs; ++o) sum += Executing::width(o);
    return sum;
  }();

  /// Names of the losses of all outputs, if there are several, and of all metrics.
  static constexpr auto metric_names = [] {
    constexpr auto losses = std::tuple_size_v<Losses> > 1 ? std::tuple_size_v<Losses> : 0;
    auto names            = std::array<std::string_view, losses + std::tuple_size_v<Metrics>>{};
    auto at               = std::size_t{0};
    [&]<class... L, class... M>(std::type_identity<std::tuple<L...>>, std::type_identity<std::tuple<M...>>) {
      if constexpr (losses > 0)
        ((names[at++] = score_name<typename L::field, decltype(L::what)>), ...);
      ((names[at++] = Executing::num_outputs > 1
                          ? std::string_view{score_name<typename M::field, decltype(M::what)>}
                          : metric::name_of<decltype(M::what)>()), ...);
    }(std::type_identity<Losses>{}, std::type_identity<Metrics>{});
    return names;
  }();

  GraphLearner(D device, Losses losses, Metrics metrics)
      : device_{std::move(device)}, losses_{std::move(losses)}, metrics_{std::move(metrics)},
        states_{StatesOfTerms<Metrics>::make(metrics_)} {}

  /// A learner with the same losses and metrics for another copy, on its device.
  GraphLearner another(D device) const { return {std::move(device), losses_, metrics_}; }

  void place(Variables const& variables, Gradients const& gradients) {
    variables_ = variables.values;
    gradients_ = gradients.values;
    tables_    = gradients.tables;
    executors_.clear();
  }

  template <class Step, class Batch>
  void learn(Step& step, Batch const& batch) {
    auto& executor = forward(batch, step.pass);
    auto scores    = scores_of(batch, executor, step.pass.training ? metric::Over::step : metric::Over::evaluation);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step.loss(scores.loss, scores.metrics[I]...);
    }(std::make_index_sequence<metric_names.size()>{});
    executor.backward(step.pass, [&](std::size_t end) { step.done_below(end); });
  }

  template <class Batch>
  void evaluate(Variables const&, Batch const& batch, StepHeader<float> header) {
    auto const scores = scores_of(batch, forward(batch, {}), metric::Over::evaluation);
    header.loss()     = scores.loss;
    for (std::size_t i = 0; i < metric_names.size(); ++i) header.metric(i) = scores.metrics[i];
  }

  /// All outputs of each row, one after another: (B, output_width). Valid until the next call.
  template <class Batch>
  Span<float const> predict(Variables const&, Batch const& batch) {
    auto& executor = forward(batch, {});
    if constexpr (Executing::num_outputs == 1) {
      return {executor.output(0), batch.rows * output_width};
    } else {
      predicted_.resize(batch.rows * output_width);
      auto* to = predicted_.data();
      for (std::size_t r = 0; r < batch.rows; ++r)
        for (std::size_t o = 0; o < Executing::num_outputs; ++o)
          to = std::copy_n(executor.output(o) + r * Executing::width(o), Executing::width(o), to);
      return predicted_;
    }
  }

  /// The gradient of the loss by input F, which is Differentiable, for the rows of the last step: (B, F), sums as the
  /// gradients of variables are. Valid until the next step.
  template <class F>
  Span<float const> gradient_by(F) const {
    constexpr auto i = index_of<Differentiable<F>, typename Net::inputs>;
    static_assert(i < Executing::num_inputs, "chorale: gradient_by asks for an input that the network does not take as "
                                             "nn::Differentiable. Write nn::Graph<nn::Differentiable<F>>");
    if (last_ == nullptr || last_->d_input(i) == nullptr) return {};
    return {last_->d_input(i), static_cast<std::size_t>(last_->rows()) * F::size};
  }

  /// The states of the metrics: of the steps that the trainer has counted, and of evaluate().
  auto& states()
    requires(!std::is_same_v<typename StatesOfTerms<Metrics>::type, metric::NoStates>)
  {
    return states_;
  }

 private:
  struct Scores {
    float loss = 0;
    std::array<float, metric_names.size()> metrics{};
  };

  template <class Batch>
  Executing& forward(Batch const& batch, Pass const& pass) {
    auto& executor = executor_for(static_cast<int>(batch.rows));
    [&]<class... F>(List<F...>) {
      auto i = std::size_t{0};
      (executor.read(i++, batch[typename WithoutRequest<F>::type{}].data()), ...);
    }(typename Net::inputs{});
    executor.forward(pass);
    return executor;
  }
  Executing& executor_for(int rows) {
    for (auto const& executor : executors_)
      if (executor->rows() == rows) return *(last_ = executor.get());
    executors_.push_back(std::make_unique<Executing>(rows, variables_, gradients_, tables_, device_));
    return *(last_ = executors_.back().get());
  }

  /// Losses and metrics, sums over the rows. Writes the gradients by the outputs.
  template <class Batch>
  Scores scores_of(Batch const& batch, Executing& executor, metric::Over over) {
    auto scores  = Scores{};
    auto has     = std::array<bool, Executing::num_outputs>{};
    auto at      = std::size_t{0};
    auto const n = batch.rows;
    auto add     = [&](auto const& term) {
      using Term           = std::remove_cvref_t<decltype(term)>;
      constexpr auto o     = output_of<Term>;
      auto const elements  = n * Executing::width(o);
      auto const is_second = std::exchange(has[o], true);
      if (is_second) second_.resize(std::max(second_.size(), elements));
      auto* const dy = is_second ? second_.data() : executor.d_output(o);
      auto const sum = loss_of(term, batch, executor.output(o), dy);
      if (is_second) Kernels<D>::sum(elements, executor.d_output(o), second_.data(), executor.d_output(o));
      scores.loss += sum;
      if constexpr (std::tuple_size_v<Losses> > 1) scores.metrics[at++] = sum;
    };
    std::apply([&](auto const&... term) { (add(term), ...); }, losses_);
    for (std::size_t o = 0; o < has.size(); ++o)
      if (!has[o]) std::fill_n(executor.d_output(o), n * Executing::width(o), 0.0F);
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& term) {
      using Term = std::remove_cvref_t<decltype(term)>;
      using C    = Compared<decltype(Term::what), ValueOf<Term>, typename Term::field>;
      auto const* const y      = executor.output(output_of<Term>);
      auto const* const wanted = batch[typename Term::field{}].data();
      constexpr auto targets   = Term::field::size / C::positions;
      if constexpr (metric::HasState<decltype(Term::what)>) {
        states_.template add<I>(over, n * C::positions, C::width, y, wanted, targets);
        scores.metrics[at++] = metric::not_in_header(over);
      } else {
        auto const sum       = metric::sum_of(term.what, n * C::positions, C::width, y, wanted, targets);
        scores.metrics[at++] = sum / static_cast<float>(C::positions);
      }
    });
    return scores;
  }

  /// The loss of one term, a sum over the rows, and its gradient by the output.
  template <class Term, class Batch>
  static float loss_of(Term const& term, Batch const& batch, float const* y, float* dy) {
    using F           = typename Term::field;
    using W           = typename Term::row_weight;
    using C           = Compared<decltype(Term::what), ValueOf<Term>, F>;
    constexpr auto of_row = ValueOf<Term>::size;
    auto const* wanted    = batch[F{}].data();
    auto const scaled     = term.weight / static_cast<float>(C::positions);
    auto const compute    = [&](std::size_t first, std::size_t rows, float factor) {
      auto* const d  = dy + first * of_row;
      auto const sum = loss::sum_of<D>(term.what, rows * C::positions, C::width, y + first * of_row,
                                       wanted + first * F::size, d);
      if (factor != 1) Kernels<D>::multiply(rows * of_row, d, factor);
      return sum * factor;
    };
    if constexpr (std::is_void_v<W>) {
      return compute(0, batch.rows, scaled);
    } else {
      auto const weights = batch[W{}];
      auto sum           = 0.0F;
      for (std::size_t r = 0; r < batch.rows; ++r) sum += compute(r, 1, scaled * static_cast<float>(weights[r]));
      return sum;
    }
  }

  D device_;
  Losses losses_;
  Metrics metrics_;
  [[no_unique_address]] typename StatesOfTerms<Metrics>::type states_;
  Span<float> variables_, gradients_;
  Span<RowGradients> tables_;
  std::vector<std::unique_ptr<Executing>> executors_;                      // one for each number of rows seen so far
  Executing* last_ = nullptr;                                              // that computed last
  std::vector<float> predicted_, second_;
};

}  // namespace chorale::nn::graph
