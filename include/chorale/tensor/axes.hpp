// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace chorale {

/// The name of an axis, as a template argument: Axis<"tensor", 2>.
struct AxisName {
  std::array<char, 24> text{};
  std::size_t length = 0;

  template <std::size_t n> consteval AxisName(char const (&name)[n]) : length{n - 1} {
    static_assert(n > 1 && n <= 24, "chorale: the name of an axis has 1 to 23 characters");
    std::copy_n(name, n - 1, text.begin());
  }
  constexpr std::string_view view() const { return {text.data(), length}; }
};

/// One named dimension of a mesh of ranks: so many ranks, over which a part of the work is split.
///
///   using Tensor = Axis<"tensor", 2>;
///   Mesh<Axis<"data", 2>, Tensor>                                          4 ranks
///   nn::ColumnDense<Tensor, 3072>                                          a layer that is split over 2 of them
template <AxisName called, int ranks> struct Axis {
  static_assert(ranks >= 1, "chorale: Axis<name, ranks> needs at least 1 rank");
  static constexpr std::string_view name = called.view();
  static constexpr int size              = ranks;
};

/// The name of the axis along which the rows of a batch are dealt out, and gradients added up. Of a variable that is split
/// along it, each rank has the whole gradient of its part: see RowGradients.
inline constexpr std::string_view data_axis = "data";

/// The ranks along one axis of a mesh, this replica among them, and their way to exchange bytes in the middle of a
/// step. Layers that are split over the axis build their operations on it.
///
///   order   every rank of the group makes the same calls, in the same order
///   throws  PeerLost when another rank is gone
struct AxisGroup {
  std::string_view name{};
  Rank rank                                                                           = 0;  // within the group
  int size                                                                            = 1;
  void (*send_and_receive)(void* peers, Rank to, ConstBytes out, Rank from, Bytes in) = nullptr;
  void* peers                                                                         = nullptr;
  bool deals_rows = false;  // true: its ranks have different rows of a
                            // batch, in their order; false: the same rows
  bool in_shards  = false;  // true: the rows of each are a logical shard,
                            // which counts and adds up by itself

  /// Sends `out` to a rank of the group while `in` comes from one; an empty span: nothing goes there. Returns when both
  /// are done.
  void exchange(Rank to, ConstBytes out, Rank from, Bytes in) const { send_and_receive(peers, to, out, from, in); }
};

/// The groups of a replica, one for each axis of its mesh; empty without a mesh.
using AxisGroups = Span<AxisGroup const>;

/// The group along the axis of that name and size; of an axis with one rank, a group of one.
///
/// throws  BadArgument when the replica has no such axis, or one of another size
inline AxisGroup group_along(AxisGroups axes, std::string_view name, int size) {
  for (auto const& group : axes)
    if (group.name == name && group.size == size) return group;
  CHORALE_EXPECTS(size == 1, "a layer is split along the axis " + std::string{name} + " of " + std::to_string(size) +
                                 " ranks, but the strategy has no such axis. Use MeshStrategy with a Mesh that has it");
  return {.name = name};
}
/// The group along A.
template <class A> AxisGroup group_along(AxisGroups axes) { return group_along(axes, A::name, A::size); }

}  // namespace chorale
