// SPDX-License-Identifier: Apache-2.0
//
// How the copies of one strategy become those of another: who has what, and who gets what from whom.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/held_numbers.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/placement/moves.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/trainer/model_replicas.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale {

/// What a change of strategy has moved, over all ranks: the same in every process.
struct Moved {
  std::size_t bytes = 0;                                                   // that went from one rank to another
  std::size_t kept  = 0;                                                   // that were in the memory of their rank
  std::size_t moves = 0;                                                   // from one rank to another
};

}  // namespace chorale

namespace chorale::detail {

/// Numbers beside variables and slots that a copy goes on with.
struct GoesOn {
  optim::Moment now{};
  optim::LossScale loss_scale{};
  std::int64_t skipped = 0;
};

/// What a process brings into a job that was not part of it before. Others bring their old copies: see Departing.
struct NothingBrought {};

/// One line of what all ranks tell each other: a range that an old rank has, or that a new rank shall have.
struct HeldLine {
  std::int64_t old = 0, rank = 0, array = 0, begin = 0, end = 0, by = 0;   // by: the new rank that tells it
};

/// True if replica `id` of S, number `of_process` in its process, keeps numbers of its own: under
/// CentralStorageStrategy the first one alone.
template <class S>
constexpr bool keeps_numbers(std::size_t of_process, Rank id) {
  return !shares_variables<S> || (of_process == 0 && id == 0);
}

/// Gathers lines of all ranks, in the order of ranks.
template <class Replica>
std::vector<HeldLine> all_lines(Replica& replica, std::vector<HeldLine> const& mine) {
  auto const world = static_cast<std::size_t>(replica.num_replicas());
  auto each        = std::vector<std::size_t>(world);
  auto const own   = mine.size();
  replica.all_gather(Span<std::size_t const>{&own, 1}, Span<std::size_t>{each}, std::vector<std::size_t>(world, 1));
  auto sum = std::size_t{0};
  for (auto const n : each) sum += n;
  auto all = std::vector<HeldLine>(sum);
  replica.all_gather(Span<HeldLine const>{mine}, Span<HeldLine>{all}, each);
  return all;
}

/// What one rank of the new job knows of the move.
struct TakeOver {
  std::vector<std::vector<HeldNumbers>> old_held{};                        // of old copies that this rank answers for
  std::vector<Rank> old_rank{};
  std::vector<HeldNumbers> new_held{};
  std::vector<int> at{};                                                   // [old rank]: the new one that answers for it
  std::vector<placement::HeldMove> moves{};
};

/// Fills the copies of `replicas` from what all processes of the job have brought. Every process calls it.
///
/// keeps    what was brought is only read, but for finish(), which is called when nothing can be refused any more
/// throws   BadArgument, on all ranks alike, when numbers are in the memory of no process, or no process has brought
///          any
template <class Replicas, class S, class Brings>
Moved take_over(Replicas& replicas, std::type_identity<S>, Brings& brought) {
  using Copy           = typename Replicas::instance;
  constexpr bool brings = !std::is_same_v<Brings, NothingBrought>;
  auto& live           = replicas.live();
  auto const here      = replicas.copies().size();
  auto results         = PerReplica<Moved>(here);
  auto numbers         = PerReplica<std::size_t>(here);
  auto plans           = PerReplica<TakeOver>(here);
  for (std::size_t i = 0; i < here; ++i) numbers[i] = i;
  if constexpr (brings) brought.meet();
  live.run([&](auto& replica, Copy& copy, std::size_t i, TakeOver& plan) {
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

    auto const all = all_lines(replica, lines);
    auto old_world = std::int64_t{0};
    for (auto const& line : all) old_world = line.old ? std::max(old_world, line.rank + 1) : old_world;
    CHORALE_EXPECTS(old_world > 0, "no process of the " + std::to_string(replica.num_replicas()) +
                                       " ranks has brought a trainer to go on from: one of them calls retarget");
    auto before = std::vector<std::vector<placement::Held>>(static_cast<std::size_t>(old_world));
    auto after  = std::vector<std::vector<placement::Held>>(static_cast<std::size_t>(replica.num_replicas()));
    auto& at    = plan.at;
    at.assign(before.size(), -1);
    for (auto const& line : all) {
      auto const held = placement::Held{static_cast<int>(line.array),
                                        {static_cast<std::size_t>(line.begin), static_cast<std::size_t>(line.end)}};
      (line.old ? before : after)[static_cast<std::size_t>(line.rank)].push_back(held);
      if (line.old) at[static_cast<std::size_t>(line.rank)] = static_cast<int>(line.by);
    }

    plan.moves = placement::moves(before, after, at);
  }, replicas.copies(), numbers, plans);
  if constexpr (brings) brought.finish();
  live.run([&](auto& replica, Copy& copy, TakeOver& plan, Moved& moved) {
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
    for (auto const& move : plan.moves) {                                  // in one order on all ranks: no deadlock
      auto const from   = plan.at[static_cast<std::size_t>(move.from)];
      auto const bytes  = move.range.size() * sizeof(float);
      auto const mine   = from == me ? place(plan.old_held[old_of(move.from)], move.array, move.range) : Span<float>{};
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

    auto goes_on = GoesOn{};
    if constexpr (brings) goes_on = brought.numbers;
    auto const root = *std::ranges::find_if(plan.at, [](int rank) { return rank >= 0; });
    replica.broadcast(Span<GoesOn>{&goes_on, 1}, root);
    if constexpr (requires { copy.units().changed(); })
      if (copy.in_units()) copy.units().changed();
    copy.optimizer.now        = goes_on.now;
    copy.optimizer.loss_scale = goes_on.loss_scale;
    copy.optimizer.skipped    = goes_on.skipped;
  }, replicas.copies(), plans, results);
  if constexpr (brings) brought.leave();
  return results[0];
}

}  // namespace chorale::detail
