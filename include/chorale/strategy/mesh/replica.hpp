// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/strategy/mesh/links.hpp>
#include <chorale/strategy/mesh/split_norm.hpp>
#include <chorale/strategy/rank_operations.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace chorale {

namespace detail {

/// The links of a replica, as a base: they are there before the Replica that uses them.
template <class M, class E, class Data> struct HasLinks {
  explicit HasLinks(E& at) : links{std::make_unique<MeshLinks<M, E, Data>>(at)} {}

  std::unique_ptr<MeshLinks<M, E, Data>> links;
};

}  // namespace detail

/// Replica of a MeshStrategy: its rank is that among all ranks of the mesh, while gradients are added up along the data
/// axis alone.
///
/// M       the Mesh
/// Base    the Replica over the endpoint of the data axis
template <class M, class R, class E, template <class, class> class Base = Replica>
class MeshReplica : private detail::HasLinks<M, E, typename detail::DataEndpoint<R, E>::type>,
                    public Base<R, typename detail::DataEndpoint<R, E>::type>,
                    public detail::RankOperations<MeshReplica<M, R, E, Base>, E, Tag{2}> {
  using Data   = typename detail::DataEndpoint<R, E>::type;
  using Shares = Base<R, Data>;
  using Links  = detail::HasLinks<M, E, Data>;
  using All    = detail::RankOperations<MeshReplica, E, detail::MeshLinks<M, E, Data>::of_all>;
  friend All;

 public:
  using mesh = M;

  MeshReplica(R by, E& at) : Links{at}, Shares{std::move(by), this->links->data}, All{at} {
    static_assert(detail::reduces_over<R, Data>,
                  "chorale: this Reduce cannot run among some of the ranks of this Transport, as MeshStrategy needs it "
                  "along the data axis. RingAllReduce runs over any");
    static_assert(
        !requires { requires R::own_thread; },
        "chorale: OwnThread sends buckets while layers of a split network exchange values over the same "
        "endpoint. Under MeshStrategy use its Reduce without OwnThread");
  }

  // Among all ranks of the mesh. Those of along_data() are among the ranks with the same part.
  using All::id, All::num_replicas, All::all_reduce, All::reduce, All::mean, All::sums;
  using All::exchange, All::all_gather, All::broadcast, All::barrier, All::sent, All::now;

  /// The groups of this replica, one for each axis of the mesh, in its order.
  AxisGroups axes() const { return this->links->groups(); }

  /// The replica among those with the same part and other rows, whose gradients are added up.
  Shares& along_data() { return *this; }
  Shares const& along_data() const { return *this; }

  /// Gives up the memory of axes(), of which copies have views; and takes it over from a replica that was disconnected.
  auto release_axes() { return this->links->release(); }
  void keep_axes(std::unique_ptr<std::array<AxisGroup, M::axes>> axes) { this->links->keep(std::move(axes)); }

  /// Adds up the gradients along the data axis, and their rows, loss and metrics with them. What a rank reports of
  /// gradients that are not finite, and whether it was asked to end, reaches all ranks.
  ///
  /// throws  as Replica::all_reduce()
  void all_reduce(Gradients& gradients) {
    Shares::all_reduce(gradients);
    tell_alike(gradients);
  }

  /// Adds up gradients in the shard that this replica has along the data axis. See ShardedReplica.
  auto reduce_scatter(Gradients& gradients) requires requires(Shares& shares) { shares.reduce_scatter(gradients); } {
    auto const added_up = Shares::reduce_scatter(gradients);
    tell_alike(gradients);
    return added_up;
  }
  /// Adds up what the replicas of the data axis report of their shards, and tells ranks with other parts of the worst.
  void add_up(Span<double> numbers) requires requires(Shares& shares) { shares.add_up(numbers); } {
    Shares::add_up(numbers);
    if (this->links->alike.size() == 1) return;
    summing_.restart(this->links->alike, numbers, Op::max, detail::MeshLinks<M, E, Data>::of_alike);
    summing_.finish();
  }

  /// The squared norm of the gradients of whole variables, of which each rank has its part: the same on all ranks.
  ///
  /// counts    called as counts(i): true if variable i is in the norm
  /// keeps     under Reproducible the bits are those of the whole variables on one rank
  template <class Counts> double squared_norm(Gradients const& gradients, Counts&& counts) {
    auto& alike = this->links->alike;
    return norm_.template of<M, ShardedReduce<R>>(gradients, id(), {}, counts, [&](Span<double> numbers) {
      summing_.restart(alike, numbers, Op::sum, detail::MeshLinks<M, E, Data>::of_alike);
      summing_.finish();
    });
  }
  /// The squared norm of gradients, of whose parts each replica along the data axis has the sums of its shard alone.
  ///
  /// shard     of the body of the gradients
  template <class Counts>
  double squared_norm(Gradients const& gradients, Range shard, Counts&& counts)
      requires requires(Shares& shares, Span<double> numbers) { shares.add_up(numbers); } {
    return norm_.template of<M, ShardedReduce<R>>(gradients, id(), shard, counts, [&](Span<double> numbers) {
      Shares::add_up(numbers);
      summing_.restart(this->links->alike, numbers, Op::sum, detail::MeshLinks<M, E, Data>::of_alike);
      summing_.finish();
    });
  }

 protected:
  /// Adds up reports of ranks with the same rows, which have other parts of the gradients.
  void tell_alike(Gradients const& gradients) {
    auto& alike = this->links->alike;
    if (alike.size() == 1) return;
    auto const trailer      = gradients.trailer();
    constexpr auto has_sums = !requires(Shares& shares) { shares.reduce_scatter(const_cast<Gradients&>(gradients)); };
    if (has_sums && trailer.faults() == 0 && trailer.summed() != 1) report_sum(gradients);
    auto numbers = std::array<double, 4>{trailer.faults(), trailer.rank(), trailer.variable(), trailer.asked()};
    summing_.restart(alike, Span<double>{numbers}, Op::sum, detail::MeshLinks<M, E, Data>::of_alike);
    summing_.finish();
    trailer.faults()   = static_cast<float>(numbers[0]);
    trailer.rank()     = static_cast<float>(numbers[1]);
    trailer.variable() = static_cast<float>(numbers[2]);
    trailer.asked()    = static_cast<float>(numbers[3]);
    if (has_sums && numbers[0] == 0) trailer.summed() = 1;  // the sums were checked, by all ranks
  }

 private:
  /// Reports the first variable whose sum is not finite, if there is one, as of this rank.
  void report_sum(Gradients const& gradients) const {
    using K         = cpu::Loops;
    auto const tell = [&](std::size_t variable) {
      gradients.trailer().faults()   = 1;
      gradients.trailer().rank()     = static_cast<float>(id());
      gradients.trailer().variable() = static_cast<float>(variable);
    };
    if (!K::finite(gradients.body()))
      for (std::size_t i = 0; i < gradients.plan.size(); ++i)
        if (!K::finite(gradients[i])) return tell(i);
    for (auto const& table : gradients.tables)
      if (!K::finite(table.values())) return tell(table.variable());
  }

  detail::SplitNorm norm_;
  ScheduleExecution<RecursiveDoublingAllReduce, SubEndpoint<E>, double> summing_;
};

}  // namespace chorale
