// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/one_thread.hpp>
#include <chorale/core/types.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace chorale {
namespace detail {

/// State of a thread, for other threads that want to take over what it owns.
///
/// inside   the OwnerThreads in whose calls the thread is: one, or a few that call each other
struct ThreadRecord {
  std::array<std::atomic<void const*>, 4> inside{};
  std::size_t depth = 0;                    // of `inside`; used by the thread only
  long id           = syscall(SYS_gettid);  // the system's
  std::atomic<bool> ended{false};

  bool is_inside(void const* owner) const {
    return std::any_of(inside.begin(), inside.end(),
                       [&](auto const& one) { return one.load(std::memory_order_acquire) == owner; });
  }
};

/// Null until the thread has called record_of_this_thread().
inline constinit thread_local ThreadRecord* this_thread = nullptr;

inline std::shared_ptr<ThreadRecord> record_of_this_thread() {
  struct Handle {
    std::shared_ptr<ThreadRecord> record = std::make_shared<ThreadRecord>();
    ~Handle() {
      record->ended.store(true, std::memory_order_release);
      this_thread = nullptr;
    }
  };
  thread_local auto handle = Handle{};
  this_thread              = handle.record.get();
  return handle.record;
}

}  // namespace detail

/// The thread that an endpoint belongs to. Each call of the endpoint is a Use.
///
///   auto const use = owner.use(rank, [&] { return nothing_is_under_way(); });
///
/// The first thread that calls becomes the owner. Another thread becomes the owner by its call, if the owner is not in
/// a call, and either nothing is under way or the owner has ended. So an endpoint whose operations are all complete
/// may be handed from thread to thread without further calls.
///
/// cost    for the owner: its address is compared, and noted while the call lasts; about 1 ns. When the owner changes:
///         a memory barrier on all cores, some microseconds
/// throws  BadArgument, which names both threads, when two use it at once. The owner's operations go on
class OwnerThread {
 public:
  /// A call by the owner, which lasts as long as this.
  class [[nodiscard]] Use {
   public:
    ~Use() {
      --thread_.depth;
      thread_.inside[thread_.depth % thread_.inside.size()].store(nullptr, std::memory_order_release);
    }
    Use(Use const&)            = delete;
    Use& operator=(Use const&) = delete;

   private:
    friend OwnerThread;
    explicit Use(detail::ThreadRecord& thread) : thread_{thread} {}

    detail::ThreadRecord& thread_;
  };

  /// Begins a call. Uses end in the opposite order.
  ///
  /// rank   of the endpoint, for the error
  /// idle   idle() is true if nothing is under way. Called while another thread owns the endpoint and is not in a call,
  ///        so that it may read what only the owner writes
  template <class Idle> Use use(Rank rank, Idle&& idle) {
    auto* me = detail::this_thread;
    if (me == nullptr || owner_.load(std::memory_order_relaxed) != me) me = take(rank, idle);
    auto& mark = me->inside[me->depth % me->inside.size()];
    for (;;) {
      mark.store(this, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the thread that takes over has the full fence
      if (owner_.load(std::memory_order_relaxed) == me) break;
      mark.store(nullptr, std::memory_order_release);  // another thread has taken over meanwhile
      take(rank, idle);
    }
    ++me->depth;
    return Use{*me};
  }

 private:
  /// Makes this thread the owner.
  template <class Idle> detail::ThreadRecord* take(Rank rank, Idle& idle) {
    auto me         = detail::record_of_this_thread();
    auto const lock = std::lock_guard{changes};
    if (record_ == me) return me.get();  // another thread tried, and was refused
    owner_.store(me.get(), std::memory_order_relaxed);
    if (record_ != nullptr) {
      fence_all_threads();  // calls that the owner begins from now on see it
      auto const inside = record_->is_inside(this);
      if (inside || (!idle() && !record_->ended.load(std::memory_order_acquire))) {
        owner_.store(record_.get(), std::memory_order_relaxed);
        refuse(rank, me->id, inside ? "is in use by " : "has operations under way of ");
      }
    }
    record_ = std::move(me);
    return record_.get();
  }

  /// Throws BadArgument; the caller has the lock.
  [[noreturn]] void refuse(Rank rank, long me, std::string const& why) const {
    throw BadArgument{"the endpoint of rank " + std::to_string(rank) + " " + why + detail::thread_text(record_->id) +
                          ", its owner, and " + detail::thread_text(me) + " calls it.",
                      "one thread for each endpoint, or to wait for all operations before another thread goes on."};
  }

  static void fence_all_threads() {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0 ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});  // far longer than any store takes to be seen
  }

  inline static std::mutex changes;  // of any owner; changes are rare

  std::atomic<detail::ThreadRecord const*> owner_{nullptr};
  std::shared_ptr<detail::ThreadRecord> record_;  // the owner's; under the lock
};

}  // namespace chorale
