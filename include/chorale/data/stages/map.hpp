// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// The epoch and number of a row, which a function of map may take: its random numbers should depend on them only.
struct Place {
  std::size_t epoch = 0, row = 0;

  /// The random numbers of this row in this epoch only.
  Random random(Seed seed) const {
    constexpr auto purpose = std::uint64_t{0x6d617020} << 32;              // "map ": used by no other stage
    return {Seed{Random{seed, purpose}.bits(epoch)}, row};
  }
};

/// Converts bytes to numbers: a pixel p becomes p / 255, a label an int.
struct Scale {
  void operator()(Sample<std::uint8_t, std::uint8_t> const& row, std::vector<float>& x, std::vector<int>& y) const {
    x.resize(row.x.size());
    std::transform(row.x.begin(), row.x.end(), x.begin(), [](auto pixel) { return static_cast<float>(pixel) / 255; });
    y.assign(row.y.begin(), row.y.end());
  }
};
inline constexpr auto scale = Scale{};

/// A function of map: f(row, x, y) or f(row, x, y, place). When it returns bool, false leaves the row out.
template <class F, class In, class X, class Y>
concept CallableByMap = std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&, Place> ||
                        std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&>;

namespace detail {

/// Calls a function of map. False if the row is left out.
template <class F, class In, class X, class Y>
bool make_row(F& f, In const& row, std::vector<X>& x, std::vector<Y>& y, [[maybe_unused]] Place at) {
  auto const call = [&]() -> decltype(auto) {
    if constexpr (std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&, Place>) return f(row, x, y, at);
    else return f(row, x, y);
  };
  if constexpr (std::same_as<decltype(call()), bool>) return call();
  else return call(), true;
}

/// True if a function of map makes a row of every row.
template <class F, class In, class X, class Y>
inline constexpr bool makes_every_row = [] {
  if constexpr (std::invocable<F&, In const&, std::vector<X>&, std::vector<Y>&, Place>)
    return !std::same_as<std::invoke_result_t<F&, In const&, std::vector<X>&, std::vector<Y>&, Place>, bool>;
  else return !std::same_as<std::invoke_result_t<F&, In const&, std::vector<X>&, std::vector<Y>&>, bool>;
}();

}  // namespace detail

/// Rows made of other rows by a function. See Pipe::map.
///
///   auto flipped = [seed](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
///     x.assign(row.x.begin(), row.x.end());
///     if (at.random(seed).uniform(0) < 0.5F) std::reverse(x.begin(), x.end());
///     y.assign(row.y.begin(), row.y.end());
///   };
///
/// cost    no allocation after the first row, as long as the rows keep their width
template <class D, class F, class X, class Y>
class Mapped : public Pipe<Mapped<D, F, X, Y>> {
  using In = typename D::element;
  static_assert(is_sample<In>, "chorale: map takes rows, not batches. Put it before .batch(n).");
  static_assert(CallableByMap<F, In, X, Y>,
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
      for (auto made = false; !made; ++place_.row) {
        if (!from_.next(in_)) return false;
        made = detail::make_row(f_, std::as_const(in_), x_, y_, place_);
      }
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
  std::optional<std::size_t> size() const {
    if constexpr (detail::makes_every_row<F, In, X, Y>) return from_.size();
    else return {};
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("map to " + type_name<X>() + "," + type_name<Y>());
  }

 private:
  D from_;
  F f_;
};

}  // namespace chorale::data
