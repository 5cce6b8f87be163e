// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/shared_operation_log.hpp>
#include <chorale/transport/network_model.hpp>
#include <chorale/transport/simulated/fiber.hpp>
#include <chorale/transport/simulated/options.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace chorale {

/// Queue of events in the order of time; of equal times in the order of push().
///
///   last_ = 1010      bucket 0: 1010     1: 1011     2: 100x has passed, so nothing     3: 11xx     4: 0xxx, as 2
///                     bucket k has the times whose highest bit that differs from last_ is bit k - 1
///
/// keeps   nothing is pushed for a time before the time of the last pop()
/// cost    each event moves at most once per bit of time that is still to pass; a few in practice
/// source  radix heap: Ahuja, Mehlhorn, Orlin and Tarjan, JACM 37(2), 1990
template <class What> class EventQueue {
 public:
  struct Event {
    std::int64_t at;  // not negative
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
  std::size_t size_ = 0, next_ = 0;  // next_: of buckets_[0]
  std::array<std::vector<Event>, 65> buckets_;
  std::vector<Event> spread_;
};

/// How one virtual rank ended.
struct SimulatedEnd {
  VirtualTime at{};                     // on its clock
  std::exception_ptr error{};           // what it threw, if it did
  std::string message{};                // of the error
  Rank lost            = -1;            // the rank that a PeerLost names
  bool was_killed      = false;         // by a fault
  std::size_t messages = 0, bytes = 0;  // that it sent
};

/// Result of a simulation.
struct SimulatedRun {
  VirtualTime time{};  // when the last rank ended
  std::vector<SimulatedEnd> ranks;
  std::vector<SimulatedEvent> injected;  // faults, in the order of time
  std::string deadlock;                  // the waits of the ranks, when all waited
  std::uint64_t trace = 0;               // a hash of all events: equal in equal runs

  /// throws  the first error of a rank, if there was one
  SimulatedRun const& check() const {
    for (auto const& rank : ranks)
      if (rank.error != nullptr) std::rethrow_exception(rank.error);
    return *this;
  }
};

namespace simulation {

inline constexpr std::uint32_t no_record = ~std::uint32_t{0};

/// Names a record of a Pool. It is over once the record has been given back.
struct Handle {
  std::uint32_t index = no_record, generation = 0;
};

/// Pool of records that are reused. take() may move all of them.
template <class T> class Pool {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(all_.size()));
      all_.emplace_back();
    }
    auto const index = free_.back();
    free_.pop_back();
    all_[index].used = true;
    return index;
  }
  void give_back(std::uint32_t index) {
    auto const generation  = all_[index].generation + 1;
    all_[index]            = T{};
    all_[index].generation = generation;
    free_.push_back(index);
  }

  T& operator[](std::uint32_t index) { return all_[index]; }
  Handle handle(std::uint32_t index) const { return {index, all_[index].generation}; }
  bool is_over(Handle h) const { return all_[h.index].generation != h.generation; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(all_.size()); }

 private:
  std::vector<T> all_;
  std::vector<std::uint32_t> free_;
};

/// Queue of records, linked by `next`.
struct Row {
  std::uint32_t first = no_record, last = no_record;

  bool empty() const { return first == no_record; }

  template <class T> void push(Pool<T>& of, std::uint32_t index) {
    of[index].next                    = no_record;
    (empty() ? first : of[last].next) = index;
    last                              = index;
  }
  template <class T> std::uint32_t pop(Pool<T>& of) {
    auto const index = first;
    first            = of[index].next;
    return index;
  }
};

/// Messages with one tag from one rank to another.
struct Channel {
  Row posted;                            // receives that wait for a message
  Row arrived;                           // messages without a posted receive
  std::uint64_t sent = 0, expected = 0;  // sequence numbers
  std::uint64_t on_their_way = 0;        // messages
  VirtualTime last{};                    // arrival
  std::vector<std::uint32_t> held;       // messages that came too early

  bool is_idle() const { return posted.empty() && arrived.empty() && on_their_way == 0; }
};

/// One message on its way from a rank to another.
struct Message {
  Rank from = 0, to = 0;
  Tag tag{};
  detail::Label about{};            // the operation
  std::byte const* data = nullptr;  // the sender's memory, until captured
  std::size_t size      = 0;
  std::vector<std::byte> copy{};  // the bytes, once captured
  Channel* channel = nullptr;
  VirtualTime left{-1};
  std::uint64_t sequence = 0, number = 0;  // in its channel, of its sender
  std::uint32_t next = no_record, generation = 0;
  int tried = 0;
  SimulatedFault fault{};
  bool has_fault = false, captured = false, intact = true, used = false, cancelled = false;

  std::byte const* bytes() const { return captured ? copy.data() : data; }
};

/// One receive that a rank has posted.
struct Receive {
  Bytes in{};
  Channel* channel = nullptr;
  Rank peer        = 0;
  Tag tag{};
  detail::Label about{};
  std::uint32_t next = no_record, generation = 0;
  bool arrived = false, used = false;
};

enum class Status : std::uint8_t { ready, running, waiting, asleep, over };
/// What a waiting rank waits for.
enum class WaitsFor : std::uint8_t { message, sent, anything, rest };  // rest: anything, for a limited time

constexpr bool is_any(WaitsFor what) { return what == WaitsFor::anything || what == WaitsFor::rest; }

/// State of one virtual rank.
struct Member {
  Fiber fiber;
  Status status = Status::over;
  WaitsFor waits_for{};
  Handle handle{};               // of the record that it waits for
  VirtualTime clock{}, since{};  // since: start of this wait
  VirtualTime rests_until{};
  bool has_deadline = false, has_rest = false;  // events in the queue
  bool listens        = false;                  // it has called wait_any()
  std::uint64_t moves = 0, heard = 0;           // events so far; at its last wait_any()
  int looks   = 0;                              // unsuccessful polls in a row
  int loss    = -1;                             // index of the loss reported to it
  bool killed = false;
  std::unordered_map<Rank, int> parted;  // [lost peer] index of that loss
  std::uint64_t sent = 0, draws = 0, step = 0;
  std::size_t bytes = 0;
  detail::SharedOperationLog<32> announced;
  std::unordered_map<std::uint64_t, Channel> channels;  // [from << 32 | tag]
  std::size_t sweep_at   = 64;                          // size at which idle channels are erased
  std::uint64_t last_key = ~std::uint64_t{0};
  Channel* last_channel  = nullptr;
};

}  // namespace simulation
}  // namespace chorale
