// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/announcements.hpp>
#include <chorale/transport/frame.hpp>
#include <chorale/transport/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

/// How two ranks find that they are not in the same operation, and what is said of it.
namespace chorale::detail {

/// Why a connection between two ranks is of no use any more; a part of a sentence.
struct LinkFault {
  Fault fault;
  std::string reason;
};

/// Whose bytes come out of a connection, and whose they should be.
struct Ends {
  Rank me                   = 0;
  Rank peer                 = 0;
  std::uint32_t incarnation = 0;                                           // of the peer, from its handshake
  std::uint8_t minor        = wire::version.minor;                         // of the wire: what both speak
};

/// A message that a rank waits for.
struct Wanted {
  Tag tag{};
  Announced announced{};
  Bytes left{};                                                            // memory that is not yet filled
  std::size_t size    = 0;                                                 // of all of it
  std::uint64_t order = 0;                                                 // of all that were waited for
  std::uint64_t turn  = 0;                                                 // of this place
};

/// throws  LinkFault that says what the peer is in and what this rank is in
///
/// ours    not the operation of `head`; sequence 0 for none
[[noreturn]] inline void throw_mismatch(Ends ends, wire::Header const& head, Announced const& ours) {
  auto const theirs = Operation{head.collective, head.op, head.element, head.count, head.tag, {}};
  auto without_line  = ours.operation;
  without_line.where = {};
  auto const place   = [](std::uint64_t sequence) { return "operation " + std::to_string(sequence) + " of rank "; };
  throw LinkFault{Fault::collective_mismatch,
                  place(head.sequence) + std::to_string(ends.peer) + " is " + theirs.text() +
                      (theirs.text() == without_line.text() ? ", at another line" : "") +
                      ", and " + place(ours.sequence) + std::to_string(ends.me) + " is " + ours.operation.text()};
}

/// throws  LinkFault unless the message is the one that is wanted
///
/// size    bytes of the message, as far as they are known; with `more`, more are to come
inline void expect_same(Ends ends, Wanted const& wanted, wire::Header const& head, std::size_t size, bool more) {
  auto const& expected = wanted.announced;
  if (expected.sequence != head.sequence || expected.fingerprint != head.fingerprint)
    throw_mismatch(ends, head, expected);
  auto const counted = head.sequence == 0 && head.count != wanted.size;    // then the count is that of its bytes
  if (counted || (more ? size >= wanted.size : size != wanted.size))
    throw LinkFault{Fault::collective_mismatch,
                    "rank " + std::to_string(ends.peer) + " sent " + (more && !counted ? "more than " : "") +
                        std::to_string(counted ? head.count : size) + " bytes where rank " + std::to_string(ends.me) +
                        " expected " + std::to_string(wanted.size) + " bytes, tag " +
                        std::to_string(static_cast<std::uint32_t>(wanted.tag))};
}

/// A loss as the error that it is.
///
/// me    the rank that throws
[[noreturn]] inline void throw_loss(Rank me, Loss const& loss) {
  switch (loss.fault) {
    case Fault::collective_mismatch:
      throw Disagreement{loss.fault, "in step " + std::to_string(loss.step) + ", operation " +
                                         std::to_string(loss.sequence) + ": " + loss.reason + ".",
                         "the same calls, with the same sizes and in the same order, on every rank."};
    case Fault::model_mismatch:
    case Fault::world_mismatch:
    case Fault::version_mismatch:
    case Fault::duplicate_rank:
    case Fault::not_authentic: throw Disagreement{loss.fault, loss.reason + "."};
    case Fault::evicted:
      throw PeerLost{me, loss, "a restart: the others went on, or ended, without this rank."};
    case Fault::join_timeout:
      throw PeerLost{me, loss, "start what is missing, a longer Limits::join, or, where both run, a way between the two: "
                               "ranks call each other."};
    case Fault::peer_stalled:
      throw PeerLost{me, loss, "is it stopped, swapping or in a debugger? A slower step needs higher Limits."};
    default: throw PeerLost{me, loss};
  }
}

}  // namespace chorale::detail
