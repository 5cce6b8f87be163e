// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale {

/// Updates those rows of a table that have a gradient; what an optimizer remembers of the others rests, as in torch's
/// SparseAdam. Any optimizer works: rows are gathered into a block, updated as if they were one variable, and written
/// back.
///
///   table   row 7 ............... row 3 ......       each with its slots
///             |                      |
///             +------> block <-------+               contiguous: one call of update()
///
/// keeps   the block, of some 16 KiB for each of values, gradients and slots
/// cost    time and memory traffic of the rows that came, not of the table; allocates nothing after the first step
class RowUpdate {
 public:
  /// Arguments of an update: factor of the gradients, progress of training, and the plan of all variables.
  struct Arguments {
    float scale;
    optim::Moment now;
    PlanView const& plan;
  };

  /// slots    of all variables, one slot after another
  template <class D, class Optimizer>
  void update(Optimizer const& rule, Variables const& variables, RowGradients const& table, Span<float> slots,
              Arguments const& with) {
    auto const& planned = with.plan.variables[table.variable()];
    auto const width    = table.width();
    auto const rows     = table.rows();
    auto* const values  = variables.values.data() + planned.offset;
    auto const stride   = with.plan.slot_stride();
    auto const used     = slots_in_use(rule);
    if (used == 0) return update_in_place<D>(rule, values, table, with);
    auto const block = std::max<std::size_t>(1, floats / width);  // rows
    block_.resize((2 + used) * block * width);
    for (std::size_t first = 0; first < rows.size(); first += block) {
      auto const mine = rows.subspan(first, std::min(block, rows.size() - first));
      auto const n    = mine.size() * width;
      auto const each = [&](auto&& copy) {
        copy(values, block_.data());
        for (std::size_t k = 0; k < used; ++k)
          copy(slots.data() + k * stride + planned.slot_offset(), block_.data() + (1 + k) * n);
      };
      each([&](float* from, float* to) {
        for (std::size_t i = 0; i < mine.size(); ++i) std::copy_n(from + mine[i] * width, width, to + i * width);
      });
      auto const all = Span<float>{block_};
      auto const g   = all.last(n);
      for (std::size_t i = 0; i < mine.size(); ++i) std::copy_n(table[first + i].data(), width, g.data() + i * width);
      rule.template update<D>({all.first(n), g, all.subspan(n, used * n), with.scale, with.now});
      each([&](float* to, float const* from) {
        for (std::size_t i = 0; i < mine.size(); ++i) std::copy_n(from + i * width, width, to + mine[i] * width);
      });
    }
  }

 private:
  static constexpr std::size_t floats = 4096;  // of a block, so that all parts fit into L1
  static constexpr std::size_t ahead  = 8;     // rows that are fetched before their turn

  template <class Optimizer> static std::size_t slots_in_use(Optimizer const& rule) {
    if constexpr (requires { rule.slots_in_use(); }) return static_cast<std::size_t>(rule.slots_in_use());
    else return static_cast<std::size_t>(Optimizer::slots);
  }

  /// Updates each row where it lies, for an optimizer that remembers nothing.
  template <class D, class Optimizer>
  static void update_in_place(Optimizer const& rule, float* values, RowGradients const& table, Arguments const& with) {
    auto const width = table.width();
    auto const rows  = table.rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i + ahead < rows.size()) fetch(values + rows[i + ahead] * width, width);
      rule.template update<D>({Span<float>{values + rows[i] * width, width}, table[i], {}, with.scale, with.now});
    }
  }
  static void fetch(float const* row, std::size_t width) {
    for (std::size_t c = 0; c < width; c += plan::align) __builtin_prefetch(row + c, 1);
  }

  std::vector<float> block_;  // values, each slot, gradients
};

}  // namespace chorale
