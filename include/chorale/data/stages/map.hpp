// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// The epoch and number of a row, which a function of map may take: its random numbers should depend on them only.
struct Place {
  std::size_t epoch = 0, row = 0;

  /// The random numbers of this row in this epoch only.
  Random random(Seed seed) const {
    constexpr auto purpose = std::uint64_t{0x6d617020} << 32;  // "map ": used by no other stage
    return {Seed{Random{seed, purpose}.bits(epoch)}, row};
  }
};

/// A label of any integer type as an int.
///
/// throws  BadArgument when it is not in the range of int
template <std::integral Label> int int_label(Label label) {
  if constexpr (sizeof(Label) >= sizeof(int))
    CHORALE_EXPECTS(std::in_range<int>(label), "label " + std::to_string(label) +
                                                   " is beyond what an int has, and "
                                                   "labels are counted from 0");
  return static_cast<int>(label);
}

/// Converts bytes to numbers: a pixel p becomes p / 255, a label, of any integer type, an int.
///
/// throws  BadArgument when a label is not in the range of int
struct Scale {
  template <std::integral Label>
  void operator()(Sample<std::uint8_t, Label> const& row, std::vector<float>& x, std::vector<int>& y) const {
    x.resize(row.x.size());
    std::transform(row.x.begin(), row.x.end(), x.begin(), [](auto pixel) { return static_cast<float>(pixel) / 255; });
    y.resize(row.y.size());
    std::transform(row.y.begin(), row.y.end(), y.begin(), int_label<Label>);
  }
};
inline constexpr auto scale = Scale{};

/// A function of map: f(row, x, y) or f(row, x, y, place), or with named fields f(row, to) or f(row, to, place). When
/// it returns bool, false leaves the row out.
///
/// To      the vectors that it fills: X and Y, or a NewRow
template <class F, class In, class... To>
concept CallableWith = std::invocable<F&, In const&, To&..., Place> || std::invocable<F&, In const&, To&...>;

/// A function of map that fills a vector of X and one of Y.
template <class F, class In, class X, class Y>
concept CallableByMap = CallableWith<F, In, std::vector<X>, std::vector<Y>>;

namespace detail {

/// Calls a function of map. False if the row is left out.
template <class F, class In, class... To> bool make_row(F& f, In const& row, [[maybe_unused]] Place at, To&... to) {
  auto const call = [&]() -> decltype(auto) {
    if constexpr (std::invocable<F&, In const&, To&..., Place>) return f(row, to..., at);
    else return f(row, to...);
  };
  if constexpr (std::same_as<decltype(call()), bool>) return call();
  else return call(), true;
}

/// Whether a function of map can be called for rows In, and whether it makes a row of every row.
template <class F, class In, class New> struct MapCall;
template <class F, class In, class X, class Y>
struct MapCall<F, In, NewSample<X, Y>> : MapCall<F, In, std::tuple<std::vector<X>, std::vector<Y>>> {};
template <class F, class In, class... Fields>
struct MapCall<F, In, NewRow<Fields...>> : MapCall<F, In, std::tuple<NewRow<Fields...>>> {};
template <class F, class In, class... To> struct MapCall<F, In, std::tuple<To...>> {
  static constexpr bool possible     = CallableWith<F, In, To...>;
  static constexpr bool of_every_row = [] {
    if constexpr (std::invocable<F&, In const&, To&..., Place>)
      return !std::same_as<std::invoke_result_t<F&, In const&, To&..., Place>, bool>;
    else if constexpr (possible) return !std::same_as<std::invoke_result_t<F&, In const&, To&...>, bool>;
    else return true;
  }();
};

template <class F, class In, class Out> inline constexpr bool callable_by_map = MapCall<F, In, NewOf<Out>>::possible;

/// True if a function of map makes a row of every row.
template <class F, class In, class Out>
inline constexpr bool makes_every_row = MapCall<F, In, NewOf<Out>>::of_every_row;

/// Makes row number at.row in the memory of `to`. False if it is left out.
///
/// throws  BadArgument when the row does not have the shapes of its fields
template <class Out, class F, class In, class New> bool make_row_in(New& to, F& f, In const& row, Place at) {
  auto const made = RowType<Out>::fill(to, [&](auto&... vectors) { return make_row(f, row, at, vectors...); });
  if (made) RowType<Out>::expect_shape(at.row, to.view());
  return made;
}

/// Checks at compile time that map can call F, with one sentence for each kind of rows. Returns false if it cannot.
template <class F, class In, class Out> constexpr bool expect_callable() {
  constexpr auto ok = callable_by_map<F, In, Out>;
  static_assert(ok || !is_sample<Out>,
                "chorale: map's function cannot be called as f(row, x, y) or f(row, x, y, place): row is the Sample of "
                "the stage before, x is std::vector<X>&, y is std::vector<Y>&; write .map<X, Y>(f) unless these are "
                "float and int.");
  static_assert(ok || is_sample<Out>,
                "chorale: map's function cannot be called as f(row, to) or f(row, to, place): row is the row of the "
                "stage before, to is NewRow<Fields...>&, whose to[Title{}] is a std::vector& to fill.");
  return ok;
}

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
template <class D, class F, class Out> class Mapped : public Pipe<Mapped<D, F, Out>> {
  using In = typename D::element;
  static_assert(is_row<In>, "chorale: map takes rows, not batches. Put it before .batch(n).");

 public:
  using element                = Out;
  static constexpr bool stable = false;

  Mapped(D from, F f) : from_{std::move(from)}, f_{std::move(f)} { detail::expect_callable<F, In, Out>(); }

  class Stream {
   public:
    Stream(StreamOf<D> from, F f, std::size_t epoch) : from_{std::move(from)}, f_{std::move(f)}, place_{epoch, 0} {}

    bool next(element& out) {
      for (auto made = false; !made; ++place_.row) {
        if (!from_.next(in_)) return false;
        made = detail::make_row_in<Out>(to_, f_, std::as_const(in_), place_);
      }
      out = to_.view();
      return true;
    }

   private:
    StreamOf<D> from_;
    F f_;
    Place place_;
    In in_{};
    detail::NewOf<Out> to_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), f_, epoch}; }
  std::optional<std::size_t> size() const {
    if constexpr (detail::makes_every_row<F, In, Out>) return from_.size();
    else return {};
  }

  bool reorders() const { return detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("map to " + detail::RowType<Out>::text());
  }

 private:
  D from_;
  F f_;
};

}  // namespace chorale::data
