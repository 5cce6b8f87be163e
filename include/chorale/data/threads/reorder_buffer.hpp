// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace chorale::data {

/// A bounded number of slots through which several threads hand elements to one reader.
///
///   threads  claim, fill, finish     [done 7] [busy 6] [free] [done 5] [held 4]     next   reader
///
/// keeps   at most `slots` elements exist at a time; the reader holds one of them until it asks for the next
/// order   fixed: by number, which must count up from 0; any: as they are finished
template <class Element, class Memory> class ReorderBuffer {
 public:
  struct Slot {
    Memory memory;

   private:
    friend ReorderBuffer;
    enum class State { free, busy, done, held } state = State::free;
    std::uint64_t number                              = 0;
    Element out{};
  };

  ReorderBuffer(std::size_t slots, Order order) : slots_(slots), order_{order} {}
  ReorderBuffer(ReorderBuffer const&)            = delete;
  ReorderBuffer& operator=(ReorderBuffer const&) = delete;

  /// Waits for a free slot. Null after stop() or a failure.
  Slot* claim(std::uint64_t number) {
    auto lock  = std::unique_lock{mutex_};
    auto* slot = static_cast<Slot*>(nullptr);
    freed_.wait(lock, [&] { return stopped_ || failure_ || (slot = find(Slot::State::free)) != nullptr; });
    if (stopped_ || failure_) return nullptr;
    slot->state = Slot::State::busy, slot->number = number;
    ++busy_;
    return slot;
  }

  /// Hands over the element that was made in a claimed slot.
  void finish(Slot& slot, Element const& out) {
    auto const lock = std::lock_guard{mutex_};
    slot.out        = out;
    if (order_ == Order::any) slot.number = finished_;
    ++finished_;
    leave(slot, Slot::State::done);
  }

  /// Frees a claimed slot for which there was no element.
  void drop(Slot& slot) {
    auto const lock = std::lock_guard{mutex_};
    leave(slot, Slot::State::free);
  }

  /// Frees a claimed slot whose element could not be made: next() throws `why` in its place.
  void fail(Slot& slot, std::exception_ptr why) {
    auto const lock = std::lock_guard{mutex_};
    if (!failure_ || slot.number < failed_at_) failure_ = std::move(why), failed_at_ = slot.number;
    leave(slot, Slot::State::free);
    freed_.notify_all();
  }

  /// Ends the sequence: no more slots will be claimed.
  void end() {
    auto const lock = std::lock_guard{mutex_};
    ended_          = true;
    made_.notify_all();
  }

  /// Ends the reading: threads that wait in claim() get null.
  void stop() {
    auto const lock = std::lock_guard{mutex_};
    stopped_        = true;
    freed_.notify_all();
  }

  /// Waits for the next element. False at the end.
  ///
  /// throws  what was given to fail(), after the elements before it; with Order::any, after the finished elements
  bool next(Element& out) {
    auto lock = std::unique_lock{mutex_};
    if (auto* const held = find(Slot::State::held)) {
      held->state = Slot::State::free;
      freed_.notify_one();
    }
    waited_ = false;
    for (;;) {
      if (auto* const ready = find_ready()) {
        ready->state = Slot::State::held;
        out          = ready->out;
        ++read_;
        return true;
      }
      if (failure_ && (order_ == Order::any || read_ == failed_at_)) std::rethrow_exception(failure_);
      if (ended_ && busy_ == 0) return false;
      waited_ = true;
      made_.wait(lock);
    }
  }

  /// True if the last next() had to wait. Only for the reader.
  bool waited() const { return waited_; }

 private:
  Slot* find(typename Slot::State state) {
    for (auto& slot : slots_)
      if (slot.state == state) return &slot;
    return nullptr;
  }
  Slot* find_ready() {
    for (auto& slot : slots_)
      if (slot.state == Slot::State::done && slot.number == read_) return &slot;
    return nullptr;
  }
  void leave(Slot& slot, typename Slot::State state) {
    slot.state = state;
    --busy_;
    made_.notify_one();
    if (state == Slot::State::free) freed_.notify_one();
  }

  std::mutex mutex_;  // guards the members below, except claimed and held slots
  std::condition_variable made_, freed_;
  std::vector<Slot> slots_;
  Order order_;
  std::size_t busy_       = 0;
  std::uint64_t finished_ = 0, read_ = 0;  // elements made by threads; given to the reader
  bool ended_ = false, stopped_ = false;
  std::exception_ptr failure_;
  std::uint64_t failed_at_ = 0;      // number of the element that failed
  bool waited_             = false;  // used by the reader only
};

}  // namespace chorale::data
