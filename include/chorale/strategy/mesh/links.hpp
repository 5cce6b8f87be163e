// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/transport/common/told_error.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::detail {

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
/// same rows. It lies in memory of its own, so that the replica may be moved.
///
/// tags    operations of all ranks: 2; of ranks with the same rows: 3; values along axis i: 4 + i. The data axis has
///         those of a Replica
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
