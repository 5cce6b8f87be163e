// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/transport/collective.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale {

/// The kinds of error in a schedule.
enum class Flaw : std::uint8_t {
  none,
  no_such,       // a rank or a chunk that does not exist
  unmatched,     // a message that its peer does not send or receive in the same step
  other_chunks,  // the two ends of a message differ about its chunks
  too_wide,      // a message has more chunks than widest() says
  torn,          // chunks are sent and replaced in one step
  nothing,       // a rank sends chunks that it does not have
  twice,         // the contribution of a rank is counted twice
  lost,          // the contribution of a rank is overwritten
  incomplete     // at the end a contribution is missing
};

/// The first flaw of a schedule: the number of ranks, and the rank, step and chunk in which it occurs.
struct FirstFlaw {
  Flaw flaw = Flaw::none;
  int ranks = 0;
  Rank rank = 0;
  int step  = 0;
  int chunk = 0;

  friend constexpr bool operator==(FirstFlaw const&, FirstFlaw const&) = default;
};

namespace detail {

/// An array of n values, initially zero. (Not every C++20 compiler accepts std::vector in constant expressions.)
template <class T> class Several {
 public:
  constexpr explicit Several(int n) : data_{new T[static_cast<std::size_t>(n)]{}} {}
  constexpr ~Several() { delete[] data_; }
  Several(Several const&)            = delete;
  Several& operator=(Several const&) = delete;

  constexpr T& operator[](int i) { return data_[i]; }
  constexpr T const& operator[](int i) const { return data_[i]; }

 private:
  T* data_;
};

/// All ranks of a schedule at once. For each chunk on each rank, a bit set holds the ranks that have contributed to it.
template <Schedule S> class SymbolicRanks {
 public:
  using Ranks = std::uint64_t;  // bit r: rank r

  constexpr explicit SymbolicRanks(int ranks)
      : ranks_{ranks}, chunks_{S::chunks(ranks)}, steps_(ranks), has_(ranks * chunks_), arrived_(ranks * chunks_) {
    for (Rank rank = 0; rank < ranks; ++rank)
      for (int c = 0; c < chunks_; ++c) has(rank, c) = at_first(rank, c);
  }

  constexpr FirstFlaw run() {
    for (int s = 0; s < S::steps(ranks_); ++s) {
      for (Rank rank = 0; rank < ranks_; ++rank) steps_[rank] = S::step(rank, ranks_, s);
      for (Rank rank = 0; rank < ranks_; ++rank)
        if (auto const flaw = ends(rank); flaw != Flaw::none) return {flaw, ranks_, rank, s, 0};
      if (auto const found = exchange(s); found.flaw != Flaw::none) return found;
    }
    for (Rank rank = 0; rank < ranks_; ++rank)
      for (int c = 0; c < chunks_; ++c)
        if (!complete(rank, c)) return {Flaw::incomplete, ranks_, rank, S::steps(ranks_), c};
    return {Flaw::none, ranks_, 0, 0, 0};
  }

 private:
  static constexpr bool swaps = S::collective == Collective::all_to_all;  // out of one buffer into another

  constexpr Ranks& has(Rank rank, int chunk) { return has_[rank * chunks_ + chunk]; }
  constexpr Ranks everyone() const { return ~Ranks{0} >> (64 - ranks_); }
  static constexpr Ranks only(Rank rank) { return Ranks{1} << rank; }

  constexpr Ranks at_first(Rank rank, int chunk) const {
    switch (S::collective) {
      case Collective::all_gather: return rank == chunk ? only(rank) : 0;
      case Collective::broadcast: return rank == 0 ? only(0) : 0;
      case Collective::all_to_all: return rank == chunk ? only(rank) : 0;  // its own share is copied
      default: return only(rank);
    }
  }

  constexpr bool complete(Rank rank, int chunk) {
    switch (S::collective) {
      case Collective::all_gather: return has(rank, chunk) == only(chunk);
      case Collective::broadcast: return has(rank, chunk) == only(0);
      case Collective::all_to_all: return has(rank, chunk) == only(chunk);  // share c comes from rank c
      case Collective::reduce: return rank != 0 || has(rank, chunk) == everyone();
      case Collective::reduce_scatter: return rank != chunk || has(rank, chunk) == everyone();
      default: return has(rank, chunk) == everyone();
    }
  }

  constexpr bool exists(Rank peer, Chunks c) const {
    return peer == nobody || (peer >= 0 && peer < ranks_ && c.begin >= 0 && c.begin < c.end && c.end <= chunks_);
  }

  /// Checks that the peers of both messages of this rank specify the same messages.
  constexpr Flaw ends(Rank rank) const {
    auto const& mine = steps_[rank];
    if (!exists(mine.to, mine.send) || !exists(mine.from, mine.receive)) return Flaw::no_such;
    if (mine.to == rank || mine.from == rank) return Flaw::unmatched;
    if (mine.to != nobody) {
      auto const& theirs = steps_[mine.to];
      if (theirs.from != rank) return Flaw::unmatched;
      auto const same = swaps ? mine.send == Chunks::one(mine.to) && theirs.receive == Chunks::one(rank)
                              : mine.send == theirs.receive;
      if (!same) return Flaw::other_chunks;
      if (mine.send.size() > S::widest(ranks_)) return Flaw::too_wide;
    }
    if (mine.from != nobody && steps_[mine.from].to != rank) return Flaw::unmatched;
    auto const replaced = mine.from != nobody && mine.to != nobody && mine.fold == Fold::keep && !swaps;
    return replaced && mine.send.overlaps(mine.receive) ? Flaw::torn : Flaw::none;
  }

  /// Exchanges all messages of step s: chunks are read as they were before the step, then combined.
  constexpr FirstFlaw exchange(int s) {
    auto next = 0;
    for (Rank rank = 0; rank < ranks_; ++rank) {
      auto const& step = steps_[rank];
      if (step.from == nobody) continue;
      for (int c = step.receive.begin; c < step.receive.end; ++c)
        arrived_[next++] = swaps ? only(step.from) : has(step.from, c);
    }
    next = 0;
    for (Rank rank = 0; rank < ranks_; ++rank) {
      auto const& step = steps_[rank];
      if (step.from == nobody) continue;
      for (int c = step.receive.begin; c < step.receive.end; ++c) {
        auto const flaw = fold(has(rank, c), arrived_[next++], step.fold);
        if (flaw != Flaw::none) return {flaw, ranks_, rank, s, c};
      }
    }
    return {};
  }

  static constexpr Flaw fold(Ranks& mine, Ranks theirs, Fold how) {
    if (theirs == 0) return Flaw::nothing;
    if (how == Fold::keep) {
      if ((mine & ~theirs) != 0) return Flaw::lost;
      mine = theirs;
    } else {
      if ((mine & theirs) != 0) return Flaw::twice;
      mine |= theirs;
    }
    return Flaw::none;
  }

  int ranks_, chunks_;
  Several<Step> steps_;           // [rank]: in the step being checked
  Several<Ranks> has_, arrived_;  // [rank][chunk]; in the order of receives
};

}  // namespace detail

/// Proves a schedule for one number of ranks, up to 64: every message has two ends in the same step, so that waits
/// cannot form a cycle; and at the end every chunk is complete where it should be, with each contribution once.
///
/// cost    as many steps as the schedule has messages and chunks in them; a constant expression
template <Schedule S> constexpr FirstFlaw check(int ranks) { return detail::SymbolicRanks<S>{ranks}.run(); }

/// The first flaw for any number of ranks from 1 to `most`.
template <Schedule S> constexpr FirstFlaw check_up_to(int most) {
  for (int ranks = 1; ranks <= most; ++ranks)
    if (auto const found = check<S>(ranks); found.flaw != Flaw::none) return found;
  return {};
}

/// The first flaw for up to 16 ranks, found once for all operations of a schedule.
template <Schedule S> inline constexpr FirstFlaw first_flaw_of = check_up_to<S>(16);

/// Compiles only without a flaw; else the compiler's message shows v: number of ranks, rank, step and chunk.
template <class S, FirstFlaw v> struct Proof {
  static_assert(v.flaw != Flaw::no_such,
                "chorale: this schedule names a rank or a chunk that there is not. "
                "The FirstFlaw says for how many ranks, on which rank, in which step. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::unmatched,
                "chorale: in this schedule a message has only one end. What a rank sends in "
                "a step, its peer must receive in the same step. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::other_chunks,
                "chorale: in this schedule the two ends of a message differ about its "
                "chunks. What a rank receives is what its peer sends. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::too_wide,
                "chorale: in this schedule a message has more chunks than widest() says. "
                "widest() is the most chunks in one message. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::torn,
                "chorale: this schedule sends and replaces the same chunks in one step. "
                "Use two steps, or combine them. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::nothing,
                "chorale: in this schedule a rank sends chunks that it does not have yet. "
                "They must arrive in an earlier step. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::twice,
                "chorale: this schedule counts a rank twice. Chunks that are combined must come "
                "from different ranks; those that are complete are kept. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::lost,
                "chorale: this schedule overwrites what a rank contributed. Combine with "
                "Fold::mine_first or theirs_first before it is complete. See docs/50-reduce.md");
  static_assert(v.flaw != Flaw::incomplete,
                "chorale: this schedule ends before every chunk is complete. "
                "The FirstFlaw says which chunk of which rank. See docs/50-reduce.md");
  static constexpr bool checked = true;  // so that the sentence is the only error
};

}  // namespace chorale
