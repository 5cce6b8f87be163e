// SPDX-License-Identifier: Apache-2.0
//
// The outputs of a network, and how losses and metrics compare them with fields.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace chorale::nn::graph {

/// The outputs in what a call operator returns. None after a mistake, which the trace reports.
template <class Made> struct OutputList {
  using fields = List<>;
  using values = List<>;
};
// The outputs listed by nn::outputs.
template <class D, class Names, class... O> struct OutputList<Outputs<D, Names, O...>> {
  using fields = Names;
  using values = List<O...>;
};

/// The outputs of a network that is called with its inputs; none if it cannot be called with them.
template <class Net, class Inputs> struct OutputsOfNet : OutputList<void> {};
// A network that can be.
template <class Net, class... F> requires takes_arguments<Net, typename ArgumentsOf<NoDevice, List<F...>>::type>
struct OutputsOfNet<Net, List<F...>>
    : OutputList<typename ReturnedBy<Net, typename ArgumentsOf<NoDevice, List<F...>>::type>::type> {};

/// The outputs of a network: `fields` that name them, and `values`, an Of for each.
template <class Net> using OutputsIn = OutputsOfNet<Net, typename Net::inputs>;

template <class F, class Fields> inline constexpr std::size_t index_of = 0;
/// Index of F in a list of fields; their number if F is not among them.
template <class F, class... G>
inline constexpr std::size_t index_of<F, List<G...>> = [] {
  auto const same = std::array<bool, sizeof...(G)>{std::is_same_v<F, G>...};
  return static_cast<std::size_t>(std::find(same.begin(), same.end(), true) - same.begin());
}();

template <std::size_t I, class T> struct Nth;
template <std::size_t I, class... T> struct Nth<I, List<T...>> : std::tuple_element<I, std::tuple<T...>> {};

/// Numbers of a row of field F; of one position, if its first dimension is ragged.
template <class F> inline constexpr std::size_t targets_in = InputOf<F, 0>::type::size;

/// True if the mean of loss T is over positions: see loss::per_position.
template <class T> inline constexpr bool counts_positions = requires { requires T::counts_positions; };

/// How a loss or a metric T compares values O with the field F: as `positions` groups of `width` numbers, each with its
/// own targets. The result for a row is the mean over its positions. Of a ragged output, `positions` are the groups of
/// one of its positions.
template <class T, class O, class F> struct Compared {
  static constexpr bool over_last_dimension = requires { requires T::takes_logits; } || requires {
    requires T::takes_probabilities;
  } || counts_positions<T> || !requires { typename T::target; };  // a metric
  static constexpr bool labels_of_groups = std::is_same_v<typename F::element_type, int> && targets_in<F> == O::vectors;
  static constexpr bool in_groups        = O::shape::rank > 1 && over_last_dimension &&
                                    (labels_of_groups || !std::is_same_v<typename F::element_type, int>);
  static constexpr std::size_t positions = in_groups ? O::vectors : 1;
  static constexpr std::size_t width     = O::size / positions;

  static constexpr std::size_t of_position = O::size;

  // True if the loss takes all positions of a ragged row as one group, as a sum of squares may.
  static constexpr bool whole_rows = !over_last_dimension && !std::is_same_v<typename F::element_type, int>;

  /// Groups of a row with n positions.
  static constexpr std::size_t groups(std::size_t n) { return whole_rows ? 1 : n * positions; }
};

/// The last part of a type's name in lower case, with _ between words: "department" of my::Department.
template <class F> constexpr Name field_name() {
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

/// The name of a metric. Empty if it has none, which is refused elsewhere.
template <class T>
inline constexpr std::string_view name_of_metric = [] {
  if constexpr (requires { T::name; }) return std::string_view{T::name};
  else return std::string_view{};
}();

/// The lengths of field F in a batch; none if its rows have one shape.
template <class F, class Batch> Span<int const> lengths_of(Batch const& batch) {
  if constexpr (F::is_ragged) return batch.lengths(F{});
  else return {};
}

/// Positions of all rows of field F, at least 1 if it is ragged, else 0.
///
/// throws  BadArgument when a length is not within the width of the batch
template <class F, class Batch> std::size_t positions_in(Batch const& batch) {
  auto const lengths = lengths_of<F>(batch);
  auto sum           = std::size_t{0};
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    auto const width = static_cast<int>(batch.width(F{}) / targets_in<F>);
    CHORALE_EXPECTS(lengths[r] >= 0 && lengths[r] <= width,
                    "row " + std::to_string(r) + " of the batch has length " + std::to_string(lengths[r]) +
                        " for field " + type_name<F>() + ", but the batch is " + std::to_string(width) + " wide");
    sum += static_cast<std::size_t>(lengths[r]);
  }
  return F::is_ragged ? std::max(sum, std::size_t{1}) : 0;
}

}  // namespace chorale::nn::graph
