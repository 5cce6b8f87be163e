// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>
#include <chorale/device/cpu.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Memory for one batch, 64-byte aligned, that is reused for the next one. Not copyable: a copy would share it.
///
/// T       the numbers of each field
template <class... T> class BatchBuffer {
  static_assert((std::is_trivially_copyable_v<T> && ...),
                "chorale: batches hold numbers, which are copied byte by byte.");

 public:
  BatchBuffer() : BatchBuffer{std::type_identity<Cpu::block>{}} {}
  /// A buffer whose memory is made of objects of type Block, such as blocks that a GPU reads fast.
  template <class Block>
  explicit BatchBuffer(std::type_identity<Block>)
      : make_{[](std::size_t bytes) {
          auto block = std::make_shared<Block>(bytes);
          return std::shared_ptr<std::byte>{block, block->data()};
        }} {}
  BatchBuffer(BatchBuffer&&)            = default;
  BatchBuffer& operator=(BatchBuffer&&) = default;

  /// Makes room for rows with so many numbers in each field; its content is lost when it grows.
  void reserve(std::size_t rows, std::array<std::size_t, sizeof...(T)> const& widths) {
    constexpr auto sizes = std::array{sizeof(T)...};
    for (std::size_t i = 0; i < sizes.size(); ++i) grow(rooms_[i], rows * widths[i] * sizes[i]);
  }

  /// The memory of field number i.
  template <std::size_t i> auto* at() const {
    return reinterpret_cast<std::tuple_element_t<i, std::tuple<T...>>*>(rooms_[i].at.get());
  }

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
  std::array<Room, sizeof...(T)> rooms_;
};

/// The memory that a stream can fill, or void.
template <class S> struct BufferOf : std::type_identity<void> {};
template <class S> requires requires { typename S::buffer; }
struct BufferOf<S> : std::type_identity<typename S::buffer> {};

/// A stream that can put its next element into memory of the caller.
template <class S, class Element>
concept FillsBuffer = requires(S& stream, typename S::buffer& to, Element& out) {
  { stream.next_into(to, out) } -> std::same_as<bool>;
};

namespace detail {

/// The memory of a batch of these rows.
template <class Row> using BufferFor = OfNumbers<BatchBuffer, typename RowType<Row>::Batch>;

/// The batch of n rows that are in a buffer.
///
/// widths  numbers of a row in each field
template <class Batch, class... T>
Batch batch_in(BatchBuffer<T...> const& memory, std::size_t n, std::array<std::size_t, sizeof...(T)> const& widths) {
  auto batch   = Batch{};
  auto&& spans = fields(batch);
  for_each_index<sizeof...(T)>([&](auto i) { std::get<i>(spans) = {memory.template at<i>(), n * widths[i]}; });
  batch.rows = n;
  return batch;
}

/// Copies a row to place n of a batch, whose rows have its widths.
template <class Row, class... T> void put_row(Row const& row, std::size_t n, BatchBuffer<T...> const& to) {
  auto&& spans = fields(row);
  for_each_index<sizeof...(T)>([&](auto i) {
    auto const& span = std::get<i>(spans);
    std::copy(span.begin(), span.end(), to.template at<i>() + n * span.size());
  });
}

}  // namespace detail

/// Rows gathered into batches. See Pipe::batch.
///
/// keeps   a batch is contiguous and 64-byte aligned, and valid until the next call
/// cost    one copy of each row; no allocation after the first batch
/// throws  BadArgument when a row has another width than the first
template <class D> class Batched : public Pipe<Batched<D>> {
  using Row = typename D::element;
  static_assert(!detail::RowType<Row>::is_ragged);  // Pipe::batch makes a PaddedBatched of them

 public:
  using element                = typename detail::RowType<Row>::Batch;
  static constexpr bool stable = false;

  Batched(D from, GlobalBatch rows, Remainder remainder) : from_{std::move(from)}, remainder_{remainder} {
    CHORALE_EXPECTS(rows.rows > 0, "a batch needs at least one row, got " + std::to_string(rows.rows));
    rows_ = static_cast<std::size_t>(rows.rows);
  }

  class Stream {
   public:
    using buffer = detail::BufferFor<Row>;

    Stream(StreamOf<D> from, std::size_t rows, std::size_t room, Remainder remainder)
        : from_{std::move(from)}, rows_{rows}, room_{room}, remainder_{remainder} {}

    bool next(element& out) { return next_into(own_, out); }

    /// Gathers the next batch in memory of the caller. False at the end.
    bool next_into(buffer& to, element& out) {
      auto const n = Stable<D> ? gather_views(to) : gather(to);
      if (n == 0 || (n < rows_ && remainder_ == Remainder::drop)) return false;
      out = detail::batch_in<element>(to, n, widths_.each());
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
        if (n + 2 < views_.size()) fetch(views_[n + 2]);
        put(to, n, views_[n]);
      }
      return views_.size();
    }
    static void fetch(Row const& row) {
      auto const one = [](auto const& span) {
        auto const bytes = std::as_bytes(span);
        for (std::size_t at = 0; at < bytes.size(); at += 64) __builtin_prefetch(bytes.data() + at);
      };
      if constexpr (is_sample<Row>) one(row.x);  // y is small
      else std::apply([&](auto const&... spans) { (one(spans), ...); }, row.fields());
    }

    void put(buffer& to, std::size_t n, Row const& row) {
      if (count_ == 0) widths_.begin(row);
      widths_.expect(count_++, row);
      if (n == 0) to.reserve(room_, widths_.each());
      detail::put_row(row, n, to);
    }

    StreamOf<D> from_;
    std::size_t rows_, room_;  // rows of a full batch; rows that a batch can have
    Remainder remainder_;
    Widths<Row> widths_;
    std::size_t count_ = 0;   // rows read so far
    std::vector<Row> views_;  // the rows of one batch, if they are stable
    buffer own_;
  };

  Stream stream(std::size_t epoch) const {
    auto const room = std::min(rows_, from_.size().value_or(rows_));  // a huge batch of few rows takes little
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
