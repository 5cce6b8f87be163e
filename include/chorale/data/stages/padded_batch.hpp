// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows of different widths gathered into batches. See Pipe::padded_batch.
///
///   [1 2 3]        [1 2 3]
///   [4]       ->   [4 0 0]     as wide as the widest, or as Padding says
///   [5 6]          [5 6 0]
///
/// keeps   a batch is contiguous and 64-byte aligned, and valid until the next call
/// cost    one copy of each row, two of rows that are not stable; no allocation once the buffers have grown
/// throws  BadArgument when a row is wider than Padding allows
template <class D>
class PaddedBatched : public Pipe<PaddedBatched<D>> {
  using Row = typename D::element;
  static_assert(is_sample<Row>, "chorale: padded_batch takes rows, not batches. Write .padded_batch(n) once.");
  using X = typename decltype(Row::x)::value_type;
  using Y = typename decltype(Row::y)::value_type;

 public:
  using element = BasicBatch<X, Y>;
  static constexpr bool stable = false;

  PaddedBatched(D from, GlobalBatch rows, Padding padding, Remainder remainder)
      : from_{std::move(from)}, padding_{padding}, remainder_{remainder} {
    CHORALE_EXPECTS(rows.rows > 0, "a batch needs at least one row, got " + std::to_string(rows.rows));
    rows_ = static_cast<std::size_t>(rows.rows);
  }

  class Stream {
   public:
    using buffer = BatchBuffer<X, Y>;

    Stream(StreamOf<D> from, std::size_t rows, Padding padding, Remainder remainder)
        : from_{std::move(from)}, rows_{rows}, padding_{padding}, remainder_{remainder} {}

    bool next(element& out) { return next_into(own_, out); }

    /// Gathers the next batch in memory of the caller. False at the end.
    bool next_into(buffer& to, element& out) {
      auto n = std::size_t{0};
      for (; n < rows_ && from_.next(in_); ++n) keep(n);
      if (n == 0 || (n < rows_ && remainder_ == Remainder::drop)) return false;
      auto const width   = common(n, padding_.width, "numbers", [](Row const& row) { return row.x.size(); });
      auto const targets = common(n, padding_.targets, "targets", [](Row const& row) { return row.y.size(); });
      to.reserve(rows_, width, targets);
      for (std::size_t i = 0; i < n; ++i) {
        put(get(slots_[i]).x, to.x() + i * width, width, static_cast<X>(padding_.x));
        put(get(slots_[i]).y, to.y() + i * targets, targets, static_cast<Y>(padding_.y));
      }
      count_ += n;
      out = {.x = {to.x(), n * width}, .y = {to.y(), n * targets}, .rows = n, .first_row = 0};
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

    template <class SizeOf>
    std::size_t common(std::size_t n, std::size_t wanted, std::string const& what, SizeOf size_of) const {
      auto widest = std::size_t{0};
      for (std::size_t i = 0; i < n; ++i) {
        auto const size = size_of(get(slots_[i]));
        if (wanted != 0 && size > wanted)
          throw BadArgument{"row " + std::to_string(count_ + i) + " has " + std::to_string(size) + " " + what +
                                ", but batches are padded to " + std::to_string(wanted) + ".",
                            "a wider Padding, or a map that shortens rows."};
        widest = std::max(widest, size);
      }
      return wanted != 0 ? wanted : widest;
    }

    template <class T>
    static void put(Span<T const> row, T* to, std::size_t width, T padding) {
      std::fill(std::copy(row.begin(), row.end(), to), to + width, padding);
    }

    StreamOf<D> from_;
    std::size_t rows_;
    Padding padding_;
    Remainder remainder_;
    std::size_t count_ = 0;                                // rows of earlier batches
    Row in_{};
    std::vector<Slot> slots_;
    buffer own_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), rows_, padding_, remainder_}; }

  std::optional<std::size_t> size() const {
    auto const rows = from_.size();
    if (!rows) return {};
    return *rows / rows_ + (remainder_ == Remainder::keep && *rows % rows_ != 0 ? 1 : 0);
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("padded_batch " + std::to_string(rows_) + " " + detail::text_of(remainder_) + " width " +
                    std::to_string(padding_.width) + " targets " + std::to_string(padding_.targets) + " with " +
                    word_of(padding_.x) + " and " + word_of(padding_.y));
  }

 private:
  D from_;
  std::size_t rows_ = 0;
  Padding padding_;
  Remainder remainder_;
};

}  // namespace chorale::data
