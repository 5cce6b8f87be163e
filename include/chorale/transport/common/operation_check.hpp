// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/common/told_error.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

/// Checks that two ranks are in the same operation, and the error texts if they are not.
namespace chorale::detail {

/// Why a connection between two ranks has failed; `reason` is a part of a sentence.
struct ConnectionFault {
  Fault fault;
  std::string reason;
};

/// The two ends of a connection.
struct Ends {
  Rank me                   = 0;
  Rank peer                 = 0;
  std::uint32_t incarnation = 0;                    // of the peer, from its handshake
  std::uint8_t minor        = wire::version.minor;  // of the wire version that both use
};

/// A posted receive.
struct PostedReceive {
  Tag tag{};
  LoggedOperation announced{};
  Bytes left{};             // memory that is not yet filled
  std::size_t size    = 0;  // of the whole message
  std::uint64_t order = 0;  // among all posted receives
  std::uint64_t turn  = 0;  // of this place
};

/// Writes an operation into the header of a frame.
inline void describe(wire::Header& head, LoggedOperation const& what) {
  head.sequence    = what.sequence;
  head.fingerprint = what.fingerprint;
  head.collective  = what.operation.collective;
  head.op          = what.operation.op;
  head.element     = what.operation.element;
  head.tag         = what.operation.tag;
  head.count       = what.operation.count;
  head.root        = std::min(what.operation.root, wire::last_root);
}

/// Returns the operation in a header as text, without its line.
inline std::string text_of(wire::Header const& head) {
  auto text         = Operation{head.collective, head.op, head.element, head.count, head.tag, {}, head.root}.text();
  auto const number = " rank " + std::to_string(wire::last_root);
  if (head.root == wire::last_root) text.insert(text.find(number) + number.size(), " or above");
  return text;
}

/// Returns a fault that describes two operations which should be the same.
///
/// head   header of the peer's message, with its operation
/// ours   this rank's operation; sequence 0 for none
inline ConnectionFault mismatch(Ends ends, wire::Header const& head, LoggedOperation const& ours) {
  constexpr auto with_counts = [](Operation const& o) {
    return o.arguments != 0 || o.collective == Collective::all_gather || o.collective == Collective::reduce_scatter ||
           o.collective == Collective::all_to_all;
  };
  auto const named = [](LoggedOperation const& what, Rank rank, std::string const& text) {
    auto const who = "rank " + std::to_string(rank);
    return what.sequence == 0 ? who + " is in no announced operation"
                              : "operation " + std::to_string(OperationNumber::place(what.sequence)) + " of " + who +
                                    what.text_of_group() + " is " + text;
  };
  auto theirs     = LoggedOperation{.sequence = head.sequence};
  auto const same = OperationNumber::group(head.sequence) == OperationNumber::group(ours.sequence);
  if (same) theirs.ranks = ours.ranks;
  auto alike = wire::Header{};
  describe(alike, ours);
  auto const same_text = head.sequence != 0 && text_of(alike) == text_of(head);
  auto const one_bound = (head.sequence == 0) != (ours.sequence == 0);
  return {Fault::collective_mismatch,
          named(theirs, ends.peer, text_of(head)) +
              (same_text ? with_counts(ours.operation) ? ", at another line or with other counts" : ", at another line"
                         : "") +
              ", and " + named(ours, ends.me, ours.operation.text()) +
              (one_bound
                   ? ", or more than " + std::to_string(OperationLog::remembered) + " operations are under way at once"
                   : "")};
}

/// Throws a ConnectionFault that describes the operations of the peer and of this rank. See mismatch().
[[noreturn]] inline void throw_mismatch(Ends ends, wire::Header const& head, LoggedOperation const& ours) {
  throw mismatch(ends, head, ours);
}

/// Throws a ConnectionFault unless the message is the one that the receive was posted for.
///
/// size    bytes of the message, as far as they are known; with `more`, more are to come
inline void expect_same(Ends ends, PostedReceive const& wanted, wire::Header const& head, std::size_t size, bool more) {
  auto const& expected = wanted.announced;
  if (expected.sequence != head.sequence || expected.fingerprint != head.fingerprint)
    throw_mismatch(ends, head, expected);
  auto const counted = head.sequence == 0 && head.count != wanted.size;  // then the count is in bytes
  if (counted || (more ? size >= wanted.size : size != wanted.size))
    throw ConnectionFault{Fault::collective_mismatch,
                          "rank " + std::to_string(ends.peer) + " sent " + (more && !counted ? "more than " : "") +
                              std::to_string(counted ? head.count : size) + " bytes where rank " +
                              std::to_string(ends.me) + " expected " + std::to_string(wanted.size) + " bytes, tag " +
                              std::to_string(static_cast<std::uint32_t>(wanted.tag))};
}

/// Throws the Disagreement, the PeerLost, or the error of another rank that a loss stands for.
///
/// me    the rank that throws
[[noreturn]] inline void throw_peer_loss(Rank me, Loss const& loss) {
  throw_if_told(loss);
  switch (loss.fault) {
    case Fault::collective_mismatch:
      throw Told<Disagreement>{loss.fault,
                               "in step " + std::to_string(loss.step) + ", operation " + std::to_string(loss.sequence) +
                                   ": " + loss.reason + ".",
                               "the same calls, with the same sizes and in the same order, on every rank."};
    case Fault::model_mismatch:
    case Fault::world_mismatch:
    case Fault::version_mismatch:
    case Fault::duplicate_rank:
    case Fault::not_authentic: throw Told<Disagreement>{loss.fault, loss.reason + "."};
    case Fault::evicted: throw PeerLost{me, loss, "a restart: the others went on, or ended, without this rank."};
    case Fault::join_timeout:
      throw PeerLost{me, loss,
                     "start what is missing, a longer Timeouts::join, or, where both run, a way between the two: "
                     "ranks call each other."};
    case Fault::peer_stalled:
      throw PeerLost{me, loss, "is it stopped, swapping or in a debugger? A slower step needs higher Timeouts."};
    default: throw PeerLost{me, loss};
  }
}

}  // namespace chorale::detail
