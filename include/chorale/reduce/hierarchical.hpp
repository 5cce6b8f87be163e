// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace chorale {

/// An endpoint with two kinds of peers: those on the same node, and those with the same number on other nodes.
///
/// keeps   every node has the same number of ranks
template <class E>
concept LayeredEndpoint = Endpoint<E> && requires(E& at) {
  requires std::is_lvalue_reference_v<decltype(at.near())> && Endpoint<std::remove_reference_t<decltype(at.near())>>;
  requires std::is_lvalue_reference_v<decltype(at.far())> && Endpoint<std::remove_reference_t<decltype(at.far())>>;
};

namespace detail {

template <class E, class T>
concept near_collectives =
    LayeredEndpoint<E> && CollectiveEndpoint<std::remove_reference_t<decltype(std::declval<E&>().near())>, T>;

}  // namespace detail

/// An all-reduce under way, first near, then far, then near. See HierarchicalAllReduce.
///
/// order   it is announced to both layers when it starts, if Far takes a CollectiveCall: which of two operations is the
///         first to reach its second stage is not the same on all ranks
template <class Far, LayeredEndpoint E, Reducible T> class HierarchicalOperation {
 public:
  void restart(E& at, Span<T> x, Op op, Tag tag, CallSite where = {}) {
    at_            = &at;
    x_             = x;
    op_            = op;
    tag_           = tag;
    where_         = where;
    stage_         = Stage::scatter;
    auto const all = Operation{Collective::all_reduce, op, element_of<T>, x.size(), tag, where};
    announce(at.near(), all);
    if constexpr (takes_job) {
      auto part  = all;
      part.count = mine().size();
      announce(at.far(), part);
    }
    scatter_.restart(
        at.near(),
        {.collective = Collective::reduce_scatter, .x = x, .op = op, .tag = tag, .where = where, .announced = true});
    poll();
  }

  bool poll() {
    while (stage_ != Stage::complete && is_done()) advance();
    return stage_ == Stage::complete;
  }

  void finish() {
    while (!poll()) {
      if (stage_ == Stage::scatter) scatter_.finish();
      else if (stage_ == Stage::across) across_.finish();
      else gather_.finish();
    }
  }

 private:
  using Near   = std::remove_reference_t<decltype(std::declval<E&>().near())>;
  using Across = std::remove_reference_t<decltype(std::declval<E&>().far())>;
  enum class Stage : std::uint8_t { scatter, across, gather, complete };

  bool is_done() {
    return stage_ == Stage::scatter ? scatter_.poll() : stage_ == Stage::across ? across_.poll() : gather_.poll();
  }

  void advance() {
    if (stage_ == Stage::scatter) {
      stage_ = Stage::across;
      if constexpr (takes_job)
        across_.restart(at_->far(),
                        CollectiveCall<T>{.x = mine(), .op = op_, .tag = tag_, .where = where_, .announced = true});
      else across_.restart(at_->far(), mine(), op_, tag_, where_);
    } else if (stage_ == Stage::across) {
      stage_ = Stage::gather;
      gather_.restart(at_->near(),
                      {.collective = Collective::all_gather, .x = x_, .tag = tag_, .where = where_, .announced = true});
    } else {
      stage_ = Stage::complete;
    }
  }

  using Middle = decltype(std::declval<Far const&>().start(std::declval<Across&>(), Span<T>{}, Op::sum, Tag{}));

  static constexpr bool takes_job =
      requires(Middle& middle, Across& far, CollectiveCall<T> const& job) { middle.restart(far, job); };

  /// The share of x that this rank reduces across nodes after its node has combined it.
  Span<T> mine() const {
    auto const part = share(x_.size(), at_->near().rank(), at_->near().size());
    return x_.subspan(part.begin, part.size());
  }

  E* at_ = nullptr;
  Span<T> x_;
  Op op_          = Op::sum;
  Tag tag_        = {};
  CallSite where_ = {};
  Stage stage_    = Stage::complete;
  ScheduleExecution<RingReduceScatter, Near, T> scatter_;
  Middle across_;
  ScheduleExecution<RingAllGather, Near, T> gather_;
};

/// All-reduce over nodes of several ranks: each of the L ranks of a node exchanges only 1/L of x with other nodes.
///
///   2 nodes of 2 ranks          node 0              node 1
///                            rank 0   rank 1     rank 2   rank 3
///   near: reduce-scatter     half 0 - half 1     half 0 - half 1      around the ring of each node
///   far: all-reduce by Far   half 0 ------------ half 0               ranks with the same number on their node
///                                     half 1 ------------ half 1
///   near: all-gather         all   -- all        all   -- all
///
/// Where the near transport has collectives, as NCCL does, they are used. All ranks must call these in the same order,
/// so each all-reduce then blocks; with OwnThread<HierarchicalAllReduce<>> the caller computes meanwhile.
///
/// cost    with L ranks on each of N nodes: 2(L-1) steps near, Far's for N ranks and S/L bytes far. In all the bytes of
///         a ring, and at most its steps; more where Far costs more than a ring
/// order   on each node a ring's, or the near transport's; then Far's
template <class Far = HalvingDoublingAllReduce> struct HierarchicalAllReduce {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = 2 * (ranks - 1),
            .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes / static_cast<std::size_t>(ranks)};
  }

  template <LayeredEndpoint E, Reducible T> requires(!detail::near_collectives<E, T>)
  HierarchicalOperation<Far, E, T> start(E& at, Span<T> x, Op op, Tag tag = {},
                                         CallSite where = CallSite::here()) const {
    auto operation = HierarchicalOperation<Far, E, T>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  template <LayeredEndpoint E, Reducible T>
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    if constexpr (!detail::near_collectives<E, T>) start(at, x, op, tag, where).finish();
    else if (at.near().size() == 1) Far{}.all_reduce(at.far(), x, op, tag, where);
    else all_reduce_by_collectives(at, x, op, tag, where);
  }

 private:
  /// Reduces equal parts of x by reduce-scatter and all-gather, and the remaining elements by all-reduce on all ranks.
  template <LayeredEndpoint E, class T>
  static void all_reduce_by_collectives(E& at, Span<T> x, Op op, Tag tag, CallSite where) {
    auto& near       = at.near();
    auto const L     = static_cast<std::size_t>(near.size());
    auto const each  = x.size() / L;
    auto const parts = x.first(each * L), rest = x.subspan(each * L);
    auto const mine = x.subspan(static_cast<std::size_t>(near.rank()) * each, each);
    auto const say  = [&](Collective what, std::size_t n) { announce(near, {what, op, element_of<T>, n, tag, where}); };
    if (each != 0) {
      say(Collective::reduce_scatter, parts.size());
      near.reduce_scatter(Span<T const>{parts}, mine, op);
      Far{}.all_reduce(at.far(), mine, op, tag, where);
      say(Collective::all_gather, parts.size());
      near.all_gather(Span<T const>{mine}, parts);
    }
    if (!rest.empty()) {
      say(Collective::all_reduce, rest.size());
      near.all_reduce(rest, op);
      Far{}.all_reduce(at.far(), rest, op, tag, where);
    }
  }
};

}  // namespace chorale
