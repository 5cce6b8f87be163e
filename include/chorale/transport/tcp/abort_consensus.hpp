// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/wire/control_messages.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Consensus of all ranks on one root cause, among the losses that some of them detected.
///
/// A rank that detects a fault sends its Loss to all ranks; a rank that first receives one forwards it to all. So each
/// rank has one Loss from every live rank, and takes the least by (step, operation, sender).
///
/// keeps   the first Loss from each rank counts
class AbortConsensus {
 public:
  AbortConsensus(Rank me, int size)
      : me_{me}, said_(static_cast<std::size_t>(size)), silent_(static_cast<std::size_t>(size)) {}

  bool begun() const { return begun_; }

  /// Returns the loss as an abort frame delivers it, so that long texts are cut alike on all ranks.
  static Loss as_sent(Loss loss) {
    auto bytes      = std::array<std::byte, wire::AbortPayload::max_bytes>{};
    auto const size = wire::AbortPayload{std::move(loss)}.write(bytes);
    return wire::AbortPayload::parse(ConstBytes{bytes}.first(size))->loss;
  }

  void hear(Rank from, Loss loss) {
    auto& said = said_[static_cast<std::size_t>(from)];
    if (said) return;
    begun_ = true;
    if (loss.rank != from && loss.rank >= 0 && loss.fault == Fault::peer_stalled) expect_nothing_of(loss.rank);
    said = std::move(loss);
  }

  void expect_nothing_of(Rank rank) {
    if (static_cast<std::size_t>(rank) < silent_.size()) silent_[static_cast<std::size_t>(rank)] = true;
  }

  bool has(Rank rank) const { return said_[static_cast<std::size_t>(rank)].has_value(); }
  Loss const& of(Rank rank) const { return *said_[static_cast<std::size_t>(rank)]; }

  /// True if every live rank has sent a Loss.
  bool complete() const {
    for (std::size_t rank = 0; rank < said_.size(); ++rank)
      if (!said_[rank] && !silent_[rank]) return false;
    return begun_;
  }

  /// The root cause: the least of the losses. Only if begun().
  Loss const& least() const {
    auto const key = [&](std::size_t rank) { return std::tuple{said_[rank]->step, said_[rank]->sequence, rank}; };
    auto found     = static_cast<std::size_t>(me_);
    for (std::size_t rank = 0; rank < said_.size(); ++rank)
      if (said_[rank] && (!said_[found] || key(rank) < key(found))) found = rank;
    return *said_[found];
  }

 private:
  Rank me_;
  bool begun_ = false;
  std::vector<std::optional<Loss>> said_;  // [rank]
  std::vector<bool> silent_;               // [rank]: dead, or has ended
};

}  // namespace chorale::tcp
