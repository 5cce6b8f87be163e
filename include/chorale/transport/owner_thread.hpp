// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/one_thread.hpp>
#include <chorale/core/types.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

namespace chorale {
namespace detail {

/// Its address names a thread. The address may be used again once the thread has ended.
inline constinit thread_local char this_thread_mark = 0;

}  // namespace detail

/// The thread that an endpoint belongs to. Each call of the endpoint is a Use.
///
///   auto const use = owner.use(rank, [&] { return nothing_is_under_way(); });
///
/// The first thread that calls becomes the owner. Another thread becomes the owner by its call, if the owner is not in
/// a call, and either nothing is under way or the owner has ended. So an endpoint that is handed from thread to thread,
/// with all of its operations complete, needs no word about it.
///
/// cost    for the owner: its address is compared, and noted while the call lasts; 1 to 2 ns. When the owner changes: a
///         memory barrier on all cores, some microseconds
/// throws  BadArgument when two threads use it at once, with both. The owner's operations go on
class OwnerThread {
  using Id = char const*;

 public:
  /// A call by the owner, which lasts as long as this.
  class [[nodiscard]] Use {
   public:
    ~Use() { inside_.store(nullptr, std::memory_order_release); }
    Use(Use const&)            = delete;
    Use& operator=(Use const&) = delete;

   private:
    friend OwnerThread;
    explicit Use(std::atomic<Id>& inside) : inside_{inside} {}

    std::atomic<Id>& inside_;
  };

  /// A call begins. Uses do not nest.
  ///
  /// rank   of the endpoint, for the error
  /// idle   called as idle() while another thread owns the endpoint and is not in a call: is nothing under way? It may
  ///        read what only the owner writes
  template <class Idle>
  Use use(Rank rank, Idle&& idle) {
    Id const me = &detail::this_thread_mark;
    if (owner_.load(std::memory_order_relaxed) != me) take(me, rank, idle);
    inside_.store(me, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);               // the processor's fence is that of who takes over
    if (owner_.load(std::memory_order_relaxed) != me) refuse_late(me, rank);
    return Use{inside_};
  }

 private:
  /// Makes this thread the owner.
  template <class Idle>
  void take(Id me, Rank rank, Idle& idle) {
    auto const lock  = std::lock_guard{changes};
    auto const owner = owner_.load(std::memory_order_relaxed);
    auto const id    = syscall(SYS_gettid);
    if (owner == me) return;                                           // another thread tried, and was refused
    owner_.store(me, std::memory_order_relaxed);
    if (owner != nullptr) {
      fence_all_threads();                                             // calls that the owner begins from now on see it
      auto const inside = inside_.load(std::memory_order_acquire) == owner;
      if (inside || (!idle() && !has_ended(id_))) {
        owner_.store(owner, std::memory_order_relaxed);
        refuse(rank, id, inside ? "is in use by " : "has operations under way of ");
      }
    }
    id_ = id;
  }

  /// Another thread took over between the two looks of this one.
  [[noreturn]] void refuse_late(Id me, Rank rank) {
    inside_.compare_exchange_strong(me, nullptr);
    auto const lock = std::lock_guard{changes};
    refuse(rank, syscall(SYS_gettid), "is in use by ");
  }

  [[noreturn]] void refuse(Rank rank, long me, std::string const& why) const {
    throw BadArgument{"the endpoint of rank " + std::to_string(rank) + " " + why + detail::thread_text(id_) +
                          ", its owner, and " + detail::thread_text(me) + " calls it.",
                      "one thread for each endpoint, or to wait for all operations before another thread goes on."};
  }

  static bool has_ended(long id) {
    return syscall(SYS_tgkill, getpid(), id, 0) != 0 && errno == ESRCH;
  }

  static void fence_all_threads() {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0 ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});      // far longer than any store takes to be seen
  }

  inline static std::mutex changes;                                    // of any owner: they are rare

  std::atomic<Id> owner_{nullptr};
  std::atomic<Id> inside_{nullptr};                                    // the thread that is in a call
  long id_ = 0;                                                        // the system's, of the owner; under the lock
};

}  // namespace chorale
