// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale {
namespace detail {

/// The shards that each rank has of each chunk before every step of a schedule; they determine its messages.
template <Schedule S> class ShardTraffic {
 public:
  /// ends   where the shards of each rank end; empty: all ranks have as many, as nearly as possible
  ShardTraffic(int ranks, int shards, Span<int const> ends = {}) : chunks_{S::chunks(ranks)} {
    auto now = std::vector<shard_tree::Shards>{};
    for (Rank rank = 0; rank < ranks; ++rank)
      now.insert(now.end(), static_cast<std::size_t>(chunks_), shard_tree::of_rank(rank, ranks, shards, ends));
    held_.push_back(now);
    for (int s = 0; s < S::steps(ranks); ++s) {
      for (Rank rank = 0; rank < ranks; ++rank) {
        auto const step = S::step(rank, ranks, s);
        if (step.from == nobody) continue;
        for (int c = step.receive.begin; c < step.receive.end; ++c) {
          auto const theirs = held(s, step.from, c);
          now[at(rank, c)]  = step.fold == Fold::keep ? theirs : now[at(rank, c)] | theirs;
        }
      }
      held_.push_back(now);
    }
  }

  shard_tree::Shards held(int step, Rank rank, int chunk) const {
    return held_[static_cast<std::size_t>(step)][at(rank, chunk)];
  }

 private:
  std::size_t at(Rank rank, int chunk) const { return static_cast<std::size_t>(rank * chunks_ + chunk); }

  int chunks_;
  std::vector<std::vector<shard_tree::Shards>> held_;  // [step][rank, chunk]
};

}  // namespace detail

/// Sums along one fixed binary tree over L logical shards: the same bits for any number of ranks, any buckets, any
/// transport, and any R, which only decides which rank sends to which.
///
///   auto trainer = Trainer{model, strategy, Reproducible<64, RingAllReduce>{}, TcpTransport{..}, seed};
///
/// A replica computes the gradient of each of its shards separately, and adds siblings only. A message
/// carries the sums at all nodes that its rank has of a chunk, so ranks whose shards are whole subtrees send what R
/// sends, others up to 2 log2 L times as much: see traffic_factor().
///
/// L       logical shards of a global batch: a power of two up to 64, and at least the number of ranks
/// cost    R's steps; R's bytes times traffic_factor(). A rank computes L / P small gradients instead of one large one,
///         and no communication is hidden by computing. Up to 2 log2 L copies of the gradients; allocates in each call
/// order   the tree's. Kernels give the same bits for a shard wherever it is computed, on processors of one kind
/// source  EasyScale, SC 2023, for the goal
template <int L = 64, Schedule R = RingAllReduce> struct Reproducible {
  static_assert(L >= 1 && L <= 64 && std::has_single_bit(static_cast<unsigned>(L)),
                "chorale: Reproducible<L> needs a power of two up to 64");
  static constexpr int logical_shards = L;

  std::size_t bucket_bytes = std::size_t{1} << 20;  // sent together; the bits do not depend on it
  Span<std::size_t const> bucket_ends{};            // in x, ascending, where it is cut instead

  /// Returns the bytes that all ranks together send, divided by the bytes that R alone would send.
  static double traffic_factor(int ranks) {
    auto ours = 0.0, theirs = 0.0;
    each_message(ranks, [&](Rank, std::size_t nodes) {
      ours += static_cast<double>(nodes);
      theirs += 1;
    });
    return theirs == 0 ? 1 : ours / theirs;
  }

  /// The steps, and the bytes that the busiest rank sends, for an x of `bytes` in chunks of equal size, rounded down.
  static Cost cost(int ranks, std::size_t bytes) {
    auto sent = std::vector<std::size_t>(static_cast<std::size_t>(ranks));
    each_message(ranks, [&](Rank rank, std::size_t nodes) { sent[static_cast<std::size_t>(rank)] += nodes; });
    auto const chunk = bytes / static_cast<std::size_t>(R::chunks(ranks));
    return {.steps = depth<R>(ranks), .bytes = *std::max_element(sent.begin(), sent.end()) * chunk};
  }

  /// The traffic of so many ranks: the shards in each of their messages, found once for any number of all-reduces.
  ///
  /// ends    where the shards of each rank end; empty: all ranks have as many, as nearly as possible
  /// throws  BadArgument when there are more ranks than logical shards
  static detail::ShardTraffic<R> traffic_of(int ranks, Span<int const> ends = {}) {
    CHORALE_EXPECTS(ranks <= L, "Reproducible<" + std::to_string(L) + "> has " + std::to_string(L) +
                                    " logical shards, too few for " + std::to_string(ranks) + " ranks");
    return {ranks, L, ends};
  }

  /// Stores the sum of the shards of all ranks in x.
  ///
  /// mine      the sums of this rank's shards: all nodes of nodes_of(of_rank(rank, P, L), L), each of x's size
  /// traffic   traffic_of(P)
  template <Endpoint E>
  void all_reduce(E& at, detail::ShardTraffic<R> const& traffic, shard_tree::Sums const& mine, Span<float> x,
                  Tag tag = {}, CallSite where = CallSite::here()) const {
    all_reduce_part(at, traffic, mine, {0, x.size()}, x, tag, where);
  }

  /// Stores the sum of the shards of all ranks in the elements `part` of x.
  ///
  /// mine      as above, each of x's size
  template <Endpoint E>
  void all_reduce_part(E& at, detail::ShardTraffic<R> const& traffic, shard_tree::Sums const& mine, Range part,
                       Span<float> x, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto const chunks = R::chunks(at.size());
    for (auto begin = part.begin, end = begin; begin < part.end; begin = end) {
      end             = bucket_end(begin, part.end);
      auto const here = Range{begin, end};
      announce(at, {Collective::all_reduce, Op::sum, Element::f32, part.end - begin, tag, where});
      reduce_bucket<R>(at, traffic, mine, x, tag, {0, chunks}, [&](int c) {
        auto const chunk = share(here.size(), c, chunks);
        return Range{here.begin + chunk.begin, here.begin + chunk.end};
      });
    }
  }

  /// Stores the sum of the shards of all ranks in this rank's chunk of x, and leaves all others as they are.
  ///
  /// traffic   Reproducible<L, S>::traffic_of(P) of a reduce-scatter S, such as RingReduceScatter
  /// first     element of x at which chunk 0 begins
  /// ends      where the chunk of each rank ends, from there on
  template <Schedule S, Endpoint E>
  void reduce_scatter(E& at, detail::ShardTraffic<S> const& traffic, shard_tree::Sums const& mine, std::size_t first,
                      Span<std::size_t const> ends, Span<float> x, Tag tag = {},
                      CallSite where = CallSite::here()) const {
    auto const last = ends.back();
    for (std::size_t begin = 0, end = 0; begin < last; begin = end) {
      end = bucket_end(first + begin, first + last) - first;
      announce(at, {Collective::reduce_scatter, Op::sum, Element::f32, last - begin, tag, where, no_root,
                    fingerprint_of(ends)});
      reduce_bucket<S>(at, traffic, mine, x, tag, Chunks::one(at.rank()), [&](int c) {
        auto const i = static_cast<std::size_t>(c);
        return Range{first + std::clamp(i == 0 ? 0 : ends[i - 1], begin, end), first + std::clamp(ends[i], begin, end)};
      });
    }
  }

  /// Stores the sum of all ranks' x in x: rank r's x is shard share(L, r, P).begin, and its other shards are zeros.
  ///
  /// throws  BadArgument for an operation other than sum
  template <Endpoint E>
  void all_reduce(E& at, Span<float> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    CHORALE_EXPECTS(op == Op::sum, "Reproducible adds up; " + std::string{name(op)} +
                                       " has the same bits in any order, under any other algorithm");
    auto const traffic = traffic_of(at.size());
    auto mine          = shard_tree::Sums{};
    auto first         = true;
    mine.resize(x.size());
    for (int const node : shard_tree::nodes_of(shard_tree::of_rank(at.rank(), at.size(), L), L)) {
      auto values = mine.memory();
      if (first) std::copy(x.begin(), x.end(), values.get());
      else std::fill_n(values.get(), x.size(), 0.0F);
      mine.add(node, std::move(values));
      first = false;
    }
    all_reduce(at, traffic, mine, x, tag, where);
  }

 private:
  /// The end of the bucket of x that begins there, at most `last`.
  std::size_t bucket_end(std::size_t begin, std::size_t last) const {
    if (bucket_ends.empty()) return std::min(last, begin + std::max<std::size_t>(1, bucket_bytes / sizeof(float)));
    auto const next = std::upper_bound(bucket_ends.begin(), bucket_ends.end(), begin);
    return next == bucket_ends.end() ? last : std::min(last, *next);
  }

  /// Calls f(rank, nodes) for each chunk that a rank sends.
  template <class F> static void each_message(int ranks, F&& f) {
    auto const traffic = traffic_of(ranks);
    for (int s = 0; s < R::steps(ranks); ++s)
      for (Rank rank = 0; rank < ranks; ++rank) {
        auto const step = R::step(rank, ranks, s);
        if (step.to == nobody) continue;
        for (int c = step.send.begin; c < step.send.end; ++c)
          f(rank, shard_tree::nodes_of(traffic.held(s, rank, c), L).size());
      }
  }

  /// Reduces one bucket by the messages of a schedule.
  ///
  /// wanted   chunks whose sums are stored in x
  /// range    called as range(chunk): its elements of x
  template <Schedule S, Endpoint E, class Elements>
  static void reduce_bucket(E& at, detail::ShardTraffic<S> const& traffic, shard_tree::Sums const& mine, Span<float> x,
                            Tag tag, Chunks wanted, Elements&& range) {
    auto const P      = at.size();
    auto const chunks = S::chunks(P);

    auto sums     = std::vector<shard_tree::Sums>(static_cast<std::size_t>(chunks));
    auto const of = [&](int c) -> shard_tree::Sums& { return sums[static_cast<std::size_t>(c)]; };
    for (int c = 0; c < chunks; ++c) {
      of(c).resize(range(c).size());
      for (int const node : shard_tree::nodes_of(traffic.held(0, at.rank(), c), L)) {
        auto values = of(c).memory();
        std::copy_n(mine.at(node) + range(c).begin, range(c).size(), values.get());
        of(c).add(node, std::move(values));
      }
    }

    auto out = std::vector<float>{}, in = std::vector<float>{};
    for (int s = 0; s < S::steps(P); ++s) {
      auto const step = S::step(at.rank(), P, s);
      out.clear(), in.clear();
      if (step.to != nobody)
        for (int c = step.send.begin; c < step.send.end; ++c)
          for (int const node : shard_tree::nodes_of(traffic.held(s, at.rank(), c), L))
            out.insert(out.end(), of(c).at(node), of(c).at(node) + of(c).size());
      if (step.from != nobody)
        for (int c = step.receive.begin; c < step.receive.end; ++c)
          in.resize(in.size() + shard_tree::nodes_of(traffic.held(s, step.from, c), L).size() * range(c).size());

      auto sent = typename E::pending{}, received = typename E::pending{};
      if (step.to != nobody) sent = at.send(step.to, tag, std::as_bytes(Span<float>{out}));
      if (step.from != nobody) received = at.recv(step.from, tag, std::as_writable_bytes(Span<float>{in}));
      received.wait();
      auto const* next = in.data();
      for (int c = step.receive.begin; step.from != nobody && c < step.receive.end; ++c) {
        if (step.fold == Fold::keep) of(c).clear();
        for (int const node : shard_tree::nodes_of(traffic.held(s, step.from, c), L)) {
          auto values = of(c).memory();
          std::copy_n(next, of(c).size(), values.get());
          next += of(c).size();
          of(c).add(node, std::move(values));
        }
      }
      sent.wait();
    }
    for (int c = wanted.begin; c < wanted.end; ++c)
      std::copy_n(of(c).at(1), of(c).size(), x.begin() + static_cast<std::ptrdiff_t>(range(c).begin));
  }
};

}  // namespace chorale
