// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chorale {

/// What can happen to a message between ranks.
enum class InjectedFault {
  delay,                                                              // it leaves later, and those after it too
  drop,                                                               // it never arrives, nor what follows with its tag
  flip,                                                               // one of its bits is flipped
  duplicate,                                                          // it arrives twice
  cut                                                                 // its sender is cut off from all ranks
};

/// A fault that is injected for certain.
struct ScheduledFault {
  Rank rank;                                                          // of the sender
  std::uint64_t message;                                              // its first is 0
  InjectedFault what;
};

/// A fault that took place.
struct FaultRecord {
  std::uint64_t message;
  Rank peer;                                                          // the receiver
  InjectedFault what;

  friend constexpr bool operator==(FaultRecord const&, FaultRecord const&) = default;
};

/// Probability of each fault for a message. A message has at most one fault, so they add up to at most 1.
struct FaultRates {
  float delay = 0, drop = 0, flip = 0, duplicate = 0, cut = 0;
};

/// Faults of messages: scheduled ones, and random ones from a seed.
///
/// longest   the bound of a delay
/// order     a function of (seed, rank, number of the message): the same in every run
struct FaultPlan {
  Seed seed = 1;
  FaultRates rates{};
  std::vector<ScheduledFault> scheduled{};
  std::chrono::nanoseconds longest = std::chrono::milliseconds{1};

  void check() const {
    auto sum = 0.0F;
    for (auto const [chance, what] : by_kind()) {
      CHORALE_EXPECTS(chance >= 0, "the chance of a fault is " + std::to_string(chance));
      sum += chance;
    }
    CHORALE_EXPECTS(sum <= 1, "the rates of all faults add up to " + std::to_string(sum));
  }

  std::optional<InjectedFault> of(Rank rank, std::uint64_t message) const {
    for (auto const& plan : scheduled)
      if (plan.rank == rank && plan.message == message) return plan.what;
    auto left = random(rank).uniform(3 * message);
    for (auto const [chance, what] : by_kind()) {
      if (left < chance) return what;
      left -= chance;
    }
    return {};
  }

  std::chrono::nanoseconds delay_of(Rank rank, std::uint64_t message) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(longest * random(rank).uniform(3 * message + 1));
  }

  /// Index of the bit to flip, in [0, bits); 0 when there are none.
  std::size_t bit_of(Rank rank, std::uint64_t message, std::size_t bits) const {
    return bits == 0 ? 0 : random(rank).bits(3 * message + 2) % bits;
  }

 private:
  struct Chance {
    float chance;
    InjectedFault what;
  };

  std::array<Chance, 5> by_kind() const {
    return {{{rates.delay, InjectedFault::delay},
             {rates.drop, InjectedFault::drop},
             {rates.flip, InjectedFault::flip},
             {rates.duplicate, InjectedFault::duplicate},
             {rates.cut, InjectedFault::cut}}};
  }

  Random random(Rank rank) const { return {seed, static_cast<std::uint64_t>(rank)}; }
};

}  // namespace chorale
