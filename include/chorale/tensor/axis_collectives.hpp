// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <type_traits>

/// Operations between the ranks along an axis, in the middle of a step. Every rank of the group calls them, in the same
/// order, with as many numbers; groups have any number of ranks.
///
///   all_gather      | a |     | b |       ->  | a b |    | a b |
///   reduce_scatter  | a c |   | b d |     ->  | a+b |    | c+d |
///   all_reduce      | a |     | b |       ->  | a+b |    | a+b |
///   all_to_all      | a b |   | c d |     ->  | a c |    | b d |
///   shift by 1      | a |     | b |       ->  | b |      | a |
///
/// order   sums are added along one binary tree over the ranks, see left_of_tree: the same bits on all ranks
/// cost    a rank sends (n - 1) / n of its numbers in all_gather, reduce_scatter and all_to_all, and twice as much in
///         all_reduce, or log2(n) times all of them where they are few; nothing is allocated, and a group of one sends
///         nothing
/// source  the exchanges in pairs of Thakur et al., "Optimization of Collective Communication Operations in MPICH", 2005
namespace chorale::along {

/// The leaves of the left half of a binary tree over n leaves: as many as a whole tree has, so that blocks of 2, 4, 8
/// leaves from the left are nodes of it.
///
///   n = 6      ((0 1) (2 3)) (4 5)
constexpr int left_of_tree(int n) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)) / 2); }

/// Adds up n rows of numbers along the tree; the sum is the first row then. The others have any value.
template <class Add> void fold_rows(float* rows, std::size_t stride, int n, std::size_t numbers, Add const& add) {
  for (int apart = 1; apart < n; apart *= 2)
    for (int i = 0; i + apart < n; i += 2 * apart) {
      auto* const a       = rows + static_cast<std::size_t>(i) * stride;
      auto const* const b = rows + static_cast<std::size_t>(i + apart) * stride;
      for (std::size_t k = 0; k < numbers; ++k) a[k] = add(a[k], b[k]);
    }
}

namespace detail {

inline constexpr std::size_t few = 1024;  // numbers: sent whole to each partner

/// Rank number `rank` of the group, which may be beyond its ends.
inline Rank around(AxisGroup const& group, int rank) { return (rank % group.size + group.size) % group.size; }

template <class T> ConstBytes bytes_of(Span<T const> x) { return std::as_bytes(x); }
template <class T> Bytes bytes_to(Span<T> x) { return std::as_writable_bytes(x); }

/// Calls f(to, from) for each distance between ranks, so that all ranks talk in pairs at the same time.
template <class F> void each_pair(AxisGroup const& group, F const& f) {
  for (int d = 1; d < group.size; ++d) f(around(group, group.rank + d), around(group, group.rank - d));
}

struct Plus {
  float operator()(float a, float b) const { return a + b; }
};

}  // namespace detail

/// The larger of two numbers, in place of their sum.
struct Largest {
  float operator()(float a, float b) const { return a < b ? b : a; }
};

/// Numbers of scratch with which n numbers are reduced over so many ranks.
constexpr std::size_t scratch_for(std::size_t n, int ranks) {
  return ranks == 1 ? 0 : n + static_cast<std::size_t>(ranks);
}

/// Sends `out` to the rank that comes `by` places after this one while `in` comes from the rank as far before it.
template <class T> void shift(AxisGroup const& group, int by, Span<T const> out, Span<T> in) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (by % group.size != 0)
    return group.exchange(detail::around(group, group.rank + by), detail::bytes_of(out),
                          detail::around(group, group.rank - by), detail::bytes_to(in));
  std::copy(out.begin(), out.end(), in.begin());
}

/// Brings the pieces of all ranks to all ranks, in their order: piece r of `all` is share(all.size(), r, size).
///
/// own     this rank's piece; it may lie at its place in `all`
template <class T> void all_gather(AxisGroup const& group, Span<T const> own, Span<T> all) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto const piece = [&](Rank r) {
    auto const at = share(all.size(), r, group.size);
    return all.subspan(at.begin, at.size());
  };
  CHORALE_EXPECTS(own.size() == piece(group.rank).size(),
                  "all_gather over axis " + std::string{group.name} + " got " + std::to_string(own.size()) +
                      " elements of rank " + std::to_string(group.rank) + ", whose piece of " +
                      std::to_string(all.size()) + " has " + std::to_string(piece(group.rank).size()));
  if (auto const mine = piece(group.rank); mine.data() != own.data()) std::copy(own.begin(), own.end(), mine.begin());
  detail::each_pair(group, [&](Rank to, Rank from) {
    group.exchange(to, detail::bytes_of(own), from, detail::bytes_to(piece(from)));
  });
}

/// Sums over all ranks; each rank gets its piece of them: share(x.size(), rank, size).
///
/// own       of this rank; it may lie at its place in `x`, which stays as it is elsewhere
/// scratch   scratch_for(x.size(), size) numbers
template <class Add = detail::Plus>
void reduce_scatter(AxisGroup const& group, Span<float const> x, Span<float> own, Span<float> scratch,
                    Add const& add = {}) {
  auto const at = share(x.size(), group.rank, group.size);
  CHORALE_EXPECTS(own.size() == at.size() && scratch.size() >= scratch_for(x.size(), group.size),
                  "reduce_scatter of " + std::to_string(x.size()) + " numbers over axis " + std::string{group.name} +
                      " got room for " + std::to_string(own.size()) + " sums and " + std::to_string(scratch.size()) +
                      " numbers of scratch");
  auto const mine = x.subspan(at.begin, at.size());
  if (group.size == 1) {
    if (mine.data() != own.data()) std::copy(mine.begin(), mine.end(), own.begin());
    return;
  }
  auto const row = [&](Rank r) { return scratch.subspan(static_cast<std::size_t>(r) * own.size(), own.size()); };
  std::copy(mine.begin(), mine.end(), row(group.rank).begin());
  detail::each_pair(group, [&](Rank to, Rank from) {
    auto const of = share(x.size(), to, group.size);
    group.exchange(to, detail::bytes_of(x.subspan(of.begin, of.size())), from, detail::bytes_to(row(from)));
  });
  fold_rows(scratch.data(), own.size(), group.size, own.size(), add);
  std::copy_n(scratch.begin(), own.size(), own.begin());
}

/// x becomes the sum of the x of all ranks, with the same bits on each.
///
/// scratch   scratch_for(x.size(), size) numbers
template <class Add = detail::Plus>
void all_reduce(AxisGroup const& group, Span<float> x, Span<float> scratch, Add const& add = {}) {
  if (group.size == 1) return;
  auto const others = scratch.first(x.size());
  if (x.size() <= detail::few && std::has_single_bit(static_cast<unsigned>(group.size))) {
    for (int apart = 1; apart < group.size; apart *= 2) {  // the same tree, of sums over 2, 4, .. ranks
      auto const peer = group.rank ^ apart;
      group.exchange(peer, detail::bytes_of(Span<float const>{x}), peer, detail::bytes_to(others));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = peer < group.rank ? add(others[i], x[i]) : add(x[i], others[i]);
    }
    return;
  }
  auto const at  = share(x.size(), group.rank, group.size);
  auto const own = x.subspan(at.begin, at.size());
  reduce_scatter(group, Span<float const>{x}, own, scratch, add);
  all_gather(group, Span<float const>{own}, x);
}

/// Sends elements to each rank and receives from each: those for rank r come after those for the ranks before it.
///
/// to, from    elements for each rank, and of each; what this rank sends itself is copied
template <class T>
void all_to_all(AxisGroup const& group, Span<T const> out, Span<std::size_t const> to, Span<T> in,
                Span<std::size_t const> from) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto const first = [](Span<std::size_t const> sizes, Rank r) {
    auto sum = std::size_t{0};
    for (Rank i = 0; i < r; ++i) sum += sizes[static_cast<std::size_t>(i)];
    return sum;
  };
  auto const n = static_cast<std::size_t>(group.size);
  CHORALE_EXPECTS(
      to.size() == n && from.size() == n && first(to, group.size) <= out.size() && first(from, group.size) <= in.size(),
      "all_to_all over axis " + std::string{group.name} + " of " + std::to_string(n) + " ranks got " +
          std::to_string(to.size()) + " and " + std::to_string(from.size()) + " sizes, " + std::to_string(out.size()) +
          " elements and room for " + std::to_string(in.size()));
  auto const sent = [&](Rank r) { return out.subspan(first(to, r), to[static_cast<std::size_t>(r)]); };
  auto const got  = [&](Rank r) { return in.subspan(first(from, r), from[static_cast<std::size_t>(r)]); };
  CHORALE_EXPECTS(sent(group.rank).size() == got(group.rank).size(),
                  "all_to_all over axis " + std::string{group.name} + ": rank " + std::to_string(group.rank) +
                      " sends itself " + std::to_string(sent(group.rank).size()) + " elements, and takes " +
                      std::to_string(got(group.rank).size()));
  auto const mine = sent(group.rank);
  std::copy(mine.begin(), mine.end(), got(group.rank).begin());
  detail::each_pair(group, [&](Rank there, Rank here) {
    group.exchange(there, detail::bytes_of(sent(there)), here, detail::bytes_to(got(here)));
  });
}

}  // namespace chorale::along
