// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/threads/auto_tune.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Wakes one thread that waits for values that other threads write to atomics.
///
/// keeps   a ring() after a write is never missed, if the write and the reads of `ready` have the default memory order
/// cost    one load for a ring() while no thread waits
class Wakeup {
 public:
  /// Waits until ready() is true: spins for a short while, then sleeps.
  template <class Ready> void wait(Ready ready) {
    for (int i = 0; i < 100; ++i) {
      if (ready()) return;
      relax();
    }
    auto lock = std::unique_lock{mutex_};
    waiting_  = true;  // before ready() is called again: from now on ring() wakes
    rung_.wait(lock, ready);
    waiting_ = false;
  }

  void ring() {
    if (!waiting_) return;
    auto const lock = std::lock_guard{mutex_};  // else it might notify between ready() and the sleep
    rung_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  std::atomic<bool> waiting_{false};
};

/// Elements made ahead by a thread. See Pipe::prefetch.
///
///   thread  fills  [4] [2] [3]     a ring of n + 1 slots: n wait, and the reader holds one
///   reader              ^ holds
///
/// keeps   order and elements are the source's; a stream owns its thread, which ends with it
///         auto_tune: n doubles when no element is ready although all room was taken before
/// cost    no allocation after the first n + 1 elements; batches are gathered straight into the slots; no lock while
///         neither side has to wait
/// throws  what the source throws, from next, after the elements before it
template <class D> class Prefetched : public StagesAfter<D, Prefetched<D>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Prefetched(D from, Ahead ahead) : from_{std::move(from)}, ahead_{ahead}, elements_{ahead.elements, Ahead{}.elements} {
    if (elements_.tuned()) ahead_.elements = 64;
    if (elements_.tuned() && ahead.bytes == Ahead{}.bytes) ahead_.bytes = std::size_t{256} << 20;
    CHORALE_EXPECTS(ahead.elements > 0, "prefetch needs room for at least one element");
    CHORALE_EXPECTS(ahead.bytes > 0, "prefetch needs room for at least one byte");
  }

  class Stream {
   public:
    Stream(D const& from, std::size_t epoch, Ahead most, Choice elements)
        : ring_{std::make_unique<Ring>(from.stream(epoch), most, std::move(elements))} {}

    bool next(element& out) { return ring_->next(out); }

    std::size_t elements() const { return ring_->depth(); }  // made ahead now

   private:
    class Ring {
     public:
      Ring(StreamOf<D> from, Ahead most, Choice elements)
          : from_{std::move(from)}, bytes_{most.bytes}, slots_(most.elements + 1), choice_{std::move(elements)},
            tuner_{choice_.get(), most.elements}, depth_{tuner_.depth()}, thread_{"prefetch", [this] { produce(); }} {}
      ~Ring() {
        stopped_ = true;
        freed_.ring();
      }
      Ring(Ring const&)            = delete;
      Ring& operator=(Ring const&) = delete;

      bool next(element& out) {
        auto at = released_.load();
        if (holding_) {
          waiting_bytes_ -= slots_[at % slots_.size()].bytes;
          released_ = ++at;
          if (has_room(worth_waking())) freed_.ring();
        }
        holding_ = false;
        if (choice_.tuned() && !ended_ && tuner_.found(made_ - at)) {
          choice_.set(tuner_.depth());
          depth_ = tuner_.depth();  // the thread has room already: no element waits
        }
        made_any_.wait([&] { return made_ > at || ended_; });
        if (made_ == at && failure_) std::rethrow_exception(failure_);  // the thread writes ended_ last
        if (made_ == at) return false;
        holding_ = true;
        out      = slots_[at % slots_.size()].out;
        return true;
      }

      std::size_t depth() const { return depth_; }

     private:
      static constexpr bool fills = FillsBuffer<StreamOf<D>, element>;
      struct Nothing {};
      using Copy   = std::conditional_t<Stable<D>, Nothing, Kept<element>>;
      using Memory = typename std::conditional_t<fills, BufferOf<StreamOf<D>>, std::type_identity<Copy>>::type;

      struct Slot {
        element out{};
        Memory memory;
        std::size_t bytes = 0;
      };

      void produce() {
        try {
          for (; wait_for_room(); made_any_.ring()) {
            auto& slot       = slots_[made_ % slots_.size()];
            auto const depth = depth_.load();      // once: the reader may double it meanwhile
            if (choice_.tuned() && made_ > depth)  // else every slot would get memory
              std::swap(slot.memory, slots_[(made_ - depth - 1) % slots_.size()].memory);
            if (!make(slot)) break;
            slot.bytes = detail::bytes_of(slot.out);
            waiting_bytes_ += slot.bytes;
            ++made_;
          }
        } catch (...) { failure_ = std::current_exception(); }
        ended_ = true;
        made_any_.ring();
      }

      bool wait_for_room() {
        if (!stopped_ && !has_room(1)) freed_.wait([&] { return stopped_ || has_room(worth_waking()); });
        return !stopped_;
      }

      /// True if n more elements may be made; always true while no element is held or waiting.
      bool has_room(std::size_t n) const {
        auto const here = made_ - released_;
        return here == 0 || (here + n <= depth_ + 1 && waiting_bytes_ < bytes_);
      }

      /// The number of free slots at which the thread is woken: with fewer, each element would wake it.
      std::size_t worth_waking() const { return depth_ < 8 ? 1 : depth_ / 4; }

      bool make(Slot& slot) {
        if constexpr (fills) {
          return from_.next_into(slot.memory, slot.out);
        } else {
          if (!from_.next(slot.out)) return false;
          if constexpr (!Stable<D>) slot.memory.keep(slot.out), slot.out = slot.memory.get();
          return true;
        }
      }

      StreamOf<D> from_;  // used by the thread only
      std::size_t bytes_;
      std::vector<Slot> slots_;  // released_ to made_: the reader's; others: the thread's
      Choice choice_;
      DepthTuner tuner_;                                // used by the reader only
      std::atomic<std::size_t> depth_;                  // elements that may wait, below slots_.size(); only grows
      std::atomic<std::size_t> made_{0}, released_{0};  // elements: finished by the thread, given back by the reader
      std::atomic<std::size_t> waiting_bytes_{0};       // bytes of the elements between them
      std::atomic<bool> ended_{false}, stopped_{false};
      bool holding_ = false;  // the reader holds element number released_
      std::exception_ptr failure_;
      Wakeup made_any_, freed_;
      NamedThread thread_;  // last: it uses the above
    };

    std::unique_ptr<Ring> ring_;
  };

  Stream stream(std::size_t epoch) const { return {from_, epoch, ahead_, elements_}; }

  /// The number of elements made ahead: as given, or as auto_tune has last chosen in any stream.
  std::size_t elements() const { return elements_.get(); }
  std::optional<std::size_t> size() const { return from_.size(); }

  bool reorders() const { return detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const { data::describe(from_, lines); }

 private:
  D from_;
  Ahead ahead_;  // upper bounds
  Choice elements_;
};

}  // namespace chorale::data
