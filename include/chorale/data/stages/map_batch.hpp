// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/parallel_map.hpp>
#include <chorale/data/threads/auto_tune.hpp>
#include <chorale/data/threads/reorder_buffer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {

/// A map by several threads and the batches of its rows as one stage: .map(f, how).batch(n).
///
///   source ─ one thread at a time, a run of rows ─►  f, then a copy to the row's place in the batch  ─►  reader
///
/// keeps   batches, their order and errors are those of the two stages; how.order orders batches, not rows in them
/// cost    the reader copies nothing; threads hand over batches, not rows. At most max(how.ahead rows, 2 batches)
///         wait
/// source  map_and_batch of tf.data.experimental
template <class D, class F, class Out>
class MapBatched : public Pipe<MapBatched<D, F, Out>> {
  using In = typename D::element;

 public:
  using element = typename detail::RowType<Out>::Batch;
  static constexpr bool stable = false;

  /// how.threads    upper bound of `threads`, not 0
  MapBatched(D from, F f, Parallel how, Choice threads, GlobalBatch rows, Remainder remainder)
      : from_{std::move(from)}, f_{std::move(f)}, how_{how}, threads_{std::move(threads)}, remainder_{remainder} {
    CHORALE_EXPECTS(rows.rows > 0, "a batch needs at least one row, got " + std::to_string(rows.rows));
    rows_ = static_cast<std::size_t>(rows.rows);
  }

  class Stream {
   public:
    using buffer = detail::BufferFor<Out>;

    Stream(MapBatched const& stage, std::size_t epoch) : work_{std::make_unique<Work>(stage, epoch)} {}

    bool next(element& out) {
      auto* made = static_cast<Making*>(nullptr);
      if (!work_->next(made)) return false;
      out = work_->view(made->memory, made->rows);
      return true;
    }

    /// The next batch, whose memory is exchanged with that of the caller, not copied. False at the end.
    bool next_into(buffer& to, element& out) {
      auto* made = static_cast<Making*>(nullptr);
      if (!work_->next(made)) return false;
      std::swap(to, made->memory);
      out = work_->view(to, made->rows);
      return true;
    }

    std::size_t threads() const { return work_->crew.size(); }             // working threads

   private:
    /// A batch that is being filled.
    struct Making {
      buffer memory;
      std::size_t rows  = 0;                               // read from the source: in order, run after run
      std::size_t runs  = 0;                               // runs that are not made yet
      bool closed       = false;                           // there will be no further run
      std::size_t wrong = 0;                               // row of the failure
      std::exception_ptr failure{};
    };
    using Places = ReorderBuffer<Making*, Making>;

    /// The rows that a thread reads from the source at a time.
    struct Run {
      typename Places::Slot* slot = nullptr;
      std::size_t first           = 0;                     // its first row in the batch
      Place at{};                                          // of that row
      std::vector<detail::MapMemory<D, Out>> rows{};      // the first n hold rows
      std::size_t n = 0;
    };

    struct Work {
      Work(MapBatched const& stage, std::size_t epoch)
          : full{stage.rows_}, room{std::min(full, stage.from_.size().value_or(full))}, remainder{stage.remainder_},
            slots{std::max<std::size_t>(stage.how_.ahead / full, 2) + 1, stage.how_.order},
            crew{stage.threads_, stage.how_.threads}, f{stage.f_}, from{stage.from_.stream(epoch)}, place{epoch, 0} {
        try {
          start();
        } catch (...) {                                    // threads that have begun end
          slots.stop(), crew.stop();
          throw;
        }
      }
      ~Work() { slots.stop(), crew.stop(); }
      Work(Work const&)            = delete;
      Work& operator=(Work const&) = delete;

      element view(buffer const& memory, std::size_t rows) const {
        return detail::batch_in<element>(memory, rows, widths.each());
      }

      void start() {
        while (threads.size() < crew.size())
          threads.emplace_back("map", [this, i = threads.size(), own = F{f}]() mutable { run(i, own); });
      }

      bool next(Making*& out) {
        auto const more = slots.next(out);
        if (crew.found(slots.waited())) start();
        return more;
      }

      void run(std::size_t i, F& own) {
        for (auto mine = Run{}; crew.turn(i);) {
          auto lock = crew.lock_source();
          if (!pull(mine)) return;
          if (mine.at.row > 0) lock.unlock();              // the first row alone: it sets the width of all
          auto const begin = std::chrono::steady_clock::now();
          make(mine, own);
          length.took(mine.n, std::chrono::steady_clock::now() - begin);
          done(*mine.slot);
        }
      }

      /// Reads the next rows of the source. False at the end, and after a stop or a failure.
      bool pull(Run& mine) {
        if (ended) return close(), false;
        if (now == nullptr && !open()) return false;
        auto& batch     = now->memory;
        mine.slot       = now;
        mine.first      = batch.rows;
        mine.at         = place;
        mine.n          = 0;
        auto const want = place.row == 0 ? 1 : std::min(length.get(), room - batch.rows);
        try {
          if (batch.rows == 0 && place.row > 0) batch.memory.reserve(room, widths.each());
          for (auto row = In{}; mine.n < want; ++mine.n, ++place.row) {
            if (!from.next(row)) {
              ended = true;
              break;
            }
            if (mine.n == mine.rows.size()) mine.rows.emplace_back();
            mine.rows[mine.n].keep(row);
          }
        } catch (...) {
          fail(batch, place.row);
        }
        batch.rows += mine.n;
        if (mine.n > 0) begin_run(batch);
        if (ended || batch.rows == room) close();
        return mine.n > 0;
      }

      bool open() {
        now = slots.claim(batches);                        // in the order of the rows
        if (now == nullptr) return false;
        ++batches;
        auto& batch = now->memory;
        batch.rows = 0, batch.closed = false;
        return true;
      }

      void make(Run& mine, F& own) {
        auto& batch = mine.slot->memory;
        auto at     = mine.at;
        try {
          for (std::size_t i = 0; i < mine.n; ++i, ++at.row) {
            mine.rows[i].make(own, at);
            put(batch.memory, mine.first + i, at.row, mine.rows[i].to.view());
          }
        } catch (...) {
          fail(batch, at.row);
        }
      }

      void put(buffer& to, std::size_t n, std::size_t row, Out const& made) {
        if (row == 0) widths.begin(made), to.reserve(room, widths.each());
        widths.expect(row, made);
        detail::put_row(made, n, to);
      }

      void begin_run(Making& batch) {
        auto const lock = std::lock_guard{state};
        ++batch.runs;
      }
      void done(typename Places::Slot& slot) {
        auto const lock = std::lock_guard{state};
        if (--slot.memory.runs == 0 && slot.memory.closed) settle(slot);
      }
      /// Closes the open batch, if any: no further run is added to it.
      void close() {
        if (auto* const slot = std::exchange(now, nullptr)) {
          auto const lock     = std::lock_guard{state};
          slot->memory.closed = true;
          if (slot->memory.runs == 0) settle(*slot);
        }
        if (ended) slots.end();
      }
      void settle(typename Places::Slot& slot) {
        auto& batch = slot.memory;
        if (batch.failure) slots.fail(slot, std::exchange(batch.failure, nullptr));
        else if (batch.rows == 0 || (batch.rows < full && remainder == Remainder::drop)) slots.drop(slot);
        else slots.finish(slot, &batch);
      }
      void fail(Making& batch, std::size_t row) {
        auto const lock = std::lock_guard{state};
        if (!batch.failure || row < batch.wrong) batch.failure = std::current_exception(), batch.wrong = row;
        ended = true;
      }

      std::size_t full, room;                              // rows of a full batch; rows that a batch can have
      Remainder remainder;
      Places slots;
      detail::RunLength length{64};
      std::atomic<bool> ended{false};                      // nothing more is read
      Crew crew;                                           // its lock guards the members below, except f
      F f;                                                 // used by the reader, which copies it for each thread
      StreamOf<D> from;
      Place place;                                         // of the next row
      std::uint64_t batches = 0;                           // batches begun
      typename Places::Slot* now = nullptr;                // the batch that is being filled
      Widths<Out> widths;                                  // written with the first row, and only read from then on
      std::mutex state;                                    // guards runs, closed and failure of all batches
      std::vector<NamedThread> threads;                    // last: they use the above
    };

    std::unique_ptr<Work> work_;
  };

  Stream stream(std::size_t epoch) const { return {*this, epoch}; }

  std::size_t threads() const { return threads_.get(); }   // see ParallelMapped::threads

  std::optional<std::size_t> size() const {
    auto const rows = from_.size();
    if (!rows) return {};
    return *rows / rows_ + (remainder_ == Remainder::keep && *rows % rows_ != 0 ? 1 : 0);
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("map to " + detail::RowType<Out>::text());
    lines.push_back("batch " + std::to_string(rows_) + " " + detail::text_of(remainder_));
  }

 private:
  D from_;
  F f_;
  Parallel how_;
  Choice threads_;
  std::size_t rows_ = 0;
  Remainder remainder_;
};

}  // namespace chorale::data
