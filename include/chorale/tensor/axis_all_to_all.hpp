// SPDX-License-Identifier: Apache-2.0
#pragma once

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
template <class T>
struct ListsOfRanks {
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
///   rank 1 answers          to_askers    rank 0 has the answers of rank 1: those of 5 and of 9
///
/// Where all ranks have the same rows of a batch they ask the same: an owner then has its questions already, as those
/// of its own rank, nothing is sent to owners, and its answers go to all.
///
/// cost    to_owners: P - 1 messages, of what the others are asked. to_askers: of what the others are answered
/// order   every rank makes the same calls. Lists keep their order, and owners see them in the order of ranks
class OwnerExchange {
 public:
  void begin(AxisGroup const& group) { group_ = group; }

  Rank rank() const { return group_.rank; }
  int  size() const { return group_.size; }
  bool deals_rows() const { return group_.deals_rows; }
  bool in_shards() const { return group_.in_shards && deals_rows(); }

  /// Tells all ranks n numbers of each: afterwards those of rank r are all[r]. Where all have the same rows of a batch
  /// they have the same numbers, which are this rank's.
  void tell(Span<std::uint32_t const> mine, ListsOfRanks<std::uint32_t>& all) const {
    all.begin(size());
    for (Rank r = 0; r < size(); ++r) all[r].resize(r == rank() || deals_rows() ? mine.size() : 0);
    to_each_owner(mine, all);
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

  /// Sends mine[q] to each owner q; afterwards theirs[r] is what rank r sent. theirs[r] has its size before. What this
  /// rank has for itself changes its place, and leaves as many values behind.
  template <class T>
  void to_owners(ListsOfRanks<T>& mine, ListsOfRanks<T>& theirs) const {
    std::swap(mine[rank()], theirs[rank()]);
    if (deals_rows()) send_to_each(mine, theirs);
  }

  /// Sends the same to each owner; afterwards theirs[r] is what rank r sent. theirs[r] has its size before.
  template <class T>
  void to_each_owner(Span<T const> mine, ListsOfRanks<T>& theirs) const {
    std::ranges::copy(mine, theirs[rank()].begin());
    if (deals_rows()) send_to_all(mine, theirs);
  }

  /// Sends answers[r] to each rank r that asked; afterwards got[q] is what owner q answered. Sizes as above.
  template <class T>
  void to_askers(ListsOfRanks<T>& answers, ListsOfRanks<T>& got) const {
    std::swap(answers[rank()], got[rank()]);
    if (deals_rows()) send_to_each(answers, got);
    else send_to_all(Span<T const>{got[rank()]}, got);
  }

 private:
  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

  template <class T>
  void send_to_each(ListsOfRanks<T> const& mine, ListsOfRanks<T>& theirs) const {
    along::detail::each_pair(group_, [&](Rank to, Rank from) {
      group_.exchange(to, std::as_bytes(Span<T const>{mine[to]}), from, std::as_writable_bytes(Span<T>{theirs[from]}));
    });
  }

  template <class T>
  void send_to_all(Span<T const> mine, ListsOfRanks<T>& theirs) const {
    along::detail::each_pair(group_, [&](Rank to, Rank from) {
      group_.exchange(to, std::as_bytes(mine), from, std::as_writable_bytes(Span<T>{theirs[from]}));
    });
  }

  AxisGroup group_;
  std::vector<std::uint32_t> told_;
};

}  // namespace chorale
