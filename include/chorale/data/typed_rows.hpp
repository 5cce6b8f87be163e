// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/field.hpp>
#include <chorale/data/field_list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace chorale {

namespace detail {

/// The rows of the shards that part i of n gets of `shards`, which it gets whole.
inline Range rows_of_shards(std::size_t rows, int i, int n, int shards) {
  auto const mine = share(static_cast<std::size_t>(shards), i, n);
  auto const at   = [&](std::size_t s) { return share(rows, static_cast<int>(s), shards).begin; };
  return {at(mine.begin), at(mine.end)};
}

inline std::string_view as_text(Span<std::uint8_t const> bytes) {
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

}  // namespace detail

/// One row of named fields: row[Title{}] is a view of the numbers of that field. What streams give before batch.
///
///   struct Title : Field<int, 40> {};
///   struct Body : Field<std::uint8_t, ragged> {};
///   void read(Row<Title, Body> const& row) { ... row[Title{}][39], row.text(Body{}) ... }
///
/// keeps   a view, valid until the next call of the stream that gave it
template <class... F> class Row {
  using List = detail::FieldList<F...>;

 public:
  Row() = default;
  explicit Row(Span<detail::FieldNumber<F> const>... parts) : spans_{parts...} {}

  /// The numbers of field G; the compiler refuses a field that the row does not have.
  template <class G> Span<detail::FieldNumber<G> const> operator[](G) const {
    static_assert(List::template has<G>,
                  "chorale: this asks for a field that the rows do not have. Name it in map<...>");
    if constexpr (List::template has<G>) return std::get<List::template index<G>>(spans_);
    else return {};
  }

  /// The bytes of field G as text.
  template <class G> std::string_view text(G field) const { return detail::as_text((*this)[field]); }

  /// All fields in order, as the stages of a pipeline read and set them.
  auto& fields() { return spans_; }
  auto const& fields() const { return spans_; }

 private:
  std::tuple<Span<detail::FieldNumber<F> const>...> spans_;
};

/// A batch of rows of named fields: batch[Title{}] is a view of (rows, Title) numbers, row-major.
///
///   auto const titles = batch[Title{}];                   // (B, 40)
///   auto const bodies = batch[Body{}];                    // (B, widest row): shorter rows are padded
///   auto const length = batch.lengths(Body{});            // (B): of each row without padding
///
/// first_row    index of this part's first row within the global batch
/// global_rows  rows of the global batch; 0: this is the global batch
/// keeps        a view, valid until the next call of the stream that gave it
template <class... F> class Rows {
  using List = detail::FieldList<F...>;

 public:
  std::size_t rows        = 0;
  std::size_t first_row   = 0;
  std::size_t global_rows = 0;

  Rows() = default;

  /// A batch of the numbers of each field, (rows, F).
  ///
  /// throws  BadArgument when they are not whole rows, or the fields have different numbers of rows
  explicit Rows(Span<detail::FieldNumber<F> const>... parts) requires(!(detail::is_ragged<F> || ...))
      : spans_{parts...} {
    auto const counts = std::array{parts.size() / F::size...};
    rows              = counts[0];
    (expect_rows<F>(parts.size()), ...);
  }

  /// The numbers of field G in all rows; the compiler refuses a field that the batch does not have.
  template <class G> Span<detail::FieldNumber<G> const> operator[](G) const {
    static_assert(List::template has<G>,
                  "chorale: this asks for a field that the batches do not have. Name it in map<...>");
    if constexpr (List::template has<G>) return std::get<List::template index<G>>(spans_);
    else return {};
  }

  /// For each row, the size of the ragged dimension of G before padding.
  template <class G> Span<int const> lengths(G) const {
    static_assert(List::template has<G>,
                  "chorale: this asks for a field that the batches do not have. Name it in map<...>");
    static_assert(!List::template has<G> || detail::is_ragged<G>,
                  "chorale: lengths are those of a ragged field, and all rows of this one have the same shape");
    if constexpr (List::template has<G> && detail::is_ragged<G>)
      return std::get<List::template lengths_index<G>>(spans_);
    else return {};
  }

  /// Numbers that each row of this batch has for field G, padding included.
  template <class G> std::size_t width(G field) const {
    if constexpr (IsField<G> && !detail::is_ragged<G>) return G::size;
    else return rows == 0 ? 0 : (*this)[field].size() / rows;
  }

  /// The numbers of field G in row i, without padding.
  template <class G> Span<detail::FieldNumber<G> const> unpadded(G field, std::size_t i) const {
    auto const row = (*this)[field].subspan(i * width(field), width(field));
    if constexpr (detail::is_ragged<G>) {
      static_assert(detail::ragged_shape<G>.outer == 1,
                    "chorale: a row without padding lies in one piece only if its ragged dimension is the first one");
      return row.first(static_cast<std::size_t>(lengths(field)[i]) * detail::ragged_shape<G>.inner);
    } else {
      return row;
    }
  }

  /// The bytes of field G in row i as text, without padding.
  template <class G> std::string_view text(G field, std::size_t i) const { return detail::as_text(unpadded(field, i)); }

  /// Part i of n, of nearly equal rows; may be empty.
  ///
  /// keeps   the parts are disjoint, in order, and together all rows; each is as wide as the whole batch
  Rows part(int i, int n) const { return rows_in(share(rows, i, n)); }

  /// Part i of n, cut only between logical shards: it has share(shards, i, n) of them.
  Rows part(int i, int n, int shards) const { return rows_in(detail::rows_of_shards(rows, i, n, shards)); }

  /// The rows `mine`, counted from the first row of this part.
  Rows rows_in(Range mine) const {
    auto part     = *this;
    auto const in = [&](auto& span) {
      auto const each = rows == 0 ? 0 : span.size() / rows;
      span            = span.subspan(mine.begin * each, mine.size() * each);
    };
    std::apply([&](auto&... spans) { (in(spans), ...); }, part.spans_);
    part.rows        = mine.size();
    part.first_row   = first_row + mine.begin;
    part.global_rows = global_rows != 0 ? global_rows : rows;
    return part;
  }

  /// The values of all fields in order, then the lengths of the ragged ones, as the stages of a pipeline set them.
  auto& fields() { return spans_; }
  auto const& fields() const { return spans_; }

 private:
  template <class G> static auto lengths_of() {
    if constexpr (detail::is_ragged<G>) return std::tuple<Span<int const>>{};
    else return std::tuple<>{};
  }
  template <class G> void expect_rows(std::size_t numbers) const {
    CHORALE_EXPECTS(numbers == rows * G::size, "a batch of " + std::to_string(rows) + " rows needs " +
                                                   std::to_string(rows * G::size) + " numbers for field " +
                                                   type_name<G>() + ", got " + std::to_string(numbers));
  }

  decltype(std::tuple_cat(std::tuple<Span<detail::FieldNumber<F> const>>{}..., lengths_of<F>()...)) spans_;
};

/// True if B are batches of rows with field F.
template <class B, class F> inline constexpr bool has_field = false;
template <class... G, class F>
inline constexpr bool has_field<Rows<G...>, F> = detail::FieldList<G...>::template has<F>;

/// The memory of a row that a function of the program makes: to[Title{}] is a vector to fill.
///
///   rows.map<Title, Body>([](auto const& row, auto& to) {
///     to[Title{}].assign(40, 0);                          // (40)
///     to[Body{}].assign(row.x.begin(), row.x.end());      // ragged: any number
///   });
///
/// keeps   vectors keep their memory and content from row to row: resize them, then write every element
template <class... F> class NewRow {
  using List = detail::FieldList<F...>;

 public:
  /// The vector of field G; the compiler refuses a field that the row does not have.
  template <class G> std::vector<detail::FieldNumber<G>>& operator[](G) {
    static_assert(List::template has<G>, "chorale: this fills a field that map<...> does not name. Name it there");
    if constexpr (List::template has<G>) return std::get<List::template index<G>>(vectors_);
    else return *static_cast<std::vector<detail::FieldNumber<G>>*>(nullptr);
  }

  Row<F...> view() const {
    return std::apply([](auto const&... vectors) { return Row<F...>{vectors...}; }, vectors_);
  }

 private:
  std::tuple<std::vector<detail::FieldNumber<F>>...> vectors_;
};

}  // namespace chorale
