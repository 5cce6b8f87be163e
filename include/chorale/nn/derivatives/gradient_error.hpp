// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/field.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::nn {

namespace detail {

/// Computes a network on random numbers, and compares its gradients with central differences.
template <class Net> class GradientCheck {
  using Executing                      = GraphExecutor<Net, Cpu>;
  static constexpr auto const& plan    = plan_of<Net>;
  static constexpr int rows            = 3;
  static constexpr std::size_t longest = 5;  // of ragged rows
  static constexpr auto lengths        = std::array{3, 0, 5};

 public:
  GradientCheck()
      : variables_(PlanView{plan}.values()), gradients_(variables_.size()), tables_{row_gradients_of(plan)},
        executor_{rows, variables_, gradients_, tables_, {}, rooms()} {
    for (std::size_t v = 0; v < plan.variables.size(); ++v) {
      auto const& planned = plan.variables[v];
      auto const value    = Span<float>{variables_}.subspan(planned.offset, planned.size);
      initialize(value, planned.spec, Random{Seed{7}, v});
      for (auto& x : value) x += number() / 4;  // so that nothing stays 0 or 1
    }
    add_inputs(typename Net::inputs{});
    for (std::size_t o = 0; o < Executing::num_outputs; ++o) {
      auto& w = weights_[o];
      w.resize(executor_.size(o));
      for (auto& x : w) x = number();
    }
  }

  double largest_error() {
    backward();
    auto const of_variables = gradients_;
    auto of_inputs          = std::array<std::vector<float>, Executing::num_inputs>{};
    for (std::size_t i = 0; i < of_inputs.size(); ++i)
      if (numbers_[i].size() > 0 && executor_.d_input(i) != nullptr) of_inputs[i] = with_padding(i);

    auto worst = 0.0;
    for (auto const& v : plan.variables)
      for (std::size_t k = 0; k < v.size && v.spec.trained(); k += 1 + v.size / 11)
        worst = std::max(worst, error(variables_[v.offset + k], of_variables[v.offset + k]));
    for (std::size_t i = 0; i < of_inputs.size(); ++i)
      for (std::size_t k = 0; k < of_inputs[i].size(); k += 1 + of_inputs[i].size() / 23)
        worst = std::max(worst, error(numbers_[i][k], of_inputs[i][k]));
    return worst;
  }

 private:
  static constexpr auto pass = Pass{.training = true};

  /// The gradient by input i, with zeros where a ragged input has padding.
  std::vector<float> with_padding(std::size_t i) const {
    auto const* const d = executor_.d_input(i);
    auto all            = std::vector<float>(numbers_[i].size());
    if (!again_[i]) return {d, d + all.size()};
    auto const size = all.size() / (rows * longest);  // of a position
    for (std::size_t r = 0; r < lengths.size(); ++r)
      std::copy_n(d + executor_.ragged(i).starts[r] * size, static_cast<std::size_t>(lengths[r]) * size,
                  &all[r * longest * size]);
    return all;
  }

  float number() { return Random{Seed{11}, 0}.uniform(drawn_++, -1.0F, 1.0F); }

  template <class... F> void add_inputs(List<F...>) {
    auto i = std::size_t{0};
    (
        [&] {
          using O      = typename graph::InputOf<F, 0>::type;
          auto const n = (O::is_ragged ? rows * longest : rows) * O::size;
          if constexpr (std::is_same_v<typename O::type, float>) {
            numbers_[i].resize(n);
            for (auto& x : numbers_[i]) x = number();
            read<O>(i, numbers_[i].data());
          } else {
            ids_[i].resize(n * sizeof(typename O::type));
            auto* const ids = reinterpret_cast<typename O::type*>(ids_[i].data());
            for (std::size_t k = 0; k < n; ++k) ids[k] = number() > 0 ? 1 : 0;
            read<O>(i, ids_[i].data());
          }
          ++i;
        }(),
        ...);
  }
  template <class O> void read(std::size_t i, void const* x) {
    if constexpr (O::is_ragged) {
      executor_.read(i, x, longest, lengths);
      again_[i] = [this, i, x] { executor_.read(i, x, longest, lengths); };
    } else {
      executor_.read(i, x);
    }
  }
  static constexpr typename Executing::Rooms rooms() {
    return []<class... F>(List<F...>) {
      return typename Executing::Rooms{(F::is_ragged ? std::size_t{rows} * longest : 0)...};
    }(typename Net::inputs{});
  }

  /// The sum of all outputs, each element times its weight.
  double loss() {
    for (auto const& read : again_)
      if (read) read();  // the executor has a copy
    executor_.forward(pass);
    auto sum = 0.0;
    for (std::size_t o = 0; o < Executing::num_outputs; ++o)
      for (std::size_t k = 0; k < weights_[o].size(); ++k)
        sum += static_cast<double>(executor_.output(o)[k]) * static_cast<double>(weights_[o][k]);
    return sum;
  }
  void backward() {
    loss();
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    for (auto& table : tables_) table.clear();
    for (std::size_t o = 0; o < Executing::num_outputs; ++o)
      std::copy(weights_[o].begin(), weights_[o].end(), executor_.d_output(o));
    executor_.backward(pass, LooksAtEnd{});
    for (auto const& table : tables_)  // where the variable lies, as if it were dense
      for (std::size_t i = 0; i < table.size(); ++i)
        std::copy_n(table[i].data(), table.width(),
                    &gradients_[plan.variables[table.variable()].offset + table.rows()[i] * table.width()]);
  }

  /// The relative difference for one number. The best of three steps: a large one may cross a kink, a small one rounds.
  double error(float& value, float gradient) {
    auto const keep = value;
    auto best       = 1e30;
    for (auto const h : {1.6e-2F, 4e-3F, 1e-3F}) {
      value            = keep + h;
      auto const above = loss(), up = static_cast<double>(value);
      value            = keep - h;
      auto const below = loss(), down = static_cast<double>(value);
      auto const wanted = (above - below) / (up - down);
      best = std::min(best, std::abs(wanted - static_cast<double>(gradient)) / std::max(1.0, std::abs(wanted)));
    }
    value = keep;
    return best;
  }

  std::vector<float> variables_, gradients_;
  std::vector<RowGradients> tables_;
  Executing executor_;
  std::array<std::vector<float>, Executing::num_inputs> numbers_;
  std::array<std::vector<std::byte>, Executing::num_inputs> ids_;
  std::array<std::vector<float>, Executing::num_outputs> weights_;
  std::array<std::function<void()>, Executing::num_inputs> again_;  // reads a ragged input
  std::uint64_t drawn_ = 0;
};

template <std::size_t I, class O> struct Argument;
template <std::size_t I, class T, int... D> struct Argument<I, Of<T, D...>> : Field<T, D...> {};
template <std::size_t I> struct Result : Field<float, 1> {};

/// A network of one layer, whose inputs are fields.
template <class L, class Indices, class... O> struct Alone;
template <class L, std::size_t... I, class... O>
struct Alone<L, std::index_sequence<I...>, O...> : Graph<Differentiable<Argument<I, O>>...> {
  L layer;

  constexpr auto operator()(auto... x) const { return named(layer(x...)); }

 private:
  template <class D, class Y> static constexpr auto named(Tensor<D, Y> y) { return outputs<Result<0>>(y); }
  template <class... Y> static constexpr auto named(std::tuple<Y...> const& y) {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return outputs<Result<K>...>(std::get<K>(y)...);
    }(std::index_sequence_for<Y...>{});
  }
};

}  // namespace detail

/// The largest relative difference between gradients of a network and central differences, on random numbers: by its
/// variables, and by its inputs that are Differentiable. Inputs that are ids are 0 and 1.
///
/// returns   |gradient - difference| / max(1, |difference|). Rounding gives up to 1e-3; a wrong factor gives more
template <GraphNetwork Net> double network_gradient_error() { return detail::GradientCheck<Net>{}.largest_error(); }

/// The largest relative difference between gradients of a layer and central differences, on random numbers: by its
/// variables and by its inputs.
///
///   CHECK(nn::gradient_error<Scaled, nn::Of<float, 5>>() < 1e-3);
///
/// O         the inputs that the layer is called with; Of<float, ragged, C> are rows of 3, 0 and 5 positions
/// returns   |gradient - difference| / max(1, |difference|). Rounding gives up to 1e-3; a wrong factor gives more
template <class L, class... O> double gradient_error() {
  return network_gradient_error<detail::Alone<L, std::index_sequence_for<O...>, O...>>();
}

}  // namespace chorale::nn
