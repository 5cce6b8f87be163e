// SPDX-License-Identifier: Apache-2.0
//
// Ranks along axes of a mesh that are threads of one process: messages go through mailboxes under one lock.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/axes.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::test {

/// A group of ranks, each a thread.
class AxisThreads {
 public:
  /// deals_rows    see AxisGroup
  AxisThreads(std::string_view name, int size, bool deals_rows = false) {
    for (Rank r = 0; r < size; ++r) peers_.push_back({this, r});
    for (auto& peer : peers_)
      groups_.push_back({.name             = name,
                         .rank             = peer.rank,
                         .size             = size,
                         .send_and_receive = &exchange,
                         .peers            = &peer,
                         .deals_rows       = deals_rows});
  }
  AxisThreads(AxisThreads const&)            = delete;
  AxisThreads& operator=(AxisThreads const&) = delete;

  AxisGroup const& operator[](Rank r) const { return groups_[static_cast<std::size_t>(r)]; }
  /// Bytes that a rank has sent.
  std::size_t sent(Rank r) const { return peers_[static_cast<std::size_t>(r)].sent; }
  /// True if messages of the last run are left that nobody has received.
  bool left() const {
    return std::ranges::any_of(boxes_, [](auto const& box) { return !box.second.empty(); });
  }

  /// Calls f(group) on a thread for each rank, each of which computes alone. Throws what the first one threw.
  template <class F> void run(F const& f) {
    run_all(f);
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Calls f(group) as run() does. Returns what each rank has thrown, or "".
  template <class F> std::vector<std::string> errors_of(F const& f) { return run_all(f); }

 private:
  struct Peer {
    AxisThreads* all;
    Rank rank;
    std::size_t sent = 0;
  };

  template <class F> std::vector<std::string> run_all(F const& f) {
    auto errors  = std::vector<std::string>(groups_.size());
    auto threads = std::vector<std::thread>{};
    failure_     = nullptr;
    boxes_.clear();
    for (auto const& group : groups_)
      threads.emplace_back([&] {
        auto const alone = Cpu::OneThread{};
        try {
          f(group);
        } catch (std::exception const& error) {
          errors[static_cast<std::size_t>(group.rank)] = error.what();
          fail();
        } catch (...) {  // e.g. a REQUIRE
          errors[static_cast<std::size_t>(group.rank)] = "a failed check";
          fail();
        }
      });
    for (auto& thread : threads) thread.join();
    return errors;
  }

  /// Releases the ranks that wait, after what is being handled.
  void fail() {
    auto const guard = std::lock_guard{lock_};
    if (!failure_) failure_ = std::current_exception();
    changed_.notify_all();
  }

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
    if (box.empty()) throw PeerLost{from, "rank " + std::to_string(from) + " of the axis is gone", ""};
    if (box.front().size() != in.size())
      throw BadArgument{"rank " + std::to_string(self.rank) + " waits for " + std::to_string(in.size()) + " bytes of " +
                            std::to_string(from) + ", which sent " + std::to_string(box.front().size()),
                        ""};
    std::ranges::copy(box.front(), in.begin());
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
