// SPDX-License-Identifier: Apache-2.0
//
// Ranks along axes of a mesh that are threads of one process: messages go through mailboxes under one lock.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/axes.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::test {

/// A group of ranks, each a thread.
class AxisThreads {
 public:
  AxisThreads(std::string_view name, int size) {
    for (Rank r = 0; r < size; ++r) peers_.push_back({this, r});
    for (auto& peer : peers_)
      groups_.push_back({.name = name, .rank = peer.rank, .size = size, .send_and_receive = &exchange, .peers = &peer});
  }
  AxisThreads(AxisThreads const&)            = delete;
  AxisThreads& operator=(AxisThreads const&) = delete;

  AxisGroup const& operator[](Rank r) const { return groups_[static_cast<std::size_t>(r)]; }
  /// Bytes that a rank has sent.
  std::size_t sent(Rank r) const { return peers_[static_cast<std::size_t>(r)].sent; }

  /// Calls f(group) on a thread for each rank, each of which computes alone. Throws what the first one threw.
  template <class F>
  void run(F const& f) {
    auto threads = std::vector<std::thread>{};
    failure_     = nullptr;
    for (auto const& group : groups_)
      threads.emplace_back([&] {
        auto const alone = Cpu::OneThread{};
        try {
          f(group);
        } catch (...) {
          auto const guard = std::lock_guard{lock_};
          if (!failure_) failure_ = std::current_exception();
          changed_.notify_all();
        }
      });
    for (auto& thread : threads) thread.join();
    boxes_.clear();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Peer {
    AxisThreads* all;
    Rank rank;
    std::size_t sent = 0;
  };

  static void exchange(void* peers, Rank to, ConstBytes out, Rank from, Bytes in) {
    auto& self = *static_cast<Peer*>(peers);
    auto& all  = *self.all;
    auto guard = std::unique_lock{all.lock_};
    if (!out.empty()) {
      all.boxes_[{self.rank, to}].emplace_back(out.begin(), out.end());
      self.sent += out.size();
      all.changed_.notify_all();
    }
    if (in.empty()) return;
    auto& box = all.boxes_[{from, self.rank}];
    all.changed_.wait(guard, [&] { return !box.empty() || all.failure_; });
    if (box.empty()) throw std::runtime_error{"another rank failed"};
    if (box.front().size() != in.size()) throw std::runtime_error{"a message of another size came"};
    std::memcpy(in.data(), box.front().data(), in.size());
    box.pop_front();
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::map<std::pair<Rank, Rank>, std::deque<std::vector<std::byte>>> boxes_;
  std::exception_ptr failure_;
  std::vector<Peer> peers_;
  std::vector<AxisGroup> groups_;
};

}  // namespace chorale::test
