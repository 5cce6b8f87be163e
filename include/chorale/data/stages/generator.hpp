// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows that a function of the program makes. See from_generator.
template <class X, class Y, class Make>
class Generated : public Pipe<Generated<X, Y, Make>> {
  using Next = std::invoke_result_t<Make const&, std::size_t>;
  static_assert(std::predicate<Next&, std::vector<X>&, std::vector<Y>&>,
                "chorale: from_generator's function is called as make(epoch), and what it returns as next(x, y): x is "
                "std::vector<X>&, y is std::vector<Y>&; it says false at the end of the pass.");

 public:
  using element = Sample<X, Y>;
  static constexpr bool stable = false;

  Generated(Make make, std::optional<std::size_t> size) : make_{std::move(make)}, size_{size} {}

  class Stream {
   public:
    explicit Stream(Next next) : next_{std::move(next)} {}

    bool next(element& out) {
      if (ended_ || (ended_ = !next_(x_, y_))) return false;
      out = {x_, y_};
      return true;
    }

   private:
    Next next_;
    bool ended_ = false;
    std::vector<X> x_;
    std::vector<Y> y_;
  };

  Stream stream(std::size_t epoch) const { return Stream{make_(epoch)}; }
  std::optional<std::size_t> size() const { return size_; }

  void describe(std::vector<std::string>& lines) const {
    lines.push_back("generated");
  }

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
/// order   that of `make`: a pass must be a function of the epoch
template <class X = float, class Y = int, class Make>
Generated<X, Y, Make> from_generator(Make make, std::optional<std::size_t> size = {}) {
  return {std::move(make), size};
}

/// Integers. See range.
class Integers : public Pipe<Integers> {
 public:
  using element = Sample<std::int64_t, std::int64_t>;
  static constexpr bool stable = false;

  Integers(std::int64_t begin, std::int64_t step, std::size_t n) : begin_{begin}, step_{step}, n_{n} {}

  class Stream {
   public:
    Stream(std::int64_t begin, std::int64_t step, std::size_t n) : at_{begin}, step_{step}, left_{n} {}

    bool next(element& out) {
      if (left_ == 0) return false;
      value_ = {at_};
      if (--left_ > 0) at_ += step_;                       // the one after the last might not fit into 64 bits
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
  auto const far = step > 0 ? b - a : a - b;               // at most 2^64 - 1: unsigned numbers wrap
  auto const by  = step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
  return {begin, step, static_cast<std::size_t>((far - 1) / by + 1)};
}
inline Integers range(std::int64_t n) { return range(0, n); }

}  // namespace chorale::data
