// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

/// True if next(x, y), or next(to) of named fields, makes a row and says whether there is one.
template <class Next, class Out>
inline constexpr bool can_fill = [] {
  if constexpr (is_sample<Out>) return std::predicate<Next&, decltype(NewOf<Out>::x)&, decltype(NewOf<Out>::y)&>;
  else return std::predicate<Next&, NewOf<Out>&>;
}();

/// Refuses a function that begins no passes over rows of type Out. Returns false then.
template <class Out, class Make> constexpr bool check_generator() {
  constexpr bool fills = [] {
    if constexpr (std::invocable<Make const&, std::size_t>)
      return can_fill<std::invoke_result_t<Make const&, std::size_t>, Out>;
    else return false;
  }();
  static_assert(!is_sample<Out> || fills,
                "chorale: from_generator's function is called as make(epoch), and what it returns as next(x, y): x is "
                "std::vector<X>&, y is std::vector<Y>&; it says false at the end of the pass.");
  static_assert(is_sample<Out> || fills,
                "chorale: from_generator's function is called as make(epoch), and what it returns as next(to): to is "
                "NewRow<Fields...>&; it says false at the end of the pass.");
  return fills;
}

}  // namespace detail

/// Rows that a function of the program makes. See from_generator.
template <class Out, class Make> class Generated : public Pipe<Generated<Out, Make>> {
  using Next = std::invoke_result_t<Make const&, std::size_t>;
  using New  = detail::NewOf<Out>;

 public:
  using element                = Out;
  static constexpr bool stable = false;

  Generated(Make make, std::optional<std::size_t> size) : make_{std::move(make)}, size_{size} {}

  class Stream {
   public:
    explicit Stream(Next next) : next_{std::move(next)} {}

    bool next(element& out) {
      if (ended_ || (ended_ = !detail::RowType<Out>::fill(to_, std::ref(next_)))) return false;
      out = to_.view();
      detail::RowType<Out>::expect_shape(row_++, out);
      return true;
    }

   private:
    Next next_;
    bool ended_      = false;
    std::size_t row_ = 0;
    New to_;
  };

  Stream stream(std::size_t epoch) const { return Stream{make_(epoch)}; }
  std::optional<std::size_t> size() const { return size_; }

  void describe(std::vector<std::string>& lines) const { lines.push_back("generated"); }

 private:
  Make make_;
  std::optional<std::size_t> size_;
};

/// A dataset whose rows a function makes.
///
///   auto rows = data::from_generator([](std::size_t epoch) {
///     return [i = 0, epoch](std::vector<float>& x, std::vector<int>& y) mutable {
///       x.assign(4, static_cast<float>(epoch)), y.assign(1, i);
///       return i++ < 100;
///     };
///   });
///
/// make    make(epoch) begins a pass, maybe in another thread; its result is called until it returns false
/// x, y    keep their memory and content from row to row
/// size    rows of a pass, if known
/// order   the order of `make`: a pass must be a function of the epoch
template <class X = float, class Y = int, class Make> requires(!IsField<X> && !IsField<Y>)
auto from_generator(Make make, std::optional<std::size_t> size = {}) {
  using Out = Sample<X, Y>;
  if constexpr (detail::check_generator<Out, Make>()) return Generated<Out, Make>{std::move(make), size};
  else return RefusedData{};
}

/// A dataset whose rows of named fields a function makes: make(epoch) begins a pass, and what it returns is called as
/// next(to), where to[Title{}] is the vector of a field to fill, until it returns false.
///
/// size    rows of a pass, if known
/// throws  BadArgument, from next, when a field of fixed shape gets another number of elements
template <class... Fields, class Make> requires(IsField<Fields> || ...)
auto from_generator(Make make, std::optional<std::size_t> size = {}) {
  if constexpr (!chorale::detail::check_fields<Fields...>()) return RefusedData{};
  else if constexpr (!detail::check_generator<Row<Fields...>, Make>()) return RefusedData{};
  else return Generated<Row<Fields...>, Make>{std::move(make), size};
}

/// Integers. See range.
class Integers : public Pipe<Integers> {
 public:
  using element                = Sample<std::int64_t, std::int64_t>;
  static constexpr bool stable = false;

  Integers(std::int64_t begin, std::int64_t step, std::size_t n) : begin_{begin}, step_{step}, n_{n} {}

  class Stream {
   public:
    Stream(std::int64_t begin, std::int64_t step, std::size_t n) : at_{begin}, step_{step}, left_{n} {}

    bool next(element& out) {
      if (left_ == 0) return false;
      value_ = {at_};
      if (--left_ > 0) at_ += step_;  // the one after the last might not fit into 64 bits
      out = {value_, {}};
      return true;
    }

   private:
    std::int64_t at_, step_;
    std::size_t left_;
    std::array<std::int64_t, 1> value_{};
  };

  Stream stream(std::size_t) const { return {begin_, step_, n_}; }
  std::optional<std::size_t> size() const { return n_; }

  void describe(std::vector<std::string>& lines) const {
    lines.push_back("integers from " + std::to_string(begin_) + " step " + std::to_string(step_) + " count " +
                    std::to_string(n_));
  }

 private:
  std::int64_t begin_, step_;
  std::size_t n_;
};

/// The integers begin, begin + step and so on, without `end`: rows with one number in x and none in y.
inline Integers range(std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
  CHORALE_EXPECTS(step != 0, "range needs a step that is not 0");
  auto const empty = step > 0 ? begin >= end : begin <= end;
  if (empty) return {begin, step, 0};
  auto const a = static_cast<std::uint64_t>(begin), b = static_cast<std::uint64_t>(end);
  auto const far = step > 0 ? b - a : a - b;  // at most 2^64 - 1: unsigned numbers wrap
  auto const by  = step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
  return {begin, step, static_cast<std::size_t>((far - 1) / by + 1)};
}
inline Integers range(std::int64_t n) { return range(0, n); }

}  // namespace chorale::data
