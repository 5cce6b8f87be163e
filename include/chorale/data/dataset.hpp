// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The input pipeline: the concept Dataset and the names of its stages (pipe.hpp), every stage, and rows in memory.

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/cache.hpp>
#include <chorale/data/stages/concatenate.hpp>
#include <chorale/data/stages/file_cache.hpp>
#include <chorale/data/stages/filter.hpp>
#include <chorale/data/stages/generator.hpp>
#include <chorale/data/stages/interleave.hpp>
#include <chorale/data/stages/map.hpp>
#include <chorale/data/stages/map_batch.hpp>
#include <chorale/data/stages/padded_batch.hpp>
#include <chorale/data/stages/parallel_map.hpp>
#include <chorale/data/stages/prefetch.hpp>
#include <chorale/data/stages/repeat.hpp>
#include <chorale/data/stages/shuffle.hpp>
#include <chorale/data/stages/window.hpp>
#include <chorale/data/threads/auto_tune.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows in memory. See from_tensors.
template <class X, class Y>
class Tensors : public Pipe<Tensors<X, Y>> {
 public:
  using element = Sample<X, Y>;
  static constexpr bool stable = true;

  explicit Tensors(RowsView<X, Y> rows) : rows_{std::move(rows)} {}

  auto stream(std::size_t) const { return RowStream<X, Y>{rows_}; }
  std::optional<std::size_t> size() const { return rows_.rows; }

  void describe(std::vector<std::string>& lines) const {
    lines.push_back("rows " + std::to_string(rows_.rows) + " of " + std::to_string(rows_.width) + " numbers and " +
                    std::to_string(rows_.targets) + " targets");
    lines.push_back("sample of rows " + std::to_string(detail::sample_of(rows_)));
  }

 private:
  RowsView<X, Y> rows_;
};

namespace detail {

template <class X, class Y>
RowsView<X, Y> as_rows(Span<X const> x, Span<Y const> y, std::size_t width) {
  CHORALE_EXPECTS(width > 0, "from_tensors: a row needs at least one number");
  CHORALE_EXPECTS(x.size() % width == 0, "from_tensors: " + std::to_string(x.size()) + " numbers are not rows of " +
                                             std::to_string(width));
  auto const rows = x.size() / width;
  CHORALE_EXPECTS(rows > 0 ? y.size() % rows == 0 : y.empty(),
                  "from_tensors: " + std::to_string(y.size()) + " targets cannot be dealt out to " +
                      std::to_string(rows) + " rows");
  return {.x = x, .y = y, .width = width, .targets = rows > 0 ? y.size() / rows : 0, .rows = rows};
}

}  // namespace detail

/// Rows from two vectors, which the dataset then owns.
///
///   auto train = data::from_tensors(x, y, 784).shuffle(1'000).batch(64);
///
/// x       (B, width) numbers; y (B, targets): a label for each row, or targets of any width
/// width   numbers of x in a row; B and the targets of a row follow from it
/// throws  BadArgument when x or y is not a whole number of rows
template <class X, class Y>
Tensors<X, Y> from_tensors(std::vector<X> x, std::vector<Y> y, std::size_t width) {
  auto owner = std::make_shared<Rows<X, Y> const>(Rows<X, Y>{std::move(x), std::move(y)});
  auto rows  = detail::as_rows(Span<X const>{owner->x}, Span<Y const>{owner->y}, width);
  rows.owner = std::move(owner);
  return Tensors<X, Y>{std::move(rows)};
}

/// Rows that the caller owns: they must exist, unchanged, as long as the dataset and its streams.
template <class X, class Y>
auto from_tensors(Span<X> x, Span<Y> y, std::size_t width) {
  using Rows = Tensors<std::remove_const_t<X>, std::remove_const_t<Y>>;
  return Rows{detail::as_rows(Span<X const>{x}, Span<Y const>{y}, width)};
}

}  // namespace chorale::data
