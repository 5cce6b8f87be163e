// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/padded_batch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows gathered into batches of similar lengths. See Pipe::bucket_by_sequence_length.
///
///   boundaries 3, 6       lengths 2 7 1 4 9 5  ->  (2 1) (7 9) (4 5)
///
/// order   a batch comes when its bucket is full; at the end of a pass the rest of each bucket, short rows first
/// keeps   a batch is contiguous and 64-byte aligned, and valid until the next call
/// cost    the rows of all buckets: views of a stable source, else copies; no allocation once the buffers have grown
/// throws  BadArgument when a row does not fit its fields
template <class D, class F> class BucketedByLength : public Pipe<BucketedByLength<D, F>> {
  using Row      = typename D::element;
  using Paddings = detail::Paddings<Row>;

 public:
  using element                = typename detail::RowType<Row>::Batch;
  static constexpr bool stable = false;

  BucketedByLength(D from, Buckets buckets) : from_{std::move(from)}, buckets_{std::move(buckets)} {
    auto const& b = buckets_.boundaries;
    CHORALE_EXPECTS(buckets_.rows.size() == b.size() + 1,
                    "buckets with " + std::to_string(b.size()) + " boundaries need " + std::to_string(b.size() + 1) +
                        " sizes of batches, got " + std::to_string(buckets_.rows.size()));
    for (std::size_t i = 1; i < b.size(); ++i)
      CHORALE_EXPECTS(b[i - 1] < b[i], "boundaries of buckets increase, but " + std::to_string(b[i]) + " comes after " +
                                           std::to_string(b[i - 1]));
    for (auto const batch : buckets_.rows)
      CHORALE_EXPECTS(batch.rows > 0, "a batch needs at least one row, got " + std::to_string(batch.rows));
  }

  class Stream {
   public:
    using buffer = detail::BufferFor<Row>;

    Stream(StreamOf<D> from, Buckets const& buckets)
        : from_{std::move(from)}, boundaries_{buckets.boundaries}, remainder_{buckets.remainder} {
      for (auto const batch : buckets.rows) buckets_.push_back({.rows = static_cast<std::size_t>(batch.rows)});
    }

    bool next(element& out) { return next_into(own_, out); }

    /// Gathers the next batch in memory of the caller. False at the end.
    bool next_into(buffer& to, element& out) {
      while (!ended_ && from_.next(in_)) {
        auto const length = in_[F{}].size() / chorale::detail::ragged_shape<F>.unit();
        auto const above  = std::upper_bound(boundaries_.begin(), boundaries_.end(), length);
        auto& bucket      = buckets_[static_cast<std::size_t>(above - boundaries_.begin())];
        bucket.keep(in_, count_++);
        if (bucket.count == bucket.rows) return give(bucket, to, out);
      }
      ended_ = true;
      for (auto& bucket : buckets_)
        if (bucket.count > 0 && remainder_ == Remainder::keep) return give(bucket, to, out);
      return false;
    }

   private:
    using Slot = std::conditional_t<Stable<D>, Row, Kept<Row>>;

    struct Bucket {
      std::size_t rows, count = 0;  // of a full batch; so far
      std::vector<Slot> slots{};
      std::vector<std::size_t> numbers{};  // of each row in the pass, for messages

      void keep(Row const& row, std::size_t number) {
        if (count == slots.size()) slots.emplace_back(), numbers.emplace_back();
        if constexpr (Stable<D>) slots[count] = row;
        else slots[count].keep(row);
        numbers[count++] = number;
      }
      Row const& operator[](std::size_t i) const {
        if constexpr (Stable<D>) return slots[i];
        else return slots[i].get();
      }
    };

    bool give(Bucket& bucket, buffer& to, element& out) {
      auto const n = std::exchange(bucket.count, 0);
      auto widths  = std::array<std::size_t, detail::fields_of<element>>{};
      for (std::size_t i = 0; i < n; ++i) paddings_.widen(bucket.numbers[i], bucket[i], widths);
      to.reserve(n, widths);
      for (std::size_t i = 0; i < n; ++i) paddings_.put(bucket[i], i, to, widths);
      out = detail::batch_in<element>(to, n, widths);
      return true;
    }

    StreamOf<D> from_;
    std::vector<std::size_t> boundaries_;
    Remainder remainder_;
    Paddings paddings_{Padding{}};
    std::vector<Bucket> buckets_;
    std::size_t count_ = 0;  // rows read so far
    bool ended_        = false;
    Row in_{};
    buffer own_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), buckets_}; }

  std::optional<std::size_t> size() const { return {}; }  // depends on the lengths of the rows

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    auto line = "bucket_by_sequence_length " + type_name<F>() + " " + detail::text_of(buckets_.remainder);
    for (auto const boundary : buckets_.boundaries) line.append(" ") += std::to_string(boundary);
    line += " rows";
    for (auto const batch : buckets_.rows) line.append(" ") += std::to_string(batch.rows);
    lines.push_back(line);
  }

 private:
  D from_;
  Buckets buckets_;
};

}  // namespace chorale::data
