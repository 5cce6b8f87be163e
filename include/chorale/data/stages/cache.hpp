// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace chorale::data {

/// All rows of a dataset, in memory after the first read. See Pipe::cache.
///
/// keeps   rows are stored one after another, with one width, ragged fields with their own; copies of the dataset share
///         them
/// order   pass 0 is kept, whichever pass is read first: a resumed program sees the same rows
/// cost    the first read of any stream runs that whole pass; other threads wait for it; later reads copy nothing
/// throws  what the pass throws: nothing is kept then, and the next read retries
template <class D> class Cached : public Pipe<Cached<D>> {
  static_assert(is_row<typename D::element>, "chorale: cache keeps rows, not batches. Put it before .batch(n).");

 public:
  using element                = typename D::element;
  static constexpr bool stable = true;

 private:
  class Store {
   public:
    explicit Store(D from) : from_{std::move(from)} {}

    std::optional<std::size_t> size() const { return from_.size(); }
    D const& from() const { return from_; }

    RowTable<element> const& rows() {
      auto const lock = std::lock_guard{mutex_};  // once per stream, not once per row
      if (!filled_) fill();
      return view_;
    }

   private:
    void fill() {
      auto from           = from_.stream(0);
      auto kept           = KeptRows<element>{};
      auto const expected = from_.size().value_or(0);
      for (auto row = element{}; from.next(row);) kept.add(row, expected);
      kept_   = std::move(kept);
      view_   = kept_.view();
      filled_ = true;
    }

    D from_;
    std::mutex mutex_;
    bool filled_ = false;
    KeptRows<element> kept_;
    RowTable<element> view_;
  };

 public:
  class Stream {
   public:
    explicit Stream(std::shared_ptr<Store> store) : store_{std::move(store)} {}

    bool next(element& out) {
      if (rows_ == nullptr) rows_ = &store_->rows();
      if (at_ == rows_->rows) return false;
      out = (*rows_)[at_++];
      return true;
    }

   private:
    std::shared_ptr<Store> store_;
    RowTable<element> const* rows_ = nullptr;
    std::size_t at_                = 0;
  };

  explicit Cached(D from) : store_{std::make_shared<Store>(std::move(from))} {}

  Stream stream(std::size_t) const { return Stream{store_}; }
  std::optional<std::size_t> size() const { return store_->size(); }

  void describe(std::vector<std::string>& lines) const { data::describe(store_->from(), lines); }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace chorale::data
