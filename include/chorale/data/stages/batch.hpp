// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>
#include <chorale/device/cpu.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Memory for one batch, 64-byte aligned, that is reused for the next one. Not copyable: a copy would share it.
template <class X, class Y>
class BatchBuffer {
  static_assert(std::is_trivially_copyable_v<X> && std::is_trivially_copyable_v<Y>,
                "chorale: batches hold numbers, which are copied byte by byte.");

 public:
  BatchBuffer() : BatchBuffer{std::type_identity<Cpu::block>{}} {}
  /// A buffer whose memory is made of objects of type Block, such as blocks that a GPU reads fast.
  template <class Block>
  explicit BatchBuffer(std::type_identity<Block>) : make_{[](std::size_t bytes) {
    auto block = std::make_shared<Block>(bytes);
    return std::shared_ptr<std::byte>{block, block->data()};
  }} {}
  BatchBuffer(BatchBuffer&&)            = default;
  BatchBuffer& operator=(BatchBuffer&&) = default;

  /// Makes room for rows of this width; its content is lost when it grows.
  void reserve(std::size_t rows, std::size_t width, std::size_t targets) {
    grow(x_, rows * width * sizeof(X));
    grow(y_, rows * targets * sizeof(Y));
  }
  X* x() const { return reinterpret_cast<X*>(x_.at.get()); }
  Y* y() const { return reinterpret_cast<Y*>(y_.at.get()); }

 private:
  struct Room {
    std::shared_ptr<std::byte> at;
    std::size_t bytes = 0;
  };

  void grow(Room& room, std::size_t bytes) {
    if (room.bytes >= bytes) return;
    room = {};
    room = {make_(bytes), bytes};
  }

  std::shared_ptr<std::byte> (*make_)(std::size_t bytes);
  Room x_, y_;
};

/// The memory that a stream can fill, or void.
template <class S>
struct BufferOf : std::type_identity<void> {};
template <class S> requires requires { typename S::buffer; }
struct BufferOf<S> : std::type_identity<typename S::buffer> {};

/// A stream that can put its next element into memory of the caller.
template <class S, class Element>
concept FillsBuffer = requires(S& stream, typename S::buffer& to, Element& out) {
  { stream.next_into(to, out) } -> std::same_as<bool>;
};

/// Rows gathered into batches. See Pipe::batch.
///
/// keeps   a batch is contiguous and 64-byte aligned, and valid until the next call
/// cost    one copy of each row; no allocation after the first batch
/// throws  BadArgument when a row has another width than the first
template <class D>
class Batched : public Pipe<Batched<D>> {
  using Row = typename D::element;
  static_assert(is_sample<Row>, "chorale: batch takes rows, not batches. Write .batch(n) once.");
  using X = typename decltype(Row::x)::value_type;
  using Y = typename decltype(Row::y)::value_type;

 public:
  using element = BasicBatch<X, Y>;
  static constexpr bool stable = false;

  Batched(D from, GlobalBatch rows, Remainder remainder) : from_{std::move(from)}, remainder_{remainder} {
    CHORALE_EXPECTS(rows.rows > 0, "a batch needs at least one row, got " + std::to_string(rows.rows));
    rows_ = static_cast<std::size_t>(rows.rows);
  }

  class Stream {
   public:
    using buffer = BatchBuffer<X, Y>;

    Stream(StreamOf<D> from, std::size_t rows, std::size_t room, Remainder remainder)
        : from_{std::move(from)}, rows_{rows}, room_{room}, remainder_{remainder} {}

    bool next(element& out) { return next_into(own_, out); }

    /// Gathers the next batch in memory of the caller. False at the end.
    bool next_into(buffer& to, element& out) {
      auto const n = Stable<D> ? gather_views(to) : gather(to);
      if (n == 0 || (n < rows_ && remainder_ == Remainder::drop)) return false;
      out = {.x = {to.x(), n * width_}, .y = {to.y(), n * targets_}, .rows = n, .first_row = 0};
      return true;
    }

   private:
    std::size_t gather(buffer& to) {
      auto n = std::size_t{0};
      for (auto row = Row{}; n < room_ && from_.next(row); ++n) put(to, n, row);
      return n;
    }

    // Shuffled rows are not in the processor's caches: it prefetches two rows while it copies a third.
    std::size_t gather_views(buffer& to) {
      views_.clear();
      for (auto row = Row{}; views_.size() < room_ && from_.next(row);) views_.push_back(row);
      for (std::size_t n = 0; n < views_.size(); ++n) {
        if (n + 2 < views_.size()) fetch(views_[n + 2].x);
        put(to, n, views_[n]);
      }
      return views_.size();
    }
    static void fetch(Span<X const> x) {
      auto const bytes = std::as_bytes(x);
      for (std::size_t at = 0; at < bytes.size(); at += 64) __builtin_prefetch(bytes.data() + at);
    }

    void put(buffer& to, std::size_t n, Row const& row) {
      if (count_ == 0) width_ = row.x.size(), targets_ = row.y.size();
      if (n == 0) to.reserve(room_, width_, targets_);
      expect_widths(count_++, row, width_, targets_);
      std::copy(row.x.begin(), row.x.end(), to.x() + n * width_);
      std::copy(row.y.begin(), row.y.end(), to.y() + n * targets_);
    }

    StreamOf<D> from_;
    std::size_t rows_, room_;                              // rows of a full batch; rows that a batch can have
    Remainder remainder_;
    std::size_t width_ = 0, targets_ = 0;                  // of the first row
    std::size_t count_ = 0;                                // rows read so far
    std::vector<Row> views_;                               // the rows of one batch, if they are stable
    buffer own_;
  };

  Stream stream(std::size_t epoch) const {
    auto const room = std::min(rows_, from_.size().value_or(rows_));       // a huge batch of few rows takes little
    return {from_.stream(epoch), rows_, room, remainder_};
  }

  std::optional<std::size_t> size() const {
    auto const rows = from_.size();
    if (!rows) return {};
    return *rows / rows_ + (remainder_ == Remainder::keep && *rows % rows_ != 0 ? 1 : 0);
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("batch " + std::to_string(rows_) + " " + detail::text_of(remainder_));
  }

 private:
  D from_;
  std::size_t rows_ = 0;
  Remainder remainder_;
};

}  // namespace chorale::data
