// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/strategy/rank_operations.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/tensor/whole_plan.hpp>
#include <chorale/transport/common/told_error.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Computes the squared norm of gradients, where variables may be split over ranks, and ranks may have a shard alone.
/// Variables, and parts of them, that several ranks have count once.
///
/// cost    one message of a double; exact, one of a double for each 16 numbers of the split variables, or, where a part
///         has no multiple of 16 neighbours, of a double for each number; in shards, of the other variables as well. It
///         keeps its memory from step to step
class SplitNorm {
 public:
  /// M         the Mesh, and the rank in it
  /// exact     the bits of SquareTree over the whole variables, laid out as on one device
  /// shard     elements of the body whose sums this rank has; nobody has others of its part
  /// counts    counts(i) is true if variable i is in the norm
  /// add_up    adds up doubles over the ranks with the same rows; in shards, over all ranks
  template <class M, bool exact, class Counts, class AddUp>
  double of(Gradients const& g, Rank rank, std::optional<Range> shard, Counts&& counts, AddUp&& add_up) {
    if constexpr (exact) return of_lines<M>(g, rank, shard, counts, add_up);
    else {
      auto here   = 0.0;  // of what each rank has
      auto others = std::array<double, 1>{};
      for (std::size_t i = 0; i < g.plan.size(); ++i) {
        if (!counts(i)) continue;
        expect_dense(g.plan[i]);
        auto const mine    = own(g.plan[i], shard);
        auto const squares = SquareTree::sum(g[i].subspan(mine.begin, mine.size()));
        if (!is_told(g.plan[i].spec, shard)) here += squares;
        else if (is_owner<M>(g.plan[i].spec.split, rank)) others[0] += squares;
      }
      add_up(Span<double>{others});
      return here + others[0];
    }
  }

 private:
  static constexpr std::size_t line = SquareTree::line;

  /// True if no rank with a smaller number, and the same rows, has the same part.
  template <class M> static bool is_owner(Split const& split, Rank rank) {
    auto const at = M::coordinates(rank);
    for (std::size_t a = 0; a < M::axes; ++a)
      if (at[a] != 0 && M::names[a] != split.along && M::names[a] != M::data) return false;
    return true;
  }
  /// True if ranks tell each other the squares of a variable, because not every rank has all of it.
  static bool is_told(VariableSpec const& spec, std::optional<Range> const& shard) {
    return shard || spec.split.parts > 1;
  }
  /// The elements of a variable that this rank has the sums of.
  static Range own(PlannedVariable const& v, std::optional<Range> const& shard) {
    if (!shard) return {0, v.size};
    auto const first = v.slot_offset(), last = first + v.size;
    auto const begin = std::clamp(shard->begin, first, last), end = std::clamp(shard->end, begin, last);
    return {begin - first, end - first};
  }
  static void expect_dense(PlannedVariable const& v) {
    CHORALE_EXPECTS(!v.spec.by_rows || v.spec.split.parts == 1,
                    "global_clipnorm takes the norm of all gradients, but that of " +
                        std::string{std::string_view{v.name}} + " is rows of a table that " +
                        std::to_string(v.spec.split.parts) + " ranks have parts of: train without it");
  }

  /// Squares are added up by lines of 16 numbers of the whole variables, then along the tree above these lines.
  template <class M, class Counts, class AddUp>
  double of_lines(Gradients const& g, Rank rank, std::optional<Range> const& shard, Counts& counts, AddUp& add_up) {
    if (of_ != g.plan.data()) look_at(g.plan);
    auto const& whole = wholes_[0];
    auto const lines  = SquareTree::lines(whole.body());
    sums_.assign(std::bit_ceil(std::max<std::size_t>(lines, 1)), 0.0);
    sent_.clear();
    each_dense(g, counts, [&](std::size_t i) {
      if (is_told(g.plan[i].spec, shard)) return send_squares<M>(g[i], i, g.plan[i].spec, own(g.plan[i], shard), rank);
      auto const first = whole.variables()[i].slot_offset() / line, n = g[i].size() / line;
      for (std::size_t k = 0; k < n; ++k) sums_[first + k] = SquareTree::of_line(g[i].data() + k * line);
      if (n * line != g[i].size()) sums_[first + n] = SquareTree::sum(g[i], {n, 0});
    });
    add_up(Span<double>{sent_});
    auto next = sent_.begin();
    each_dense(g, counts, [&](std::size_t i) {
      if (!is_told(g.plan[i].spec, shard)) return;
      auto const first = whole.variables()[i].slot_offset() / line;
      for (std::size_t k = 0; k < SquareTree::lines(whole.variables()[i].size); ++k) {
        sums_[first + k] = in_lines_[i] != 0 ? *next : SquareTree::of_squares(&*next);
        next += in_lines_[i] != 0 ? 1 : line;
      }
    });
    for (auto n = sums_.size() / 2; n != 0; n /= 2)
      for (std::size_t i = 0; i < n; ++i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
    return sums_[0];
  }

  /// Finds the variables that are cut only between lines of the whole: each line is in one part.
  void look_at(Span<PlannedVariable const> plan) {
    wholes_.assign(1, WholePlan{plan});
    of_ = plan.data();
    in_lines_.assign(plan.size(), 1);
    for (std::size_t i = 0; i < plan.size(); ++i)
      for (int part = 0; part < plan[i].spec.split.parts && !plan[i].spec.by_rows; ++part)
        each_run(plan[i].spec, part, [&](Range run, std::size_t first) {
          if (plan[i].spec.split.parts == 1) return;  // its last line may be short
          if (first % line != 0 || run.size() % line != 0) in_lines_[i] = 0;
        });
  }

  template <class Counts, class F> static void each_dense(Gradients const& g, Counts& counts, F&& f) {
    for (std::size_t i = 0; i < g.plan.size(); ++i) {
      if (!counts(i)) continue;
      expect_dense(g.plan[i]);
      if (!g.plan[i].spec.by_rows) f(i);
    }
  }

  /// Appends the sum of each line that one part has, or, where lines have numbers of several parts, the square of each
  /// number; zeros for what other ranks have.
  ///
  /// own     the elements of `mine` that are this rank's
  template <class M>
  void send_squares(Span<float const> mine, std::size_t variable, VariableSpec const& spec, Range own, Rank rank) {
    auto const before = sent_.size();
    auto const lines  = SquareTree::lines(wholes_[0].variables()[variable].size);
    auto const lined  = in_lines_[variable] != 0;
    sent_.resize(before + (lined ? lines : lines * line), 0.0);
    if (!is_owner<M>(spec.split, rank)) return;
    each_run(spec, M::coordinate(rank, spec.split.along), [&](Range run, std::size_t first) {
      auto const begin = std::clamp(own.begin, run.begin, run.end), end = std::clamp(own.end, begin, run.end);
      first += begin - run.begin;
      if (lined)
        for (auto k = begin; k < end; k += line)
          sent_[before + (first + k - begin) / line] =
              end - k < line ? SquareTree::sum(mine.subspan(k, end - k)) : SquareTree::of_line(mine.data() + k);
      else
        for (auto k = begin; k < end; ++k) {
          auto const x                      = static_cast<double>(mine[k]);
          sent_[before + first + k - begin] = x * x;
        }
    });
  }

  PlannedVariable const* of_ = nullptr;  // the plan that the next two were made from
  std::vector<WholePlan> wholes_;        // one, when it is known
  std::vector<char> in_lines_;           // by variable; 0: lines have several parts
  std::vector<double> sums_, sent_;      // of lines: of all variables, of split ones
};

/// A SubEndpoint whose ranks read each other's memory in place.
///
/// keeps   all ranks of the endpoint are in such a group, and all groups have the same operations in the same order:
///         an exposure then waits for all of them
template <DirectAccessEndpoint E> class DirectSubEndpoint : public SubEndpoint<E> {
 public:
  using pending = typename E::pending;

  DirectSubEndpoint(E& at, std::vector<Rank> ranks) : SubEndpoint<E>{at, ranks}, all_{&at}, ranks_{std::move(ranks)} {}

  void announce(Operation const& operation) { chorale::announce(*all_, operation); }  // one that all groups have

  pending expose(Tag tag, Bytes mine) { return all_->expose(tag, mine); }
  Bytes peer(Rank peer, Tag tag) { return all_->peer(ranks_[static_cast<std::size_t>(peer)], tag); }
  pending leave(Tag tag) { return all_->leave(tag); }
  auto hold(std::size_t bytes) { return all_->hold(bytes); }

 private:
  E* all_;
  std::vector<Rank> ranks_;
};

/// True if a Reduce runs over endpoints E.
template <class R, class E>
inline constexpr bool reduces_over =
    requires(R const& reduce, E& at, Span<float> x) { reduce.all_reduce(at, x, Op::sum); };

template <class R, class E> struct DataEndpoint {
  using type = SubEndpoint<E>;
};
template <class R, DirectAccessEndpoint E> requires(!reduces_over<R, SubEndpoint<E>>) struct DataEndpoint<R, E> {
  using type = DirectSubEndpoint<E>;
};

/// How one rank of a mesh reaches others: along the data axis, along each other axis, and among all ranks that have the
/// same rows. It lies in separate memory, so that the replica may be moved.
///
/// tags    operations of all ranks: 2; of ranks with the same rows: 3; values along axis i: 4 + i. The data axis has
///         the tags of a Replica
template <class M, class E, class Data> class MeshLinks {
 public:
  static constexpr auto of_all = Tag{2}, of_alike = Tag{3};

  explicit MeshLinks(E& at)
      : all{&at}, data{at, M::along(M::data, at.rank())}, alike{at, M::across(M::data, at.rank())},
        groups_{std::make_unique<std::array<AxisGroup, M::axes>>()} {
    lines_.reserve(M::axes);
    for (std::size_t i = 0; i < M::axes; ++i) {
      lines_.push_back(
          {{at, M::along(M::names[i], at.rank())}, Tag{4 + static_cast<std::uint32_t>(i)}, at.rank(), M::names[i]});
      (*groups_)[i] = {M::names[i],       lines_[i].at.rank(), lines_[i].at.size(),
                       &send_and_receive, &lines_[i],          M::names[i] == M::data};
    }
  }
  MeshLinks(MeshLinks const&)            = delete;
  MeshLinks& operator=(MeshLinks const&) = delete;

  /// One for each axis, in the order of the mesh.
  AxisGroups groups() const { return *groups_; }

  /// The memory of groups(), for links that are made in place of these: views of it then lead there.
  std::unique_ptr<std::array<AxisGroup, M::axes>> release() { return std::move(groups_); }
  void keep(std::unique_ptr<std::array<AxisGroup, M::axes>> memory) {
    *memory = *groups_;
    groups_ = std::move(memory);
  }

  E* all;
  Data data;             // ranks with other rows, and the same part
  SubEndpoint<E> alike;  // ranks with the same rows

 private:
  struct Line {
    SubEndpoint<E> at;
    Tag tag;
    Rank me;  // among all ranks
    std::string_view axis;
  };

  /// See AxisGroup::exchange(). The receive is posted first, so that no two ranks wait for each other.
  static void send_and_receive(void* line, Rank to, ConstBytes out, Rank from, Bytes in) {
    auto& [at, tag, me, axis] = *static_cast<Line*>(line);
    if (!out.empty() && !in.empty() && to == at.rank() && from == at.rank()) {
      std::ranges::copy(out, in.begin());
      return;
    }
    try {
      exchange(at, tag, to, out, from, in);
    } catch (PeerLost const& lost) {
      throw_within(me, lost,
                   sentence("a message of {} bytes along the axis \"{}\"", std::max(out.size(), in.size()), axis));
    }
  }
  static void exchange(SubEndpoint<E>& at, Tag tag, Rank to, ConstBytes out, Rank from, Bytes in) {
    if (in.empty()) {
      if (!out.empty()) at.send(to, tag, out).wait();
      return;
    }
    auto received = at.recv(from, tag, in);
    if (!out.empty()) {
      auto sent = at.send(to, tag, out);
      received.wait();
      sent.wait();
    } else {
      received.wait();
    }
  }

  std::vector<Line> lines_;  // one for each axis; never moved
  std::unique_ptr<std::array<AxisGroup, M::axes>> groups_;
};

}  // namespace chorale::detail

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

  // Among all ranks of the mesh. Operations of along_data() are among the ranks with the same part.
  using All::id, All::num_replicas, All::all_reduce, All::reduce, All::mean, All::sums;
  using All::exchange, All::all_gather, All::broadcast, All::barrier, All::sent, All::now;

  /// The groups of this replica, one for each axis of the mesh, in its order.
  AxisGroups axes() const { return this->links->groups(); }

  /// The replica among those with the same part and other rows, whose gradients are added up.
  Shares& along_data() { return *this; }
  Shares const& along_data() const { return *this; }

  /// Gives up the memory of axes(), where copies have views; keep_axes() takes it over from a disconnected replica.
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

  /// Returns the squared norm of the gradients of whole variables from the ranks' parts of them: the same on all ranks.
  ///
  /// counts    called as counts(i): true if variable i is in the norm
  /// keeps     under Reproducible the bits are the same as for the whole variables on one rank
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
  /// Reports the first variable whose sum is not finite, if there is one, with this rank's number.
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
