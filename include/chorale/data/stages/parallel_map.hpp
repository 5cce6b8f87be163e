// SPDX-License-Identifier: Apache-2.0
// More than 300 lines: a map by several threads, whose rows are handed over one by one, or as batches.
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/map.hpp>
#include <chorale/data/threads/auto_tune.hpp>
#include <chorale/data/threads/reorder_buffer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

/// The number of rows that a thread takes at a time: enough to keep it busy for a while, so that handing over is cheap.
///
/// cost    a run is 1 row when a row takes more than about 50 microseconds, and at most `most` rows
class RunLength {
 public:
  explicit RunLength(std::size_t most) : most_{most} {}

  std::size_t get() const { return rows_; }
  void took(std::size_t rows, std::chrono::nanoseconds time) {
    using namespace std::chrono_literals;
    if (rows < rows_) return;  // a run of an older length, or the last run
    if (time < 50us) rows_ = std::min(most_, 2 * rows);
    if (time > 200us) rows_ = std::max(std::size_t{1}, rows / 2);
  }

 private:
  std::size_t most_;
  std::atomic<std::size_t> rows_{1};  // any thread may change it: no row depends on it
};

/// The memory of one row in map, reused for the next one.
template <class D, class Out> struct MapMemory {
  using In = typename D::element;
  std::conditional_t<Stable<D>, In, Kept<In>> in;
  NewOf<Out> to;

  void keep(In const& row) {
    if constexpr (Stable<D>) in = row;
    else in.keep(row);
  }
  template <class F> bool make(F& f, Place at) {
    if constexpr (Stable<D>) return make_row_in<Out>(to, f, std::as_const(in), at);
    else return make_row_in<Out>(to, f, in.get(), at);
  }
};

/// The threads of a map, and the source that they read: one thread at a time reads a run of rows; then it calls f on
/// them, beside the others. Work derives from this: ParallelMapped's hands over runs, MapBatched's whole batches.
///
/// Slots   the ReorderBuffer of what is handed over
/// keeps   Work::run(i, f) is the body of thread i. Work's destructor calls stop(), while its own members still live
template <class Work, class D, class F, class Out, class Slots> struct MapThreads {
  MapThreads(D const& source, F const& function, Choice choice, Parallel how, std::size_t places, std::size_t most_rows,
             std::size_t epoch)
      : slots{places, how.order}, length{most_rows}, crew{std::move(choice), how.threads}, f{function},
        from{source.stream(epoch)}, place{epoch, 0} {}
  MapThreads(MapThreads const&)            = delete;
  MapThreads& operator=(MapThreads const&) = delete;

  /// Starts the first threads: the last statement of Work's constructor.
  void begin() {
    try {
      start();
    } catch (...) {  // threads that have begun end
      stop();
      throw;
    }
  }
  void stop() {
    slots.stop(), crew.stop();
    threads.clear();
  }

  /// Waits for the next element that is handed over. False at the end.
  template <class Element> bool next(Element& out) {
    auto const more = slots.next(out);
    if (crew.found(slots.waited())) start();
    return more;
  }

  /// Reads rows, until n is `want` or the source has ended. Under the lock of the source.
  ///
  /// n       rows read so far, also if the source throws
  void read(std::vector<MapMemory<D, Out>>& rows, std::size_t& n, std::size_t want) {
    for (auto row = typename D::element{}; n < want; ++n, ++place.row) {
      if (!from.next(row)) {
        ended = true;
        break;
      }
      if (n == rows.size()) rows.emplace_back();
      rows[n].keep(row);
    }
  }

  Slots slots;
  RunLength length;
  std::atomic<bool> ended{false};  // nothing more is read
  Crew crew;                       // its lock guards the members below, except f
  F f;                             // used by the reader, which copies it for each thread
  StreamOf<D> from;
  Place place;  // of the next row
  std::vector<NamedThread> threads;

 private:
  void start() {
    while (threads.size() < crew.size())
      threads.emplace_back("map",
                           [this, i = threads.size(), own = F{f}]() mutable { static_cast<Work*>(this)->run(i, own); });
  }
};

}  // namespace detail

/// A map by several threads and the batches of its rows as one stage: .map(f, how).batch(n).
///
///   source ─ one thread at a time, a run of rows ─►  f, then a copy to the row's place in the batch  ─►  reader
///
/// keeps   batches, their order and errors are as from the two stages; how.order orders batches, not rows in them
/// cost    the reader copies nothing; threads hand over batches, not rows. At most max(how.ahead rows, 2 batches)
///         wait
/// source  map_and_batch of tf.data.experimental
template <class D, class F, class Out> class MapBatched : public Pipe<MapBatched<D, F, Out>> {
 public:
  using element                = typename detail::RowType<Out>::Batch;
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

    /// The next batch. Its memory is exchanged with the memory of the caller, not copied. False at the end.
    bool next_into(buffer& to, element& out) {
      auto* made = static_cast<Making*>(nullptr);
      if (!work_->next(made)) return false;
      std::swap(to, made->memory);
      out = work_->view(to, made->rows);
      return true;
    }

    std::size_t threads() const { return work_->crew.size(); }  // working threads

   private:
    /// A batch that is being filled.
    struct Making {
      buffer memory;
      std::size_t rows  = 0;      // read from the source: in order, run after run
      std::size_t runs  = 0;      // runs that are not made yet
      bool closed       = false;  // there will be no further run
      std::size_t wrong = 0;      // row of the failure
      std::exception_ptr failure{};
    };
    using Places = ReorderBuffer<Making*, Making>;

    /// The rows that a thread reads from the source at a time.
    struct Run {
      typename Places::Slot* slot = nullptr;
      std::size_t first           = 0;                // its first row in the batch
      Place at{};                                     // of that row
      std::vector<detail::MapMemory<D, Out>> rows{};  // the first n hold rows
      std::size_t n = 0;
    };

    struct Work : detail::MapThreads<Work, D, F, Out, Places> {
      using Threads = detail::MapThreads<Work, D, F, Out, Places>;
      using Threads::crew, Threads::ended, Threads::length, Threads::place, Threads::slots;

      Work(MapBatched const& stage, std::size_t epoch)
          : Threads{stage.from_,
                    stage.f_,
                    stage.threads_,
                    stage.how_,
                    std::max<std::size_t>(stage.how_.ahead / stage.rows_, 2) + 1,
                    64,
                    epoch},
            full{stage.rows_}, room{std::min(full, stage.from_.size().value_or(full))}, remainder{stage.remainder_} {
        this->begin();
      }
      ~Work() { this->stop(); }

      element view(buffer const& memory, std::size_t rows) const {
        return detail::batch_in<element>(memory, rows, widths.each());
      }

      void run(std::size_t i, F& own) {
        for (auto mine = Run{}; crew.turn(i);) {
          auto lock = crew.lock_source();
          if (!pull(mine)) return;
          if (mine.at.row > 0) lock.unlock();  // the first row alone: it sets the width of all
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
          this->read(mine.rows, mine.n, want);
        } catch (...) { fail(batch, place.row); }
        batch.rows += mine.n;
        if (mine.n > 0) begin_run(batch);
        if (ended || batch.rows == room) close();
        return mine.n > 0;
      }

      bool open() {
        now = slots.claim(batches);  // in the order of the rows
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
        } catch (...) { fail(batch, at.row); }
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

      std::size_t full, room;  // rows of a full batch; rows that a batch can have
      Remainder remainder;
      std::uint64_t batches      = 0;        // batches begun, under the lock of the source
      typename Places::Slot* now = nullptr;  // the batch that is being filled
      Widths<Out> widths;                    // written with the first row, and only read from then on
      std::mutex state;                      // guards runs, closed and failure of all batches
    };

    std::unique_ptr<Work> work_;
  };

  Stream stream(std::size_t epoch) const { return {*this, epoch}; }

  std::size_t threads() const { return threads_.get(); }  // see ParallelMapped::threads

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

/// Rows made of other rows by a function, in several threads. See Pipe::map.
///
///   source ─ one thread at a time, a run of rows ─►  f f f  ┐
///                                                    f f f  ├─►  slots, by number  ─►  reader
///                                                    f f f  ┘
///
/// keeps   at most how.ahead rows wait; a stream owns its threads, which end with it
/// cost    some microseconds to hand over a run; the faster f is, the more rows a run has
/// order   rows and their order are as from map with the same function, whatever the number of threads; with
///         Order::any, the rows are the same
/// throws  what the source or f throws, from next, after the rows before it
template <class D, class F, class Out> class ParallelMapped : public Pipe<ParallelMapped<D, F, Out>> {
  using In = typename D::element;
  static_assert(is_row<In>, "chorale: map takes rows, not batches. Put it before .batch(n).");

 public:
  using element                = Out;
  static constexpr bool stable = false;

  ParallelMapped(D from, F f, Parallel how)
      : from_{std::move(from)}, f_{std::move(f)}, how_{how}, threads_{how.threads == 0 ? cores() : how.threads, 1} {
    detail::expect_callable<F, In, Out>();
    if (how.threads == 0 || threads_.tuned()) how_.threads = cores();
  }

  class Stream {
   public:
    Stream(ParallelMapped const& stage, std::size_t epoch) : work_{std::make_unique<Work>(stage, epoch)} {}

    bool next(element& out) {
      while (run_ == nullptr || at_ == run_->n) {
        if (run_ != nullptr && run_->failure) std::rethrow_exception(run_->failure);
        if (!work_->next(run_)) return run_ = nullptr, false;  // its slot is free: a thread may reuse it
        at_ = 0;
      }
      out = run_->rows[at_++].to.view();
      return true;
    }

    std::size_t threads() const { return work_->crew.size(); }  // working threads

   private:
    struct Run {
      std::vector<detail::MapMemory<D, Out>> rows;  // the first n hold rows
      std::size_t n = 0;
      std::exception_ptr failure{};  // what next() throws after these rows
    };
    using Places = ReorderBuffer<Run*, Run>;

    struct Work : detail::MapThreads<Work, D, F, Out, Places> {
      using Threads = detail::MapThreads<Work, D, F, Out, Places>;
      using Threads::crew, Threads::ended, Threads::length, Threads::place, Threads::slots;

      Work(ParallelMapped const& stage, std::size_t epoch)
          : Threads{stage.from_,         stage.f_, stage.threads_, stage.how_, slots_for(stage.how_),
                    longest(stage.how_), epoch} {
        this->begin();
      }
      ~Work() { this->stop(); }

      // A small bound on rows is kept exactly; without a bound, two runs for each thread wait.
      static std::size_t longest(Parallel how) {
        return how.ahead == 0 ? 64 : std::clamp<std::size_t>(how.ahead / (2 * how.threads), 1, 64);
      }
      static std::size_t slots_for(Parallel how) {
        return how.ahead == 0 ? 2 * how.threads + 1 : (how.ahead + 1) / longest(how);
      }

      void run(std::size_t i, F& own) {
        auto at = Place{};
        while (auto* const slot = crew.turn(i) ? pull(at) : nullptr) {
          auto& mine       = slot->memory;
          auto const begin = std::chrono::steady_clock::now();
          auto made        = std::size_t{0};
          try {
            for (std::size_t row = 0; row < mine.n; ++row, ++at.row) {
              if (!mine.rows[row].make(own, at)) continue;
              if (made < row) std::swap(mine.rows[made], mine.rows[row]);
              ++made;
            }
            length.took(mine.n, std::chrono::steady_clock::now() - begin);
          } catch (...) { mine.failure = std::current_exception(); }
          mine.n = made;
          if (mine.failure) ended = true, slots.end();
          slots.finish(*slot, &mine);
        }
      }

      /// Reads the next rows of the source into a slot. Null at the end, and after a stop or a failure.
      typename Places::Slot* pull(Place& at) {
        auto const lock  = crew.lock_source();
        auto* const slot = ended ? nullptr : slots.claim(runs);  // in the order of the rows
        if (slot == nullptr) return nullptr;
        auto& mine = slot->memory;
        at = place, mine.n = 0;
        try {
          this->read(mine.rows, mine.n, length.get());
        } catch (...) { ended = true, mine.failure = std::current_exception(); }
        if (ended) slots.end();
        if (mine.n == 0 && !mine.failure) return slots.drop(*slot), nullptr;
        ++runs;
        return slot;
      }

      std::uint64_t runs = 0;  // runs begun, under the lock of the source
    };

    std::unique_ptr<Work> work_;
    Run* run_       = nullptr;  // the run that is being read
    std::size_t at_ = 0;        // next row in it
  };

  Stream stream(std::size_t epoch) const { return {*this, epoch}; }

  /// The number of working threads: as given, or as auto_tune has last chosen in any stream, also after .batch(n).
  std::size_t threads() const { return threads_.get(); }

  /// Gathers rows into batches, as Pipe::batch does; the threads put their rows directly into the batches.
  auto batch(GlobalBatch rows, Remainder remainder = Remainder::keep) const {
    if constexpr (detail::RowType<Out>::is_ragged)  // a batch is as wide as its widest row
      return PaddedBatched<ParallelMapped>{*this, rows, Padding{}, remainder};
    else if constexpr (detail::makes_every_row<F, In, Out>)
      return MapBatched<D, F, Out>{from_, f_, how_, threads_, rows, remainder};
    else return Batched<ParallelMapped>{*this, rows, remainder};  // places depend on which rows are left out
  }
  std::optional<std::size_t> size() const {
    if constexpr (detail::makes_every_row<F, In, Out>) return from_.size();
    else return {};
  }

  bool reorders() const { return how_.order == Order::any || detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("map to " + detail::RowType<Out>::text());
  }

 private:
  D from_;
  F f_;
  Parallel how_;  // threads: upper bound
  Choice threads_;
};

}  // namespace chorale::data
