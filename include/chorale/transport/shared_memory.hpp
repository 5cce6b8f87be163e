// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/shared_memory/endpoint.hpp>
#include <chorale/transport/shared_memory/progress_engine.hpp>
#include <chorale/transport/shared_memory/rendezvous.hpp>
#include <chorale/transport/shared_memory/segment_file.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace chorale {

/// Connects ranks on one host, in many processes or as threads of one, through shared memory.
///
///   auto at = SharedMemoryTransport{.name = "mnist", .arena = 64 << 20}.connect(Group{4, {rank}});
///
/// name          of the job, the same on all ranks; empty: the group's, or none when all ranks live in this process
/// timeouts      how long ranks wait for one another
/// arena         bytes of shared memory for each rank: see SharedMemoryEndpoint::memory(). Only these can be exposed
/// ring          bytes in flight from one rank to another before the sender waits; 0 for 1 MiB, less from 9 ranks on
/// plan          the model, described in lines: ranks that differ report the first line that differs
/// incarnation   how often the job was started before: ranks of another incarnation are refused
/// failures      the same on all ranks. With FailureScope::peer, no memory can be exposed
/// while_joining called all the time while ranks are missing, if there is one; what it throws ends connect()
///
/// keeps   at most 256 ranks. One file in /dev/shm, of mode 0600, from the first rank's connect() to the last one's;
///         then it is unlinked, and freed with the last process, however that ends. The file of a job whose processes
///         have all ended is replaced
/// cost    P ranks share P (P ring + arena) bytes, and each process has a thread that wakes four times per heartbeat;
///         no thread if all ranks live in one process
struct SharedMemoryTransport {
  using endpoint = SharedMemoryEndpoint;

  std::string name                    = {};
  Timeouts timeouts                   = {};
  std::size_t arena                   = 0;
  std::size_t ring                    = 0;
  std::string plan                    = {};
  std::uint32_t incarnation           = 0;
  FailureScope failures               = FailureScope::group;
  std::function<void()> while_joining = {};

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  /// Returns an endpoint for each local rank when all ranks of the job have joined.
  ///
  /// throws  BadArgument when name, ring or group cannot be used; Disagreement when this process belongs to another job
  ///         than those before it, or its rank is taken; PeerLost with Fault::join_timeout, which lists the ranks that
  ///         did not come; OutOfMemory when the host has too little
  std::vector<endpoint> connect(Group const& group) const {
    auto const whole = completed_by(group);
    whole.check(group);
    auto const job = shared_memory::JobDescription{
        whole.name, whole.plan, whole.incarnation, arena, ring_for(group.size()), timeouts, failures, while_joining};
    auto const joined = std::make_shared<shared_memory::LocalRanks>(shared_memory::Rendezvous{job, group}.join());
    auto endpoints    = std::vector<endpoint>{};
    for (auto const& rank : joined->ranks) endpoints.emplace_back(joined, *rank);
    return endpoints;
  }

 private:
  SharedMemoryTransport completed_by(Group const& group) const {
    auto whole          = *this;
    auto const& meeting = group.meeting();
    if (name.empty() && !group.is_all_local())  // two jobs of a host differ in addresses
      whole.name = meeting.job + (meeting.addresses.empty() ? "" : "-" + meeting.addresses.front());
    if (incarnation == 0) whole.incarnation = meeting.incarnation;
    for (auto const& line : meeting.lines) whole.plan.append(whole.plan.empty() ? "" : "\n") += line;
    return whole;
  }

  static constexpr std::size_t grain = 8'192, smallest = 65'536, largest = 1'048'576;  // of a ring, in bytes

  std::size_t ring_for(int world) const {
    if (ring != 0) return ring;
    return std::clamp(8 * largest / static_cast<std::size_t>(world), smallest, largest) / grain * grain;
  }

  void check(Group const& group) const {
    CHORALE_EXPECTS(!group.local().empty(), "SharedMemoryTransport needs a rank that lives in this process");
    CHORALE_EXPECTS(group.size() <= shared_memory::max_segment_ranks,
                    "SharedMemoryTransport takes at most " + std::to_string(shared_memory::max_segment_ranks) +
                        " ranks, got " + std::to_string(group.size()));
    CHORALE_EXPECTS(!name.empty() || group.is_all_local(),
                    "ranks of many processes find each other by "
                    "SharedMemoryTransport::name, which is empty");
    CHORALE_EXPECTS(name.size() <= 200 && name.find('/') == name.npos && name.find('\0') == name.npos,
                    "a job's name is a part of a file's name, but \"" + name + "\" is not");
    CHORALE_EXPECTS(ring % grain == 0, "SharedMemoryTransport::ring is a multiple of " + std::to_string(grain) +
                                           " bytes, got " + std::to_string(ring));
  }
};

static_assert(Transport<SharedMemoryTransport>);

}  // namespace chorale
