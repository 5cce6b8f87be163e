// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/metrics/metric.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

/// Metrics whose result is not a mean over rows: each replica adds up counts, the state, and the result is a function
/// of the sum of all states. A step sends none of it: states are added up when a result is read.
namespace chorale::metric {

namespace detail {

template <class S> inline constexpr std::size_t numbers_in                              = 0;
template <std::size_t n> inline constexpr std::size_t numbers_in<std::array<double, n>> = n;

template <class M> struct StateOf {
  using type = std::array<double, 0>;  // of a mean over rows, and of a wrong state
};
template <class M> requires(numbers_in<typename M::state> != 0) struct StateOf<M> {
  using type = typename M::state;
};

}  // namespace detail

/// A metric with a state, for targets of type T: counts that update() adds to for each row, and from which result() is
/// computed. One state merges with another by adding up each number.
///
///   struct Smallest {                                                     // the share of rows with the least label
///     static constexpr std::string_view name = "smallest";
///     using state = std::array<double, 2>;                                // right, rows; zeros at first
///     void update(state& sums, Span<float const> y, Span<int const> wanted) const;
///     double result(state const& sums) const;                             // also of no rows
///   };
///
/// keeps   whole numbers up to 2^53 are exact, and so is a result that is computed from them: it does not depend on how
///         rows are dealt out to steps and replicas. For sums of fractions ExactSum keeps that
template <class M, class T>
concept StateMetric = detail::numbers_in<typename M::state> != 0 &&
                      requires(M const& metric, typename M::state& state, Span<float const> y, Span<T const> wanted) {
                        { M::name } -> std::convertible_to<std::string_view>;
                        metric.update(state, y, wanted);
                        { metric.result(std::as_const(state)) } -> std::convertible_to<double>;
                      };

/// True if metric M has a state, which may be a wrong one: see check_state().
template <class M> concept HasState = requires { typename M::state; };

/// Checks a metric for targets of type T: a wrong state is one sentence. A metric without a state passes.
template <class M, class T> constexpr bool check_state() {
  if constexpr (HasState<M>) {
    constexpr bool is_array = detail::numbers_in<typename M::state> != 0;
    static_assert(is_array,
                  "chorale: the state of a metric is a std::array<double, n> of numbers that replicas add "
                  "up, with n of at least 1. See docs/60-write-your-own.md");
    static_assert(!is_array || StateMetric<M, T>,
                  "chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target "
                  "const> wanted) const, with the targets of the loss, and double result(state const&) const. See "
                  "docs/60-write-your-own.md");
    return is_array && StateMetric<M, T>;
  }
  return true;
}

/// Calls f.operator()<i>(metric) for each metric i of a tuple.
template <class F, class... M> void each_of(std::tuple<M...> const& metrics, F&& f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (f.template operator()<I>(std::get<I>(metrics)), ...);
  }(std::index_sequence_for<M...>{});
}

/// The name of a metric. Empty if it has none, which is refused elsewhere.
template <class M> constexpr std::string_view name_of() {
  if constexpr (requires { std::string_view{M::name}; }) return M::name;
  else return {};
}

/// The state of a metric over some rows, as a value: a monoid, which Live::reduce adds up in custom loops.
///
///   auto counts = PerReplica<metric::Counts<metric::AUC<>>>(copies.size());
///   counts[i].add(metric, batch.rows, 1, y.data(), batch.y.data());       // on each replica
///   auto const auc = live.reduce(counts).result(metric);
template <class M> struct Counts {
  typename detail::StateOf<M>::type sums{};

  /// Adds rows: y (rows, width), wanted (rows, targets), where 0 targets are one label, or as many numbers as outputs.
  template <class T>
  void add(M const& metric, std::size_t rows, std::size_t width, float const* y, T const* wanted,
           std::size_t targets = 0) {
    if constexpr (check_state<M, T>() && HasState<M>) {
      auto const each = targets == 0 ? detail::targets_of<T>(width) : targets;
      for (std::size_t r = 0; r < rows; ++r)
        metric.update(sums, Span<float const>{y + r * width, width}, Span<T const>{wanted + r * each, each});
    }
  }
  Counts& operator+=(Counts const& other) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
    return *this;
  }
  double result(M const& metric) const { return static_cast<double>(metric.result(sums)); }

  friend bool operator==(Counts const&, Counts const&) = default;
};

/// The rows whose counts a States has.
enum class Over { step, epoch, evaluation, job };

/// What a header has in place of a mean for a metric with a state: NaN in evaluate(), so that a custom loop, which does
/// not add up the states, shows no number that looks like a result; else 0.
inline float not_in_header(Over over) { return over == Over::evaluation ? std::numeric_limits<float>::quiet_NaN() : 0; }

/// The states of all metrics of one copy of a model, in the order of its metrics. Those without a state have none here.
///
/// keeps   a step allocates nothing: memory for each Over comes when it is first used
template <class... M> class States {
  using All = std::tuple<Counts<M>...>;

 public:
  static constexpr std::size_t metrics = sizeof...(M);
  static constexpr std::array<std::size_t, metrics> sizes{std::tuple_size_v<typename detail::StateOf<M>::type>...};
  static constexpr std::size_t size = (std::tuple_size_v<typename detail::StateOf<M>::type> + ... + 0);  // of all

  explicit States(std::tuple<M...> of) : metrics_{std::move(of)} {}

  /// Adds rows to the state of metric I, see Counts::add(). Rows of a step count from end_step() on.
  template <std::size_t I, class T>
  void add(Over to, std::size_t rows, std::size_t width, float const* y, T const* wanted, std::size_t targets) {
    std::get<I>(at(to)).add(std::get<I>(metrics_), rows, width, y, wanted, targets);
  }

  /// Adds the counts of the step to the counts of the epoch; or forgets them, if the step is left out.
  void end_step(bool counts) {
    if (counts) merge(Over::epoch, *this, Over::step);
    clear(Over::step);
  }
  void clear(Over which) {
    each([](auto& counts) { counts.sums.fill(0); }, at(which));
  }
  void merge(Over to, States& other, Over from) {
    each([](auto& mine, auto const& theirs) { mine += theirs; }, at(to), other.at(from));
  }

  /// Writes all counts to a flat array of `size` numbers, or reads them from it.
  void write(Over which, double* to) {
    each(
        [&](auto& counts) {
          for (auto const x : counts.sums) *to++ = x;
        },
        at(which));
  }
  void read(Over which, double const* from) {
    each(
        [&](auto& counts) {
          for (auto& x : counts.sums) x = *from++;
        },
        at(which));
  }

  /// Calls tell(i, result, counts) for each metric i that has a state.
  template <class F> void each_result(Over which, F&& tell) {
    auto const one = [&]<std::size_t I>() {
      auto const& counts = std::get<I>(at(which));
      if constexpr (sizes[I] != 0) tell(I, counts.result(std::get<I>(metrics_)), Span<double const>{counts.sums});
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (one.template operator()<I>(), ...);
    }(std::index_sequence_for<M...>{});
  }

 private:
  template <class F, class... T> static void each(F&& f, T&... of) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      auto const one = [&]<std::size_t J>() { f(std::get<J>(of)...); };
      (one.template operator()<I>(), ...);
    }(std::index_sequence_for<M...>{});
  }
  All& at(Over which) {
    auto& all = counts_[static_cast<std::size_t>(which)];
    if (!all) all = std::make_unique<All>();  // zeros
    return *all;
  }

  std::tuple<M...> metrics_;
  std::array<std::unique_ptr<All>, 4> counts_{};
};

/// What a copy of a model has in place of States if none of its metrics has a state.
struct NoStates {
  explicit NoStates(auto const&) {}
  template <std::size_t I> void add(auto const&...) {}  // never called, but clang looks for it
};

/// States of these metrics, or NoStates.
template <class... M> using StatesOf = std::conditional_t<(HasState<M> || ...), States<M...>, NoStates>;

}  // namespace chorale::metric
