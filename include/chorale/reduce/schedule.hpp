// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/collective.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale {

/// Chunks [begin, end) of the chunks into which a schedule cuts x.
struct Chunks {
  int begin = 0, end = 0;

  static constexpr Chunks one(int chunk) { return {chunk, chunk + 1}; }
  constexpr int size() const { return end - begin; }
  constexpr bool overlaps(Chunks other) const { return begin < other.end && other.begin < end; }
  friend constexpr bool operator==(Chunks, Chunks) = default;
};

/// How a rank treats chunks that arrive: they replace its own, or are combined with its own in the order named.
enum class Fold : std::uint8_t { keep, mine_first, theirs_first };

inline constexpr Rank nobody = -1;

/// The messages of one rank in one step: at most one out and one in, at the same time.
struct Step {
  Rank to        = nobody;
  Chunks send    = {};  // as they were before this step
  Rank from      = nobody;
  Chunks receive = {};
  Fold fold      = Fold::keep;
};

/// The messages of all ranks: a function of rank, number of ranks and step, which the compiler can prove. See check().
///
/// keeps   in lockstep: what a rank receives from a peer in a step is what that peer sends to it in the same step.
///         Where an operation has a root, the schedule is written for root 0
template <class S>
concept Schedule = requires(Rank rank, int ranks, int step) {
  { S::collective } -> std::convertible_to<Collective>;  // what holds at the end
  { S::chunks(ranks) } -> std::same_as<int>;             // into which x is cut, at least 1
  { S::widest(ranks) } -> std::same_as<int>;             // the most chunks in one message, at least 1
  { S::steps(ranks) } -> std::same_as<int>;
  { S::step(rank, ranks, step) } -> std::same_as<Step>;
};

/// The approximate size of messages in bytes, such that one is sent while another is combined in the cache.
inline constexpr std::size_t largest_message = std::size_t{256} << 10;

/// The messages that an operation keeps until they are combined.
inline constexpr unsigned messages_kept = 4;

/// The division of x into the chunks of the schedule, and across them into lanes, which run the schedule concurrently.
///
///   one chunk in a message    | chunk 0        | chunk 1        | chunk 2        |     each chunk into lanes, so that
///                             | lane 0 | lane 1| lane 0 | lane 1| lane 0 | lane 1|     chunks stay where they are
///   several                   | lane 0                 | lane 1                  |     each lane into chunks, so that
///                             | 0 | 1 | 2 | 3          | 0 | 1 | 2 | 3           |     a message is one piece of x
///
/// keeps   depends only on values that all ranks know, so that all ranks cut x in the same way
class Cut {
 public:
  constexpr Cut() = default;

  /// n            elements of `element` bytes
  /// ends         where each chunk ends, when they are uneven; then a message has one chunk
  constexpr Cut(std::size_t n, std::size_t element, int chunks, int widest, Span<std::size_t const> ends = {})
      : n_{n}, ends_{ends}, chunks_{chunks}, single_{widest == 1} {
    auto chunk = n / static_cast<std::size_t>(chunks) + (n % static_cast<std::size_t>(chunks) != 0);
    for (int c = 0; c < static_cast<int>(ends.size()); ++c) chunk = std::max(c == 0 ? 0 : chunk, whole(c).size());
    message_ = std::min(n, chunk * static_cast<std::size_t>(widest));
    lanes_   = static_cast<int>(std::max<std::size_t>(1, (message_ * element + largest_message - 1) / largest_message));
    message_ = message_ / static_cast<std::size_t>(lanes_) + static_cast<std::size_t>(widest) + 1;
  }

  constexpr int lanes() const { return lanes_; }

  /// An upper bound of the elements of one message.
  constexpr std::size_t largest() const { return message_; }

  /// The elements of chunks c in that lane.
  Range range(int lane, Chunks c) const {
    if (c.size() == 0) return {};
    if (single_) {
      auto const chunk = whole(c.begin);
      auto const part  = share(chunk.size(), lane, lanes_);
      return {chunk.begin + part.begin, chunk.begin + part.end};
    }
    auto const slice = share(n_, lane, lanes_);
    return {slice.begin + share(slice.size(), c.begin, chunks_).begin,
            slice.begin + share(slice.size(), c.end - 1, chunks_).end};
  }

 private:
  constexpr Range whole(int chunk) const {
    if (ends_.empty()) return share(n_, chunk, chunks_);
    auto const c = static_cast<std::size_t>(chunk);
    return {c == 0 ? 0 : ends_[c - 1], ends_[c]};
  }

  std::size_t n_ = 0, message_ = 0;
  Span<std::size_t const> ends_;
  int chunks_ = 1, lanes_ = 1;
  bool single_ = true;
};

/// The messages and bytes that one rank sends for n elements of `element` bytes.
///
/// ends    where each chunk ends, when they are uneven
template <Schedule S>
Sent traffic(Rank rank, int ranks, std::size_t n, std::size_t element, Span<std::size_t const> ends = {}) {
  auto const cut = Cut{n, element, S::chunks(ranks), S::widest(ranks), ends};
  auto sent      = Sent{};
  for (int lane = 0; lane < cut.lanes(); ++lane) {
    for (int s = 0; s < S::steps(ranks); ++s) {
      auto const step = S::step(rank, ranks, s);
      if (step.to == nobody) continue;
      ++sent.messages;
      sent.bytes += cut.range(lane, step.send).size() * element;
    }
  }
  return sent;
}

/// The bytes in which one rank keeps messages of an operation until it has added them up; 0 if it only copies. See
/// ScheduleExecution.
///
/// ends    where each chunk ends, when they are uneven
template <Schedule S>
constexpr std::size_t scratch_bytes(Rank rank, int ranks, std::size_t n, std::size_t element,
                                    Span<std::size_t const> ends = {}) {
  for (int s = 0; s < S::steps(ranks); ++s)
    if (auto const step = S::step(rank, ranks, s); step.from != nobody && step.fold != Fold::keep)
      return messages_kept * Cut{n, element, S::chunks(ranks), S::widest(ranks), ends}.largest() * element;
  return 0;
}

/// The number of messages that must follow one another: the longest chain in which each depends on the one before it.
template <Schedule S> int depth(int ranks) {
  auto const chunks = static_cast<std::size_t>(S::chunks(ranks));
  auto behind       = std::vector<int>(static_cast<std::size_t>(ranks) * chunks);  // [rank][chunk]: messages so far
  auto const at     = [&](Rank rank, int chunk) -> int& {
    return behind[static_cast<std::size_t>(rank) * chunks + static_cast<std::size_t>(chunk)];
  };
  auto longest = 0;
  for (int s = 0; s < S::steps(ranks); ++s) {
    auto const before = behind;
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const step = S::step(rank, ranks, s);
      if (step.from == nobody) continue;
      auto chain = 0;
      for (int c = step.receive.begin; c < step.receive.end; ++c)
        chain = std::max(chain, 1 + before[static_cast<std::size_t>(step.from) * chunks + static_cast<std::size_t>(c)]);
      for (int c = step.receive.begin; c < step.receive.end; ++c) at(rank, c) = std::max(at(rank, c), chain);
      longest = std::max(longest, chain);
    }
  }
  return longest;
}

}  // namespace chorale
