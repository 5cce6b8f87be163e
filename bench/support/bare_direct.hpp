// SPDX-License-Identifier: Apache-2.0
//
// The least that an all-reduce in shared memory can be: meet, sum a share of all buffers into all buffers, meet.
#pragma once

#include "ranks.hpp"

#include <array>
#include <atomic>
#include <cstddef>

namespace bench {

/// Two words on the way of every rank; zeros at first, in memory that all ranks see.
struct BareMeeting {
  struct alignas(128) Place {
    std::atomic<std::size_t> turn;
  };
  std::array<Place, 64> places;

  /// Returns when all ranks have come here so often.
  void meet(int rank, int ranks, std::size_t turn, bool crowded) {
    places[static_cast<std::size_t>(rank)].turn.store(turn, std::memory_order_release);
    for (int r = 0; r < ranks; ++r)
      for (int i = 0; places[static_cast<std::size_t>(r)].turn.load(std::memory_order_acquire) < turn; ++i)
        if (crowded && i > 20) sched_yield();
        else chorale::relax();
  }
};

/// One rank of it.
class BareDirect {
 public:
  /// buffers   of all ranks, n floats each
  BareDirect(int rank, std::vector<float*> buffers, std::size_t n, BareMeeting& meeting)
      : rank_{rank}, ranks_{static_cast<int>(buffers.size())}, crowded_{ranks_ > cores()}, buffers_{std::move(buffers)},
        part_{chorale::share(n, rank, ranks_)}, meeting_{&meeting} {}

  void operator()() {
    meeting_->meet(rank_, ranks_, ++turn_, crowded_);
    if (ranks_ == 2) sum_two();
    else sum_all();
    meeting_->meet(rank_, ranks_, ++turn_, crowded_);
  }

 private:
  void sum_two() {
    auto* __restrict a = buffers_[0];
    auto* __restrict b = buffers_[1];
    for (auto i = part_.begin; i < part_.end; ++i) a[i] = b[i] = a[i] + b[i];
  }

  void sum_all() {
    constexpr std::size_t segment = 1'024;  // floats: the sums stay in the first cache
    std::array<float, segment> sums;
    auto* __restrict sum = sums.data();
    for (auto begin = part_.begin; begin < part_.end; begin += segment) {
      auto const n = std::min(segment, part_.end - begin);
      std::copy_n(buffers_[0] + begin, n, sum);
      for (std::size_t r = 1; r < buffers_.size(); ++r) {
        auto const* __restrict next = buffers_[r] + begin;
        for (std::size_t i = 0; i < n; ++i) sum[i] += next[i];
      }
      for (auto* const buffer : buffers_) std::copy_n(sum, n, buffer + begin);
    }
  }

  int rank_, ranks_;
  bool crowded_;  // more ranks than cores
  std::vector<float*> buffers_;
  chorale::Range part_;
  BareMeeting* meeting_;
  std::size_t turn_ = 0;
};

inline double bare_direct_threads(int ranks, std::size_t bytes) {
  auto const n = bytes / sizeof(float);
  auto meeting = SharedBytes{sizeof(BareMeeting)};
  auto memory  = std::vector<std::vector<float>>(static_cast<std::size_t>(ranks), std::vector<float>(n));
  auto buffers = std::vector<float*>{};
  for (auto& x : memory) buffers.push_back(x.data());
  return on_threads(ranks, [&](int rank) {
    return times_of(rank, ranks, memory[static_cast<std::size_t>(rank)],
                    BareDirect{rank, buffers, n, *meeting.as<BareMeeting>()});
  });
}

inline double bare_direct_processes(int ranks, std::size_t bytes) {
  auto const n = bytes / sizeof(float);
  auto meeting = SharedBytes{sizeof(BareMeeting)}, memory = SharedBytes{static_cast<std::size_t>(ranks) * bytes};
  auto buffers = std::vector<float*>{};
  for (int rank = 0; rank < ranks; ++rank) buffers.push_back(memory.as<float>() + static_cast<std::size_t>(rank) * n);
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    return times_of(rank, ranks, {buffers[static_cast<std::size_t>(rank)], n},
                    BareDirect{rank, buffers, n, *meeting.as<BareMeeting>()});
  });
}

/// One rank whose buffer is not shared: it copies a part of it in, sums its share of the part, and copies the sums out.
class BareCopies {
 public:
  static constexpr std::size_t part = 32 << 10;  // floats: 128 KiB, which the caches hold

  /// shared   2 parts of each rank, used in turn
  BareCopies(int rank, int ranks, chorale::Span<float> x, float* shared, BareMeeting& meeting)
      : rank_{rank}, ranks_{ranks}, crowded_{ranks > cores()}, x_{x}, shared_{shared}, meeting_{&meeting} {}

  void operator()() {
    for (std::size_t begin = 0; begin < x_.size(); begin += part) {
      auto const n    = std::min(part, x_.size() - begin);
      auto const half = (half_ ^= 1) * part * static_cast<std::size_t>(ranks_);
      auto const at   = [&](int r) { return shared_ + half + part * static_cast<std::size_t>(r); };
      std::copy_n(x_.data() + begin, n, at(rank_));
      meeting_->meet(rank_, ranks_, ++turn_, crowded_);
      auto const mine     = chorale::share(n, rank_, ranks_);
      auto* __restrict to = at(0);
      for (int r = 1; r < ranks_; ++r) {
        auto const* __restrict from = at(r);
        for (auto i = mine.begin; i < mine.end; ++i) to[i] += from[i];
      }
      meeting_->meet(rank_, ranks_, ++turn_, crowded_);
      std::copy_n(at(0), n, x_.data() + begin);
    }
  }

 private:
  int rank_, ranks_;
  bool crowded_;
  chorale::Span<float> x_;
  float* shared_;
  BareMeeting* meeting_;
  std::size_t turn_ = 0, half_ = 0;
};

inline double bare_copies_processes(int ranks, std::size_t bytes) {
  auto meeting = SharedBytes{sizeof(BareMeeting)};
  auto memory  = SharedBytes{2 * sizeof(float) * BareCopies::part * static_cast<std::size_t>(ranks)};
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    auto x = std::vector<float>(bytes / sizeof(float));
    return times_of(rank, ranks, x, BareCopies{rank, ranks, x, memory.as<float>(), *meeting.as<BareMeeting>()});
  });
}

}  // namespace bench
