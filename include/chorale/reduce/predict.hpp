// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/network_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// The algorithms that predicted_time() knows and advise() chooses from. `hierarchical` is
/// HierarchicalAllReduce<HalvingDoublingAllReduce> with a host as the node.
enum class ReduceKind : std::uint8_t { recursive_doubling, halving_doubling, double_tree, ring, hierarchical };

inline constexpr std::array all_advised{ReduceKind::recursive_doubling, ReduceKind::halving_doubling,
                                        ReduceKind::double_tree, ReduceKind::ring, ReduceKind::hierarchical};

constexpr std::string_view name(ReduceKind a) {
  return std::array<std::string_view, 5>{"recursive doubling", "halving, doubling", "double tree", "ring",
                                         "hierarchical"}[static_cast<std::size_t>(a)];
}

namespace detail {

/// Walks through a schedule step by step, with a clock for each rank, and finds the time that a simulation would
/// measure, without ranks, data and events. Messages use lines in the order of steps, within a step in order of time.
class ScheduleWalk {
 public:
  ScheduleWalk(NetworkModel const& model, int ranks)
      : model_{model}, lines_{model, ranks}, clocks_(static_cast<std::size_t>(ranks)), to_fold_(clocks_.size()) {
    model_.noise = 0;
  }

  VirtualTime last() const { return *std::max_element(clocks_.begin(), clocks_.end()); }

  /// Walks through S in all groups of `size` ranks at once. Member m of the group of `rank` is first + m * stride.
  ///
  /// of_group   (rank): {first, stride}
  template <Schedule S, class OfGroup> void walk(int size, std::size_t bytes, OfGroup of_group) {
    auto const chunks = static_cast<double>(S::chunks(size));
    auto const widest = static_cast<double>(bytes) / chunks * S::widest(size);
    auto const lanes  = std::max(1, static_cast<int>((widest + largest_message - 1) / largest_message));
    auto const walked = std::min(lanes, longest);
    auto const begin  = last();
    auto half         = begin;
    for (int first = 0; first < walked; first += group) {
      if (first == longest / 2) half = last_folded();
      for (int s = 0; s < S::steps(size); ++s)
        for (int lane = first; lane < std::min(walked, first + group); ++lane)
          one_step<S>(size, s, lane, static_cast<double>(bytes) / chunks / lanes, of_group);
    }
    for (Rank rank = 0; rank < ranks(); ++rank)
      while (!pending(rank).empty()) fold(rank);
    if (lanes == walked) return;
    auto const more = (last() - half) * (lanes - walked) / (longest - longest / 2);  // at the pace of the second half
    for (auto& clock : clocks_) clock += more;
  }

 private:
  static constexpr int group = 4, longest = 32;  // lanes
  struct Coming {
    VirtualTime at;
    int lane;
    Chunks chunks;
    std::size_t bytes;
  };
  struct Going {
    Rank from, to;
    std::size_t bytes;
    VirtualTime at;
    Chunks chunks;
  };

  int ranks() const { return static_cast<int>(clocks_.size()); }

  /// When the last rank would be done, were nothing sent any more.
  VirtualTime last_folded() const {
    auto end = last();
    for (std::size_t rank = 0; rank < clocks_.size(); ++rank) {
      auto time = clocks_[rank];
      for (auto const& next : to_fold_[rank]) time = folded(time, next);
      end = std::max(end, time);
    }
    return end;
  }
  VirtualTime& clock(Rank rank) { return clocks_[static_cast<std::size_t>(rank)]; }
  std::deque<Coming>& pending(Rank rank) { return to_fold_[static_cast<std::size_t>(rank)]; }

  template <Schedule S, class OfGroup> void one_step(int size, int s, int lane, double chunk, OfGroup of_group) {
    going_.clear();
    for (Rank rank = 0; rank < ranks(); ++rank) {
      auto const [first, stride] = of_group(rank);
      auto const step            = S::step((rank - first) / stride, size, s);
      auto& coming               = pending(rank);
      auto needed                = std::size_t{0};  // messages to be folded first
      for (std::size_t i = 0; i < coming.size(); ++i)
        if (coming[i].lane == lane && ((step.to != nobody && coming[i].chunks.overlaps(step.send)) ||
                                       (step.from != nobody && coming[i].chunks.overlaps(step.receive))))
          needed = i + 1;
      for (; needed > 0; --needed) fold(rank);
      if (step.to == nobody) continue;
      clock(rank) += model_.overhead;
      going_.push_back({rank, first + step.to * stride, static_cast<std::size_t>(chunk * step.send.size() + 0.5),
                        clock(rank), step.send});
    }
    std::stable_sort(going_.begin(), going_.end(), [](Going const& a, Going const& b) { return a.at < b.at; });
    for (auto const& one : going_)
      pending(one.to).push_back(
          {lines_.depart(one.from, one.to, one.bytes, one.at, {}).arrives, lane, one.chunks, one.bytes});
  }

  void fold(Rank rank) {
    auto const next = pending(rank).front();
    pending(rank).pop_front();
    clock(rank) = folded(clock(rank), next);
  }
  VirtualTime folded(VirtualTime now, Coming const& next) const {
    return std::max(now, next.at) + model_.overhead + NetworkModel::time_of(next.bytes, model_.fold_bytes_per_second);
  }

  NetworkModel model_;
  NetworkLines lines_;
  std::vector<VirtualTime> clocks_;          // [rank]
  std::vector<std::deque<Coming>> to_fold_;  // [rank]
  std::vector<Going> going_;
};

template <Schedule S> VirtualTime flat_time(int ranks, std::size_t bytes, NetworkModel const& model) {
  auto walk = ScheduleWalk{model, ranks};
  walk.walk<S>(ranks, bytes, [](Rank) { return std::pair{0, 1}; });
  return walk.last();
}

}  // namespace detail

/// The time of a ring, as a simulation without noise would measure it: RingAllReduce, RingReduceScatter, RingAllGather.
///
/// keeps   of more than 256 ranks it is extrapolated in proportion to its steps
template <Schedule S> VirtualTime predicted_ring_time(int ranks, std::size_t bytes, NetworkModel const& model) {
  if (ranks == 1) return {};
  auto const unit = model.ranks_per_host * std::max(1, model.hosts_per_rack);
  auto const few  = std::max(1, 256 / unit) * unit;
  if (ranks <= few) return detail::flat_time<S>(ranks, bytes, model);
  auto const part = bytes / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(few);
  return detail::flat_time<S>(few, part, model) * (ranks - 1) / (few - 1);
}

/// The time of an all-reduce of that many bytes, as a simulation without noise would measure it.
///
/// cost    some 100 ns for each message of the schedule. A ring of more than 256 ranks is extrapolated in proportion
///         to its steps
/// throws  BadArgument for `hierarchical` when hosts are not full
inline VirtualTime predicted_time(ReduceKind algorithm, int ranks, std::size_t bytes, NetworkModel const& model) {
  if (ranks == 1) return {};
  switch (algorithm) {
    case ReduceKind::recursive_doubling: return detail::flat_time<RecursiveDoublingAllReduce>(ranks, bytes, model);
    case ReduceKind::halving_doubling: return detail::flat_time<HalvingDoublingAllReduce>(ranks, bytes, model);
    case ReduceKind::double_tree: return detail::flat_time<DoubleTreeAllReduce>(ranks, bytes, model);
    case ReduceKind::ring: return predicted_ring_time<RingAllReduce>(ranks, bytes, model);
    case ReduceKind::hierarchical: break;
  }
  auto const L = model.ranks_per_host, N = ranks / L;
  CHORALE_EXPECTS(ranks % L == 0, std::to_string(ranks) + " ranks do not fill hosts of " + std::to_string(L));
  auto const near = [&](Rank rank) { return std::pair{rank / L * L, 1}; };
  auto walk       = detail::ScheduleWalk{model, ranks};
  walk.walk<RingReduceScatter>(L, bytes, near);
  walk.walk<HalvingDoublingAllReduce>(N, bytes / static_cast<std::size_t>(L),
                                      [&](Rank rank) { return std::pair{rank % L, L}; });
  walk.walk<RingAllGather>(L, bytes, near);
  return walk.last();
}

/// The time that workers wait for their parameter servers: every worker pushes its gradients, in equal parts, to all
/// servers, which reply with new values when they have received from all workers. Workers are the first ranks, as in
/// parameter_server::ShardLayout.
///
/// cost    some 100 ns for each pair of a worker and a server
/// throws  BadArgument without a worker or a server, or for a model that makes no sense
inline VirtualTime predicted_servers_time(int workers, int servers, std::size_t bytes, NetworkModel const& model) {
  CHORALE_EXPECTS(workers >= 1 && servers >= 1,
                  std::to_string(servers) + " servers of " + std::to_string(workers) + " workers exchange nothing");
  model.check();
  struct Passing {
    VirtualTime at;
    Rank from, to;
  };
  auto lines      = NetworkLines{model, workers + servers};
  auto clocks     = std::vector<VirtualTime>(static_cast<std::size_t>(workers + servers));
  auto const part = (bytes + static_cast<std::size_t>(servers) - 1) / static_cast<std::size_t>(servers);
  auto const in   = model.overhead + NetworkModel::time_of(part, model.fold_bytes_per_second);
  auto const pass = [&](Rank senders, int many, Rank receivers, int each) {
    auto passing       = std::vector<Passing>{};
    auto const earlier = [](Passing const& a, Passing const& b) { return a.at < b.at; };
    for (int i = 0; i < many; ++i)
      for (int k = 0; k < each; ++k)
        passing.push_back(
            {clocks[static_cast<std::size_t>(senders + i)] += model.overhead, senders + i, receivers + k});
    std::stable_sort(passing.begin(), passing.end(), earlier);
    for (auto& one : passing) one.at = lines.depart(one.from, one.to, part, one.at, {}).arrives;
    std::stable_sort(passing.begin(), passing.end(), earlier);
    for (auto const& one : passing) {
      auto& clock = clocks[static_cast<std::size_t>(one.to)];
      clock       = std::max(clock, one.at) + in;
    }
  };
  pass(0, workers, workers, servers);
  pass(workers, servers, 0, workers);
  return *std::max_element(clocks.begin(), clocks.begin() + workers);
}

}  // namespace chorale
