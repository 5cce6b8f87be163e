// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/data/batch.hpp>
#include <chorale/data/pipe.hpp>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
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
/// cost    no allocation after the first n + 1 elements; batches are gathered straight into the slots
/// throws  what the source throws, from next, after the elements before it
template <class D>
class Prefetched : public Pipe<Prefetched<D>> {
 public:
  using element = typename D::element;
  static constexpr bool stable = Stable<D>;

  Prefetched(D from, std::size_t n) : from_{std::move(from)}, n_{n} {
    CHORALE_EXPECTS(n > 0, "prefetch needs room for at least one element");
  }

  class Stream {
   public:
    Stream(D const& from, std::size_t epoch, std::size_t n) : ring_{std::make_unique<Ring>(from.stream(epoch), n)} {}

    bool next(element& out) { return ring_->next(out); }

   private:
    class Ring {
     public:
      Ring(StreamOf<D> from, std::size_t n)
          : from_{std::move(from)}, slots_(n + 1), thread_{"prefetch", [this] { produce(); }} {}
      ~Ring() {
        auto const lock = std::lock_guard{mutex_};
        stopped_        = true;
        changed_.notify_all();
      }
      Ring(Ring const&)            = delete;
      Ring& operator=(Ring const&) = delete;

      bool next(element& out) {
        auto lock = std::unique_lock{mutex_};
        if (holding_) ++released_;
        holding_ = false;
        changed_.notify_all();
        changed_.wait(lock, [&] { return made_ > released_ || ended_; });
        if (made_ == released_ && failure_) std::rethrow_exception(failure_);
        if (made_ == released_) return false;
        holding_ = true;
        out      = slots_[released_ % slots_.size()].out;
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
      };

      void produce() {
        try {
          while (Slot* free = wait_for_slot()) {
            auto const any  = make(*free);
            auto const lock = std::lock_guard{mutex_};
            if (any) ++made_;
            else ended_ = true;
            changed_.notify_all();
            if (!any) return;
          }
        } catch (...) {
          auto const lock = std::lock_guard{mutex_};
          failure_        = std::current_exception();
          ended_          = true;
          changed_.notify_all();
        }
      }

      Slot* wait_for_slot() {
        auto lock = std::unique_lock{mutex_};
        changed_.wait(lock, [&] { return stopped_ || made_ - released_ < slots_.size(); });
        return stopped_ ? nullptr : &slots_[made_ % slots_.size()];
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
      std::mutex mutex_;                                   // guards what follows, but for slots that one side holds
      std::condition_variable changed_;
      std::vector<Slot> slots_;
      std::size_t made_ = 0, released_ = 0;                // elements: finished by the thread, given back by the reader
      bool holding_ = false;                               // the reader looks at element number released_
      bool ended_   = false;
      bool stopped_ = false;
      std::exception_ptr failure_;
      NamedThread thread_;                                 // last: it uses the above
    };

    std::unique_ptr<Ring> ring_;
  };

  Stream stream(std::size_t epoch) const { return {from_, epoch, n_}; }
  std::optional<std::size_t> size() const { return from_.size(); }

 private:
  D from_;
  std::size_t n_;
};

}  // namespace chorale::data
