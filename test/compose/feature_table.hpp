// SPDX-License-Identifier: Apache-2.0
//
// What each feature does under each strategy. features_test.cpp and features_test.py hold it against the library, and
// test/docs/compose_test.cpp prints it into docs/30-compose.md.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::test::features {

struct Column {
  std::string_view name;                                                   // in namespace columns
  std::string_view text;
};
inline constexpr auto columns = std::array{
    Column{"mirrored", "`MirroredStrategy`"},
    Column{"local_sgd", "`LocalSgd<1, ..>`"},
    Column{"zero_two", "`<Zero::two>`"},
    Column{"stages", "`pipelined<..>`"},
};

struct Row {
  std::string_view name;                                                   // in namespace features
  std::string_view text;
  std::string_view cells;                                                  // "=": the same bits, "~": but for rounding,
};                                                                         // a number: the sentence that refuses it

inline constexpr auto rows = std::array{
    Row{"fit", "`fit`", "= ~ = ="},
    Row{"evaluate", "`evaluate`", "= ~ = ="},
    Row{"predict", "`predict`", "= ~ = ="},
    Row{"steps_per_epoch", "`FitOptions::steps_per_epoch`", "= ~ = ="},
    Row{"clip", "`global_clipnorm`", "= ~ = ="},
    Row{"schedule", "a schedule of the learning rate", "= ~ = ="},
    Row{"callbacks", "callbacks, `stop`", "= ~ = ="},
    Row{"resume", "a checkpoint, and resume", "= ~ = ="},
    Row{"weights", "`save`, `load` of weights", "= ~ = ="},
};

/// What the compiler says, by the numbers of cells: its errors contain it.
inline constexpr auto sentences = std::array<std::string_view, 0>{
};

/// The cell of a feature and a strategy, by their names; empty if there is none.
constexpr std::string_view cell_of(std::string_view feature, std::string_view column) {
  for (auto const& row : rows) {
    if (row.name != feature) continue;
    auto rest = row.cells;
    for (auto const& one : columns) {
      auto const cell = rest.substr(0, rest.find(' '));
      if (one.name == column) return cell;
      rest.remove_prefix(rest.size() == cell.size() ? cell.size() : cell.size() + 1);
    }
  }
  return {};
}

}  // namespace chorale::test::features
