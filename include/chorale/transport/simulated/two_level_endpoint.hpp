// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/simulated.hpp>

#include <cstdint>
#include <string>

namespace chorale {

/// Sub-group of a simulation: the ranks first, first + stride, ..
///
/// keeps   operations are announced as operations of a sub-group
class SimulatedPart {
 public:
  using pending = SimulatedEndpoint::pending;

  SimulatedPart(SimulatedEndpoint at, Rank first, int stride, int size)
      : at_{std::move(at)}, first_{first}, stride_{stride}, size_{size} {
    for (Rank rank = 0; rank < size; ++rank) ranks_.push_back(outer(rank));
    id_ = fingerprint_of(ranks_);
  }

  Rank rank() const { return (at_.rank() - first_) / stride_; }
  int size() const { return size_; }

  pending send(Rank peer, Tag tag, ConstBytes out) { return at_.send(outer(peer), tag, out); }
  pending recv(Rank peer, Tag tag, Bytes in) { return at_.recv(outer(peer), tag, in); }

  void announce(Operation const& operation) {
    auto const group = SubGroup{ranks_, id_};
    at_.announce(within(group, operation), group);
  }
  void begin_step(std::uint64_t step) { at_.begin_step(step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { at_.fail(why, fault); }

 private:
  Rank outer(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size_,
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size_));
    return first_ + peer * stride_;
  }

  SimulatedEndpoint at_;
  Rank first_;
  int stride_, size_;
  std::vector<Rank> ranks_;  // of the simulation
  std::uint32_t id_ = 0;
};

/// A simulated rank with near() and far(), as HierarchicalAllReduce needs it: rank r is number r % n of host r / n.
class TwoLevelEndpoint : public SimulatedEndpoint {
 public:
  /// per_host   n; NetworkModel::ranks_per_host, or a divisor of it
  /// throws     BadArgument when the last host would have fewer ranks than the others
  TwoLevelEndpoint(SimulatedEndpoint const& at, int per_host)
      : SimulatedEndpoint{at}, near_{at, first_of(at, per_host), 1, per_host},
        far_{at, at.rank() % per_host, per_host, at.size() / per_host} {}

  SimulatedPart& near() { return near_; }
  SimulatedPart& far() { return far_; }

 private:
  static Rank first_of(SimulatedEndpoint const& at, int n) {
    CHORALE_EXPECTS(n >= 1 && at.size() % n == 0,
                    std::to_string(at.size()) + " ranks do not fill hosts of " + std::to_string(n) + " ranks");
    return at.rank() / n * n;
  }

  SimulatedPart near_, far_;
};

}  // namespace chorale
