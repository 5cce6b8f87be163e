// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/support/on_ranks.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <vector>

namespace chorale::test {

template <class R, class T> struct Over {
  static_assert(ReduceAlgorithm<R, T> && ReduceAlgorithm<R, Counting<T>>);
  static_assert(ResumableReduce<R, typename T::endpoint>);
  using reduce    = R;
  using transport = T;
};

/// Every algorithm, over every transport that it can run over. A new policy adds one line.
using Cases =
    std::tuple<Over<RingAllReduce, LocalTransport>, Over<ReduceToOne, LocalTransport>,
               Over<TreeAllReduce, LocalTransport>, Over<DoubleTreeAllReduce, LocalTransport>,
               Over<HalvingDoublingAllReduce, LocalTransport>, Over<RecursiveDoublingAllReduce, LocalTransport>,
               Over<PairwiseAllReduce, LocalTransport>, Over<DirectAllReduce, LocalTransport>>;

// What each algorithm's chapter `order` says, for one element. of[r] is what rank r brings.

/// first, first + stride, ..
template <class T, class F> T in_turn(std::vector<T> const& of, std::size_t first, F combined, std::size_t stride = 1) {
  auto result = of[first];
  for (std::size_t k = 1; k < of.size(); ++k) result = combined(result, of[(first + k * stride) % of.size()]);
  return result;
}

inline std::size_t chunk_of(std::size_t i, std::size_t n, int chunks) {
  int chunk = 0;
  while (share(n, chunk, chunks).end <= i) ++chunk;
  return static_cast<std::size_t>(chunk);
}

template <class T, class F> T in_tree(std::vector<T> const& of, std::size_t rank, F combined) {
  auto result = of[rank];
  for (std::size_t child = 2 * rank + 1; child <= 2 * rank + 2 && child < of.size(); ++child)
    result = combined(result, in_tree(of, child, combined));
  return result;
}

/// The extra ranks folded into their neighbours: as many as the next power of two below.
template <class T, class F> std::vector<T> core_of(std::vector<T> const& of, F combined) {
  auto const extra = of.size() - std::bit_floor(of.size());
  auto core        = std::vector<T>{};
  for (std::size_t rank = 0; rank < of.size(); rank += rank < 2 * extra ? 2 : 1)
    core.push_back(rank < 2 * extra ? combined(of[rank], of[rank + 1]) : of[rank]);
  return core;
}

template <class T, class F> T neighbours_first(std::vector<T> core, F combined) {
  for (; core.size() > 1; core.resize(core.size() / 2))
    for (std::size_t i = 0; i < core.size() / 2; ++i) core[i] = combined(core[2 * i], core[2 * i + 1]);
  return core[0];
}

template <class T, class F> T halves_first(std::vector<T> core, F combined) {
  for (; core.size() > 1; core.resize(core.size() / 2))
    for (std::size_t i = 0; i < core.size() / 2; ++i) core[i] = combined(core[i], core[i + core.size() / 2]);
  return core[0];
}

/// Element i of n, in the documented order of R.
template <class R, class T, class F>
T in_documented_order(std::vector<T> of, std::size_t i, std::size_t n, F combined) {
  auto const ranks = static_cast<int>(of.size());
  if constexpr (std::is_same_v<R, RingAllReduce>) {
    return in_turn(of, chunk_of(i, n, ranks), combined);
  } else if constexpr (std::is_same_v<R, PairwiseAllReduce>) {
    return in_turn(of, chunk_of(i, n, ranks), combined, of.size() - 1);
  } else if constexpr (std::is_same_v<R, TreeAllReduce>) {
    return in_tree(of, 0, combined);
  } else if constexpr (std::is_same_v<R, DoubleTreeAllReduce>) {
    if (i >= share(n, 1, 2).begin) std::reverse(of.begin(), of.end());
    return in_tree(of, 0, combined);
  } else if constexpr (std::is_same_v<R, RecursiveDoublingAllReduce>) {
    return neighbours_first(core_of(of, combined), combined);
  } else if constexpr (std::is_same_v<R, HalvingDoublingAllReduce>) {
    return halves_first(core_of(of, combined), combined);
  } else {
    return in_turn(of, 0, combined);
  }
}

/// all[r] is what rank r brings.
template <class R, class T> std::vector<T> reference_of(std::vector<std::vector<T>> const& all, Op op) {
  auto const n = all[0].size();
  auto result  = std::vector<T>(n);
  auto of      = std::vector<T>(all.size());
  with_combine(op, [&](auto combined) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t rank = 0; rank < all.size(); ++rank) of[rank] = all[rank][i];
      result[i] = in_documented_order<R>(of, i, n, combined);
    }
  });
  return result;
}

/// Of values_of().
template <class R> std::vector<float> reference(int ranks, std::size_t n, Op op) {
  auto all = std::vector<std::vector<float>>{};
  for (Rank rank = 0; rank < ranks; ++rank) all.push_back(values_of(rank, n));
  return reference_of<R>(all, op);
}

}  // namespace chorale::test
