// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::data {

/// Two datasets of the same elements, one after the other. See Pipe::concatenate.
template <class A, class B> class Concatenated : public Pipe<Concatenated<A, B>> {
  static_assert(std::same_as<typename A::element, typename B::element>,
                "chorale: concatenate needs two datasets of the same elements. Put a map before it.");

 public:
  using element                = typename A::element;
  static constexpr bool stable = Stable<A> && Stable<B>;

  Concatenated(A first, B second) : first_{std::move(first)}, second_{std::move(second)} {}

  class Stream {
    static constexpr bool fills =
        FillsBuffer<StreamOf<A>, element> && FillsBuffer<StreamOf<B>, element> &&
        std::same_as<typename BufferOf<StreamOf<A>>::type, typename BufferOf<StreamOf<B>>::type>;

   public:
    using buffer = std::conditional_t<fills, typename BufferOf<StreamOf<A>>::type, void>;

    Stream(StreamOf<A> first, B second, std::size_t epoch)
        : first_{std::move(first)}, second_{std::move(second)}, epoch_{epoch} {}

    bool next(element& out) {
      return of_either([&](auto& from) { return from.next(out); });
    }

    template <class Buffer> bool next_into(Buffer& to, element& out) requires fills {
      return of_either([&](auto& from) { return from.next_into(to, out); });
    }

   private:
    template <class Next> bool of_either(Next next) {
      if (!then_) {
        if (next(first_)) return true;
        then_.emplace(second_.stream(epoch_));  // only now: earlier, its threads would only wait
      }
      return next(*then_);
    }

    StreamOf<A> first_;
    B second_;
    std::size_t epoch_;
    std::optional<StreamOf<B>> then_;
  };

  Stream stream(std::size_t epoch) const { return {first_.stream(epoch), second_, epoch}; }

  std::optional<std::size_t> size() const {
    auto const a = first_.size(), b = second_.size();
    if (!a || !b) return {};
    return *a + *b;
  }

  bool reorders() const { return detail::reorders_by_option(first_) || detail::reorders_by_option(second_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(first_, lines);
    lines.push_back("concatenate");
    data::describe(second_, lines);
  }

 private:
  A first_;
  B second_;
};

namespace detail {

/// The rows that zip makes of two kinds of rows.
template <class A, class B> struct ZippedRow : std::type_identity<A> {};
template <class X, class Y, class V, class W>
struct ZippedRow<Sample<X, Y>, Sample<V, W>> : std::type_identity<Sample<X, V>> {};
template <class... F, class... G> struct ZippedRow<Row<F...>, Row<G...>> : std::type_identity<Row<F..., G...>> {};

}  // namespace detail

/// Rows of two datasets side by side. See zip.
template <class A, class B> class Zipped : public Pipe<Zipped<A, B>> {
  static_assert(is_row<typename A::element> && is_row<typename B::element>,
                "chorale: zip takes rows, not batches. Put it before .batch(n).");
  static_assert(is_sample<typename A::element> == is_sample<typename B::element>,
                "chorale: zip takes two datasets of Samples, or two of rows of named fields. Put a map before it.");

 public:
  using element                = typename detail::ZippedRow<typename A::element, typename B::element>::type;
  static constexpr bool stable = Stable<A> && Stable<B>;

  Zipped(A x, B y) : x_{std::move(x)}, y_{std::move(y)} {}

  class Stream {
   public:
    Stream(StreamOf<A> x, StreamOf<B> y) : x_{std::move(x)}, y_{std::move(y)} {}

    bool next(element& out) {
      auto a = typename A::element{};
      auto b = typename B::element{};
      if (!x_.next(a) || !y_.next(b)) return false;
      if constexpr (is_sample<element>) out = {a.x, b.x};
      else out.fields() = std::tuple_cat(a.fields(), b.fields());
      return true;
    }

   private:
    StreamOf<A> x_;
    StreamOf<B> y_;
  };

  Stream stream(std::size_t epoch) const { return {x_.stream(epoch), y_.stream(epoch)}; }

  std::optional<std::size_t> size() const {
    auto const a = x_.size(), b = y_.size();
    if (!a || !b) return {};
    return std::min(*a, *b);
  }

  bool reorders() const { return detail::reorders_by_option(x_) || detail::reorders_by_option(y_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(x_, lines);
    lines.push_back("zip");
    data::describe(y_, lines);
  }

 private:
  A x_;
  B y_;
};

/// Rows with the x of one dataset as their x and the x of another as their y, until either ends. Rows of named fields
/// get the fields of both.
///
///   auto rows = data::zip(images, labels);
template <class A, class B> Zipped<A, B> zip(A x, B y) { return {std::move(x), std::move(y)}; }

}  // namespace chorale::data
