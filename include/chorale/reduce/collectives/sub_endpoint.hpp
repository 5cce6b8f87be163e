// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// An endpoint for a group of some ranks of another endpoint, numbered in the order given.
///
///   of 4 ranks: SubEndpoint{at, {3, 1}} on ranks 1 and 3; rank 3 is 0 in it, and rank 1 is 1
///
/// keeps   the endpoint outlives it. Operations of two groups that share a pair of ranks need different tags. If the
///         transport knows sub-groups, only the ranks of the group announce and compare its operations, and these have
///         their own numbers, which all objects of one group share
template <Endpoint E> class SubEndpoint {
 public:
  using pending = typename E::pending;

  /// ranks   the same list on all its ranks, including this one
  /// throws  BadArgument when a rank is not in the endpoint's group, is listed twice, or this rank is missing
  SubEndpoint(E& at, std::vector<Rank> ranks) : at_{&at}, ranks_{std::move(ranks)} {
    for (auto const rank : ranks_)
      CHORALE_EXPECTS(
          rank >= 0 && rank < at.size() && std::count(ranks_.begin(), ranks_.end(), rank) == 1,
          "rank " + std::to_string(rank) + " is there twice, or not in a group of " + std::to_string(at.size()));
    auto const mine = std::find(ranks_.begin(), ranks_.end(), at.rank());
    CHORALE_EXPECTS(mine != ranks_.end(), "rank " + std::to_string(at.rank()) + " makes a group of " +
                                              std::to_string(ranks_.size()) + " ranks without itself");
    rank_ = static_cast<Rank>(mine - ranks_.begin());
    id_   = fingerprint_of(ranks_);
  }

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  pending send(Rank peer, Tag tag, ConstBytes out) { return at_->send(outer(peer), tag, out); }
  pending recv(Rank peer, Tag tag, Bytes in) { return at_->recv(outer(peer), tag, in); }

  /// See chorale::announce().
  void announce(Operation const& operation) requires KnowsSubGroups<E> {
    auto const group = SubGroup{ranks_, id_};
    at_->announce(within(group, operation), group);
  }
  void announce(Operation const& operation, SubGroup const& part) requires KnowsSubGroups<E> {
    outer_.clear();
    for (auto const peer : part.ranks) outer_.push_back(outer(peer));
    at_->announce(operation, SubGroup{outer_, fingerprint_of(std::array{id_, part.id})});
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(*at_, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { chorale::fail(*at_, why, fault); }

 private:
  Rank outer(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
    return ranks_[static_cast<std::size_t>(peer)];
  }

  E* at_;
  std::vector<Rank> ranks_;  // [rank in the group]: rank in *at_
  std::vector<Rank> outer_;  // ranks of a group within this one
  Rank rank_        = 0;
  std::uint32_t id_ = 0;  // fingerprint of ranks_
};

}  // namespace chorale
