// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/network_model.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// What can go wrong when a rank sends a message.
enum class SimulatedFault : std::uint8_t {
  drop,       // it is lost on its way, once
  delay,      // it leaves later, and those after it too
  duplicate,  // it arrives once more, later
  reorder,    // it arrives later than those after it
  corrupt,    // one of its bits is flipped
  cut,        // the connection to its receiver ends
  freeze,     // its sender stops, for a while
  kill,       // its sender's process ends
  restart,    // its sender's process ends, then restarts
  partition   // the ranks fall into two parts, for a while
};

inline constexpr std::size_t simulated_faults = 10;

constexpr std::string_view name(SimulatedFault what) {
  return std::array<std::string_view, simulated_faults>{"drop", "delay",  "duplicate", "reorder", "corrupt",
                                                        "cut",  "freeze", "kill",      "restart", "partition"}
      [static_cast<std::size_t>(what)];
}

/// A fault that took place, or is scheduled.
struct SimulatedEvent {
  SimulatedFault what{};
  Rank rank             = 0;   // the sender
  std::uint64_t message = 0;   // its first is 0
  Rank peer             = -1;  // the receiver

  friend constexpr bool operator==(SimulatedEvent const&, SimulatedEvent const&) = default;
};

/// Faults of messages: scheduled ones, and random ones from a seed.
///
/// rates     of each fault at each message; together at most 1
/// scheduled their `peer` is ignored
/// most      faults from the seed in one run
/// longest   the bound of a delay, also of a duplicate and of a reordered message
/// pause     the bound of a freeze, of a partition and of the time until a restart
/// dead      longest silence of a rank: after it, ranks that receive nothing from it take it for lost
/// resend    time until a lost message is sent again; doubled after each try
/// tries     number of sends of a message after which its receiver is taken for lost
/// order     a function of seed, rank, number of the message and of the try: the same in every run
struct SimulatedFaults {
  Seed seed = 1;
  std::array<float, simulated_faults> rates{};  // [SimulatedFault]
  std::vector<SimulatedEvent> scheduled{};
  int most            = 1'000'000;
  VirtualTime longest = std::chrono::milliseconds{1};
  VirtualTime pause   = std::chrono::seconds{10};
  VirtualTime dead    = std::chrono::seconds{5};
  VirtualTime resend  = std::chrono::milliseconds{10};
  int tries           = 8;

  /// Returns faults of every kind, each at the rate `chance`.
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
    CHORALE_EXPECTS(sum <= 1.0001F, "the rates of all faults add up to " + number_text(sum));
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

  /// True if a message that was dropped is dropped again at try `tried`.
  bool drops_again(Rank rank, std::uint64_t message, int tried) const {
    return draw(rank, message, static_cast<std::uint64_t>(tried)) < rates[0];
  }

  /// Random part of `whole` for this message: its delay, for example.
  VirtualTime part_of(VirtualTime whole, Rank rank, std::uint64_t message) const {
    return VirtualTime{
        static_cast<std::int64_t>(static_cast<double>(whole.count()) * static_cast<double>(draw(rank, message, 62)))};
  }

  /// Index of the bit to flip, in [0, bits).
  std::size_t bit_of(Rank rank, std::uint64_t message, std::size_t bits) const {
    return random(rank).bits(64 * message + 63) % bits;
  }

  /// Side of the partition that a rank is on, 0 or 1: sender and receiver of the message are on different sides.
  bool part_of_rank(Rank of_rank, SimulatedEvent const& event) const {
    if (of_rank == event.rank || of_rank == event.peer) return of_rank == event.peer;
    return (Random{seed, 1'000'000 + event.message}.bits(static_cast<std::uint64_t>(of_rank)) & 1) != 0;
  }

 private:
  Random random(Rank rank) const { return {seed, static_cast<std::uint64_t>(rank)}; }

  /// Random number in [0, 1): number `which` of this message, at most 62.
  float draw(Rank rank, std::uint64_t message, std::uint64_t which) const {
    return random(rank).uniform(64 * message + which);
  }
};

/// What the receiving end of a simulated connection does with a message that arrives.
enum class Judgement : std::uint8_t { deliver, discard, hold, refuse };

/// A message that arrives, and the number that the receiver expects next.
///
/// sequence   of the messages from one rank to another with one tag: 0, 1, ..
struct Arrival {
  std::uint64_t sequence, expected;
  bool intact;  // its checksum is right
};

/// Delivers every message once, in the order sent and intact, as an endpoint promises.
constexpr Judgement in_order_once(Arrival const& message) {
  if (!message.intact) return Judgement::refuse;
  if (message.sequence < message.expected) return Judgement::discard;
  return message.sequence > message.expected ? Judgement::hold : Judgement::deliver;
}

/// What messages of a simulation carry. With `sizes`, nothing is copied, and memory that is sent is never read.
enum class SimulatedPayload : std::uint8_t { bytes, sizes };

/// Chooses which of n messages arrives next: a number below n. See every_order().
using SimulatedChoice = std::function<std::size_t(std::size_t)>;

class SimulatedEndpoint;

/// Thousands of virtual ranks in one thread: real data, a virtual clock, faults from a seed.
///
///   auto const run = simulate(4096, [&](auto& at) { RingAllReduce{}.all_reduce(at, x[at.rank()], Op::sum); });
///   run.check().time                                                     // virtual
///
/// Each rank is a fibre; a wait on its endpoint lets other ranks run, so algorithms need no change. A loop that waits
/// for anything else, such as memory that another rank writes, never ends.
///
/// model         cost of messages and computing
/// faults        injected faults
/// failures      peer: a loss affects only messages with that rank; a rank that throws is lost, one that returns is not
/// timeout       the longest wait for one message, in virtual time. When all ranks wait and nothing is under way, the
///               waits end at once: the PeerLost, and SimulatedRun::deadlock, list the waits
/// payload       sizes: messages carry no bytes; for worlds whose data would not fit
/// compute       virtual time that a rank's processor needs for a step, spent in begin_step()
/// stack_bytes   of each rank; pages are taken when they are touched
/// judge         the receiver's rule, so that a test can break it
/// choose        which message arrives next, instead of the clock; see every_order()
/// order         the same options and bodies give the same SimulatedRun, bit by bit
struct SimulatedTransport {
  using endpoint = SimulatedEndpoint;

  NetworkModel model{};
  SimulatedFaults faults{};
  FailureScope failures            = FailureScope::group;
  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  SimulatedPayload payload         = SimulatedPayload::bytes;
  std::chrono::nanoseconds compute{0};
  std::size_t stack_bytes            = std::size_t{128} << 10;
  Judgement (*judge)(Arrival const&) = in_order_once;
  SimulatedChoice choose{};

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  std::vector<SimulatedEndpoint> connect(Group const& group) const;
};

}  // namespace chorale
