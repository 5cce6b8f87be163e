// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/map.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {

/// Batches whose labels are of another integer type, such as std::int64_t, with labels of type int. Trainer makes it of
/// the data that it gets where the loss takes labels.
///
/// keeps   all but the type of the labels
/// cost    a copy of the labels; no allocation after the largest batch
/// throws  BadArgument, from next, when a label is not in the range of int
template <class D> class IntLabels : public Pipe<IntLabels<D>> {
 public:
  using Label                  = typename decltype(D::element::y)::value_type;
  using element                = BasicBatch<typename decltype(D::element::x)::value_type, int>;
  static constexpr bool stable = false;

  explicit IntLabels(D from) : from_{std::move(from)} {}

  class Stream {
   public:
    explicit Stream(StreamOf<D> from) : from_{std::move(from)} {}

    bool next(element& out) {
      auto batch = typename D::element{};
      if (!from_.next(batch)) return false;
      labels_.resize(batch.y.size());
      std::transform(batch.y.begin(), batch.y.end(), labels_.begin(), int_label<Label>);
      out = {.x           = batch.x,
             .y           = labels_,
             .rows        = batch.rows,
             .first_row   = batch.first_row,
             .global_rows = batch.global_rows};
      return true;
    }

   private:
    StreamOf<D> from_;
    std::vector<int> labels_;  // of the batch
  };

  Stream stream(std::size_t epoch) const { return Stream{from_.stream(epoch)}; }
  std::optional<std::size_t> size() const { return from_.size(); }
  void describe(std::vector<std::string>& lines) const { data::describe(from_, lines); }

 private:
  D from_;
};

}  // namespace chorale::data
