// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/model/unit_sizes.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/operation_traffic.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/strategy/runtime/bucket_ends.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

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
template <class R> struct ReducesGradients {
  static void add(StepOperations& to, R const&, PlanView const& plan, int ranks, bool scatters) {
    constexpr auto traffic = all_reduce_traffic<R>();
    auto const apart       = scatters || LossyReduce<R>;  // what every rank needs exactly
    auto const first = apart ? plan::header : 0, last = plan.elements - (apart ? plan::trailer : 0);
    auto begin = std::size_t{0};
    for (auto const end : clipped(bucket_ends<R>(plan.variables, plan.ends(), plan.elements), first, last)) {
      auto one = StepOperation{
          .what = "gradients", .elements = end - begin, .ranks = ranks, .by = type_name<R>(), .traffic = traffic};
      if (scatters) {
        one.kind = Collective::reduce_scatter;
        one.ends = shard_ends(plan, ranks, {begin, end});  // begin: in the dense variables
        if constexpr (HasHalves<R>) {
          if constexpr (Schedule<typename R::scatter>) one.traffic = traffic_by<typename R::scatter>;
          else one.traffic = traffic_in_place;
        }
      }
      to.add(std::move(one));
      begin = end;
    }
    if (!apart) return;
    auto exact = StepOperation{.what     = "header and trailer",
                               .elements = plan::header + plan::trailer,
                               .ranks    = ranks,
                               .by       = type_name<RecursiveDoublingAllReduce>(),
                               .traffic  = traffic_by<RecursiveDoublingAllReduce>};
    if constexpr (LossyReduce<R>) {
      exact.by      = type_name<typename R::exact>();
      exact.traffic = all_reduce_traffic<typename R::exact>();
    }
    to.add(std::move(exact));
  }
};

/// Adds the operations of Reproducible, whose buckets cut the gradients from element 0.
template <int L, class S, class R>
void add_reproducible(StepOperations& to, R const& reduce, PlanView const& plan, int ranks, bool scatters) {
  auto const ends = [&] {
    if constexpr (CutsBuckets<R>) return bucket_ends<R>(plan.variables, plan.ends(), plan.elements);
    else return std::vector<std::size_t>{};
  }();
  auto const each_bucket = [&](Range part, auto&& f) {
    for (auto begin = part.begin, end = begin; begin < part.end; begin = end) {
      auto const next = std::ranges::upper_bound(ends, begin);
      end             = ends.empty()         ? begin + std::max<std::size_t>(1, reduce.bucket_bytes / sizeof(float))
                        : next == ends.end() ? part.end
                                             : *next;
      end             = std::min(end, part.end);
      f(Range{begin, end});
    }
  };
  auto const whole = [&](Range part, std::string const& what) {
    each_bucket(part, [&](Range bucket) {
      to.add({.what     = what,
              .elements = bucket.size(),
              .ranks    = ranks,
              .by       = type_name<R>(),
              .traffic  = traffic_of_shards<L, S>});
    });
  };
  if (!scatters) return whole({0, plan.elements}, "gradients");
  auto const body = plan.body();
  whole({0, body.begin}, "header");
  each_bucket(body, [&]([[maybe_unused]] Range bucket) {
    if constexpr (HasHalves<S>)
      to.add({.what     = "gradients",
              .kind     = Collective::reduce_scatter,
              .elements = bucket.size(),
              .ranks    = ranks,
              .by       = type_name<R>(),
              .ends     = shard_ends(plan, ranks, {bucket.begin - body.begin, bucket.end - body.begin}),
              .traffic  = traffic_of_shards<L, typename S::scatter>});
  });
  whole({body.end, plan.elements}, "trailer");
}

template <int L, class S> struct ReducesGradients<Reproducible<L, S>> {
  static void add(StepOperations& to, Reproducible<L, S> const& by, PlanView const& plan, int ranks, bool scatters) {
    add_reproducible<L, S>(to, by, plan, ranks, scatters);
  }
};
template <int L, class S, class C> struct ReducesGradients<Bucketed<Reproducible<L, S>, C>> {
  static void add(StepOperations& to, Bucketed<Reproducible<L, S>, C> const& by, PlanView const& plan, int ranks,
                  bool scatters) {
    add_reproducible<L, S>(to, by, plan, ranks, scatters);
  }
};

/// Adds the first half of R for one unit of a network, and what every rank needs of all gradients.
template <class R> struct ScattersUnit {
  static void add(StepOperations& to, R const&, std::size_t elements, int ranks) {
    auto one = StepOperation{.what     = "gradients",
                             .kind     = Collective::reduce_scatter,
                             .elements = elements,
                             .ranks    = ranks,
                             .by       = type_name<R>(),
                             .ends     = unit_ends(elements, ranks),
                             .traffic  = traffic_in_place};
    if constexpr (Schedule<typename R::scatter>) one.traffic = traffic_by<typename R::scatter>;
    to.add(std::move(one));
  }
  static void add_ends(StepOperations& to, int ranks) {
    to.add({.what     = "header and trailer",
            .elements = plan::header + plan::trailer,
            .ranks    = ranks,
            .by       = type_name<RecursiveDoublingAllReduce>(),
            .traffic  = traffic_by<RecursiveDoublingAllReduce>});
  }
};
template <int L, class S> struct ScattersUnit<Reproducible<L, S>> {
  static void add(StepOperations& to, Reproducible<L, S> const& by, std::size_t elements, int ranks) {
    auto const bucket = std::max<std::size_t>(1, by.bucket_bytes / sizeof(float));
    for (std::size_t begin = 0; begin < elements; begin += bucket) {
      auto const last = std::min(elements, begin + bucket);
      auto ends       = unit_ends(elements, ranks);
      for (auto& end : ends) end = std::clamp(end, begin, last) - begin;
      to.add({.what     = "gradients",
              .kind     = Collective::reduce_scatter,
              .elements = last - begin,
              .ranks    = ranks,
              .by       = type_name<Reproducible<L, S>>(),
              .ends     = std::move(ends),
              .traffic  = traffic_of_shards<L, typename S::scatter>});
    }
  }
  static void add_ends(StepOperations& to, int ranks) {
    to.add({.what     = "header and trailer",
            .elements = plan::header + plan::trailer,
            .ranks    = ranks,
            .by       = type_name<Reproducible<L, S>>(),
            .traffic  = traffic_of_shards<L, S>});
  }
};

/// Adds the operations of a step in which units take turns, as UnitExchange calls them: gathers of what is in no buffer,
/// if a copy has a shard of its variables, and the scatter of each unit after its last backward.
template <class R>
void add_units(StepOperations& to, R const& reduce, PlanView const& plan, UnitsView const& units, int ranks,
               bool splits) {
  using Gather        = typename GatherOf<R>::type;
  constexpr auto none = static_cast<std::size_t>(-1);
  auto held           = std::array{none, none};  // unit in each buffer
  auto passes         = 1;
  if constexpr (ShardedReduce<R>) passes = (R::logical_shards + ranks - 1) / ranks;
  auto const gather = [&](std::size_t u) {
    auto const size = size_of_unit(plan, units, u);
    to.add({.what     = "variables of unit " + std::to_string(u),
            .kind     = Collective::all_gather,
            .elements = size,
            .ranks    = ranks,
            .by       = type_name<Gather>(),
            .ends     = unit_ends(size, ranks),
            .traffic  = traffic_by<Gather>});
  };
  auto const bring = [&](std::size_t u) {
    if (splits && u < units.turns && std::exchange(held[u % 2], u) != u) gather(u);
  };
  auto const scatter = [&](std::size_t u) { ScattersUnit<R>::add(to, reduce, size_of_unit(plan, units, u), ranks); };
  if (splits && units.keeps) gather(units.turns);
  for (int pass = 1; pass <= passes; ++pass) {
    for (std::size_t u = 0; u < units.turns; ++u) bring(u), bring(u + 1);
    for (auto u = units.turns; u-- > 0;) {
      bring(u), bring(u - 1);
      if (pass == passes) scatter(u);
    }
  }
  if (units.keeps) scatter(units.turns);
  ScattersUnit<R>::add_ends(to, ranks);
}

}  // namespace detail

/// Returns the operations of a step of a model under strategy S, with gradients reduced by `reduce` over so many ranks.
/// A strategy with other operations has
///
///   template <class R> StepOperations step_operations(PlanView const& plan, R const& reduce, int ranks) const
///
/// and is asked by the form below.
///
/// keeps   of a sharded update the sum of faults is in the list, which FitOptions::on_non_finite = allow leaves out
template <class S, class M, class R> StepOperations step_operations(M const& model, R const& reduce, int ranks) {
  auto made                = StepOperations{};
  auto const& plan         = PlanView{model.plan};
  constexpr auto has_units = requires { M::template units_on<typename S::device>(); };
  if constexpr (!ReducesEveryStep<S> || HasServers<S> || shares_variables<S> || (shards_gradients<S> && !has_units)) {
    made.is_known = false;
  } else {
    using Plain = typename WithoutCut<R>::type;  // units are cuts of their own
    auto units  = UnitsView{};
    if constexpr (shards_gradients<S>) {
      units = M::template units_on<typename S::device>();
      detail::add_units<Plain>(made, static_cast<Plain const&>(reduce), plan, units, ranks, shards_variables<S>);
    } else {
      detail::ReducesGradients<R>::add(made, reduce, plan, ranks, shards_optimizer<S>);
    }
    for (auto const& v : plan.variables)
      if (v.spec.by_rows)
        made.add({.what  = "rows of " + std::string{std::string_view{v.name}},
                  .kind  = Collective::all_gather,
                  .ranks = ranks});
    if constexpr (requires { requires M::template instance<typename S::device>::joins; })
      made.add({.what    = "sums of layers",
                .element = Element::f64,
                .ranks   = ranks,
                .by      = type_name<RecursiveDoublingAllReduce>()});
    if constexpr (shards_optimizer<S>) {
      auto const body  = plan.body().size();
      auto const clips = model.optimizer.global_clipnorm > 0;
      auto each        = std::size_t{1};
      if (clips && shards_gradients<S>) each = detail::report_of_units(plan, units, ranks);
      else if (clips) each += SquareTree::most_nodes(SquareTree::lines(body));
      made.add({.what     = clips ? "faults and squares" : "faults",
                .element  = Element::f64,
                .elements = each * static_cast<std::size_t>(ranks),
                .ranks    = ranks,
                .by       = type_name<RecursiveDoublingAllReduce>(),
                .traffic  = detail::traffic_by<RecursiveDoublingAllReduce>});
      using Gather      = typename GatherOf<Plain>::type;
      auto const gather = [&](std::string const& what, std::size_t elements, std::vector<std::size_t> ends) {
        made.add({.what     = what,
                  .kind     = Collective::all_gather,
                  .elements = elements,
                  .ranks    = ranks,
                  .by       = type_name<Gather>(),
                  .ends     = std::move(ends),
                  .traffic  = detail::traffic_by<Gather>});
      };
      if (!shards_gradients<S>) gather("variables", body, detail::shard_ends(plan, ranks, {0, body}));
      for (std::size_t u = 0; u < units.count() && !shards_variables<S>; ++u) {
        auto const size = detail::size_of_unit(plan, units, u);
        gather("variables of unit " + std::to_string(u), size, detail::unit_ends(size, ranks));
      }
    }
  }
  return made;
}

/// The operations of a step of a model under a strategy, with its replicas. Of a mesh, those along its data axis; what
/// split layers exchange within forward and backward is not in the list.
template <class M, class S, class R>
StepOperations step_operations(M const& model, S const& strategy, R const& reduce) {
  auto const ranks = num_ranks(strategy);
  if constexpr (requires { strategy.step_operations(PlanView{model.plan}, reduce, ranks); }) {
    return strategy.step_operations(PlanView{model.plan}, reduce, ranks);
  } else if constexpr (StrategyTraits<S>::deals_shares) {  // gradients are added up among shares
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
