// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Several rows as one. See Pipe::window.
///
///   size 3, shift 2      0 1 2 3 4 5 6  ->  (0 1 2) (2 3 4) (4 5 6)
///   size 2, stride 3     0 1 2 3 4 5 6  ->  (0 3) (2 5)
///
/// cost    (size - 1) · stride + 1 rows of memory: views of a stable source, else copies
///
/// throws  BadArgument when a window does not fit the fields that it gets
template <class D, class Out> class Windowed : public Pipe<Windowed<D, Out>> {
  using Row = typename D::element;
  static_assert(is_row<Row>, "chorale: window takes rows, not batches. Put it before .batch(n).");
  static_assert(std::same_as<detail::OfNumbers<std::tuple, Row>, detail::OfNumbers<std::tuple, Out>>,
                "chorale: window<...> names as many fields as the rows have, with the same element types.");
  static_assert(!std::same_as<Row, Out> || detail::RowType<Row>::can_grow,
                "chorale: a window has another shape than its rows. Name fields for it: .window<Line>(how), with "
                "struct Line : Field<int, 64> {}; for 64 rows of Field<int, 1>.");

 public:
  using element                = Out;
  static constexpr bool stable = false;

  Windowed(D from, Window how) : from_{std::move(from)}, how_{how} {
    CHORALE_EXPECTS(how.size > 0, "a window needs at least one row");
    CHORALE_EXPECTS(how.stride > 0, "a window's rows are at least one apart");
    CHORALE_EXPECTS(
        how.size - 1 < std::numeric_limits<std::size_t>::max() / how.stride,
        "a window of " + std::to_string(how.size) + " rows, " + std::to_string(how.stride) + " apart, is too long");
    if (how_.shift == 0) how_.shift = how_.size;
  }

  class Stream {
   public:
    Stream(StreamOf<D> from, Window how) : from_{std::move(from)}, how_{how}, reach_{(how.size - 1) * how.stride + 1} {}

    bool next(element& out) {
      if (begun_) advance();
      begun_ = true;
      while (rows_ < reach_ && more()) ++rows_;
      if (rows_ == 0 || (rows_ < reach_ && how_.remainder == Remainder::drop)) return false;
      std::apply([](auto&... all) { (all.clear(), ...); }, memory_);
      for (std::size_t i = 0; i < rows_; i += how_.stride) add(get(slots_[(first_ + i) % slots_.size()]));
      auto&& spans = detail::fields(out);
      detail::for_each_index<n_fields>([&](auto i) { std::get<i>(spans) = std::get<i>(memory_); });
      detail::RowType<Out>::expect_shape(made_++, out);
      return true;
    }

   private:
    static constexpr std::size_t n_fields = detail::fields_of<Row>;
    using Slot                            = std::conditional_t<Stable<D>, Row, Kept<Row>>;

    void add(Row const& row) {
      auto&& spans = detail::fields(row);
      detail::for_each_index<n_fields>([&](auto i) {
        auto& all = std::get<i>(memory_);
        all.insert(all.end(), std::get<i>(spans).begin(), std::get<i>(spans).end());
      });
    }

    static Row const& get(Slot const& slot) {
      if constexpr (Stable<D>) return slot;
      else return slot.get();
    }

    void advance() {
      auto const leave = std::min(how_.shift, rows_);
      first_ += leave, rows_ -= leave;
      for (auto left = how_.shift - leave; left > 0 && read(); --left) continue;
    }
    bool read() {
      if (!ended_) ended_ = !from_.next(in_);
      return !ended_;
    }
    /// Reads one more row after those kept; false at the end. The ring grows in the first window, when first_ is 0.
    bool more() {
      if (!read()) return false;
      if (slots_.size() < reach_ && rows_ == slots_.size()) slots_.emplace_back();
      auto& slot = slots_[(first_ + rows_) % slots_.size()];
      if constexpr (Stable<D>) slot = in_;
      else slot.keep(in_);
      return true;
    }

    StreamOf<D> from_;
    Window how_;
    std::size_t reach_;                 // from the first row of a window to its last, both counted
    std::vector<Slot> slots_;           // a ring
    std::size_t first_ = 0, rows_ = 0;  // slot of the first kept row, modulo the ring; kept rows
    bool begun_ = false, ended_ = false;
    Row in_{};
    std::size_t made_ = 0;  // windows
    detail::OfNumbers<detail::Vectors, Row> memory_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), how_}; }

  std::optional<std::size_t> size() const {
    auto const rows = from_.size();
    if (!rows) return {};
    if (how_.remainder == Remainder::keep) return *rows / how_.shift + (*rows % how_.shift != 0 ? 1 : 0);
    auto const reach = (how_.size - 1) * how_.stride + 1;
    return *rows < reach ? 0 : (*rows - reach) / how_.shift + 1;
  }

  bool reorders() const { return detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("window " + std::to_string(how_.size) + " shift " + std::to_string(how_.shift) + " stride " +
                    std::to_string(how_.stride) + " " + detail::text_of(how_.remainder));
  }

 private:
  D from_;
  Window how_;
};

}  // namespace chorale::data
