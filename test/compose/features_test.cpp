// SPDX-License-Identifier: Apache-2.0
//
// Cells of the table of features in docs/30-compose.md: what a feature ends with under a strategy, after some steps, is
// what it ends with on one device. This file has a few; features_test.py puts all of them into one program with it, and
// asks the compiler about those that are refused.
#include "test/compose/feature_cells.hpp"

#include <catch2/catch.hpp>

#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <utility>

#ifndef FEATURES_ELSEWHERE
// clang-format off
#define ON_NET(column)                                                                                             \
  CELL(fit, column) CELL(evaluate, column) CELL(predict, column) CELL(steps_per_epoch, column) CELL(clip, column) \
  CELL(schedule, column) CELL(callbacks, column) CELL(resume, column) CELL(weights, column)
// clang-format on

namespace {
ON_NET(one_device)
ON_NET(one_by_ring)
ON_NET(mirrored)
ON_NET(local_sgd)
ON_NET(zero_two)
ON_NET(stages)
}  // namespace
#endif

using chorale::test::features::cell_of;
using chorale::test::features::sentence_of;
using chorale::test::features::thrown;

TEST_CASE("a feature under a strategy ends with what one device does", "[compose][features]") {
  auto of_one = std::map<std::pair<std::string, bool>, features::Learned>{};
  auto equal  = 0;
  for (auto const& [name, cell] : features::cells()) {
    auto const& [feature, column] = name;
    auto const one_name           = cell.is_exact ? "one_device" : "one_by_ring";
    INFO(feature << " under " << column);
    auto const mark = cell_of(feature, column);
    auto const data = features::Data{cell.same_rows};
    if (mark.ends_with(thrown)) {
      CHECK_THROWS_WITH(cell.learn(data), Catch::Contains(std::string{sentence_of(mark)}));
      continue;
    }
    auto const key = std::pair{feature + one_name, cell.same_rows};
    try {
      if (!of_one.contains(key)) of_one[key] = features::cells().at({feature, one_name}).learn(data);
      auto one       = of_one.at(key);
      auto const got = cell.learn(data);
      if (got.values.empty()) one.values.clear();  // a loop where copies have shards or stages
      CHECK(got.values.size() + got.scores.size() + got.outputs.size() > 4);
      auto const apart = chorale::test::difference(got, one);
      INFO("the table says \"" << mark << "\", and the largest difference is " << apart);
      if (column.starts_with("one_")) CHECK(got == one);
      else if (mark == "=") CHECK((got.values == one.values && apart < 1e-6));
      else if (mark == "~" || mark.empty()) CHECK(apart < cell.rounding);
      else FAIL_CHECK("the table does not say that they are equal");
      ++equal;
    } catch (std::exception const& error) { FAIL_CHECK(error.what()); }
  }
  std::cout << equal << " cells trained\n";
}
