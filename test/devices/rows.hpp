// SPDX-License-Identifier: Apache-2.0
//
// The rows of test/devices/list.hpp that a device computes, as networks of several of them.
#pragma once

#include "test/devices/steps.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::test::devices {

template <class Inputs, class... L> struct LayerRow {};

template <class... Row> struct ListOfRows {
  /// Those whose inputs are Inputs.
  template <class Inputs> static constexpr auto with() { return (ListOfRows<>{} + ... + only<Inputs>(Row{})); }

  static constexpr std::size_t size = sizeof...(Row);

  /// Calls f(Case<Inputs, L...>) for each part of at most so many rows.
  template <template <class...> class Case, std::size_t most, class F> static void each_part(F&& f) {
    [&]<std::size_t... P>(std::index_sequence<P...>) {
      (part<Case, P * most>(f, std::make_index_sequence<std::min(most, size - P * most)>{}), ...);
    }(std::make_index_sequence<(size + most - 1) / most>{});
  }

  template <class... Other> constexpr ListOfRows<Row..., Other...> operator+(ListOfRows<Other...>) const { return {}; }

 private:
  template <class Inputs, class... L> static constexpr auto only(LayerRow<Inputs, L...>) {
    return ListOfRows<LayerRow<Inputs, L...>>{};
  }
  template <class Inputs> static constexpr auto only(...) { return ListOfRows<>{}; }

  template <template <class...> class Case, std::size_t first, class F, std::size_t... I>
  static void part(F&& f, std::index_sequence<I...>) {
    f(case_of<Case>(std::tuple_element_t<first + I, std::tuple<Row...>>{}...));
  }
  template <template <class...> class Case, class Inputs, class... L> static auto case_of(LayerRow<Inputs, L>...) {
    return Case<Inputs, L...>{};
  }
};

/// A list of a row if the device computes it, else of none.
template <int answer, class Inputs, class... L> constexpr auto row_if_same() {
  if constexpr (answer == same) return ListOfRows<LayerRow<Inputs, L...>>{};
  else return ListOfRows<>{};
}
/// A tuple of what make() gives if the device computes it, else of nothing.
template <int answer, class Make> auto tuple_if_same(Make&& make) {
  if constexpr (answer == same) return std::tuple{make()};
  else return std::tuple<>{};
}

/// Calls f(make()) if it is so; f is a template, so that else nothing of it is compiled.
template <bool is_so, class Make, class F> void when(Make&& make, F&& f) {
  if constexpr (is_so) f(make());
}

/// Calls f(LossCase) for each part of at most 8 of some losses.
template <class... E, class F> void each_part(std::tuple<E...> const& all, F&& f) {
  constexpr std::size_t most = 8;
  auto const part            = [&]<std::size_t first, std::size_t... I>(std::integral_constant<std::size_t, first>,
                                                                        std::index_sequence<I...>) {
    f(LossCase{std::get<first + I>(all)...});
  };
  [&]<std::size_t... P>(std::index_sequence<P...>) {
    (part(std::integral_constant<std::size_t, P * most>{},
          std::make_index_sequence<std::min(most, sizeof...(E) - P * most)>{}),
     ...);
  }(std::make_index_sequence<(sizeof...(E) + most - 1) / most>{});
}

}  // namespace chorale::test::devices
