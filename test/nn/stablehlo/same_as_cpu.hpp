// SPDX-License-Identifier: Apache-2.0
//
// A network as operations and on Cpu, from the same random numbers. The program has rows that fill up its last places.
// The interpreter of the tests computes it, and a plug-in as well where CHORALE_PJRT_PLUGIN names one.
#pragma once

#include "test/nn/stablehlo/on_plugin.hpp"
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/core/random.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/nn/derivatives/gradient_error.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/nn/lowering/gradient.hpp>
#include <chorale/nn/lowering/network.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::test {

inline void say_that_no_plugin_is_named() {
  static auto const said = std::printf("SKIPPED: layers and networks on a plug-in: CHORALE_PJRT_PLUGIN names none\n");
  static_cast<void>(said);  // once
}

/// Network Net on Cpu, and as a program of R replicas that have parts of the batch.
template <class Net, int R> class OnBoth {
  using Executing                   = nn::GraphExecutor<Net, Cpu>;
  using Value                       = nn::stablehlo::Value;
  using Element                     = nn::stablehlo::Element;
  using Dims                        = nn::stablehlo::Dims;
  static constexpr auto const& plan = nn::graph::plan_for<Net>();
  static constexpr auto now         = StepNumbers{.seed = Seed{0x123456789ABCDEF}, .step = 3, .first_row = 5};

  static constexpr std::size_t rows = 3, places = R == 1 ? 5 : 3;  // of the batch; of a replica
  /// Rows of the batch before replica r, which are its first places; the others fill up.
  static constexpr std::size_t before(std::size_t r) { return r == 0 ? 0 : r == 1 && R > 1 ? 2 : rows; }

 public:
  /// coarse    true: inputs are quarters, so that there are zeros and equal numbers among them
  /// frozen    true: moving averages are
  explicit OnBoth(bool training, bool coarse = false, bool frozen = false)
      : training_{training}, coarse_{coarse}, frozen_(frozen ? plan.variables.size() : 0),
        variables_(PlanView{plan}.values()), gradients_(variables_.size()), tables_{row_gradients_of(plan)},
        executor_{rows, variables_, gradients_, tables_} {
    for (std::size_t v = 0; v < plan.variables.size(); ++v) {
      auto const& planned = plan.variables[v];
      if (frozen) frozen_[v] = planned.spec.trained() ? 0 : 1;
      auto const value = Span<float>{variables_}.subspan(planned.offset, planned.size);
      initialize(value, planned.spec, Random{Seed{7}, v});
      for (auto& x : value) x += number() / 4;  // so that nothing stays 0 or 1
    }
    write_program(typename Net::inputs{});
    compute();
  }

  /// The largest difference of outputs and, in training, of gradients and of what moving variables move to, relative to
  /// the largest number of each value, or to 1.
  double largest_error() const {
    auto const arguments = std::vector<std::vector<Numbers>>{parameters_.begin(), parameters_.end()};
    auto const made      = Interpreter{program_, arguments, wanted_};
    auto const of_host   = [&](std::size_t i, std::size_t r) -> Numbers const& { return made(wanted_[i], r); };
    auto const error     = error_of(of_host);
    auto const other     = on_plugin(program_, arguments, wanted_);
    if (!other) return say_that_no_plugin_is_named(), error;
    auto const of_other = error_of([&](std::size_t i, std::size_t r) -> Numbers const& { return (*other)[r][i]; });
    return std::max(error, of_other);
  }

 private:
  enum class Kind { output, of_input, of_variable };

  /// made      made(i, replica), the numbers of what is wanted
  double error_of(auto&& made) const {
    auto worst = 0.0;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      auto const& expected = expected_[i];
      auto largest         = 1.0;
      for (auto const x : expected) largest = std::max(largest, std::abs(x));
      auto const compare = [&](double got, double with) {
        auto const error = std::abs(got - with) / largest;
        worst            = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
      };
      for (std::size_t r = 0; r < R && kinds_[i] != Kind::of_variable; ++r) {
        auto const& got = made(i, r);
        auto const size = got.size() / places, first = before(r) * size, real = before(r + 1) * size - first;
        for (std::size_t k = 0; k < got.size(); ++k)
          if (k < real) compare(got[k], expected.at(first + k));
          else if (kinds_[i] == Kind::of_input) compare(got[k], 0);  // of what fills up
      }
      for (std::size_t k = 0; k < expected.size() && kinds_[i] == Kind::of_variable; ++k) {
        auto sum = 0.0;
        for (std::size_t r = 0; r < R; ++r) sum += made(i, r).at(k);
        compare(sum, expected[k]);
      }
    }
    return worst;
  }

  Pass pass() const { return {.training = training_, .now = now, .frozen = frozen_}; }
  float number() { return Random{Seed{11}, 0}.uniform(drawn_++, -1.0F, 1.0F); }

  /// A parameter with the same numbers on all replicas.
  Value parameter(Element element, Dims dims, Numbers const& numbers) {
    for (auto& of_replica : parameters_) of_replica.push_back(numbers);
    return program_.parameter(element, std::move(dims));
  }
  /// A parameter of the rows of a batch, and of others that f() gives.
  Value of_rows(Element element, Dims dims, Numbers const& batch, auto&& f) {
    auto const size = batch.size() / rows;
    for (std::size_t r = 0; r < R; ++r) {
      auto const row = [&](std::size_t i) { return batch.begin() + static_cast<std::ptrdiff_t>(i * size); };
      auto numbers   = Numbers{row(before(r)), row(before(r + 1))};
      while (numbers.size() < places * size) numbers.push_back(f());
      parameters_[r].push_back(std::move(numbers));
    }
    return program_.parameter(element, std::move(dims));
  }
  void want(Value value, Kind kind) { wanted_.push_back(value), kinds_.push_back(kind), expected_.emplace_back(); }

  template <class... F> void write_program(nn::detail::List<F...>) {
    auto inputs = std::vector<Value>{}, asked = inputs;  // asked: whose gradients are compared
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (inputs.push_back(add_input<typename nn::graph::InputOf<F, 0>::type>(I)), ...);
    }(std::index_sequence_for<F...>{});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (executor_.d_input(i) != nullptr) asked.push_back(inputs[i]);
    auto const of_inputs = asked.size();
    auto values          = std::vector<Value>{};
    for (auto const& v : plan.variables) {
      auto const from = variables_.begin() + static_cast<std::ptrdiff_t>(v.offset);
      values.push_back(parameter(Element::f32, {v.spec.dims.begin(), v.spec.dims.begin() + v.spec.rank},
                                 {from, from + static_cast<std::ptrdiff_t>(v.size)}));
    }
    auto const is_real = of_rows(Element::f32, {places}, Numbers(rows, 1), [] { return 0.0; });
    auto const word    = [&](std::uint64_t w) {
      return parameter(Element::u32, {}, {static_cast<double>(static_cast<std::uint32_t>(w))});
    };
    auto const seed  = now.drawn().value;
    auto const drawn = nn::stablehlo::Drawn{word(seed), word(seed >> 32), word(now.first_row)};
    for (std::size_t r = 0; r < R; ++r) parameters_[r].back()[0] += static_cast<double>(before(r));
    auto const written =
        nn::stablehlo::write_network<Net>(program_, inputs, values, training_, is_real, drawn, frozen_);
    for (auto const output : written.outputs) want(output, Kind::output);
    if (!training_) return;

    auto loss = program_.constant(0);
    for (std::size_t o = 0; o < written.outputs.size(); ++o) {
      auto const y = written.outputs[o];
      weights_[o].resize(executor_.size(o));
      for (auto& w : weights_[o]) w = number();
      auto const times =
          of_rows(Element::f32, y.dims(), {weights_[o].begin(), weights_[o].end()}, [&] { return number(); });
      loss = loss + sum(select(along_first(compare(is_real, "GT", 0), y), y * times, 0.0));
    }
    for (std::size_t v = 0; v < values.size(); ++v)
      if (written.moved[v].id < 0) asked.push_back(values[v]);
    auto const gradients = nn::stablehlo::gradients(loss, asked);
    auto next            = gradients.begin();
    for (std::size_t i = 0; i < of_inputs; ++i) want(*next++, Kind::of_input);
    for (auto const moved : written.moved) want(moved ? moved : *next++, Kind::of_variable);
  }
  template <class O> Value add_input(std::size_t i) {
    using T           = typename O::type;
    auto const number = [&] {
      if constexpr (std::is_same_v<T, float>) return coarse_ ? std::round(4 * this->number()) / 4 : this->number();
      else return static_cast<float>(drawn_++ * 7 % 3);
    };
    auto batch = Numbers(rows * O::size);
    inputs_[i].resize(batch.size() * sizeof(T));
    auto* const x = reinterpret_cast<T*>(inputs_[i].data());
    for (std::size_t k = 0; k < batch.size(); ++k) batch[k] = number(), x[k] = static_cast<T>(batch[k]);
    executor_.read(i, x);
    auto const element = std::is_same_v<T, float> ? Element::f32 : Element::i32;
    return of_rows(element, nn::stablehlo::dims_of<O>(places), batch, number);
  }

  /// The numbers of Cpu, in the order in which they are wanted.
  void compute() {
    executor_.forward(pass());
    auto next = expected_.begin();
    for (std::size_t o = 0; o < Executing::num_outputs; ++o)
      *next++ = {executor_.output(o), executor_.output(o) + executor_.size(o)};
    if (!training_) return;
    for (std::size_t o = 0; o < Executing::num_outputs; ++o)
      std::copy(weights_[o].begin(), weights_[o].end(), executor_.d_output(o));
    executor_.backward(pass(), LooksAtEnd{});
    for (auto const& table : tables_)
      for (std::size_t i = 0; i < table.size(); ++i)
        std::copy_n(table[i].data(), table.width(),
                    &gradients_[plan.variables[table.variable()].offset + table.rows()[i] * table.width()]);
    for (std::size_t i = 0; i < Executing::num_inputs; ++i)
      if (auto const* const d = executor_.d_input(i)) *next++ = {d, d + inputs_[i].size() / sizeof(float)};
    for (auto const& v : plan.variables) *next++ = {&gradients_[v.offset], &gradients_[v.offset] + v.size};
  }

  bool training_, coarse_;
  std::vector<char> frozen_;
  std::vector<float> variables_, gradients_;
  std::vector<RowGradients> tables_;
  Executing executor_;
  nn::stablehlo::Program program_{R};
  std::array<std::vector<Numbers>, R> parameters_;
  std::vector<Value> wanted_;
  std::vector<Kind> kinds_;  // of those that are wanted
  std::vector<Numbers> expected_;
  std::array<std::vector<std::byte>, Executing::num_inputs> inputs_;
  std::array<std::vector<float>, Executing::num_outputs> weights_;
  std::uint64_t drawn_ = 0;
};

/// A network of layers that all take the same inputs, and whose outputs are its own.
template <class Layers, class Inputs, class Indices> struct SideBySide;
template <class... L, std::size_t... K, class... O, std::size_t... I>
struct SideBySide<nn::detail::List<L...>, nn::detail::List<O...>,
                  std::pair<std::index_sequence<K...>, std::index_sequence<I...>>>
    : nn::Graph<nn::Differentiable<nn::detail::Argument<I, O>>...> {
  std::tuple<L...> layers;

  constexpr auto operator()(auto... x) const {
    return nn::outputs<nn::detail::Result<K>...>(std::get<K>(layers)(x...)...);
  }
};

/// The largest relative difference between a network as operations and on Cpu, in training and evaluation.
///
/// Net     derived from nn::Graph, or a Sequential
template <class Net, int Replicas = 1> double error_of_network() {
  using Traced = typename nn::detail::TracedNetwork<Net>::type;
  return std::max({OnBoth<Traced, Replicas>{true}.largest_error(), OnBoth<Traced, Replicas>{false}.largest_error(),
                   OnBoth<Traced, Replicas>{true, false, true}.largest_error()});
}
/// Layers that take inputs of the same types.
template <class... L> class Layers {
 public:
  /// The largest difference of all of them, also with zeros and equal numbers.
  template <class... O> static double error_on() {
    return std::max(error_of_network<On<O...>>(), OnBoth<On<O...>, 1>{true, true}.largest_error());
  }
  /// On three replicas, of which one has no rows of the batch.
  template <class... O> static double error_on_three() { return error_of_network<On<O...>, 3>(); }

 private:
  template <class... O>
  using On = SideBySide<nn::detail::List<L...>, nn::detail::List<O...>,
                        std::pair<std::index_sequence_for<L...>, std::index_sequence_for<O...>>>;
};

}  // namespace chorale::test
