// SPDX-License-Identifier: Apache-2.0
//
// How the copies of one strategy become the copies of another: who has what, and who gets what from whom.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/placement/moves.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/model_replicas.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale {

/// Consecutive numbers of the state of a copy, and where they are: variables are array 0 and laid out as
/// Variables::values, slot k of the optimizer is array 1 + k.
struct HeldNumbers {
  placement::Held held;
  float* at = nullptr;
};

/// All numbers of the state of a copy: of one in units its shard, of others all variables, and of each slot what
/// OptimizerState::mine() names.
template <class Copy> std::vector<HeldNumbers> held_by(Copy& copy) {
  constexpr auto slots = static_cast<std::size_t>(Copy::optimizer_slots);
  auto all             = std::vector<HeldNumbers>{};
  auto const add_whole = [&](Variables const& variables) {
    auto const values = variables.values;
    auto const tables = Range{values.size() - variables.tables, values.size()};
    all.push_back({{0, {plan::header, tables.begin - plan::trailer}}, values.data() + plan::header});
    if (tables.size() != 0) all.push_back({{0, tables}, values.data() + tables.begin});
  };
  auto const add_slots = [&](Range range, std::size_t stride, std::size_t at) {
    for (std::size_t k = 0; k < slots; ++k)
      all.push_back({{static_cast<int>(k) + 1, range}, copy.optimizer.slots().data() + k * stride + at});
  };
  if constexpr (requires { copy.units().cut(); })
    if (copy.in_units()) {
      auto& memory = copy.units();
      if (!memory.splits()) add_whole({memory.variables(), copy.net.variables().plan});
      for (auto const& run : memory.cut().runs_of(memory.shard().rank)) {
        if (memory.splits())
          all.push_back(
              {{0, {run.range.begin + plan::header, run.range.end + plan::header}}, memory.values().data() + run.at});
        add_slots(run.range, memory.held(), run.at);
      }
      return all;
    }
  add_whole(copy.net.variables());
  if (!copy.optimizer.slots().empty()) {
    auto const stride = copy.optimizer.slots().size() / slots;  // with tables: more than the dense variables
    auto const mine   = copy.optimizer.mine();
    add_slots(stride == mine.size() ? mine : Range{0, stride}, stride, 0);
  }
  return all;
}

/// What a change of strategy has moved, over all ranks: the same in every process.
struct Moved {
  std::size_t bytes = 0;  // that went from one rank to another
  std::size_t kept  = 0;  // that were in the memory of their rank
  std::size_t moves = 0;  // from one rank to another
};

}  // namespace chorale

namespace chorale::detail {

/// Numbers beside variables and slots with which a copy continues.
struct GoesOn {
  optim::Moment now{};
  optim::LossScale loss_scale{};
  std::int64_t skipped = 0;
};

/// What one rank tells all others of its GoesOn: numbers alone, for which any bits are valid.
struct GoesOnTold {
  std::int64_t step = 0, epoch = 0, has_rate = 0, scale_steps = 0, skipped = 0;
  float rate = 0, scale = 0;

  static GoesOnTold of(GoesOn const& from) {
    return {from.now.step,         from.now.epoch, from.now.rate ? 1 : 0,
            from.loss_scale.steps, from.skipped,   from.now.rate.value_or(0.0F),
            from.loss_scale.value};
  }
  template <class Optimizer> void put(Optimizer& to) const {
    to.now        = {step, static_cast<int>(epoch), has_rate != 0 ? std::optional{rate} : std::nullopt};
    to.loss_scale = {scale, scale_steps};
    to.skipped    = skipped;
  }
};

/// What a process brings into a job that was not part of it before. Others bring their old copies: see Departing.
struct NothingBrought {};

/// One line of what all ranks tell each other: a range that an old rank has, or that a new rank shall have.
struct HeldLine {
  std::int64_t old = 0, rank = 0, array = 0, begin = 0, end = 0, by = 0;  // by: the new rank that tells it
};

/// True if replica `id` of S, number `of_process` in its process, keeps its own numbers: under
/// CentralStorageStrategy the first one alone.
template <class S> constexpr bool keeps_numbers(std::size_t of_process, Rank id) {
  return !shares_variables<S> || (of_process == 0 && id == 0);
}

/// Checks the lines of a rank, from which ranges and ranks are taken.
///
/// teller   for each old rank that is known, the new rank that tells what it has; -1: none so far
inline void expect_lines(Span<HeldLine const> lines, Rank by, Rank world, std::vector<int>& teller) {
  constexpr auto most_ranks = std::int64_t{65'536}, most_arrays = std::int64_t{1} << 30;
  for (auto const& line : lines) {
    auto const known = line.by == by && line.array >= 0 && line.array < most_arrays && line.begin >= 0 &&
                       line.begin <= line.end && line.rank >= 0 &&
                       (line.old == 1 ? line.rank < most_ranks : line.old == 0 && line.rank == by);
    if (known && line.old == 1) {
      auto const old = static_cast<std::size_t>(line.rank);
      teller.resize(std::max(teller.size(), old + 1), -1);
      if (teller[old] < 0) teller[old] = by;
      if (teller[old] == by) continue;
    } else if (known) {
      continue;
    }
    throw Disagreement{Fault::collective_mismatch,
                       sentence("rank {} of {} tells that {} rank {} has elements {} to {} of array {}, of which it "
                                "cannot know.",
                                by, world, line.old == 1 ? "old" : "new", line.rank, line.begin, line.end, line.array),
                       "the same calls of retarget on every rank, and a look at the memory of that host."};
  }
}

/// Gathers lines of all ranks, in the order of ranks.
///
/// teller  see expect_lines()
template <class Replica>
std::vector<HeldLine> all_lines(Replica& replica, std::vector<HeldLine> const& mine, std::vector<int>& teller) {
  auto const world = static_cast<std::size_t>(replica.num_replicas());
  auto each        = std::vector<std::size_t>(world);
  auto const own   = mine.size();
  replica.all_gather(Span<std::size_t const>{&own, 1}, Span<std::size_t>{each}, std::vector<std::size_t>(world, 1));
  for (std::size_t r = 0; r < world; ++r)
    if (each[r] > std::size_t{1} << 32)
      throw Disagreement{Fault::collective_mismatch, sentence("rank {} of {} announces {} lines.", r, world, each[r])};
  auto all = std::vector<HeldLine>{};
  gather_in_pieces(static_cast<std::size_t>(replica.id()), Span<HeldLine const>{mine}, all, each,
                   [&](auto part, auto whole, auto counts) { replica.all_gather(part, whole, counts); });
  for (std::size_t r = 0, begin = 0; r < world; begin += each[r++])
    expect_lines(Span<HeldLine const>{all}.subspan(begin, each[r]), static_cast<Rank>(r), static_cast<Rank>(world),
                 teller);
  return all;
}

/// What one rank of the new job knows of the move.
struct TakeOver {
  std::vector<std::vector<HeldNumbers>> old_held{};  // of old copies that this rank answers for
  std::vector<Rank> old_rank{};
  std::vector<HeldNumbers> new_held{};
  std::vector<int> at{};  // [old rank]: the new one that answers for it
  std::vector<placement::HeldMove> moves{};
};

/// Fills the copies of `replicas` from what all processes of the job have brought. Every process calls it.
///
/// keeps    what was brought is only read, but for finish(), which is called when nothing can be refused any more
/// throws   BadArgument, on all ranks alike, when numbers are in the memory of no process, or no process has brought
///          any
template <class Replicas, class S, class Brings>
Moved take_over(Replicas& replicas, std::type_identity<S>, Brings& brought) {
  using Copy            = typename Replicas::instance;
  constexpr bool brings = !std::is_same_v<Brings, NothingBrought>;
  auto& live            = replicas.live();
  auto const here       = replicas.copies().size();
  auto results          = PerReplica<Moved>(here);
  auto numbers          = PerReplica<std::size_t>(here);
  auto plans            = PerReplica<TakeOver>(here);
  for (std::size_t i = 0; i < here; ++i) numbers[i] = i;
  if constexpr (brings) brought.meet();
  live.run(
      [&](auto& replica, Copy& copy, std::size_t i, TakeOver& plan) {
        auto const me   = replica.id();
        auto& old_held  = plan.old_held;
        auto& old_rank  = plan.old_rank;
        auto& new_held  = plan.new_held;
        auto lines      = std::vector<HeldLine>{};
        auto const tell = [&](bool old, Rank rank, std::vector<HeldNumbers> const& all) {
          for (auto const& one : all)
            lines.push_back({old, rank, one.held.array, static_cast<std::int64_t>(one.held.range.begin),
                             static_cast<std::int64_t>(one.held.range.end), me});
        };
        if constexpr (brings)
          for (auto j = i; j < brought.copies.size(); j += here) {
            old_rank.push_back(brought.ranks[j]);
            old_held.push_back(held_by(brought.copies[j]));
            if (!brought.keeps(j)) old_held.back().clear();
            tell(true, old_rank.back(), old_held.back());
          }
        if (keeps_numbers<S>(i, me)) new_held = held_by(copy);
        tell(false, me, new_held);

        auto& at       = plan.at;
        auto const all = all_lines(replica, lines, at);
        CHORALE_EXPECTS(!at.empty(), "no process of the " + std::to_string(replica.num_replicas()) +
                                         " ranks has brought a trainer to go on from: one of them calls retarget");
        auto before = std::vector<std::vector<placement::Held>>(at.size());
        auto after  = std::vector<std::vector<placement::Held>>(static_cast<std::size_t>(replica.num_replicas()));
        for (auto const& line : all) {
          auto const held = placement::Held{static_cast<int>(line.array),
                                            {static_cast<std::size_t>(line.begin), static_cast<std::size_t>(line.end)}};
          (line.old ? before : after)[static_cast<std::size_t>(line.rank)].push_back(held);
        }

        plan.moves = placement::moves(before, after, at);
      },
      replicas.copies(), numbers, plans);
  if constexpr (brings) brought.finish();
  live.run(
      [&](auto& replica, Copy& copy, TakeOver& plan, Moved& moved) {
        auto const me    = replica.id();
        auto const place = [](std::vector<HeldNumbers> const& numbers_of, int array, Range range) {
          for (auto const& one : numbers_of)
            if (one.held.array == array && one.held.range.begin <= range.begin && range.end <= one.held.range.end)
              return Span<float>{one.at + (range.begin - one.held.range.begin), range.size()};
          return Span<float>{};
        };
        auto const old_of = [&](Rank rank) {
          return static_cast<std::size_t>(std::ranges::find(plan.old_rank, rank) - plan.old_rank.begin());
        };
        for (auto const& move : plan.moves) {  // in one order on all ranks: no deadlock
          auto const from  = plan.at[static_cast<std::size_t>(move.from)];
          auto const bytes = move.range.size() * sizeof(float);
          auto const mine =
              from == me ? place(plan.old_held[old_of(move.from)], move.array, move.range) : Span<float>{};
          auto const wanted = move.to == me ? place(plan.new_held, move.array, move.range) : Span<float>{};
          if (from == move.to) {
            moved.kept += bytes;
            if (from == me) std::ranges::copy(mine, wanted.begin());
            continue;
          }
          moved.bytes += bytes;
          ++moved.moves;
          if (from == me) replica.exchange(move.to, std::as_bytes(mine), {});
          if (move.to == me) replica.exchange(from, {}, std::as_writable_bytes(wanted));
        }

        auto goes_on = GoesOnTold{};
        if constexpr (brings) goes_on = GoesOnTold::of(brought.numbers);
        auto const root = *std::ranges::find_if(plan.at, [](int rank) { return rank >= 0; });
        replica.broadcast(Span<GoesOnTold>{&goes_on, 1}, root);
        if constexpr (requires { copy.units().changed(); })
          if (copy.in_units()) copy.units().changed();
        goes_on.put(copy.optimizer);
      },
      replicas.copies(), plans, results);
  if constexpr (brings) brought.leave();
  return results[0];
}

}  // namespace chorale::detail
