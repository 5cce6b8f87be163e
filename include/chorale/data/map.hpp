// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chorale::data {

/// Which row a function of map has before it: what its random numbers, if any, should be a function of.
struct Place {
  std::size_t epoch = 0, row = 0;
};

/// Bytes to numbers: a pixel p becomes p / 255, a label an int.
struct Scale {
  void operator()(Sample<std::uint8_t, std::uint8_t> const& row, std::vector<float>& x, std::vector<int>& y) const {
    x.resize(row.x.size());
    std::transform(row.x.begin(), row.x.end(), x.begin(), [](auto pixel) { return static_cast<float>(pixel) / 255; });
    y.assign(row.y.begin(), row.y.end());
  }
};
inline constexpr auto scale = Scale{};

/// Rows made of other rows by a function. See Pipe::map.
///
///   auto flipped = [seed](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
///     x.assign(row.x.begin(), row.x.end());
///     if (Random{seed, at.epoch}.uniform(at.row) < 0.5F) std::reverse(x.begin(), x.end());
///     y.assign(row.y.begin(), row.y.end());
///   };
///
/// cost    no allocation after the first row, as long as the rows keep their width
template <class D, class F, class X, class Y>
class Mapped : public Pipe<Mapped<D, F, X, Y>> {
  using In = typename D::element;
  static constexpr bool with_place = std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&, Place>;
  static_assert(is_sample<In>, "chorale: map takes rows, not batches. Put it before .batch(n).");
  static_assert(with_place || std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&>,
                "chorale: map's function cannot be called as f(row, x, y) or f(row, x, y, place): row is the Sample of "
                "the stage before, x is std::vector<X>&, y is std::vector<Y>&; write .map<X, Y>(f) unless these are "
                "float and int.");

 public:
  using element = Sample<X, Y>;
  static constexpr bool stable = false;

  Mapped(D from, F f) : from_{std::move(from)}, f_{std::move(f)} {}

  class Stream {
   public:
    Stream(StreamOf<D> from, F f, std::size_t epoch) : from_{std::move(from)}, f_{std::move(f)}, place_{epoch, 0} {}

    bool next(element& out) {
      if (!from_.next(in_)) return false;
      if constexpr (with_place) f_(std::as_const(in_), x_, y_, place_);
      else f_(std::as_const(in_), x_, y_);
      ++place_.row;
      out = {x_, y_};
      return true;
    }

   private:
    StreamOf<D> from_;
    F f_;
    Place place_;
    In in_{};
    std::vector<X> x_;
    std::vector<Y> y_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), f_, epoch}; }
  std::optional<std::size_t> size() const { return from_.size(); }

 private:
  D from_;
  F f_;
};

}  // namespace chorale::data
