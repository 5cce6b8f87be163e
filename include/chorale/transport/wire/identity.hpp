// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace chorale::wire {

/// Incarnation of an initiator that does not join, but only asks whether the other end fits. An end that fits refuses
/// it with Fault::join_timeout, like every later incarnation; an end that does not fit, with another fault.
inline constexpr std::uint32_t only_asks = 0xFFFF'FFFF;

/// Identity that one side of a connection claims.
struct Identity {
  std::array<std::byte, 16> job{};  // the same on all ranks of a job
  Rank rank                 = 0;
  int world                 = 1;          // ranks in the job
  std::uint8_t role         = 0;          // free for the caller
  std::uint32_t incarnation = 0;          // changes when a rank is started again
  std::uint8_t channel      = 0;          // of the pair: 0, 2 control, 1, 3 data
  std::array<std::byte, 32> plan_hash{};  // of the model and how it is distributed
  Version wire_version = version;         // sent in the prefix of every message

  friend constexpr bool operator==(Identity const&, Identity const&) = default;
};

/// Why two sides cannot work together; the reason is a part of a sentence with both values.
struct Refusal {
  Fault fault;
  std::string reason;
};

namespace detail {

inline constexpr std::size_t identity_bytes = 68;

/// to      the rank that the identity is sent to
inline void write(Writer& out, Identity const& identity, Rank to) {
  out.bytes(identity.job);
  out.number(identity.rank);
  out.number(to);
  out.number(identity.world);
  out.number(identity.incarnation);
  out.number(identity.role);
  out.number(identity.channel);
  out.number(std::uint16_t{0});
  out.bytes(identity.plan_hash);
}

struct Addressed {
  Identity identity;
  Rank to;
  bool whole;  // complete, and reserved bytes are 0
};

inline Addressed read_identity(Reader& from, Version wire_version) {
  auto result = Addressed{};
  from.bytes(result.identity.job);
  result.identity.rank        = from.number<std::int32_t>();
  result.to                   = from.number<std::int32_t>();
  result.identity.world       = from.number<std::int32_t>();
  result.identity.incarnation = from.number<std::uint32_t>();
  result.identity.role        = from.number<std::uint8_t>();
  result.identity.channel     = from.number<std::uint8_t>();
  auto const reserved         = from.number<std::uint16_t>();
  from.bytes(result.identity.plan_hash);
  result.identity.wire_version = wire_version;
  result.whole                 = from.whole() && reserved == 0;
  return result;
}

inline std::string hexadecimal(ConstBytes bytes) {
  auto s = std::string{};
  for (auto const byte : bytes)
    for (auto const digit : {byte >> 4, byte & std::byte{15}})
      s += "0123456789abcdef"[std::to_integer<unsigned>(digit)];
  return s;
}

/// Returns a job's 16 bytes as text: its name if they are one, padded with zeros; else hexadecimal.
inline std::string job_text(std::array<std::byte, 16> const& job) {
  auto const end  = std::ranges::find(job, std::byte{0});
  auto const seen = [](std::byte b) { return b > std::byte{' '} && b <= std::byte{'~'}; };
  auto const text = std::all_of(job.begin(), end, seen);
  auto const rest = std::all_of(end, job.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!text || !rest || end == job.begin()) return hexadecimal(job);
  return Reader{job}.text(static_cast<std::size_t>(end - job.begin()));
}

inline std::string rank_text(Rank rank) { return "rank " + std::to_string(rank); }

}  // namespace detail

/// Returns why two sides cannot work together, the most basic reason first; empty if they fit.
///
/// to      the rank that the sender of `theirs` wants to reach
inline std::optional<Refusal> misfit(Identity const& theirs, Rank to, Identity const& mine) {
  auto const them = detail::rank_text(theirs.rank), me = detail::rank_text(mine.rank);
  if (theirs.job != mine.job)
    return Refusal{Fault::world_mismatch, them + " is of job " + detail::job_text(theirs.job) + ", and " + me +
                                              " of job " + detail::job_text(mine.job)};
  if (theirs.world != mine.world)
    return Refusal{Fault::world_mismatch, them + " has a world of " + std::to_string(theirs.world) + ", and " + me +
                                              " one of " + std::to_string(mine.world)};
  if (theirs.rank < 0 || theirs.rank >= mine.world)
    return Refusal{Fault::world_mismatch, "there is no " + them + " in a world of " + std::to_string(mine.world)};
  if (theirs.rank == mine.rank) return Refusal{Fault::duplicate_rank, "two processes claim to be " + me};
  if (to != mine.rank)
    return Refusal{Fault::world_mismatch, them + " wants " + detail::rank_text(to) + " where " + me + " is"};
  if (theirs.plan_hash != mine.plan_hash)
    return Refusal{Fault::model_mismatch, them + " has plan " +
                                              detail::hexadecimal(ConstBytes{theirs.plan_hash}.first(8)) + ", and " +
                                              me + " plan " + detail::hexadecimal(ConstBytes{mine.plan_hash}.first(8))};
  return std::nullopt;
}

}  // namespace chorale::wire
