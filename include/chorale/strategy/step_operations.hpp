// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/strategy/runtime/bucket_ends.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// What a rank sends by schedule S.
template <Schedule S>
Sent traffic_by(StepOperation const& one, Rank rank) {
  return chorale::traffic<S>(rank, one.ranks, one.elements, size_of(one.element), one.ends);
}

/// What a rank moves where ranks read each other's memory: it exposes, and it leaves.
inline Sent traffic_in_place(StepOperation const& one, Rank rank) {
  auto const i    = static_cast<std::size_t>(rank);
  auto const mine = one.ends.empty() ? share(one.elements, rank, one.ranks).size()
                                     : one.ends[i] - (i == 0 ? 0 : one.ends[i - 1]);
  auto const moved = static_cast<std::size_t>(one.ranks - 1) * mine * size_of(one.element);
  return {2, one.kind == Collective::all_reduce ? 2 * moved : moved};
}

/// What a rank sends of sums at the nodes of a tree over L shards, by the messages of S.
template <int L, Schedule S>
Sent traffic_of_shards(StepOperation const& one, Rank rank) {
  auto const shards = ShardTraffic<S>{one.ranks, L};
  auto const size   = [&](int c) {
    auto const i = static_cast<std::size_t>(c);
    return one.ends.empty() ? share(one.elements, c, S::chunks(one.ranks)).size()
                            : one.ends[i] - (i == 0 ? 0 : one.ends[i - 1]);
  };
  auto sent = Sent{};
  for (int s = 0; s < S::steps(one.ranks); ++s) {
    auto const step = S::step(rank, one.ranks, s);
    if (step.to == nobody) continue;
    ++sent.messages;
    for (int c = step.send.begin; c < step.send.end; ++c)
      sent.bytes += shard_tree::nodes_of(shards.held(s, rank, c), L).size() * size(c) * size_of(one.element);
  }
  return sent;
}

using TrafficFunction = Sent (*)(StepOperation const&, Rank);

/// What a rank sends in an all-reduce by R; null if only R knows.
template <class R>
constexpr TrafficFunction all_reduce_traffic() {
  if constexpr (LossyReduce<R>) return nullptr;
  else if constexpr (Schedule<R>) return traffic_by<R>;
  else if constexpr (std::derived_from<R, DirectAllReduce>) return traffic_in_place;
  else return nullptr;
}

/// Where the shards of ranks end within a part of the dense variables, counted from where that begins.
inline std::vector<std::size_t> shard_ends(PlanView const& plan, int ranks, Range part) {
  auto ends = std::vector<std::size_t>{};
  for (Rank rank = 0; rank < ranks; ++rank)
    ends.push_back(std::clamp(placement::Shard{rank, ranks}.of(plan.body().size()).end, part.begin, part.end) -
                   part.begin);
  return ends;
}

/// Adds the operations that reduce gradients by R: whole ones, or so that each rank has the sums of its shard.
///
/// scatters   false: all ranks get all sums
template <class R>
struct ReducesGradients {
  static void add(StepOperations& to, R const&, PlanView const& plan, int ranks, bool scatters) {
    constexpr auto traffic = all_reduce_traffic<R>();
    auto const apart = scatters || LossyReduce<R>;                         // what every rank needs exactly
    auto const first = apart ? plan::header : 0, last = plan.elements - (apart ? plan::trailer : 0);
    auto begin       = std::size_t{0};
    for (auto const end : clipped(bucket_ends<R>(plan.variables, plan.ends(), plan.elements), first, last)) {
      auto one = StepOperation{.what = "gradients", .elements = end - begin, .ranks = ranks, .by = type_name<R>(),
                               .traffic = traffic};
      if (scatters) {
        one.kind = Collective::reduce_scatter;
        one.ends = shard_ends(plan, ranks, {begin, end});           // begin: in the dense variables
        if constexpr (HasHalves<R>) {
          if constexpr (Schedule<typename R::scatter>) one.traffic = traffic_by<typename R::scatter>;
          else one.traffic = traffic_in_place;
        }
      }
      to.add(std::move(one));
      begin = end;
    }
    if (!apart) return;
    auto exact = StepOperation{.what = "header and trailer", .elements = plan::header + plan::trailer, .ranks = ranks,
                               .by = type_name<RecursiveDoublingAllReduce>(),
                               .traffic = traffic_by<RecursiveDoublingAllReduce>};
    if constexpr (LossyReduce<R>) {
      exact.by      = type_name<typename R::exact>();
      exact.traffic = all_reduce_traffic<typename R::exact>();
    }
    to.add(std::move(exact));
  }
};

/// Those of Reproducible, of which a bucket is a piece of the gradients from the first element on.
template <int L, class S, class R>
void add_reproducible(StepOperations& to, R const& reduce, PlanView const& plan, int ranks, bool scatters) {
  auto const ends = [&] {
    if constexpr (CutsBuckets<R>) return bucket_ends<R>(plan.variables, plan.ends(), plan.elements);
    else return std::vector<std::size_t>{};
  }();
  auto const each_bucket = [&](Range part, auto&& f) {
    for (auto begin = part.begin, end = begin; begin < part.end; begin = end) {
      auto const next = std::ranges::upper_bound(ends, begin);
      end = ends.empty() ? begin + std::max<std::size_t>(1, reduce.bucket_bytes / sizeof(float))
                         : next == ends.end() ? part.end : *next;
      end = std::min(end, part.end);
      f(Range{begin, end});
    }
  };
  auto const whole = [&](Range part, std::string const& what) {
    each_bucket(part, [&](Range bucket) {
      to.add({.what = what, .elements = bucket.size(), .ranks = ranks, .by = type_name<R>(),
              .traffic = traffic_of_shards<L, S>});
    });
  };
  if (!scatters) return whole({0, plan.elements}, "gradients");
  auto const body = plan.body();
  whole({0, body.begin}, "header");
  each_bucket(body, [&]([[maybe_unused]] Range bucket) {
    if constexpr (HasHalves<S>)
      to.add({.what = "gradients", .kind = Collective::reduce_scatter, .elements = bucket.size(), .ranks = ranks,
              .by = type_name<R>(),
              .ends = shard_ends(plan, ranks, {bucket.begin - body.begin, bucket.end - body.begin}),
              .traffic = traffic_of_shards<L, typename S::scatter>});
  });
  whole({body.end, plan.elements}, "trailer");
}

template <int L, class S>
struct ReducesGradients<Reproducible<L, S>> {
  static void add(StepOperations& to, Reproducible<L, S> const& by, PlanView const& plan, int ranks, bool scatters) {
    add_reproducible<L, S>(to, by, plan, ranks, scatters);
  }
};
template <int L, class S, class C>
struct ReducesGradients<Bucketed<Reproducible<L, S>, C>> {
  static void add(StepOperations& to, Bucketed<Reproducible<L, S>, C> const& by, PlanView const& plan, int ranks,
                  bool scatters) {
    add_reproducible<L, S>(to, by, plan, ranks, scatters);
  }
};

}  // namespace detail

/// The operations of a step of a model under strategy S, whose gradients are reduced by `reduce`, with so many ranks. A
/// strategy with operations of its own has
///
///   template <class R> StepOperations step_operations(PlanView const& plan, R const& reduce, int ranks) const
///
/// and is asked by the form below.
///
/// keeps   of a sharded update the sum of faults is in the list, which FitOptions::on_non_finite = allow leaves out
template <class S, class M, class R>
StepOperations step_operations(M const& model, R const& reduce, int ranks) {
  auto made        = StepOperations{};
  auto const& plan = PlanView{model.plan};
  if constexpr (!ReducesEveryStep<S> || HasServers<S> || shares_variables<S> || shards_gradients<S>) {
    made.is_known = false;
  } else {
    detail::ReducesGradients<R>::add(made, reduce, plan, ranks, shards_optimizer<S>);
    for (auto const& v : plan.variables)
      if (v.spec.by_rows)
        made.add({.what = "rows of " + std::string{std::string_view{v.name}}, .kind = Collective::all_gather,
                  .ranks = ranks});
    if constexpr (requires { requires M::template instance<typename S::device>::joins; })
      made.add({.what = "sums of layers", .element = Element::f64, .ranks = ranks,
                .by = type_name<RecursiveDoublingAllReduce>()});
    if constexpr (shards_optimizer<S>) {
      auto const body  = plan.body().size();
      auto const clips = model.optimizer.global_clipnorm > 0;
      auto const each  = clips ? 1 + SquareTree::most_nodes(SquareTree::lines(body)) : std::size_t{1};
      made.add({.what = clips ? "faults and squares" : "faults", .element = Element::f64,
                .elements = each * static_cast<std::size_t>(ranks), .ranks = ranks,
                .by = type_name<RecursiveDoublingAllReduce>(),
                .traffic = detail::traffic_by<RecursiveDoublingAllReduce>});
      using Gather = typename GatherOf<R>::type;
      made.add({.what = "variables", .kind = Collective::all_gather, .elements = body, .ranks = ranks,
                .by = type_name<Gather>(), .ends = detail::shard_ends(plan, ranks, {0, body}),
                .traffic = detail::traffic_by<Gather>});
    }
  }
  return made;
}

/// The operations of a step of a model under a strategy, with its replicas. Of a mesh, those along its data axis; what
/// split layers exchange within forward and backward is not in the list.
template <class M, class S, class R>
StepOperations step_operations(M const& model, S const& strategy, R const& reduce) {
  auto const ranks = strategy.num_replicas();
  if constexpr (requires { strategy.step_operations(PlanView{model.plan}, reduce, ranks); }) {
    return strategy.step_operations(PlanView{model.plan}, reduce, ranks);
  } else if constexpr (StrategyTraits<S>::deals_shares) {                  // gradients are added up among shares
    auto made = step_operations<S>(model, reduce, strategy.num_shares());
    if (strategy.num_shares() == ranks) return made;
    for (auto& one : made.all) one.along = "data";
    made.add({.what = "reports of ranks with the same rows", .ranks = ranks / strategy.num_shares()});
    return made;
  } else {
    return step_operations<S>(model, reduce, ranks);
  }
}

}  // namespace chorale
