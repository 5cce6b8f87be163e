// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/common/closing_message.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/tcp/failure_detector.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// The operations in which other ranks wait, and after which they say goodbye, compared with those of this rank. So
/// also ranks find that they differ which wait for different messages, or for none.
///
///   position   from a rank that has waited from one look to the next, to the one that it waits for: in which operation
///   goodbye    from a rank that ends, to all: its last operations, and the history of all
///
/// keeps   on one thread, the watching one. Of ranks that go on, two are compared when one waits for the other: what
///         others do need not concern them
class PositionCheck {
 public:
  struct Host {
    std::function<void(Rank, detail::ConnectionFault const&)> differs;     // that rank is in another operation
    std::function<void(Rank, detail::LoggedOperation const&)> tell;        // a position of this rank
  };

  PositionCheck(ThreadSharedState& standing, Rank me, int size, Host host)
      : standing_{standing}, me_{me}, host_{std::move(host)}, peers_(static_cast<std::size_t>(size)) {}

  /// One look at this rank: when nothing has moved since the last one, the awaited rank is told where it waits, once.
  void look(RankProgress const& now) {
    auto const awaited   = standing_.waits_for.load(std::memory_order_relaxed);
    auto const operation = standing_.waits_in.load(std::memory_order_relaxed);
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

  /// A rank that has ended was in another operation than this one, in one of its last.
  std::optional<detail::ConnectionFault> left_in_another(Rank rank) const {
    auto const& said = peers_[static_cast<std::size_t>(rank)].farewell;
    return standing_.with_announced([&](detail::OperationLog const& ours) {
      return said ? said->first_difference({me_, rank}, ours) : std::nullopt;
    });
  }

  /// This rank ends, and waits for all others to do so. Then ThreadSharedState is closed, or one of them differs.
  void end() {
    ends_ = true;
    compare_ends();
  }

  /// What this rank says when it ends.
  detail::ClosingMessage farewell() const { return standing_.with_announced(detail::ClosingMessage::after); }

 private:
  struct Peer {
    wire::Header position{};                                               // where it waits; sequence 0: not known
    std::optional<detail::ClosingMessage> farewell{};                      // of a rank that has ended
    std::uint64_t told = 0;                                                // the last position that it was told
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }

  template <class F>
  void each_other(F f) {
    for (Rank rank = 0; rank < static_cast<Rank>(peers_.size()); ++rank)
      if (rank != me_) f(rank, peer(rank));
  }

  detail::LoggedOperation announced_at(std::uint64_t number) const {
    return standing_.with_announced([&](detail::OperationLog const& announced) { return announced.at(number); });
  }

  /// A position in an operation that this rank has not announced yet is kept until then.
  void compare_positions() {
    auto const announced = standing_.sequence.load(std::memory_order_relaxed);
    each_other([&](Rank rank, Peer& p) {
      if (p.position.sequence == 0 || p.position.sequence > announced) return;
      auto const theirs = std::exchange(p.position, {});
      auto const ours   = announced_at(theirs.sequence);
      if (ours.sequence != 0 && ours.fingerprint != theirs.fingerprint)
        host_.differs(rank, mismatch({me_, rank}, theirs, ours));
    });
  }

  void compare_ends() {
    if (!ends_) return;
    auto all = true;
    each_other([&](Rank rank, Peer const& p) {
      auto const fault = standing_.with_announced([&](detail::OperationLog const& ours) {
        return p.farewell ? p.farewell->difference({me_, rank}, ours) : std::nullopt;
      });
      if (fault) host_.differs(rank, *fault);
      all = all && p.farewell && !fault;
    });
    if (all) standing_.close();
  }

  ThreadSharedState& standing_;
  Rank me_;
  Host host_;
  std::vector<Peer> peers_;                                                // [rank]
  RankProgress before_;                                                    // at the last look
  bool ends_ = false;
};

}  // namespace chorale::tcp
