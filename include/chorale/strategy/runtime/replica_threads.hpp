// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/transport/transport.hpp>

#include <gsl/util>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// Throws the first failure that is a cause; a PeerLost, or what another rank has told, is a consequence, thrown only
/// when there is nothing else.
inline void rethrow_cause(std::vector<std::exception_ptr>& failures) {
  auto cause = std::exception_ptr{}, consequence = std::exception_ptr{};
  for (auto& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(std::exchange(failure, nullptr));
    } catch (PeerLost const&) {
      if (!consequence) consequence = std::current_exception();
    } catch (Consequence const&) {
      if (!consequence) consequence = std::current_exception();
    } catch (...) {
      if (!cause) cause = std::current_exception();
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace detail

/// Threads that run the same function at once, one per device; member 0 is the calling thread.
///
/// keeps   the threads live as long as the object; between runs they sleep
/// cost    a run starts and ends with one atomic each way; it allocates nothing
template <class D> class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::vector<D> devices) : devices_{std::move(devices)}, failures_(devices_.size()) {
    if constexpr (requires { D::connect(devices_); }) D::connect(devices_);
    for (std::size_t i = 1; i < devices_.size(); ++i)
      threads_.emplace_back("replica " + std::to_string(i), [this, i] { serve(i); });
  }
  ~ReplicaThreads() {
    ending_ = true;
    announce();
  }
  ReplicaThreads(ReplicaThreads const&)            = delete;
  ReplicaThreads& operator=(ReplicaThreads const&) = delete;

  std::size_t size() const { return devices_.size(); }
  D const& device(std::size_t i) const { return devices_[i]; }

  /// Calls work(i) on every member and returns when all have returned.
  ///
  /// failed    called as failed(i, error) on the member that threw, so that it can release members that wait for it
  /// throws    the exception of the first member that failed by itself, not of members that gave up because of it
  template <class Work, class Failed> void run(Work&& work, Failed&& failed) {
    if (devices_.empty()) return;
    auto job = [&](std::size_t i) {
      try {
        work(i);
      } catch (std::exception const& error) {
        failures_[i] = std::current_exception();
        failed(i, error);
      } catch (...) {
        failures_[i] = std::current_exception();
        failed(i, Error{"an exception that is no std::exception"});
      }
    };
    call_ = [](void* f, std::size_t i) { (*static_cast<decltype(job)*>(f))(i); };
    job_  = &job;
    working_.store(static_cast<int>(size()) - 1, std::memory_order_relaxed);
    announce();
    {
      auto const scope = typename D::Scope{devices_[0]};
      job(0);
    }
    sleep_until(working_, [this] { return working_.load(std::memory_order_acquire) == 0; });
    detail::rethrow_cause(failures_);
  }

 private:
  void announce() {
    if (threads_.empty()) return;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void serve(std::size_t i) {
    auto const scope = typename D::Scope{devices_[i]};
    for (std::uint32_t seen = 0;; ++seen) {
      sleep_until(round_, [&] { return round_.load(std::memory_order_acquire) != seen; });
      if (ending_) return;
      call_(job_, i);
      if (working_.fetch_sub(1, std::memory_order_release) == 1) working_.notify_one();
    }
  }

  std::vector<D> devices_;
  std::vector<std::exception_ptr> failures_;
  void (*call_)(void*, std::size_t) = nullptr;
  void* job_                        = nullptr;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<int> working_{0};
  std::atomic<bool> ending_{false};
  std::vector<NamedThread> threads_;  // last: they use all of the above
};

/// Replicas that are not threads: the transport runs them in turns, all on the first device.
template <class D> class InterleavedReplicas {
 public:
  explicit InterleavedReplicas(std::vector<D> devices) : devices_{std::move(devices)} {}

  std::size_t size() const { return devices_.size(); }
  D const& device(std::size_t i) const { return devices_[i]; }

  /// Calls work(i) on replica i, and serve(i, go_on) on the ranks after the replicas, which are servers, while a
  /// replica works: until go_on() returns false.
  ///
  /// throws    like ReplicaThreads::run()
  template <RunsItsRanks E, class Work, class Serve> void run(std::vector<E>& endpoints, Work&& work, Serve&& serve) {
    auto working     = size();
    auto ended       = std::vector<bool>(size());  // a replica that is started again ends twice
    auto const scope = typename D::Scope{devices_[0]};
    auto failures    = E::run(endpoints, [&](E& at) {
      auto const i = static_cast<std::size_t>(&at - endpoints.data());
      if (i >= size()) return serve(i - size(), [&] { return working > 0; });
      auto const ends = gsl::finally([&] {
        if (!ended[i] && --working == 0) at.wake_all();
        ended[i] = true;
      });
      work(i);
    });
    detail::rethrow_cause(failures);
  }

 private:
  std::vector<D> devices_;
};

}  // namespace chorale
