// SPDX-License-Identifier: Apache-2.0
//
// The cells of the table of features that are compiled into a program, by their names.
#pragma once

#include "test/compose/feature_table.hpp"
#include "test/compose/features.hpp"

#include <map>
#include <string>
#include <utility>

namespace features {

struct Cell {
  Learned (*learn)(Data const&);
  bool same_rows, is_exact;
  double rounding;  // what "~" allows
};

/// {feature, strategy}: the cells that were compiled.
inline std::map<std::pair<std::string, std::string>, Cell>& cells() {
  static auto all = std::map<std::pair<std::string, std::string>, Cell>{};
  return all;
}

template <class F, class C> bool add(std::string feature, std::string column) {
  constexpr bool is_exact                          = std::is_same_v<decltype(C::reduce()), Reproducible<8>>;
  constexpr bool same_rows                         = C::same_rows || (!is_exact && requires { F::same_rows; });
  constexpr auto rounding                          = !C::is_near ? 2e-5 : requires { F::in_halves; } ? 1e-2 : 1e-4;
  cells()[{std::move(feature), std::move(column)}] = {&F::template learn<C>, same_rows, is_exact, rounding};
  return true;
}

}  // namespace features

#define CELL(feature, column)                                         \
  [[maybe_unused]] static bool const has_##feature##_under_##column = \
      features::add<features::feature, columns::column>(#feature, #column);
