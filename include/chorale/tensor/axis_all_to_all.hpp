// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/pieces.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chorale {

/// Lists of values, one for each rank along an axis.
///
/// keeps   the memory of the longest lists so far
template <class T> struct ListsOfRanks {
  std::vector<std::vector<T>> of;

  /// Makes as many lists, of any length; and makes all of them empty.
  void prepare(int ranks) { of.resize(static_cast<std::size_t>(ranks)); }
  void begin(int ranks) {
    prepare(ranks);
    for (auto& list : of) list.clear();
  }
  std::vector<T>& operator[](Rank rank) { return of[static_cast<std::size_t>(rank)]; }
  std::vector<T> const& operator[](Rank rank) const { return of[static_cast<std::size_t>(rank)]; }
};

/// Questions of the ranks along an axis to the owners of something that is split over it, such as the rows of a table,
/// and the answers.
///
///   rank 0 asks 1: 5 9      to_owners    rank 1 has the questions of rank 0: 5 9, of rank 1: 7, ..
///   rank 1 answers          to_askers    rank 0 has the answers of rank 1, to 5 and to 9
///
/// Where all ranks have the same rows of a batch they ask the same: an owner then has the questions already, as its
/// rank asks them too. Nothing is sent to owners, and their answers go to all.
///
/// cost    to_owners: P - 1 messages, of what the others are asked. to_askers: of what the others are answered. A message
///         goes in pieces
/// keeps   what a rank says of its lists is not trusted: memory for them grows as they arrive
/// order   every rank makes the same calls. Lists keep their order, and owners see them in the order of ranks
class OwnerExchange {
 public:
  void begin(AxisGroup const& group) { group_ = group; }

  Rank rank() const { return group_.rank; }
  int size() const { return group_.size; }
  bool deals_rows() const { return group_.deals_rows; }
  bool in_shards() const { return group_.in_shards && deals_rows(); }

  /// Tells all ranks n numbers of each: afterwards all[r] has the numbers of rank r. Where all have the same rows of a
  /// batch, they have the same numbers, and all has this rank's alone.
  void tell(Span<std::uint32_t const> mine, ListsOfRanks<std::uint32_t>& all) const {
    to_each_owner(mine, all, [&](Rank) { return mine.size(); });
  }

  /// Tells each owner how many questions it is asked. Returns how many each rank has for this one.
  Span<std::uint32_t const> counts(Span<std::uint32_t const> asked) {
    told_.assign(asked.size(), 0);
    told_[at(rank())] = asked[at(rank())];
    if (deals_rows())
      along::detail::each_pair(group_, [&](Rank to, Rank from) {
        group_.exchange(to, std::as_bytes(asked.subspan(at(to), 1)), from,
                        std::as_writable_bytes(Span<std::uint32_t>{told_}.subspan(at(from), 1)));
      });
    return told_;
  }

  /// Sends mine[q] to each owner q; afterwards theirs[r] is what rank r sent, size_of(r) values. What this rank has for
  /// itself is swapped: mine[rank()] keeps its size, with other values.
  ///
  /// size_of   what rank r has said, by counts() or tell()
  template <class T, class SizeOf>
  void to_owners(ListsOfRanks<T>& mine, ListsOfRanks<T>& theirs, SizeOf const& size_of) const {
    theirs.prepare(size());
    theirs[rank()].resize(mine[rank()].size());
    std::swap(mine[rank()], theirs[rank()]);
    each_other([&](Rank to, Rank from) {
      if (deals_rows()) pass(to, Span<T const>{mine[to]}, from, theirs[from], size_of(from));
      else theirs[from].clear();
    });
  }

  /// Sends the same to each owner; afterwards theirs[r] is what rank r sent, size_of(r) values.
  template <class T, class SizeOf>
  void to_each_owner(Span<T const> mine, ListsOfRanks<T>& theirs, SizeOf const& size_of) const {
    theirs.prepare(size());
    theirs[rank()].assign(mine.begin(), mine.end());
    each_other([&](Rank to, Rank from) {
      if (deals_rows()) pass(to, mine, from, theirs[from], size_of(from));
      else theirs[from].clear();
    });
  }

  /// Sends answers[r] to each rank r that asked; afterwards got[q] is what owner q answered. got[q] has its size before,
  /// which follows from what this rank asked.
  template <class T> void to_askers(ListsOfRanks<T>& answers, ListsOfRanks<T>& got) const {
    std::swap(answers[rank()], got[rank()]);
    each_other([&](Rank to, Rank from) {
      pass(to, Span<T const>{deals_rows() ? answers[to] : got[rank()]}, from, got[from], got[from].size());
    });
  }

 private:
  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

  template <class F> void each_other(F const& f) const { along::detail::each_pair(group_, f); }

  template <class T> void pass(Rank to, Span<T const> out, Rank from, std::vector<T>& in, std::size_t n) const {
    exchange_in_pieces(out, in, n, [&](Span<T const> sent, Span<T> received) {
      group_.exchange(to, std::as_bytes(sent), from, std::as_writable_bytes(received));
    });
  }

  AxisGroup group_;
  std::vector<std::uint32_t> told_;
};

}  // namespace chorale
