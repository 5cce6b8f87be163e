// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/reduce/shard_ends.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// An all-reduce in two halves: a reduce-scatter, which leaves each rank with one chunk, and an all-gather of chunks.
///
///   R::scatter   a schedule with a chunk for each rank, one in a message, as RingReduceScatter; or DirectReduceScatter
///   R::gather    such a schedule, as RingAllGather
template <class R>
concept HasHalves = R::scatter::collective == Collective::reduce_scatter && Schedule<typename R::gather> &&
                    R::gather::collective == Collective::all_gather;

namespace detail {

template <class S, class E> struct ScatterOperation {
  using type = ScheduleExecution<S, E, float>;
};
template <class E> struct ScatterOperation<DirectReduceScatter, E> {
  using type = DirectOperation<E, float>;
};

template <class R> struct KeepsCut {};
template <CutsBuckets R> struct KeepsCut<R> {
  using cut = typename R::cut;
};

template <class R> struct KeepsThread {};
template <class R> requires requires { requires R::own_thread; } struct KeepsThread<R> {
  static constexpr bool own_thread = true;
};

}  // namespace detail

/// The first half of R: of each bucket, the ranks whose shards are in it get its sums. The other elements of a buffer
/// are scratch afterwards. What every rank needs, such as the header of gradients, is a separate message.
///
/// keeps   shards are where place() says
/// cost    of all buckets together, a rank sends the buffer without its own shard: (P-1)/P of the bytes
/// order   each shard is combined in the order of R::scatter
template <class R> struct ReduceScatterOf : detail::KeepsThread<R>, detail::KeepsCut<R> {
  static_assert(HasHalves<R>);
  using exact = RecursiveDoublingAllReduce;  // of what every rank needs

  R reduce{};
  std::shared_ptr<ShardEnds const> shards{};

  explicit ReduceScatterOf(R algorithm) : reduce{std::move(algorithm)} {}

  void place(ShardEnds where) { shards = std::make_shared<ShardEnds const>(std::move(where)); }

  /// One bucket under way. See ReduceOperation.
  template <Endpoint E> class Operation {
   public:
    static constexpr bool has_uneven_chunks = true;  // a bucket may lie in one shard

    Operation() = default;
    explicit Operation(std::shared_ptr<ShardEnds const> shards) : shards_{std::move(shards)} {}

    void restart(E& at, Span<float> x, Op op, Tag tag, CallSite where = {}) {
      CHORALE_EXPECTS(shards_ != nullptr, "a bucket of " + std::to_string(x.size()) +
                                              " elements is in no buffer of shards: place() comes before it");
      auto const begin = static_cast<std::size_t>(x.data() - shards_->buffer.data());
      shards_->clip({begin, begin + x.size()}, ends_);
      under_way_.restart(
          at, {.collective = Collective::reduce_scatter, .x = x, .op = op, .tag = tag, .where = where, .ends = ends_});
    }
    bool poll() { return under_way_.poll(); }
    void finish() { under_way_.finish(); }

   private:
    std::shared_ptr<ShardEnds const> shards_;
    std::vector<std::size_t> ends_;
    typename detail::ScatterOperation<typename R::scatter, E>::type under_way_;
  };

  template <Endpoint E> Operation<E> idle(E&) const { return Operation<E>{shards}; }

  template <Endpoint E>
  Operation<E> start(E& at, Span<float> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = Operation<E>{shards};
    operation.restart(at, x, op, tag, where);
    return operation;
  }
};

/// The first half of Reproducible: the sums of the shards, and of header and trailer everywhere, have its bits.
template <int L, class R> struct ReduceScatterOf<Reproducible<L, R>> {
  static_assert(HasHalves<R>);
  static constexpr int logical_shards = L;

  Reproducible<L, R> reduce{};
  std::shared_ptr<ShardEnds const> shards{};

  explicit ReduceScatterOf(Reproducible<L, R> algorithm) : reduce{std::move(algorithm)} {}

  void place(ShardEnds where) { shards = std::make_shared<ShardEnds const>(std::move(where)); }

  struct Traffic {
    detail::ShardTraffic<R> whole;
    detail::ShardTraffic<typename R::scatter> half;
  };
  static Traffic traffic_of(int ranks) {
    return {Reproducible<L, R>::traffic_of(ranks), Reproducible<L, typename R::scatter>::traffic_of(ranks)};
  }

  /// Stores the sums of this rank's shard in x, and the sums of all that is before and after the shards.
  template <Endpoint E>
  void all_reduce(E& at, Traffic const& traffic, shard_tree::Sums const& mine, Span<float> x, Tag tag = {},
                  CallSite where = CallSite::here()) const {
    auto const begin = static_cast<std::size_t>(shards->buffer.data() - x.data()), end = begin + shards->buffer.size();
    reduce.all_reduce_part(at, traffic.whole, mine, {0, begin}, x, tag, where);
    reduce.reduce_scatter(at, traffic.half, mine, begin, shards->ends, x, tag, where);
    reduce.all_reduce_part(at, traffic.whole, mine, {end, x.size()}, x, tag, where);
  }
};

/// The second half of R: every rank gets all shards of a buffer, each from its owner.
template <class R> struct GatherOf {
  using type = typename R::gather;
};
/// The second half of Reproducible is R's: nothing is added up in it.
template <int L, class R> struct GatherOf<Reproducible<L, R>> {
  using type = typename R::gather;
};

/// True if a Reduce can bring each rank the sums of its shard alone.
template <class R> inline constexpr bool scatters                            = HasHalves<R>;
template <int L, class R> inline constexpr bool scatters<Reproducible<L, R>> = HasHalves<R>;

}  // namespace chorale
