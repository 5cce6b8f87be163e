// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/axes.hpp>

#include <array>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace chorale {

/// Ranks as a grid with named axes: each rank has one coordinate along each of them.
///
///   Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::split(4)}          4 replicas of this process
///   Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cluster::from_env()}    4 workers, a replica each
///
///   data  tensor   rank
///      0       0      0        the last axis varies fastest: ranks along it are neighbours, e.g. on one host
///      0       1      1
///      1       0      2
///      1       1      3
///
/// Batches are dealt out along the axis named "data", if there is one; other axes are for layers that name them.
///
/// throws  BadArgument when there are not as many devices as the mesh has ranks
template <class... A> class Mesh {
 public:
  static constexpr std::size_t axes = sizeof...(A);
  static constexpr int size         = (A::size * ... * 1);
  static constexpr std::array<std::string_view, axes> names{A::name...};
  static constexpr std::array<int, axes> sizes{A::size...};

  /// The name of the axis along which batches are dealt out.
  static constexpr std::string_view data = data_axis;

  /// The index of an axis; `axes` if there is none of this name.
  static constexpr std::size_t axis(std::string_view name) {
    std::size_t i = 0;
    while (i < axes && names[i] != name) ++i;
    return i;
  }
  static constexpr bool has(std::string_view name) { return axis(name) < axes; }
  /// Ranks along an axis; 1 if the mesh does not have it.
  static constexpr int size_of(std::string_view name) { return has(name) ? sizes[axis(name)] : 1; }

  /// The coordinates of a rank, in the order of the axes.
  static constexpr std::array<int, axes> coordinates(Rank rank) {
    auto at = std::array<int, axes>{};
    for (auto i = axes; i-- > 0; rank /= sizes[i]) at[i] = rank % sizes[i];
    return at;
  }
  static constexpr Rank rank_at(std::array<int, axes> const& at) {
    auto rank = Rank{0};
    for (std::size_t i = 0; i < axes; ++i) rank = rank * sizes[i] + at[i];
    return rank;
  }
  /// The coordinate of a rank along one axis; 0 if the mesh does not have it.
  static constexpr int coordinate(Rank rank, std::string_view name) {
    return has(name) ? coordinates(rank)[axis(name)] : 0;
  }

  /// Returns the ranks that have the coordinates of `rank` along all other axes, ascending, with `rank` itself; `rank`
  /// alone, if the mesh does not have the axis.
  static constexpr std::vector<Rank> along(std::string_view name, Rank rank) {
    auto ranks = std::vector<Rank>{};
    auto at    = coordinates(rank);
    if (!has(name)) return {rank};
    for (int c = 0; c < size_of(name); ++c) {
      at[axis(name)] = c;
      ranks.push_back(rank_at(at));
    }
    return ranks;
  }
  /// The ranks with the same coordinate as `rank` along an axis, ascending; all if the mesh does not have the axis.
  static constexpr std::vector<Rank> across(std::string_view name, Rank rank) {
    auto ranks = std::vector<Rank>{};
    for (Rank r = 0; r < size; ++r)
      if (coordinate(r, name) == coordinate(rank, name)) ranks.push_back(r);
    return ranks;
  }

  /// devices   one for each rank, in the order of ranks
  explicit Mesh(std::vector<DefaultDevice> devices) : ranks_{MirroredStrategy<>{std::move(devices)}} { check(); }
  explicit Mesh(Cluster cluster) : ranks_{MultiWorkerMirroredStrategy<>{std::move(cluster)}} { check(); }
  /// devices   of each worker; all workers have the same number
  Mesh(Cluster cluster, std::vector<DefaultDevice> devices)
      : ranks_{MultiWorkerMirroredStrategy<>{std::move(cluster), std::move(devices)}} {
    check();
  }

  /// Returns all ranks, and which of them this process has. Ranks also compare the axes when they connect.
  Group group() const {
    auto all     = std::visit([](auto const& one) { return one.group(); }, ranks_);
    auto meeting = all.meeting();
    for (auto& line : lines()) meeting.lines.push_back(std::move(line));
    return {all.size(), all.local(), std::move(meeting)};
  }
  /// The devices of the ranks of this process.
  std::vector<DefaultDevice> local_devices() const {
    return std::visit([](auto const& one) { return one.local_devices(); }, ranks_);
  }

  /// One line for each axis: what ranks must agree on.
  static std::vector<std::string> lines() {
    auto all = std::vector<std::string>{};
    for (std::size_t i = 0; i < axes; ++i)
      all.push_back("mesh axis " + std::to_string(i) + ": " + std::string{names[i]} + " of " +
                    std::to_string(sizes[i]));
    return all;
  }

  /// The coordinates of each rank, and the device of ranks of this process: a line each, under the names of the axes.
  std::string text() const {
    auto text          = std::string{};
    auto const columns = [&](auto const& word) {
      for (std::size_t i = 0; i < axes; ++i) text += padded(word(i), names[i].size() < 4 ? 4 : names[i].size()) + "  ";
    };
    columns([](std::size_t i) { return std::string{names[i]}; });
    text += "rank  device\n";
    auto const here    = group().local();
    auto const devices = local_devices();
    for (Rank rank = 0; rank < size; ++rank) {
      columns([&](std::size_t i) { return std::to_string(coordinates(rank)[i]); });
      auto device = std::string{"of another process"};
      for (std::size_t k = 0; k < here.size(); ++k)
        if (here[k] == rank) device = words_of(devices[k]);
      text += padded(std::to_string(rank), 4) + "  " + device + "\n";
    }
    return text;
  }
  friend std::ostream& operator<<(std::ostream& out, Mesh const& mesh) { return out << mesh.text(); }

 private:
  static constexpr bool names_differ() {
    for (std::size_t i = 0; i < axes; ++i)
      if (axis(names[i]) != i) return false;
    return true;
  }
  static_assert(axes >= 1, "chorale: a Mesh has at least one axis: Mesh<Axis<\"data\", 4>>");
  static_assert(names_differ(), "chorale: this Mesh has two axes of one name. Give each Axis a name of its own");

  static std::string padded(std::string const& word, std::size_t width) {
    return std::string(width > word.size() ? width - word.size() : 0, ' ') + word;
  }

  /// "2 threads on cores 4, 5"
  static std::string words_of(DefaultDevice const& device) {
    auto const& cores = device.cores();
    auto text         = std::to_string(device.threads()) + (device.threads() == 1 ? " thread" : " threads") +
                (cores.size() == 1 ? " on core " : " on cores ");
    for (std::size_t i = 0; i < cores.size(); ++i) text.append(i == 0 ? "" : ", ") += std::to_string(cores[i]);
    return text;
  }

  void check() const {
    auto const there = std::visit([](auto const& one) { return one.num_replicas(); }, ranks_);
    if (there == size) return;
    auto axes_text = std::string{};
    for (std::size_t i = 0; i < axes; ++i)
      axes_text.append(i == 0 ? "" : " x ") += std::string{names[i]} + " " + std::to_string(sizes[i]);
    throw BadArgument{"the mesh " + axes_text + " has " + std::to_string(size) + " ranks, but there are " +
                          std::to_string(there) + " devices.",
                      "as many devices, or axes whose sizes multiply to " + std::to_string(there) + "."};
  }

  std::variant<MirroredStrategy<>, MultiWorkerMirroredStrategy<>> ranks_;  // devices and addresses
};

}  // namespace chorale
