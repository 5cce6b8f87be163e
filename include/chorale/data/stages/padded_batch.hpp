// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

/// How the rows of a batch get one width: for x and y of Samples by Padding, for named fields by their PaddingOf.
template <class Row> class Paddings {
 public:
  explicit Paddings(Padding padding)
      : padding_{padding}, values_{static_cast<X>(padding.x), static_cast<Y>(padding.y)} {}

  /// Throws BadArgument when row number `row` cannot be in the batch; else widens the batch for it.
  void widen(std::size_t row, Row const& got, std::array<std::size_t, 2>& widths) const {
    widen(row, got.x.size(), padding_.width, "numbers", widths[0]);
    widen(row, got.y.size(), padding_.targets, "targets", widths[1]);
  }

  /// Copies a row to place n of a batch with these widths.
  template <class Buffer>
  void put(Row const& row, std::size_t n, Buffer const& to, std::array<std::size_t, 2> const& widths) const {
    put(row.x, to.template at<0>() + n * widths[0], widths[0], std::get<0>(values_));
    put(row.y, to.template at<1>() + n * widths[1], widths[1], std::get<1>(values_));
  }

  std::string text() const {
    return "width " + std::to_string(padding_.width) + " targets " + std::to_string(padding_.targets) + " with " +
           word_of(padding_.x) + " and " + word_of(padding_.y);
  }

 private:
  using X = typename decltype(Row::x)::value_type;
  using Y = typename decltype(Row::y)::value_type;

  static void widen(std::size_t row, std::size_t size, std::size_t wanted, char const* what, std::size_t& width) {
    if (wanted != 0 && size > wanted)
      throw BadArgument{"row " + std::to_string(row) + " has " + std::to_string(size) + " " + what +
                            ", but batches are padded to " + std::to_string(wanted) + ".",
                        "a wider Padding, or a map that shortens rows."};
    width = wanted != 0 ? wanted : std::max(width, size);
  }
  template <class T> static void put(Span<T const> row, T* to, std::size_t width, T padding) {
    std::fill(std::copy(row.begin(), row.end(), to), to + width, padding);
  }

  Padding padding_;
  std::tuple<X, Y> values_;
};

template <class... F> class Paddings<Row<F...>> {
  static constexpr std::size_t n       = fields_of<Row<F...>>;
  static constexpr std::size_t n_spans = fields_of<chorale::Rows<F...>>;  // fields, then lengths of ragged ones

 public:
  template <class... G> explicit Paddings(Padding padding, PaddingOf<G>... given) {
    CHORALE_EXPECTS(padding.width == 0 && padding.targets == 0 && padding.x == 0 && padding.y == 0,
                    "Padding is for x and y; write PaddingOf<Field> for a named field");
    ((std::get<PaddingOf<G>>(each_) = given), ...);
  }

  void widen(std::size_t row, Row<F...> const& got, std::array<std::size_t, n_spans>& widths) const {
    RowType<Row<F...>>::expect_shape(row, got);
    for_each_index<n>([&](auto i) { widths[i] = std::max(widths[i], width<i>(row, got)); });
    for (auto i = n; i < n_spans; ++i) widths[i] = 1;
  }

  template <class Buffer>
  void put(Row<F...> const& row, std::size_t place, Buffer const& to,
           std::array<std::size_t, n_spans> const& widths) const {
    for_each_index<n>([&](auto i) {
      using G          = Field<i>;
      auto const& from = std::get<i>(row.fields());
      auto* at         = to.template at<i>() + place * widths[i];
      if constexpr (G::is_ragged) {
        constexpr auto shape = chorale::detail::ragged_shape<G>;
        auto const block = from.size() / shape.outer, room = widths[i] / shape.outer;
        for (std::size_t k = 0; k < shape.outer; ++k, at += room) {
          auto const one = from.subspan(k * block, block);
          std::fill(std::copy(one.begin(), one.end(), at), at + room, std::get<i>(each_).value);
        }
        constexpr auto lengths           = chorale::detail::FieldList<F...>::template lengths_index<G>;
        to.template at<lengths>()[place] = static_cast<int>(from.size() / shape.unit());
      } else {
        std::copy(from.begin(), from.end(), at);
      }
    });
  }

  std::string text() const {
    auto all = RowType<Row<F...>>::text();
    for_each_index<n>([&](auto i) {
      auto const& padding = std::get<i>(each_);
      if constexpr (Field<i>::is_ragged)
        all += " length " + std::to_string(padding.length) + " with " + word_of(padding.value);
    });
    return all;
  }

 private:
  template <std::size_t i> using Field = std::tuple_element_t<i, std::tuple<F...>>;

  /// The numbers that row number `row` needs in a batch for field i.
  template <std::size_t i> std::size_t width(std::size_t row, Row<F...> const& got) const {
    using G         = Field<i>;
    auto const size = std::get<i>(got.fields()).size();
    if constexpr (G::is_ragged) {
      constexpr auto unit = chorale::detail::ragged_shape<G>.unit();
      auto const wanted   = std::get<i>(each_).length;
      if (wanted != 0 && size > wanted * unit)
        throw BadArgument{"row " + std::to_string(row) + ": field " + type_name<G>() + " has length " +
                              std::to_string(size / unit) + ", but batches are padded to " + std::to_string(wanted) +
                              ".",
                          "a longer PaddingOf, or a map that shortens rows."};
      return wanted != 0 ? wanted * unit : size;
    } else {
      return size;
    }
  }

  std::tuple<PaddingOf<F>...> each_;
};

}  // namespace detail

/// Rows of different widths gathered into batches. See Pipe::padded_batch.
///
///   [1 2 3]        [1 2 3]
///   [4]       ->   [4 0 0]     as wide as the widest, or as Padding says
///   [5 6]          [5 6 0]
///
/// keeps   a batch is contiguous and 64-byte aligned, and valid until the next call
/// cost    one copy of each row, two of rows that are not stable; no allocation once the buffers have grown
/// throws  BadArgument when a row is wider than Padding allows, or has another number of elements than a field of fixed
///         shape
template <class D> class PaddedBatched : public Pipe<PaddedBatched<D>> {
  using Row      = typename D::element;
  using Paddings = detail::Paddings<Row>;

 public:
  using element                = typename detail::RowType<Row>::Batch;
  static constexpr bool stable = false;

  template <class... Fields>
  PaddedBatched(D from, GlobalBatch rows, Padding padding, Remainder remainder, PaddingOf<Fields>... each)
      : from_{std::move(from)}, paddings_{padding, each...}, remainder_{remainder} {
    CHORALE_EXPECTS(rows.rows > 0, "a batch needs at least one row, got " + std::to_string(rows.rows));
    rows_ = static_cast<std::size_t>(rows.rows);
  }

  class Stream {
   public:
    using buffer = detail::BufferFor<Row>;

    Stream(StreamOf<D> from, std::size_t rows, Paddings const& paddings, Remainder remainder)
        : from_{std::move(from)}, rows_{rows}, paddings_{paddings}, remainder_{remainder} {}

    bool next(element& out) { return next_into(own_, out); }

    /// Gathers the next batch in memory of the caller. False at the end.
    bool next_into(buffer& to, element& out) {
      auto n = std::size_t{0};
      for (; n < rows_ && from_.next(in_); ++n) keep(n);
      if (n == 0 || (n < rows_ && remainder_ == Remainder::drop)) return false;
      auto widths = std::array<std::size_t, detail::fields_of<element>>{};
      for (std::size_t i = 0; i < n; ++i) paddings_.widen(count_ + i, get(slots_[i]), widths);
      to.reserve(n, widths);
      for (std::size_t i = 0; i < n; ++i) paddings_.put(get(slots_[i]), i, to, widths);
      count_ += n;
      out = detail::batch_in<element>(to, n, widths);
      return true;
    }

   private:
    using Slot = std::conditional_t<Stable<D>, Row, Kept<Row>>;

    static Row const& get(Slot const& slot) {
      if constexpr (Stable<D>) return slot;
      else return slot.get();
    }
    void keep(std::size_t n) {
      if (n == slots_.size()) slots_.emplace_back();
      if constexpr (Stable<D>) slots_[n] = in_;
      else slots_[n].keep(in_);
    }

    StreamOf<D> from_;
    std::size_t rows_;
    Paddings paddings_;
    Remainder remainder_;
    std::size_t count_ = 0;  // rows of earlier batches
    Row in_{};
    std::vector<Slot> slots_;
    buffer own_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), rows_, paddings_, remainder_}; }

  std::optional<std::size_t> size() const {
    auto const rows = from_.size();
    if (!rows) return {};
    return *rows / rows_ + (remainder_ == Remainder::keep && *rows % rows_ != 0 ? 1 : 0);
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("padded_batch " + std::to_string(rows_) + " " + detail::text_of(remainder_) + " " +
                    paddings_.text());
  }

 private:
  D from_;
  std::size_t rows_ = 0;
  Paddings paddings_;
  Remainder remainder_;
};

}  // namespace chorale::data
