// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/pipe.hpp>
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
#include <optional>
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
    if (rows < rows_) return;                              // a run of an older length, or the last run
    if (time < 50us) rows_ = std::min(most_, 2 * rows);
    if (time > 200us) rows_ = std::max(std::size_t{1}, rows / 2);
  }

 private:
  std::size_t most_;
  std::atomic<std::size_t> rows_{1};                       // any thread may change it: no row depends on it
};

/// The memory of one row in map, reused for the next one.
template <class D, class Out>
struct MapMemory {
  using In = typename D::element;
  std::conditional_t<Stable<D>, In, Kept<In>> in;
  NewOf<Out> to;

  void keep(In const& row) {
    if constexpr (Stable<D>) in = row;
    else in.keep(row);
  }
  template <class F>
  bool make(F& f, Place at) {
    if constexpr (Stable<D>) return make_row_in<Out>(to, f, std::as_const(in), at);
    else return make_row_in<Out>(to, f, in.get(), at);
  }
};

}  // namespace detail

/// Rows made of other rows by a function, in several threads. See Pipe::map.
///
///   source ─ one thread at a time, a run of rows ─►  f f f  ┐
///                                                    f f f  ├─►  slots, by number  ─►  reader
///                                                    f f f  ┘
///
/// keeps   at most how.ahead rows wait; a stream owns its threads, which end with it
/// cost    some microseconds to hand over a run; the faster f is, the more rows a run has
/// order   rows and their order are those of map with the same function, whatever the number of threads; with
///         Order::any, the rows are the same
/// throws  what the source or f throws, from next, after the rows before it
template <class D, class F, class Out>
class ParallelMapped : public Pipe<ParallelMapped<D, F, Out>> {
  using In = typename D::element;
  static_assert(is_row<In>, "chorale: map takes rows, not batches. Put it before .batch(n).");

 public:
  using element = Out;
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
        if (!work_->next(run_)) return run_ = nullptr, false;        // its slot is free: a thread may reuse it
        at_ = 0;
      }
      out = run_->rows[at_++].to.view();
      return true;
    }

    std::size_t threads() const { return work_->crew.size(); }             // working threads

   private:
    struct Run {
      std::vector<detail::MapMemory<D, Out>> rows;        // the first n hold rows
      std::size_t n = 0;
      std::exception_ptr failure{};                        // what next() throws after these rows
    };
    using Places = ReorderBuffer<Run*, Run>;

    struct Work {
      Work(ParallelMapped const& stage, std::size_t epoch)
          : length{longest(stage.how_)}, slots{slots_for(stage.how_), stage.how_.order},
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

      // A small bound on rows is kept exactly; without a bound, two runs for each thread wait.
      static std::size_t longest(Parallel how) {
        return how.ahead == 0 ? 64 : std::clamp<std::size_t>(how.ahead / (2 * how.threads), 1, 64);
      }
      static std::size_t slots_for(Parallel how) {
        return how.ahead == 0 ? 2 * how.threads + 1 : (how.ahead + 1) / longest(how);
      }

      void start() {
        while (threads.size() < crew.size())
          threads.emplace_back("map", [this, i = threads.size(), own = F{f}]() mutable { run(i, own); });
      }

      bool next(Run*& out) {
        auto const more = slots.next(out);
        if (crew.found(slots.waited())) start();
        return more;
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
          } catch (...) {
            mine.failure = std::current_exception();
          }
          mine.n = made;
          if (mine.failure) ended = true, slots.end();
          slots.finish(*slot, &mine);
        }
      }

      /// Reads the next rows of the source into a slot. Null at the end, and after a stop or a failure.
      typename Places::Slot* pull(Place& at) {
        auto const lock  = crew.lock_source();
        auto* const slot = ended ? nullptr : slots.claim(runs);            // in the order of the rows
        if (slot == nullptr) return nullptr;
        auto& mine = slot->memory;
        at = place, mine.n = 0;
        try {
          for (auto row = In{}; mine.n < length.get(); ++mine.n, ++place.row) {
            if (!from.next(row)) {
              ended = true;
              break;
            }
            if (mine.n == mine.rows.size()) mine.rows.emplace_back();
            mine.rows[mine.n].keep(row);
          }
        } catch (...) {
          ended = true, mine.failure = std::current_exception();
        }
        if (ended) slots.end();
        if (mine.n == 0 && !mine.failure) return slots.drop(*slot), nullptr;
        ++runs;
        return slot;
      }

      detail::RunLength length;
      Places slots;
      std::atomic<bool> ended{false};                      // nothing more is read
      Crew crew;                                           // its lock guards the members below, except f
      F f;                                                 // used by the reader, which copies it for each thread
      StreamOf<D> from;
      Place place;                                         // of the next row
      std::uint64_t runs = 0;                              // runs begun
      std::vector<NamedThread> threads;                    // last: they use the above
    };

    std::unique_ptr<Work> work_;
    Run* run_       = nullptr;                             // the run that is being read
    std::size_t at_ = 0;                                   // next row in it
  };

  Stream stream(std::size_t epoch) const { return {*this, epoch}; }

  /// The number of working threads: as given, or as auto_tune has last chosen in any stream, also after .batch(n).
  std::size_t threads() const { return threads_.get(); }

  /// Gathers rows into batches, as Pipe::batch does; the threads put their rows directly into the batches.
  auto batch(GlobalBatch rows, Remainder remainder = Remainder::keep) const {
    if constexpr (detail::RowType<Out>::is_ragged)         // a batch is as wide as its widest row
      return PaddedBatched<ParallelMapped>{*this, rows, Padding{}, remainder};
    else if constexpr (detail::makes_every_row<F, In, Out>)
      return MapBatched<D, F, Out>{from_, f_, how_, threads_, rows, remainder};
    else return Batched<ParallelMapped>{*this, rows, remainder};           // places depend on which rows are left out
  }
  std::optional<std::size_t> size() const {
    if constexpr (detail::makes_every_row<F, In, Out>) return from_.size();
    else return {};
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("map to " + detail::RowType<Out>::text());
  }

 private:
  D from_;
  F f_;
  Parallel how_;                                           // threads: upper bound
  Choice threads_;
};

}  // namespace chorale::data
