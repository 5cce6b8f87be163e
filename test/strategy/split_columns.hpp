// SPDX-License-Identifier: Apache-2.0
//
// A layer whose columns are split over an axis, and a network of two of them. On any number of ranks along the axis it
// has the bits that it has on one.
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/field.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/metrics/state_metrics.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/tensor/axes.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace mesh_test {

using namespace chorale;

/// y = x W with W (in, out): each rank has out / A::size columns, and all ranks get all of y.
template <class A, int out> struct Columns : nn::Layer<Columns<A, out>> {
  static constexpr std::string_view name = "columns";
  static constexpr int mine              = out / A::size;
  using axis                             = A;

  static constexpr auto output(auto) { return nn::Of<float, out>{}; }
  static constexpr auto variables(auto x) {
    auto kernel    = nn::glorot_uniform("kernel", x.back, mine);
    kernel.fan_out = out;  // of the whole, for the first values
    kernel.split   = {.dim = 1, .parts = A::size, .along = A::name};
    return std::array{kernel};
  }

  static void forward(auto& at) {
    auto const group = group_along<A>(at.axes);
    auto const in    = at.v[0].size() / mine;
    auto columns     = std::vector<float>(at.rows * mine);
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t j = 0; j < mine; ++j)
        for (std::size_t i = 0; i < in; ++i) columns[r * mine + j] += at.x()[r * in + i] * at.v[0][i * mine + j];
    auto theirs = columns;
    for (int hop = 0; hop < group.size; ++hop) {  // each rank passes on what it got last
      auto const from = static_cast<std::size_t>((group.rank + group.size - hop) % group.size);
      for (std::size_t r = 0; r < at.rows; ++r)
        for (std::size_t j = 0; j < mine; ++j) at.y()[r * out + from * mine + j] = columns[r * mine + j];
      if (hop + 1 == group.size) break;
      group.exchange((group.rank + 1) % group.size, std::as_bytes(std::span{columns}),
                     (group.rank + group.size - 1) % group.size, std::as_writable_bytes(std::span{theirs}));
      std::swap(columns, theirs);
    }
  }

  static void backward(auto& at) {
    auto const group = group_along<A>(at.axes);
    auto const in    = at.v[0].size() / mine;
    auto const first = static_cast<std::size_t>(group.rank) * mine;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 0; i < in; ++i)
        for (std::size_t j = 0; j < mine; ++j)
          at.dv[0][i * mine + j] += at.x()[r * in + i] * at.dy()[r * out + first + j];
    if (at.dx().empty()) return;
    auto sums        = std::vector<float>(at.rows * in);  // over the columns of all ranks, in order
    auto const bytes = std::as_writable_bytes(std::span{sums});
    if (group.rank > 0) group.exchange(0, {}, group.rank - 1, bytes);
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 0; i < in; ++i)
        for (std::size_t j = 0; j < mine; ++j) sums[r * in + i] += at.dy()[r * out + first + j] * at.v[0][i * mine + j];
    if (group.rank + 1 < group.size) {
      group.exchange(group.rank + 1, bytes, 0, {});
      group.exchange(0, {}, group.size - 1, bytes);  // the last rank has the sums of all
    } else {
      for (Rank other = 0; other + 1 < group.size; ++other) group.exchange(other, bytes, 0, {});
    }
    for (std::size_t k = 0; k < sums.size(); ++k) at.dx()[k] += sums[k];
  }
};

struct Point : Field<float, 6> {};
struct Height : Field<float, 3> {};

/// Layers that all ranks have, one whose parts are whole lines of 16 numbers, and one whose are not.
///
/// A, B    the axes of these two
template <class A, class B = A> struct Surface : nn::Graph<Point> {
  nn::Dense<7> in;
  Columns<A, 32> wide;
  Columns<B, 10> narrow;
  nn::Dense<3> last;

  constexpr auto operator()(auto x) const {
    return nn::outputs<Height>(last(nn::Tanh{}(narrow(nn::Tanh{}(wide(nn::Tanh{}(in(x))))))));
  }
};

template <class A, class B = A, class Optimizer> auto surface(Optimizer optimizer) {
  return nn::compile<Surface<A, B>>(loss::MeanSquaredError{}, optimizer, metric::RootMeanSquaredError{});
}

/// Batches of 13 rows, and one of 9: no number of ranks gets even shares of all of them.
inline auto points(std::size_t rows = 48) {
  auto x = std::vector<float>(rows * 6), y = std::vector<float>(rows * 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i, -1, 1);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Random{1, 1}.uniform(i);
  return data::from_fields<Point, Height>(x, y).batch(13);
}

}  // namespace mesh_test
