// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

namespace chorale::placement {

/// Description of a variable for placement: nothing is allocated, whatever its size.
///
///   VariableShape{"table", {1'000'000'000'000'000, 10}}     floats; 40 PB
///   VariableShape{"step", {}, sizeof(std::int64_t)}         one number
struct VariableShape {
  static constexpr std::size_t max_rank = 4;

  Name name;
  std::array<std::size_t, max_rank> dims{};
  int rank                  = 0;
  std::size_t element_bytes = sizeof(float);

  constexpr VariableShape() = default;

  /// throws  BadArgument when the name or the rank is too long for the table, or the bytes do not fit into 64 bits
  constexpr VariableShape(std::string_view text, std::initializer_list<std::size_t> sizes,
                          std::size_t bytes_of_element = sizeof(float))
      : rank{static_cast<int>(sizes.size())}, element_bytes{bytes_of_element} {
    CHORALE_EXPECTS(text.size() <= name.text.size(), "variable " + std::string{text} + ": its name has " +
                                                         std::to_string(text.size()) + " characters, at most " +
                                                         std::to_string(name.text.size()) + " fit");
    CHORALE_EXPECTS(sizes.size() <= max_rank, "variable " + std::string{text} + " has " + std::to_string(sizes.size()) +
                                                  " dimensions, at most 4 fit");
    CHORALE_EXPECTS(element_bytes > 0, "variable " + std::string{text} + ": its elements have 0 bytes");
    name += text;
    std::copy(sizes.begin(), sizes.end(), dims.begin());
    auto total = element_bytes;
    for (auto const size : sizes) {
      if (size == 0) continue;  // so that no part of the product overflows
      CHORALE_EXPECTS(total <= std::numeric_limits<std::size_t>::max() / size,
                      "variable " + std::string{text} + ": " + std::to_string(total) + " bytes times " +
                          std::to_string(size) + " do not fit into 64 bits");
      total *= size;
    }
  }

  constexpr VariableShape(PlannedVariable const& planned) : name{planned.name}, rank{planned.spec.rank} {
    for (std::size_t i = 0; i < max_rank; ++i) dims[i] = static_cast<std::size_t>(planned.spec.dims[i]);
  }

  /// Rows along an axis; 1 for an axis that the variable does not have.
  constexpr std::size_t extent(int axis) const { return axis < rank ? dims[static_cast<std::size_t>(axis)] : 1; }

  constexpr std::size_t outer(int axis) const { return product(0, axis); }         // of the dimensions before the axis
  constexpr std::size_t inner(int axis) const { return product(axis + 1, rank); }  // of those after it
  constexpr std::size_t elements() const { return product(0, rank); }
  constexpr std::size_t bytes() const { return elements() * element_bytes; }

  friend constexpr bool operator==(VariableShape const& a, VariableShape const& b) {
    return std::string_view{a.name} == std::string_view{b.name} && a.dims == b.dims && a.rank == b.rank &&
           a.element_bytes == b.element_bytes;
  }

 private:
  constexpr std::size_t product(int from, int to) const {
    auto n = std::size_t{1};
    for (int axis = from; axis < to; ++axis) n *= extent(axis);
    return n;
  }
};

/// The rows `along` of one axis of a variable, and the server that holds them. Along axis 0 that is one contiguous run
/// of the variable's memory; along another axis it is a box, one run for each index before the axis.
///
/// variable  its index in the list that was placed
/// server    0-based; -1 before one is assigned
struct Piece {
  std::size_t variable = 0;
  Range along;
  int axis   = 0;
  int server = -1;

  friend constexpr bool operator==(Piece const&, Piece const&) = default;
};

/// The piece of a variable that rank `rank` of `world` holds when the variable is cut along an axis: the one rule by which
/// variables are cut. Pieces of parameter servers, and shards of optimizer state, are made by it.
///
///   layout({"table", {7, 4}}, 0, 3)       rows 0, 1, 2         layout({"table", {7, 4}}, 1, 3, 1)       column 2
///   layout({"table", {7, 4}}, 2, 3)       rows 5, 6
///
/// keeps   the pieces of all ranks are disjoint, in order, and cover the variable; they differ by at most one row, and the
///         first are the larger ones. Some are empty if there are fewer rows than ranks; along an axis that the variable
///         does not have, rank 0 gets all of it
/// throws  BadArgument when rank is not below world
/// source  the layout "div" of tf.distribute's partitioners
constexpr Piece layout(VariableShape const& shape, std::size_t rank, std::size_t world, int axis = 0) {
  CHORALE_EXPECTS(rank < world,
                  "rank " + std::to_string(rank) + " of " + std::to_string(world) + " ranks has no piece");
  auto const rows  = shape.extent(axis);
  auto const begin = [&](std::size_t k) { return rows / world * k + std::min(k, rows % world); };
  return {0, {begin(rank), begin(rank + 1)}, axis, static_cast<int>(rank)};
}

constexpr Piece whole(std::size_t variable, VariableShape const& shape) { return {variable, {0, shape.extent(0)}}; }

constexpr bool is_whole(Piece const& piece, VariableShape const& shape) {
  return piece.along == Range{0, shape.extent(piece.axis)};
}

constexpr std::size_t elements(Piece const& piece, VariableShape const& shape) {
  return shape.outer(piece.axis) * piece.along.size() * shape.inner(piece.axis);
}

constexpr std::size_t bytes(Piece const& piece, VariableShape const& shape) {
  return elements(piece, shape) * shape.element_bytes;
}

/// The shape of a piece by itself: what its server stores, row-major.
constexpr VariableShape shape_of(Piece const& piece, VariableShape shape) {
  if (piece.axis < shape.rank) shape.dims[static_cast<std::size_t>(piece.axis)] = piece.along.size();
  return shape;
}

/// The contiguous ranges of flat, row-major memory that a piece covers.
///
///   for (Range const run : runs(piece, shape)) ...
///
/// keeps   ascending, disjoint, none empty, all of one length; made and indexed in constant time, whatever the size
class Runs {
 public:
  class iterator {
   public:
    constexpr iterator(Runs const& runs, std::size_t i) : runs_{&runs}, i_{i} {}
    constexpr Range operator*() const { return (*runs_)[i_]; }
    constexpr iterator& operator++() {
      ++i_;
      return *this;
    }
    friend constexpr bool operator==(iterator const& a, iterator const& b) { return a.i_ == b.i_; }

   private:
    Runs const* runs_;
    std::size_t i_;
  };

  constexpr Runs(std::size_t count, Range first, std::size_t stride) : count_{count}, first_{first}, stride_{stride} {}

  constexpr std::size_t size() const { return count_; }
  constexpr Range operator[](std::size_t i) const { return {first_.begin + i * stride_, first_.end + i * stride_}; }
  constexpr iterator begin() const { return {*this, 0}; }
  constexpr iterator end() const { return {*this, count_}; }

 private:
  std::size_t count_;
  Range first_;
  std::size_t stride_;
};

/// throws  BadArgument when the variable does not have the piece's rows
constexpr Runs runs(Piece const& piece, VariableShape const& shape) {
  auto const extent = shape.extent(piece.axis), inner = shape.inner(piece.axis);
  CHORALE_EXPECTS(piece.axis >= 0 && piece.along.begin <= piece.along.end && piece.along.end <= extent,
                  "variable " + std::string{std::string_view{shape.name}} + " has " + std::to_string(extent) +
                      " rows along axis " + std::to_string(piece.axis) + ", not the rows " +
                      std::to_string(piece.along.begin) + " to " + std::to_string(piece.along.end));
  if (elements(piece, shape) == 0) return {0, {}, 0};
  if (is_whole(piece, shape)) return {1, {0, shape.elements()}, 0};
  return {shape.outer(piece.axis), {piece.along.begin * inner, piece.along.end * inner}, extent * inner};
}

/// Copies a piece out of its variable to where a server keeps it.
///
/// variable  the variable's elements; out: the piece's, elements(piece, shape) of them
template <class T> void copy_out(Piece const& piece, VariableShape const& shape, Span<T const> variable, Span<T> out) {
  CHORALE_EXPECTS(variable.size() == shape.elements() && out.size() == elements(piece, shape),
                  "a piece of " + std::to_string(elements(piece, shape)) + " elements is copied to a place for " +
                      std::to_string(out.size()));
  auto at = out.begin();
  for (Range const run : runs(piece, shape)) {
    auto const from = variable.subspan(run.begin, run.size());
    at              = std::copy(from.begin(), from.end(), at);
  }
}

/// Copies a piece from where a server keeps it into its variable: undoes copy_out().
template <class T> void copy_in(Piece const& piece, VariableShape const& shape, Span<T const> in, Span<T> variable) {
  CHORALE_EXPECTS(
      variable.size() == shape.elements() && in.size() == elements(piece, shape),
      "a piece of " + std::to_string(elements(piece, shape)) + " elements is copied from " + std::to_string(in.size()));
  for (Range const run : runs(piece, shape)) {
    std::copy_n(in.begin(), run.size(), variable.begin() + static_cast<std::ptrdiff_t>(run.begin));
    in = in.subspan(run.size());
  }
}

}  // namespace chorale::placement
