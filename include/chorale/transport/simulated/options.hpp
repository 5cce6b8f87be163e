// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/network_model.hpp>
#include <chorale/transport/simulated/fault_plan.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace chorale {

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
  FailureScope failures                = FailureScope::group;
  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  SimulatedPayload payload         = SimulatedPayload::bytes;
  std::chrono::nanoseconds compute{0};
  std::size_t stack_bytes          = std::size_t{128} << 10;
  Judgement (*judge)(Arrival const&) = in_order_once;
  SimulatedChoice choose{};

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  std::vector<SimulatedEndpoint> connect(Group const& group) const;
};

}  // namespace chorale
