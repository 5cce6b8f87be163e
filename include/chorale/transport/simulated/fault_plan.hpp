// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/network_model.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// What can go wrong when a rank sends a message.
enum class SimulatedFault : std::uint8_t {
  drop,                                                                    // it is lost on its way, once
  delay,                                                                   // it leaves later, and what is behind it too
  duplicate,                                                               // it arrives once more, later
  reorder,                                                                 // it arrives later than what is behind it
  corrupt,                                                                 // one of its bits is another one
  cut,                                                                     // the connection to that rank ends
  freeze,                                                                  // its sender stops, for a while
  kill,                                                                    // its sender's process ends
  restart,                                                                 // the same, and starts again
  partition                                                                // the ranks fall into two parts, for a while
};

inline constexpr std::size_t simulated_faults = 10;

constexpr std::string_view name(SimulatedFault what) {
  return std::array<std::string_view, simulated_faults>{"drop", "delay", "duplicate", "reorder", "corrupt", "cut",
                                                        "freeze", "kill", "restart", "partition"}
      [static_cast<std::size_t>(what)];
}

/// A fault that took place, or shall.
struct SimulatedEvent {
  SimulatedFault what{};
  Rank rank             = 0;                                               // the sender
  std::uint64_t message = 0;                                               // its first is 0
  Rank peer             = -1;                                              // the receiver

  friend constexpr bool operator==(SimulatedEvent const&, SimulatedEvent const&) = default;
};

/// Which messages meet which faults: scheduled ones, and random ones from a seed.
///
/// rates   of each fault at each message; together at most 1
/// scheduled peer is not looked at
/// most      faults from the seed in one run
/// longest   the bound of a delay, and of how late a message is that is overtaken
/// pause     the bound of a freeze, of a partition and of the time until a restart
/// dead      how long a rank may be silent: then those that hear nothing of it take it for lost
/// resend    when a message that was lost is sent again, at first; each time twice as long
/// tries     after so many the receiver is taken for lost
/// order     a function of seed, rank, number of the message and of the try: the same in every run
struct SimulatedFaults {
  Seed seed = 1;
  std::array<float, simulated_faults> rates{};                             // [SimulatedFault]
  std::vector<SimulatedEvent> scheduled{};
  int most            = 1'000'000;
  VirtualTime longest = std::chrono::milliseconds{1};
  VirtualTime pause   = std::chrono::seconds{10};
  VirtualTime dead    = std::chrono::seconds{5};
  VirtualTime resend  = std::chrono::milliseconds{10};
  int tries           = 8;

  /// All faults, each with that chance.
  static SimulatedFaults all(Seed seed, float chance) {
    auto faults = SimulatedFaults{.seed = seed};
    faults.rates.fill(chance);
    return faults;
  }

  bool any() const {
    for (auto const chance : rates)
      if (chance > 0) return true;
    return !scheduled.empty();
  }

  void check() const {
    auto sum = 0.0F;
    for (auto const chance : rates) {
      CHORALE_EXPECTS(chance >= 0, "the chance of a fault is " + std::to_string(chance));
      sum += chance;
    }
    CHORALE_EXPECTS(sum <= 1.0001F, "the rates of all faults add up to " + std::to_string(sum));
    CHORALE_EXPECTS(tries >= 1 && tries <= 20 && resend.count() > 0 && dead.count() > 0,
                    "a simulation sends a message " + std::to_string(tries) + " times, first again after " +
                        std::to_string(resend.count()) + " ps; 1 to 20 times make sense, and times above zero");
    CHORALE_EXPECTS(longest.count() >= 0 && pause.count() >= 0, "a fault of a simulation lasts for less than no time");
  }

  std::optional<SimulatedFault> of(Rank rank, std::uint64_t message) const {
    for (auto const& plan : scheduled)
      if (plan.rank == rank && plan.message == message) return plan.what;
    auto left = draw(rank, message, 0);
    for (std::size_t i = 0; i < simulated_faults; ++i) {
      if (left < rates[i]) return static_cast<SimulatedFault>(i);
      left -= rates[i];
    }
    return {};
  }

  /// Whether a message that was lost is lost again.
  bool drops_again(Rank rank, std::uint64_t message, int tried) const {
    return draw(rank, message, static_cast<std::uint64_t>(tried)) < rates[0];
  }

  /// Part of `whole` that this message gets: how late it is, for example.
  VirtualTime part_of(VirtualTime whole, Rank rank, std::uint64_t message) const {
    return VirtualTime{static_cast<std::int64_t>(static_cast<double>(whole.count()) *
                                                 static_cast<double>(draw(rank, message, 62)))};
  }

  /// In [0, bits).
  std::size_t bit_of(Rank rank, std::uint64_t message, std::size_t bits) const {
    return random(rank).bits(64 * message + 63) % bits;
  }

  /// The part of the ranks, 0 or 1, in which `of` is when this message parts them: its two ends are in different ones.
  bool part_of_rank(Rank of_rank, SimulatedEvent const& event) const {
    if (of_rank == event.rank || of_rank == event.peer) return of_rank == event.peer;
    return (Random{seed, 1'000'000 + event.message}.bits(static_cast<std::uint64_t>(of_rank)) & 1) != 0;
  }

 private:
  Random random(Rank rank) const { return {seed, static_cast<std::uint64_t>(rank)}; }

  /// In [0, 1): number `which` of this message, below 62.
  float draw(Rank rank, std::uint64_t message, std::uint64_t which) const {
    return random(rank).uniform(64 * message + which);
  }
};

/// What the receiving end of a simulated connection does with a message that comes off the wire.
enum class Judgement : std::uint8_t { deliver, discard, hold, refuse };

/// sequence   of the messages from one rank to another with one tag: 0, 1, ..
struct Arrival {
  std::uint64_t sequence, expected;
  bool intact;                                                             // its checksum is right
};

/// Every message once, in the order sent, as it was sent: what an endpoint promises.
constexpr Judgement in_order_once(Arrival const& message) {
  if (!message.intact) return Judgement::refuse;
  if (message.sequence < message.expected) return Judgement::discard;
  return message.sequence > message.expected ? Judgement::hold : Judgement::deliver;
}

}  // namespace chorale
