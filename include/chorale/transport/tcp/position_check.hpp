// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/tcp/failure_detector.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// The last operations of a rank, which it sends when it ends: the payload of a goodbye frame. See docs/55-wire.md.
///
/// sequence   of the last operation; 0 for none
/// history    LoggedOperation::history of the last operation
/// last       the last operation of each sub-group, at most 16; then the last ones of all ranks, at most 16, in their
///            order
struct ClosingMessage {
  static constexpr std::uint64_t most = 16;

  std::uint64_t sequence = 0;
  std::uint32_t history  = 0;
  std::vector<wire::Header> last{};

  static ClosingMessage after(OperationLog const& announced) {
    auto const end = announced.last();
    auto said      = ClosingMessage{end, announced.at(end).history, {}};
    for (auto const& one : announced.last_of_groups())
      if (said.last.size() < most) describe(said.last.emplace_back(), one);
    for (auto i = end - std::min(end, most) + 1; i <= end; ++i) describe(said.last.emplace_back(), announced.at(i));
    return said;
  }

  std::vector<std::byte> write() const {
    auto bytes = std::vector<std::byte>(fixed_bytes + last.size() * wire::header_bytes);
    auto to    = wire::Writer{bytes};
    to.number(sequence);
    to.number(history);
    for (auto const& operation : last) {
      auto head = wire::HeaderBytes{};
      wire::write(operation, head);
      to.bytes(head);
    }
    return bytes;
  }

  /// Parses any bytes; empty unless they are exactly one such message.
  static std::optional<ClosingMessage> parse(ConstBytes in) {
    if (in.size() < fixed_bytes || (in.size() - fixed_bytes) % wire::header_bytes != 0) return std::nullopt;
    auto from     = wire::Reader{in};
    auto said     = ClosingMessage{};
    said.sequence = from.number<std::uint64_t>();
    said.history  = from.number<std::uint32_t>();
    for (auto rest = in.subspan(fixed_bytes); !rest.empty(); rest = rest.subspan(wire::header_bytes)) {
      auto const parsed = wire::parse(rest, 0);
      if (parsed.result != wire::Parse::ok || said.last.size() == 2 * most) return std::nullopt;
      said.last.push_back(parsed.header);
    }
    return said;
  }

  /// Returns the first of the last operations that differs from this rank's operation with the same number.
  std::optional<ConnectionFault> first_difference(Ends ends, OperationLog const& announced) const {
    for (auto const& theirs : last) {
      auto const& ours = announced.at(theirs.sequence);
      if (ours.sequence != 0 && ours.fingerprint != theirs.fingerprint) return mismatch(ends, theirs, ours);
    }
    return std::nullopt;
  }

  /// Returns how the peer's operations differ from this rank's when both end; empty if they are the same.
  std::optional<ConnectionFault> difference(Ends ends, OperationLog const& announced) const {
    if (auto found = first_difference(ends, announced)) return found;
    auto const after = [](Rank rank, std::uint64_t number, std::string const& text) {
      return "rank " + std::to_string(rank) + " ended after operation " +
             std::to_string(OperationNumber::place(number)) + (number == 0 ? "" : ", " + text);
    };
    for (auto const& theirs : last) {
      auto const& ours = announced.last_of(OperationNumber::group(theirs.sequence));
      if (OperationNumber::group(theirs.sequence) == 0 || ours.sequence == 0 || ours.sequence == theirs.sequence)
        continue;
      return ConnectionFault{Fault::collective_mismatch, after(ends.peer, theirs.sequence, text_of(theirs)) +
                                                             ours.text_of_group() + ", and " +
                                                             after(ends.me, ours.sequence, ours.operation.text())};
    }
    auto const& ours = announced.at(announced.last());
    if (sequence == ours.sequence && history == ours.history) return std::nullopt;
    return ConnectionFault{Fault::collective_mismatch,
                           after(ends.peer, sequence, sequence == 0 || last.empty() ? "" : text_of(last.back())) +
                               ", and " + after(ends.me, ours.sequence, ours.operation.text()) +
                               (sequence == ours.sequence ? "; earlier ones were not the same" : "")};
  }

 private:
  static constexpr std::size_t fixed_bytes = 12;
};

}  // namespace chorale::detail

namespace chorale::tcp {

/// Compares the operations in which other ranks wait, and after which they end, with this rank's operations. So ranks
/// detect a mismatch even if they wait for different messages, or for none.
///
///   position   from a rank that has waited from one check to the next, to the awaited rank: the operation it waits in
///   goodbye    from a rank that ends, to all: its last operations, and the history of all operations
///
/// keeps   runs on the control thread. Ranks that have not ended are compared only if one waits for the other: the
///         operations of other ranks need not concern them
class PositionCheck {
 public:
  struct Host {
    std::function<void(Rank, detail::ConnectionFault const&)> differs;  // that rank is in another operation
    std::function<void(Rank, detail::LoggedOperation const&)> tell;     // sends a position of this rank
  };

  PositionCheck(ThreadSharedState& shared, Rank me, int size, Host host)
      : shared_{shared}, me_{me}, host_{std::move(host)}, peers_(static_cast<std::size_t>(size)) {}

  /// Checks this rank: if it waits and nothing has moved since the last check, sends its position to the awaited rank.
  void look(RankProgress const& now) {
    auto const awaited   = shared_.waits_for.load(std::memory_order_relaxed);
    auto const operation = shared_.waits_in.load(std::memory_order_relaxed);
    auto const stands    = now.waits && now.same_place(before_);
    before_              = now;
    if (stands && awaited >= 0 && awaited != me_ && operation != 0 &&
        std::exchange(peer(awaited).told, operation) != operation)
      host_.tell(awaited, announced_at(operation));
    compare_positions();
  }

  void hear(Rank rank, wire::Header const& head) {
    peer(rank).position = head;
    compare_positions();
  }

  void hear_goodbye(Rank rank, ConstBytes payload) {
    peer(rank).farewell = detail::ClosingMessage::parse(payload);
    compare_ends();
  }

  /// Returns the first of an ended rank's last operations that differs from this rank's; empty if none does.
  std::optional<detail::ConnectionFault> left_in_another(Rank rank) const {
    auto const& said = peers_[static_cast<std::size_t>(rank)].farewell;
    return shared_.with_announced([&](detail::OperationLog const& ours) {
      return said ? said->first_difference({me_, rank}, ours) : std::nullopt;
    });
  }

  /// Ends this rank. Once all others have ended, too, ThreadSharedState is closed, or a difference is reported.
  void end() {
    ends_ = true;
    compare_ends();
  }

  /// Returns the closing message of this rank.
  detail::ClosingMessage farewell() const { return shared_.with_announced(detail::ClosingMessage::after); }

 private:
  struct Peer {
    wire::Header position{};                           // where it waits; sequence 0: not known
    std::optional<detail::ClosingMessage> farewell{};  // of a rank that has ended
    std::uint64_t told = 0;                            // the last position that was sent to it
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }

  template <class F> void each_other(F f) {
    for (Rank rank = 0; rank < static_cast<Rank>(peers_.size()); ++rank)
      if (rank != me_) f(rank, peer(rank));
  }

  detail::LoggedOperation announced_at(std::uint64_t number) const {
    return shared_.with_announced([&](detail::OperationLog const& announced) { return announced.at(number); });
  }

  /// Compares the positions received; one in an operation that this rank has yet to announce is kept until then.
  void compare_positions() {
    each_other([&](Rank rank, Peer& p) {
      auto const number = p.position.sequence;
      if (number == 0 || shared_.with_announced([&](auto const& announced) { return announced.is_ahead(number); }))
        return;
      auto const theirs = std::exchange(p.position, {});
      auto const ours   = announced_at(number);
      if (ours.sequence != 0 && ours.fingerprint != theirs.fingerprint)
        host_.differs(rank, mismatch({me_, rank}, theirs, ours));
    });
  }

  void compare_ends() {
    if (!ends_) return;
    auto all = true;
    each_other([&](Rank rank, Peer const& p) {
      auto const fault = shared_.with_announced([&](detail::OperationLog const& ours) {
        return p.farewell ? p.farewell->difference({me_, rank}, ours) : std::nullopt;
      });
      if (fault) host_.differs(rank, *fault);
      all = all && p.farewell && !fault;
    });
    if (all) shared_.close();
  }

  ThreadSharedState& shared_;
  Rank me_;
  Host host_;
  std::vector<Peer> peers_;  // [rank]
  RankProgress before_;      // at the last check
  bool ends_ = false;
};

}  // namespace chorale::tcp
