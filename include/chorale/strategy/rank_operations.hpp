// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/recursive_doubling.hpp>

#include <cstddef>

namespace chorale::detail {

/// Sends `mine` to a peer, and receives `theirs` from it; an empty span: nothing goes there.
template <class E> void exchange_over(E& at, Rank peer, Tag tag, ConstBytes mine, Bytes theirs) {
  auto const receive = [&] {
    if (!theirs.empty()) at.recv(peer, tag, theirs).wait();
  };
  if (mine.empty()) return receive();
  auto sent = at.send(peer, tag, mine);
  receive();
  sent.wait();
}

/// What all ranks of an endpoint do together but for gradients. A replica inherits it, and a friend of it has
/// expect_idle(what), which throws while gradients are on their way.
///
/// E       the endpoint of all replicas, also where gradients are added up among some of them
/// tag     of these operations: one at a time
template <class Self, class E, Tag tag> class RankOperations {
 public:
  explicit RankOperations(E& all) : all_{&all} {}

  Rank id() const { return all_->rank(); }  // in [0, num_replicas())
  int num_replicas() const { return all_->size(); }

  /// Combines a tensor of the program's own over all replicas, in place: the same bits on every replica.
  ///
  /// order   a tree in the order of ranks, whatever the Reduce is: nothing is rounded or left out
  /// throws  BadArgument while gradients are on their way; PeerLost
  template <Reducible V> void all_reduce(Span<V> x, Op op = Op::sum) {
    self().expect_idle("all_reduce of a tensor");
    RecursiveDoublingAllReduce{}.all_reduce(*all_, x, op, tag);
  }

  /// Combines a tensor of the program's own into the root's copy; the copies of other replicas are scratch afterwards.
  ///
  /// throws  BadArgument while gradients are on their way, or when the root is not a rank; PeerLost
  template <Reducible V> void reduce(Span<V> x, Rank root, Op op = Op::sum) {
    self().expect_idle("reduce of a tensor");
    chorale::reduce(*all_, x, op, root, tag);
  }

  /// Replaces a tensor of the program's own by its mean over all replicas, each with the same weight. Integers need a
  /// rule: mean<IntegerMean::floor>(x). See all_reduce_mean.
  ///
  /// throws  BadArgument while gradients are on their way; PeerLost
  template <Reducible V> void mean(Span<V> x) {
    self().expect_idle("mean of a tensor");
    all_reduce_mean(RecursiveDoublingAllReduce{}, *all_, x, tag);
  }
  template <IntegerMean rule, Reducible V> void mean(Span<V> x) {
    self().expect_idle("mean of a tensor");
    all_reduce_mean<rule>(RecursiveDoublingAllReduce{}, *all_, x, tag);
  }

  /// A callable that sums a span over all replicas, as a SyncedVariable takes it.
  auto sums() {
    return [this]<class V>(Span<V> x) { this->all_reduce(x); };
  }

  /// Sends `mine` to a peer, and receives `theirs` from it, as many bytes as it sends. Both ranks call it.
  void exchange(Rank peer, ConstBytes mine, Bytes theirs) { exchange_over(*all_, peer, tag, mine, theirs); }

  /// Concatenates the values of all replicas, in the order of ranks, on every replica. See chorale::all_gather.
  template <class V> void all_gather(Span<V const> mine, Span<V> whole, Span<std::size_t const> counts) {
    chorale::all_gather(*all_, mine, whole, counts, tag);
  }

  /// Copies x of the replica with rank `root` to all replicas.
  template <class V> void broadcast(Span<V> x, Rank root = 0) { chorale::broadcast(*all_, x, root, tag); }

  /// Returns when every replica has called it.
  void barrier() { chorale::barrier(*all_, tag); }

  /// Messages and bytes that this rank has sent. Only over Counting<T>, which counts them.
  auto sent() const requires requires(E const& at) { at.sent(); } { return all_->sent(); }

  /// Time of this rank's virtual clock. Only over SimulatedTransport.
  auto now() const requires requires(E const& at) { at.now(); } { return all_->now(); }

 private:
  Self const& self() const { return static_cast<Self const&>(*this); }

  E* all_;
};

}  // namespace chorale::detail
