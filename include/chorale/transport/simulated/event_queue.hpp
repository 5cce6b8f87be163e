// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chorale {

/// Queue of events in the order of time; of equal times in the order of push().
///
///   last_ = 1010      bucket 0: 1010     1: 1011     2: 100x has passed, so nothing     3: 11xx     4: 0xxx, as 2
///                     bucket k has the times whose highest bit that differs from last_ is bit k - 1
///
/// keeps   nothing is pushed for a time before that of the last pop()
/// cost    each event moves at most once per bit of time that is still to pass; a few in practice
/// source  radix heap: Ahuja, Mehlhorn, Orlin and Tarjan, JACM 37(2), 1990
template <class What>
class EventQueue {
 public:
  struct Event {
    std::int64_t at;                                                       // not negative
    What what;
  };

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// True if the next event has the same time as the last one.
  bool has_more_now() const { return next_ < buckets_[0].size(); }

  void push(std::int64_t at, What what) {
    buckets_[bucket_of(at)].push_back({at, what});
    ++size_;
  }

  Event pop() {
    if (next_ == buckets_[0].size()) refill();
    --size_;
    return buckets_[0][next_++];
  }

 private:
  std::size_t bucket_of(std::int64_t at) const {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(at ^ last_)));
  }

  /// Sets last_ to the earliest time, and spreads the bucket of that time over the buckets before it.
  void refill() {
    buckets_[0].clear();
    next_      = 0;
    auto first = std::size_t{1};
    while (buckets_[first].empty()) ++first;
    spread_.clear();
    std::swap(spread_, buckets_[first]);
    last_ = spread_[0].at;
    for (auto const& event : spread_) last_ = event.at < last_ ? event.at : last_;
    for (auto const& event : spread_) buckets_[bucket_of(event.at)].push_back(event);
  }

  std::int64_t last_ = 0;
  std::size_t size_ = 0, next_ = 0;                                        // next_: of buckets_[0]
  std::array<std::vector<Event>, 65> buckets_;
  std::vector<Event> spread_;
};

}  // namespace chorale
