// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

namespace chorale {

/// R with its buckets sent by a separate thread while the caller computes, so that bytes also move between two calls of
/// ready(). Without OwnThread they move in those calls, and between them only through the kernel's buffers.
///
///   Trainer{model, strategy, OwnThread<RingAllReduce>{}, TcpTransport{..}};
///
/// cost    R's. One thread for each replica; where no core is free for it, it takes time from computing
template <class R> struct OwnThread : R {
  static constexpr bool own_thread = true;
};

/// A BucketedReducer that a separate thread drives. It has the same calls, in the same order.
///
/// keeps   between begin() and finish() only that thread uses the endpoint, except for fail()
/// throws  from finish(): the exception that the thread caught
template <class R, Endpoint E> class ThreadedReducer {
  static_assert(!RunsItsRanks<E>,
                "chorale: ranks of a SimulatedTransport take turns in one thread; without OwnThread "
                "the reduce runs there");

 public:
  ThreadedReducer(R const& reduce, E& at, Span<std::size_t const> ends, Span<float> buffer, Op op = Op::sum,
                  Tag first = Tag{1U << 16})
      : inner_{reduce, at, ends, buffer, op, first}, size_{buffer.size()}, thread_{"buckets", [this] { serve(); }} {}

  ~ThreadedReducer() {
    ending_ = true;
    begin();
  }
  ThreadedReducer(ThreadedReducer const&)            = delete;
  ThreadedReducer& operator=(ThreadedReducer const&) = delete;

  void begin() {
    ready_.store(0, std::memory_order_relaxed);
    step_.fetch_add(1, std::memory_order_release);
    step_.notify_one();
  }

  void ready(std::size_t upto) { ready_.store(upto, std::memory_order_release); }

  void finish() {
    ready(size_);
    auto const step = step_.load(std::memory_order_relaxed);
    spin_until([&] { return done_.load(std::memory_order_acquire) == step; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  Overlap overlap() const { return inner_.overlap(); }
  Span<float> residual() { return inner_.residual(); }

 private:
  void serve() {
    for (std::uint32_t seen = 0;; ++seen) {
      step_.wait(seen, std::memory_order_acquire);
      if (ending_) return;
      try {
        reduce();
      } catch (...) { failure_ = std::current_exception(); }
      done_.store(seen + 1, std::memory_order_release);
    }
  }

  void reduce() {
    inner_.begin();
    for (;;) {
      auto const upto = ready_.load(std::memory_order_acquire);
      if (upto == size_ || ending_) break;
      inner_.ready(upto);
      std::this_thread::sleep_for(std::chrono::microseconds{20});  // the computing thread may share the core
    }
    if (!ending_) inner_.finish();
  }

  BucketedReducer<R, E> inner_;
  std::size_t size_;  // elements
  std::atomic<std::size_t> ready_{0};
  std::atomic<std::uint32_t> step_{0}, done_{0};
  std::atomic<bool> ending_{false};
  std::exception_ptr failure_;  // set before done_
  NamedThread thread_;          // last: it uses all of the above
};

}  // namespace chorale
