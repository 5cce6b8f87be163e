// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace chorale {

/// All-reduce of memory that the other ranks cannot read: parts of it are copied to memory that they can read.
///
/// How each part of x is exchanged; a part is at most half as long as the endpoint's copies(), 128 KiB:
///
///   a rank copies its part                rendezvous 1    reads all copies, and combines them into x
///   with 3 or more ranks, if the part     rendezvous 1    combines its share of all copies into its own copy
///   has more than 4 KiB                   rendezvous 2    reads all shares into x
///
/// Parts use the two halves of copies() in turn, so that no rank waits before it copies the next part.
///
/// cost    1 or 2 rendezvous for each part; `steps` counts them for one part. Each rank reads 2(P-1)/P · S bytes of its
///         peers' copies, or (P-1) S of short ones. No message, no scratch, no allocation
/// order   every element is combined in the order of ranks 0, 1, .., P-1, as by DirectAllReduce: the same bits
/// keeps   blocks until it is complete; DirectAllReduce needs no copies for an x in the transport's arena
struct CopiedAllReduce {
  static constexpr std::size_t short_bytes = 4 << 10;

  static constexpr Cost cost(int ranks, std::size_t bytes) {
    auto const peers = static_cast<std::size_t>(ranks - 1);
    if (ranks == 1) return {};
    if (ranks == 2 || bytes <= short_bytes) return {.steps = 1, .bytes = peers * bytes};
    return {.steps = 2, .bytes = 2 * peers * bytes / static_cast<std::size_t>(ranks)};
  }

  template <MeetingEndpoint E, Reducible T>
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    announce(at, {Collective::all_reduce, op, element_of<T>, x.size(), tag, where});
    if (at.size() == 1) return;
    auto const most = at.copies().size() / 2 / sizeof(T);
    do {  // ranks synchronize even without elements
      auto const part = x.first(std::min(x.size(), most));
      with_combine(op, [&](auto combined) {
        if (at.size() == 2 || part.size_bytes() <= short_bytes) combine_all_of(at, part, tag, combined);
        else combine_share_of(at, part, tag, combined);
      });
      x = x.subspan(part.size());
    } while (!x.empty());
  }

 private:
  template <class T, class E> static Span<T> mine(E& at, std::size_t half, std::size_t n) {
    return {reinterpret_cast<T*>(at.copies().data() + half * (at.copies().size() / 2)), n};
  }
  template <class T, class E> static T const* theirs(E& at, Rank rank, std::size_t half) {
    auto const all = at.copies_of(rank);
    return reinterpret_cast<T const*>(all.data() + half * (all.size() / 2));
  }

  template <class E, class T, class F> static void combine_all_of(E& at, Span<T> x, Tag tag, F combined) {
    auto const half = at.next_half();
    std::copy(x.begin(), x.end(), mine<T>(at, half, x.size()).begin());
    at.meet(tag);
    if (at.size() > 2) return combine_copies(at, half, Range{0, x.size()}, x.data(), combined);
    T* __restrict const to         = x.data();  // still equals this rank's copy
    T const* __restrict const peer = theirs<T>(at, 1 - at.rank(), half);
    if (at.rank() == 0)
      for (std::size_t i = 0; i < x.size(); ++i) to[i] = combined(to[i], peer[i]);
    else
      for (std::size_t i = 0; i < x.size(); ++i) to[i] = combined(peer[i], to[i]);
  }

  template <class E, class T, class F> static void combine_share_of(E& at, Span<T> x, Tag tag, F combined) {
    auto const half = at.next_half();
    auto const copy = mine<T>(at, half, x.size());
    auto const part = share(x.size(), at.rank(), at.size());
    std::copy(x.begin(), x.end(), copy.begin());
    at.meet(tag);
    combine_copies(at, half, part, copy.data() + part.begin, combined);
    at.meet(tag);
    for (Rank rank = 0; rank < at.size(); ++rank) {
      auto const from = share(x.size(), rank, at.size());
      std::copy_n(theirs<T>(at, rank, half) + from.begin, from.size(), x.data() + from.begin);
    }
  }

  /// Combines elements `part` of all copies in the order of ranks into `to`, which may be within one of the copies.
  template <class E, class T, class F>
  static void combine_copies(E& at, std::size_t half, Range part, T* to, F combined) {
    constexpr std::size_t segment = 4'096 / sizeof(T);  // partial results stay in the L1 cache
    std::array<T, segment> results;
    for (auto begin = part.begin; begin < part.end; begin += segment) {
      auto const n            = std::min(segment, part.end - begin);
      T* __restrict const sum = results.data();
      std::copy_n(theirs<T>(at, 0, half) + begin, n, sum);
      for (Rank rank = 1; rank < at.size(); ++rank) {
        T const* __restrict const next = theirs<T>(at, rank, half) + begin;
        for (std::size_t i = 0; i < n; ++i) sum[i] = combined(sum[i], next[i]);
      }
      std::copy_n(sum, n, to + (begin - part.begin));
    }
  }
};

}  // namespace chorale
