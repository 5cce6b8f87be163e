// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/typed_rows.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// One row: the input of the network, and its target. A view.
template <class X, class Y> struct Sample {
  Span<X const> x;
  Span<Y const> y;
};

/// A batch of rows. A view, valid until the next call of the stream that gave it.
///
/// x         (B, width), row-major; y (B, targets)
/// first_row index of this part's first row within the global batch
template <class X = float, class Y = int> struct BasicBatch {
  Span<X const> x;
  Span<Y const> y;
  std::size_t rows        = 0;
  std::size_t first_row   = 0;  // within the global batch, if this is a part of one
  std::size_t global_rows = 0;  // rows of the global batch; 0: this is the global batch

  /// Part i of n, of nearly equal rows; may be empty.
  ///
  /// keeps   the parts are disjoint, in order, and together all rows
  BasicBatch part(int i, int n) const { return rows_in(share(rows, i, n)); }

  /// Part i of n, cut only between logical shards: it has share(shards, i, n) of them.
  BasicBatch part(int i, int n, int shards) const { return rows_in(detail::rows_of_shards(rows, i, n, shards)); }

  /// The rows `mine`, counted from the first row of this part.
  BasicBatch rows_in(Range mine) const {
    auto const width   = rows == 0 ? 0 : x.size() / rows;
    auto const targets = rows == 0 ? 0 : y.size() / rows;
    return {.x           = x.subspan(mine.begin * width, mine.size() * width),      // (rows, width)
            .y           = y.subspan(mine.begin * targets, mine.size() * targets),  // (rows, targets)
            .rows        = mine.size(),
            .first_row   = first_row + mine.begin,
            .global_rows = global_rows != 0 ? global_rows : rows};
  }
};

using Batch = BasicBatch<>;

}  // namespace chorale

namespace chorale::data {

/// True if T is a Sample, not a batch or another type of element.
template <class T> inline constexpr bool is_sample                        = false;
template <class X, class Y> inline constexpr bool is_sample<Sample<X, Y>> = true;

namespace detail {

/// The spans of an element, as a tuple that stages read and set: x and y, or what its member fields() gives.
template <class Element> constexpr decltype(auto) fields(Element& element) {
  if constexpr (requires { element.fields(); }) return (element.fields());
  else return std::tie(element.x, element.y);
}

template <class Spans> struct NumbersOf;
template <class... S> struct NumbersOf<std::tuple<S...>> {
  template <template <class...> class To>
  using in = To<std::remove_const_t<typename std::remove_cvref_t<S>::element_type>...>;
};

/// To<T...>, where T are the types of the numbers in the spans of an element.
template <template <class...> class To, class Element>
using OfNumbers = typename NumbersOf<std::remove_cvref_t<decltype(fields(std::declval<Element&>()))>>::template in<To>;

template <class... T> using Vectors = std::tuple<std::vector<T>...>;

template <class Element> inline constexpr std::size_t fields_of = std::tuple_size_v<OfNumbers<std::tuple, Element>>;

/// Calls f(i) for i = 0, 1, ..., n - 1, each a std::integral_constant.
template <std::size_t n, class F> constexpr void for_each_index(F f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (f(std::integral_constant<std::size_t, i>{}), ...);
  }(std::make_index_sequence<n>{});
}

/// The bytes of an element in all its spans.
template <class Element> std::size_t bytes_of(Element const& element) {
  return std::apply([](auto const&... spans) { return (spans.size_bytes() + ... + 0); }, fields(element));
}

/// The memory of a new Sample.
template <class X, class Y> struct NewSample {
  std::vector<X> x;
  std::vector<Y> y;

  Sample<X, Y> view() const { return {x, y}; }
};

/// What the stages know of a type of rows; false for batches.
///
/// Batch, New     what batch makes of such rows; memory for a row that a function makes
/// fill(to, f)    calls f with the vectors of a New, as functions of the program get them
/// can_grow       rows may be concatenated without another shape
/// expect_shape   throws BadArgument when row number `row` cannot have these fields
template <class T> struct RowType : std::false_type {
  static constexpr bool is_ragged = false, can_grow = true;
};

template <class X, class Y> struct RowType<Sample<X, Y>> : std::true_type {
  using Batch                     = BasicBatch<X, Y>;
  using New                       = NewSample<X, Y>;
  static constexpr bool is_ragged = false, can_grow = true;

  template <class F> static decltype(auto) fill(New& to, F f) { return f(to.x, to.y); }
  static void expect_shape(std::size_t, Sample<X, Y> const&) {}
  static std::string text() { return type_name<X>() + "," + type_name<Y>(); }
};

template <class... F> struct RowType<Row<F...>> : std::true_type {
  using Batch                                            = chorale::Rows<F...>;
  using New                                              = NewRow<F...>;
  static constexpr bool is_ragged                        = (chorale::detail::is_ragged<F> || ...);
  static constexpr bool can_grow                         = (chorale::detail::begins_ragged<F> && ...);
  static constexpr std::array<bool, sizeof...(F)> ragged = {chorale::detail::is_ragged<F>...};

  template <class Fill> static decltype(auto) fill(New& to, Fill f) { return f(to); }
  static void expect_shape(std::size_t row, Row<F...> const& got) {
    (chorale::detail::expect_size<F>(row, got[F{}].size()), ...);
  }
  static std::string text() {
    auto all = std::string{};
    ((all.append(all.empty() ? "" : ",") += chorale::detail::text_of_field<F>()), ...);
    return all;
  }
};

/// Memory for a row of this type that a function of the program makes.
template <class Row> using NewOf = typename RowType<Row>::New;

/// The rows that window makes of rows of a type: of Fields..., or of the same type if that names none.
template <class Row, class... Fields> struct WindowRow : std::type_identity<chorale::Row<Fields...>> {};
template <class Row> struct WindowRow<Row> : std::type_identity<Row> {};
template <class Row, class... Fields> using WindowOf = typename WindowRow<Row, Fields...>::type;

}  // namespace detail

/// True if T is a row, Sample or Row, not a batch.
template <class T> inline constexpr bool is_row = detail::RowType<T>::value;

/// A copy of an element, in memory that is reused for the next one.
template <class Element> class Kept {
 public:
  Kept()                       = default;
  Kept(Kept&&)                 = default;  // the view stays valid: the memory moves along
  Kept& operator=(Kept&&)      = default;
  Kept(Kept const&)            = delete;
  Kept& operator=(Kept const&) = delete;

  void keep(Element const& element) {
    element_     = element;
    auto&& spans = detail::fields(element_);
    detail::for_each_index<detail::fields_of<Element>>([&](auto i) {
      auto& span   = std::get<i>(spans);
      auto& memory = std::get<i>(memory_);
      memory.assign(span.begin(), span.end());
      span = memory;
    });
  }
  Element const& get() const { return element_; }

 private:
  detail::OfNumbers<detail::Vectors, Element> memory_;
  Element element_{};
};

}  // namespace chorale::data
