// SPDX-License-Identifier: Apache-2.0
//
// What test/devices/list.hpp names, as small networks that train three steps on a device and on Cpu.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::test::devices {

// Answers of list.hpp.
constexpr int same = 0;                                       // three steps are those of Cpu
constexpr int none = -1;                                      // not on Cpu either
constexpr int no(int sentence, int = 0) { return sentence; }  // what the compiler says
constexpr int throws(int sentence) { return -1 - sentence; }  // what the program says when it begins

struct Vector : Field<float, 6> {};
struct OtherVector : Field<float, 6> {};
struct Sequence : Field<float, 4, 6> {};
struct OtherSequence : Field<float, 5, 6> {};
struct Image : Field<float, 6, 5, 4> {};
struct Ids : Field<int, 4> {};
struct Bytes : Field<std::uint8_t, 4> {};
struct Ragged : Field<int, ragged> {};
template <class T, std::size_t size, int number = 0> struct Target : Field<T, static_cast<int>(size)> {};
using Numbers = Target<float, 3>;
using Ranks   = Axis<"tensor", 2>;

/// Numbers of 4 rows: labels and ids are 0 to 2, targets 0 or 1, one of them in each row of three.
constexpr std::size_t rows_of_batch = 4;
template <class F> std::vector<typename F::element_type> numbers_of() {
  using T   = typename F::element_type;
  auto made = std::vector<T>(rows_of_batch * F::size);
  for (std::size_t i = 0; i < made.size(); ++i)
    if constexpr (std::is_integral_v<T>) made[i] = static_cast<T>((i * 5 + i / 3) % 3);
    else if constexpr (F::size <= 3) made[i] = i % F::size == i / F::size % (F::size == 1 ? 2 : 3) ? 1.0F : 0.0F;
    else made[i] = Random{5, F::size}.uniform(i, -1, 1);
  return made;
}

/// A batch of fields, and the same as (x, y).
template <class... F> struct Fields {
  std::tuple<std::vector<typename F::element_type>...> all{numbers_of<F>()...};

  auto batch() const {
    return std::apply([](auto const&... x) { return Rows<F...>{x...}; }, all);
  }
};
template <class X, class Y> struct Pairs {
  std::vector<typename X::element_type> x = numbers_of<X>();
  std::vector<typename Y::element_type> y = numbers_of<Y>();

  auto batch() const {
    return BasicBatch<typename X::element_type, typename Y::element_type>{.x = x, .y = y, .rows = rows_of_batch};
  }
};

/// Rows of 1, 3, 1 and 2 ids.
struct RaggedFields {
  std::vector<int> words{1, 0, 0, 2, 0, 1, 2, 0, 0, 1, 1, 0}, lengths{1, 3, 1, 2};
  std::vector<float> numbers = numbers_of<Numbers>();

  auto batch() const {
    auto made     = Rows<Ragged, Numbers>{};
    made.rows     = rows_of_batch;
    made.fields() = {words, numbers, lengths};
    return made;
  }
};

// Inputs of the layers of the list. A layer of numbers comes after a Dense, whose gradient is what it gives back.
template <class... F> struct On {};
using vector        = On<Vector>;
using two_vectors   = On<Vector, OtherVector>;
using sequence      = On<Sequence>;
using two_sequences = On<Sequence, OtherSequence>;
using image         = On<Image>;
using ids           = On<Ids>;
using bytes         = On<Bytes>;
struct derivatives {};
struct ragged_ids {};

template <class F> struct Before {
  nn::Dense<F::dims.back()> dense;
  constexpr auto operator()(auto x) const { return dense(x); }
};
template <class F> requires std::is_integral_v<typename F::element_type> struct Before<F> {
  constexpr auto operator()(auto x) const { return x; }
};

/// A layer of one's own.
struct Cubed : nn::Elementwise<Cubed> {
  static constexpr std::string_view name = "cubed";
  static float f(float x) { return x * x * x; }
  static float df(float x, float) { return 3 * x * x; }
};
/// A table that is also the layer after the next.
struct Tied {
  nn::Embedding<5, 3> table;
  constexpr auto operator()(auto words) const { return table.logits(nn::tanh(table(words))); }
};

/// A layer of sequences of which each rank has a part.
template <class L> struct Scattered {
  L layer;
  constexpr auto operator()(auto x) const { return nn::gather_sequence<Ranks>(layer(nn::scatter_sequence<Ranks>(x))); }
};

/// Layers of the same inputs side by side, and the sum of what they give.
template <class Inputs, class... L> struct SideBySide;
template <class... F, class... L> struct SideBySide<On<F...>, L...> : nn::Graph<F...> {
  using fields = Fields<F..., Numbers>;

  template <class One> struct Around {
    std::tuple<Before<F>...> before;
    One layer;
    nn::Dense<3> after;
    constexpr auto operator()(auto... x) const {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return after(nn::Flatten{}(layer(std::get<I>(before)(x)...)));
      }(std::index_sequence_for<F...>{});
    }
  };
  std::tuple<Around<L>...> layers;

  constexpr auto operator()(auto... x) const {
    return nn::outputs<Numbers>(std::apply([&](auto const&... around) { return sum(around(x...)...); }, layers));
  }

 private:
  static constexpr auto sum(auto x) { return x; }
  static constexpr auto sum(auto x, auto y, auto... more) { return sum(x + y, more...); }
};
template <class By> struct SideBySide<derivatives, By> : nn::Graph<Vector> {
  using fields = Fields<Vector, Numbers>;
  nn::Block<nn::Dense<4>, nn::Tanh> net;
  nn::Dense<3> after, of_derivative;
  constexpr auto operator()(auto x) const {
    auto const [u, derived] = nn::derivatives<By>(net, x);
    return nn::outputs<Numbers>(after(u) + of_derivative(derived));
  }
};
template <class L> struct SideBySide<ragged_ids, L> : nn::Graph<Ragged> {
  using fields = RaggedFields;
  L layer;
  nn::Dense<3> after;
  constexpr auto operator()(auto x) const { return nn::outputs<Numbers>(after(nn::GlobalAveragePool1D{}(layer(x)))); }
};

/// Rows of the list that are one network: its model and its batch.
template <class Inputs, class... L> struct LayerCase {
  static auto model() {
    return nn::compile<SideBySide<Inputs, L...>>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F});
  }
  static auto fields() { return typename SideBySide<Inputs, L...>::fields{}; }
};
/// The same one after another in a Sequential, or a layer of images or sequences alone.
template <class Inputs, class... L> struct InSequential;
template <class... L>
struct InSequential<vector, L...> : nn::Sequential<nn::Input<6>, nn::Block<nn::Dense<6>, L>..., nn::Dense<3>> {
  using fields = Pairs<Vector, Numbers>;
};
template <class L>
struct InSequential<image, L> : nn::Sequential<nn::Input<6, 5, 4>, nn::Conv2D<4, 1>, L, nn::Flatten, nn::Dense<3>> {
  using fields = Pairs<Image, Numbers>;
};
template <class L> struct InSequential<sequence, L> : nn::Sequential<nn::Input<4, 6>, L, nn::Flatten, nn::Dense<3>> {
  using fields = Pairs<Sequence, Numbers>;
};
template <class Inputs, class... L> struct SequentialLayerCase {
  static auto model() {
    return nn::compile<InSequential<Inputs, L...>>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F});
  }
  static auto fields() { return typename InSequential<Inputs, L...>::fields{}; }
};

// Endings of networks for losses and metrics.
template <class... L> struct Ending : nn::Block<L...> {
  template <class... Before> using after = nn::Sequential<Before..., L...>;
};
using three               = Ending<nn::Dense<3>>;
using three_probabilities = Ending<nn::Dense<3>, nn::Softmax>;
using three_above_zero    = Ending<nn::Dense<3>, nn::Softplus>;
using one                 = Ending<nn::Dense<1>>;
using one_probability     = Ending<nn::Dense<1>, nn::Sigmoid>;
using over_ranks          = Ending<nn::ColumnDense<Ranks, 6>>;
template <class E>
constexpr std::size_t width_of = std::is_same_v<E, one> || std::is_same_v<E, one_probability> ? 1 : 3;

template <class E, class L, int number = 0>
using TargetOf = Target<typename L::target, loss::targets_of<L>(width_of<E>), number>;

/// A loss with the ending of a network that it takes.
template <class E, class L> struct Ended {
  L loss;
};
/// An output for each loss.
template <class Numbers, class... Cases> struct Outputs;
template <int... I, class... E, class... L>
struct Outputs<std::integer_sequence<int, I...>, Ended<E, L>...> : nn::Graph<Vector> {
  using fields = Fields<Vector, TargetOf<E, L, I>...>;
  nn::Dense<6> hidden;
  std::tuple<E...> endings;
  constexpr auto operator()(auto x) const {
    auto const seen = nn::tanh(hidden(x));
    return nn::outputs<TargetOf<E, L, I>...>(std::get<static_cast<std::size_t>(I)>(endings)(seen)...);
  }
};
template <class... E> struct LossCase {
  std::tuple<E...> cases;

  explicit LossCase(E... all) : cases{std::move(all)...} {}
  auto model() const { return model_of(std::make_integer_sequence<int, sizeof...(E)>{}); }
  auto fields() const { return typename Outputs<std::make_integer_sequence<int, sizeof...(E)>, E...>::fields{}; }

 private:
  template <int... I> auto model_of(std::integer_sequence<int, I...>) const {
    using Net = Outputs<std::integer_sequence<int, I...>, E...>;
    return std::apply(
        [](auto const&... ended) {
          return nn::compile<Net>((one_term<I>(ended) + ...), optim::SGD{.learning_rate = 0.1F});
        },
        cases);
  }
  template <int I, class End, class L> static auto one_term(Ended<End, L> const& ended) {
    return nn::of<TargetOf<End, L, I>>(ended.loss);
  }
};
template <class E, class L> struct EndsWith : E::template after<nn::Input<6>, nn::Dense<6>, nn::Tanh> {};
template <class E, class L> struct SequentialLossCase {
  L loss;
  auto model() const { return nn::compile<EndsWith<E, L>>(loss, optim::SGD{.learning_rate = 0.1F}); }
  static auto fields() { return Pairs<Vector, TargetOf<E, L>>{}; }
};

// What metrics compare.
struct labels {
  using ending = three;
  using loss   = loss::SparseCrossEntropy;
};
struct yes_or_no {
  using ending = one;
  using loss   = loss::MeanSquaredError;
};
struct numbers {
  using ending = three;
  using loss   = loss::MeanSquaredError;
};
template <class Of, class... M> struct MetricCase {
  using Case = Ended<typename Of::ending, typename Of::loss>;
  std::tuple<M...> metrics;

  explicit MetricCase(Of, M... all) : metrics{std::move(all)...} {}
  auto model() const {
    return std::apply(
        [](auto const&... m) {
          return nn::compile<Outputs<std::integer_sequence<int, 0>, Case>>(typename Of::loss{}, optim::SGD{}, m...);
        },
        metrics);
  }
  static auto fields() { return typename Outputs<std::integer_sequence<int, 0>, Case>::fields{}; }
};
template <class Of, class... M> struct SequentialMetricCase {
  std::tuple<M...> metrics;

  explicit SequentialMetricCase(Of, M... all) : metrics{std::move(all)...} {}
  auto model() const {
    return std::apply(
        [](auto const&... m) {
          return nn::compile<EndsWith<typename Of::ending, typename Of::loss>>(typename Of::loss{}, optim::SGD{}, m...);
        },
        metrics);
  }
  static auto fields() { return Pairs<Vector, TargetOf<typename Of::ending, typename Of::loss>>{}; }
};

/// A network of two layers, for rules and precisions.
using TwoLayers     = Outputs<std::integer_sequence<int, 0>, Ended<three, loss::MeanSquaredError>>;
using TwoInSequence = EndsWith<three, loss::MeanSquaredError>;
template <class Net, class Rule> struct RuleCase {
  Rule rule;
  auto model() const { return nn::compile<Net>(loss::MeanSquaredError{}, rule); }
  static auto fields() {
    if constexpr (nn::GraphNetwork<Net>) return TwoLayers::fields{};
    else return Pairs<Vector, Numbers>{};
  }
};
template <Products P> struct WithProducts {};
template <class P, class Network, class Rule> struct PrecisionCase : RuleCase<Network, Rule> {
  using precision = P;
  struct Net : Network {};  // compilers say a sentence once of a network
  auto model() const { return of(static_cast<P const*>(nullptr)); }

 private:
  template <Products R> auto of(WithProducts<R> const*) const {
    return nn::compile<nn::WithProducts<Net, R>>(loss::MeanSquaredError{}, this->rule);
  }
  auto of(auto const*) const { return nn::compile<Net, P>(loss::MeanSquaredError{}, this->rule); }
};

/// The largest difference, relative to the largest of the numbers that are wanted, or to `least`.
inline double apart(Span<float const> got, Span<float const> want, double least) {
  REQUIRE(got.size() == want.size());
  auto difference = 0.0, largest = least;
  for (std::size_t i = 0; i < want.size(); ++i) {
    auto const by = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    difference    = std::isnan(by) ? HUGE_VAL : std::max(difference, by);
    largest       = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return difference / largest;
}
inline double largest_of(Span<float const> all) {
  auto largest = 0.0;
  for (auto const x : all) largest = std::max(largest, static_cast<double>(std::abs(x)));
  return largest;
}

/// Three steps of a model on a device: what the list asks about.
///
/// look      called with the copy and the loss of each step; at the end with the loss of an evaluation and the outputs
template <class D, class Case, class Look> void three_steps(D const& device, Case const& asked, Look&& look) {
  auto const fields = asked.fields();
  auto const batch  = fields.batch();
  auto const model  = asked.model();
  auto copy         = model.instantiate(device, Seed{3});
  for (int step = 0; step < 3; ++step) {
    auto const loss = copy.value_and_gradient(batch, 0, LooksAtEnd{}, Together{});
    look(copy, loss.value, Span<float const>{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  }
  auto evaluated = std::array<float, plan::header>{};
  copy.evaluate(batch, evaluated);
  look(copy, evaluated[0], Span<float const>{copy.predict(batch)});
}

/// Instantiates all that three steps need; for compilers alone.
template <class D, class Case> void ask(D const& device, Case const& asked) {
  if constexpr (!std::is_same_v<decltype(asked.model()), RefusedModel>)
    three_steps(device, asked, [](auto&, float, Span<float const>) {});
}

/// Everything that three steps give, in one order.
struct Seen {
  std::vector<float> losses{}, metrics{}, variables{}, predicted{};
  std::vector<std::vector<float>> gradients{};
  std::vector<std::string> names{};  // of the variables of gradients
};
template <class D, class Case> Seen seen_on(D const& device, Case const& asked) {
  auto seen = Seen{};
  three_steps(device, asked, [&](auto& copy, float loss, Span<float const> predicted) {
    seen.losses.push_back(loss);
    auto const g     = copy.gradients();
    auto const named = [&](std::size_t variable, Span<float const> values) {
      seen.gradients.emplace_back(values.begin(), values.end());
      seen.names.emplace_back(std::string_view{g.plan[variable].name});
    };
    if (!predicted.empty()) {
      auto const all = copy.net.variables().values;
      seen.variables.assign(all.begin(), all.end());
      seen.predicted.assign(predicted.begin(), predicted.end());
      return;
    }
    for (std::size_t i = 0; i < g.plan.size(); ++i) named(i, g[i]);
    for (auto const& table : g.tables) {
      auto const rows = table.rows();
      auto sorted     = std::vector(rows.begin(), rows.end());
      std::ranges::sort(sorted);
      for (auto const id : sorted) named(table.variable(), table[table.find(id)]);
    }
    for (std::size_t i = 0; i < StepHeader<float>::max_metrics; ++i)
      if (auto const x = g.header().metric(i); std::isfinite(x)) seen.metrics.push_back(x);
    if constexpr (requires { copy.states(); }) {
      copy.states().each_result(metric::Over::step, [&](std::size_t, double result, Span<double const>) {
        seen.metrics.push_back(static_cast<float>(result));
      });
      copy.states().end_step(true);
    }
  });
  return seen;
}

/// Compares what three steps gave on a device and on Cpu.
///
/// near      of each value relative to its largest number; a gradient to 1/100 of the largest of all, if that is more
inline void compare(Seen const& got, Seen const& want, double near) {
  auto largest = 0.0;
  for (auto const& g : want.gradients) largest = std::max(largest, largest_of(g));
  CHECK(largest > 0);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    INFO("the gradient of " << want.names[i]);
    CHECK(apart(got.gradients[i], want.gradients[i], largest / 100) < near);
  }
  CHECK(apart(got.losses, want.losses, 1e-3) < near);
  CHECK(apart(got.metrics, want.metrics, 1e-3) < near);
  CHECK(apart(got.variables, want.variables, 1e-3) < near);
  CHECK(apart(got.predicted, want.predicted, 1e-3) < near);
}
template <class D, class Case> void compare(D const& device, Case const& asked) {
  compare(seen_on(device, asked), seen_on(Cpu{}, asked), 1e-4);
}

/// Compares variables after three steps that begin before the one before has ended, if a device has such.
template <class D, class Case> void compare_ahead(D const& device, Case const& asked) {
  auto const fields = asked.fields();
  auto const batch  = fields.batch();
  auto copy         = asked.model().instantiate(device, Seed{3});
  if constexpr (requires { copy.step_ahead(batch); }) {
    if (!copy.may_run_ahead()) return;
    for (int step = 0; step < 3; ++step) copy.step_ahead(batch);
    copy.finish_ahead();
    CHECK(apart(copy.net.variables().values, seen_on(Cpu{}, asked).variables, 1e-3) < 1e-4);
  }
}

/// Compares three steps in a precision with those of Cpu, which has floats: not the same, but near.
template <class D, class Case> void compare_rounded(D const& device, Case const& asked) {
  using P                  = typename Case::precision;
  constexpr bool is_float  = std::is_same_v<P, nn::Precision<float>>;
  constexpr bool is_halves = std::is_same_v<P, nn::Precision<bf16>> || std::is_same_v<P, nn::Precision<fp16>>;
  auto const got = seen_on(device, asked), want = seen_on(Cpu{}, asked);
  compare(got, want, is_float ? 1e-4 : 0.05);
  if (is_halves) CHECK(apart(got.predicted, want.predicted, 1e-3) > 1e-5);
}

}  // namespace chorale::test::devices
