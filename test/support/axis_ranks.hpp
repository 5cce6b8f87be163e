// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace chorale::test {

/// The ranks along one axis as threads of this process, whose messages are copies in memory.
class AxisRanks {
 public:
  AxisRanks(std::string_view name, int ranks, bool deals_rows)
      : name_{name}, deals_rows_{deals_rows}, ranks_(static_cast<std::size_t>(ranks)),
        mail_(ranks_.size() * ranks_.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r] = {this, static_cast<Rank>(r)};
  }

  /// Runs body(group) on each rank, in a thread of its own. Returns what each has thrown, or nothing.
  template <class Body>
  std::vector<std::string> run(Body body) {
    auto errors  = std::vector<std::string>(ranks_.size());
    auto threads = std::vector<std::thread>{};
    for (auto& rank : ranks_)
      threads.emplace_back([&] {
        try {
          body(AxisGroup{.name = name_, .rank = rank.rank, .size = static_cast<int>(ranks_.size()),
                         .send_and_receive = &exchange, .peers = &rank, .deals_rows = deals_rows_});
        } catch (std::exception const& error) {
          errors[static_cast<std::size_t>(rank.rank)] = error.what();
          auto const lock = std::lock_guard{mutex_};
          failed_ = true;
          changed_.notify_all();
        }
      });
    for (auto& thread : threads) thread.join();
    return errors;
  }

  /// Bytes that a rank has sent to others.
  std::size_t sent(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)].sent; }
  /// True if messages are left that nobody has received.
  bool left() const { return std::ranges::any_of(mail_, [](auto const& box) { return !box.empty(); }); }

 private:
  struct OneRank {
    AxisRanks* all   = nullptr;
    Rank rank        = 0;
    std::size_t sent = 0;
  };
  using Message = std::vector<std::byte>;

  std::deque<Message>& box(Rank from, Rank to) {
    return mail_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }

  static void exchange(void* peers, Rank to, ConstBytes out, Rank from, Bytes in) {
    auto& self = *static_cast<OneRank*>(peers);
    auto& all  = *self.all;
    auto lock  = std::unique_lock{all.mutex_};
    if (!out.empty()) all.box(self.rank, to).emplace_back(out.begin(), out.end());
    self.sent += out.size();
    all.changed_.notify_all();
    if (in.empty()) return;
    auto& here = all.box(from, self.rank);
    all.changed_.wait(lock, [&] { return !here.empty() || all.failed_; });
    if (here.empty()) throw PeerLost{from, "rank " + std::to_string(from) + " of the axis is gone", ""};
    if (here.front().size() != in.size())
      throw BadArgument{"rank " + std::to_string(self.rank) + " waits for " + std::to_string(in.size()) + " bytes of " +
                            std::to_string(from) + ", which sent " + std::to_string(here.front().size()), ""};
    std::ranges::copy(here.front(), in.begin());
    here.pop_front();
  }

  std::string_view name_;
  bool deals_rows_;
  std::vector<OneRank> ranks_;
  std::vector<std::deque<Message>> mail_;                                  // [from, to]
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
};

}  // namespace chorale::test
