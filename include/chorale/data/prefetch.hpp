// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/batch.hpp>
#include <chorale/data/bell.hpp>
#include <chorale/data/pipe.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Elements made ahead by a thread. See Pipe::prefetch.
///
///   thread  fills  [4] [2] [3]     a ring of n + 1 slots: n wait, and the reader holds one
///   reader              ^ holds
///
/// keeps   order and elements are those of the source; a stream owns its thread, which ends with it
/// cost    no allocation after the first n + 1 elements; batches are gathered straight into the slots; no lock while
///         neither side has to wait
/// throws  what the source throws, from next, after the elements before it
template <class D>
class Prefetched : public Pipe<Prefetched<D>> {
 public:
  using element = typename D::element;
  static constexpr bool stable = Stable<D>;

  Prefetched(D from, Ahead ahead) : from_{std::move(from)}, ahead_{ahead} {
    CHORALE_EXPECTS(ahead.elements > 0, "prefetch needs room for at least one element");
    CHORALE_EXPECTS(ahead.bytes > 0, "prefetch needs room for at least one byte");
  }

  class Stream {
   public:
    Stream(D const& from, std::size_t epoch, Ahead ahead)
        : ring_{std::make_unique<Ring>(from.stream(epoch), ahead)} {}

    bool next(element& out) { return ring_->next(out); }

   private:
    class Ring {
     public:
      Ring(StreamOf<D> from, Ahead ahead)
          : from_{std::move(from)}, bytes_{ahead.bytes}, slots_(ahead.elements + 1),
            worth_waking_{ahead.elements < 8 ? 1 : ahead.elements / 4}, thread_{"prefetch", [this] { produce(); }} {}
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
          if (has_room(worth_waking_)) freed_.ring();
        }
        holding_ = false;
        made_any_.wait([&] { return made_ > at || ended_; });
        if (made_ == at && failure_) std::rethrow_exception(failure_);     // ended_ is the last that the thread writes
        if (made_ == at) return false;
        holding_ = true;
        out      = slots_[at % slots_.size()].out;
        return true;
      }

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
            auto& slot = slots_[made_ % slots_.size()];
            if (!make(slot)) break;
            slot.bytes = slot.out.x.size_bytes() + slot.out.y.size_bytes();
            waiting_bytes_ += slot.bytes;
            ++made_;
          }
        } catch (...) {
          failure_ = std::current_exception();
        }
        ended_ = true;
        made_any_.ring();
      }

      bool wait_for_room() {
        if (!stopped_ && !has_room(1)) freed_.wait([&] { return stopped_ || has_room(worth_waking_); });
        return !stopped_;
      }

      /// Whether n more elements may be made; where none waits, one always may.
      bool has_room(std::size_t n) const {
        auto const here = made_ - released_;
        return here == 0 || (here + n <= slots_.size() && waiting_bytes_ < bytes_);
      }

      bool make(Slot& slot) {
        if constexpr (fills) {
          return from_.next_into(slot.memory, slot.out);
        } else {
          if (!from_.next(slot.out)) return false;
          if constexpr (!Stable<D>) slot.memory.keep(slot.out), slot.out = slot.memory.get();
          return true;
        }
      }

      StreamOf<D> from_;                                   // the thread's alone
      std::size_t bytes_;
      std::vector<Slot> slots_;                            // from released_ to made_ the reader's, else the thread's
      std::size_t worth_waking_;                           // free slots: else each element would wake the thread
      std::atomic<std::size_t> made_{0}, released_{0};     // elements: finished by the thread, given back by the reader
      std::atomic<std::size_t> waiting_bytes_{0};          // of the elements between them
      std::atomic<bool> ended_{false}, stopped_{false};
      bool holding_ = false;                               // the reader looks at element number released_
      std::exception_ptr failure_;
      Bell made_any_, freed_;
      NamedThread thread_;                                 // last: it uses the above
    };

    std::unique_ptr<Ring> ring_;
  };

  Stream stream(std::size_t epoch) const { return {from_, epoch, ahead_}; }
  std::optional<std::size_t> size() const { return from_.size(); }

 private:
  D from_;
  Ahead ahead_;
};

}  // namespace chorale::data
