// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace chorale::data {

/// The elements for which a function is true. See Pipe::filter.
template <class D, class F> class Filtered : public Pipe<Filtered<D, F>> {
  static_assert(std::predicate<F&, typename D::element const&>,
                "chorale: filter's function cannot be called as f(element), or does not say true or false.");

 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Filtered(D from, F f) : from_{std::move(from)}, f_{std::move(f)} {}

  class Stream {
   public:
    using buffer = typename BufferOf<StreamOf<D>>::type;

    Stream(StreamOf<D> from, F f) : from_{std::move(from)}, f_{std::move(f)} {}

    bool next(element& out) {
      while (from_.next(out))
        if (f_(std::as_const(out))) return true;
      return false;
    }

    template <class Buffer> bool next_into(Buffer& to, element& out) requires FillsBuffer<StreamOf<D>, element> {
      while (from_.next_into(to, out))
        if (f_(std::as_const(out))) return true;
      return false;
    }

   private:
    StreamOf<D> from_;
    F f_;
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), f_}; }
  std::optional<std::size_t> size() const { return {}; }  // unknown before a pass

  bool reorders() const { return detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("filter");
  }

 private:
  D from_;
  F f_;
};

/// Some elements of each pass, by their number. See Pipe::take, skip and shard.
///
/// cost    take reads no further than it must; skip and shard also read the elements that they leave out
template <class D> class Ranged : public Pipe<Ranged<D>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Ranged(D from, Every which) : from_{std::move(from)}, which_{which} {
    CHORALE_EXPECTS(which.step > 0 && which.step <= std::numeric_limits<std::size_t>::max() / 2,
                    "shard deals elements out to at least one part, got " +
                        std::to_string(static_cast<std::ptrdiff_t>(which.step)));
    CHORALE_EXPECTS(which.step == 1 || which.first < which.step,
                    "shard: there is no part " + std::to_string(which.first) + " of " + std::to_string(which.step));
  }

  class Stream {
   public:
    using buffer = typename BufferOf<StreamOf<D>>::type;

    Stream(StreamOf<D> from, Every which) : from_{std::move(from)}, which_{which}, pass_over_{which.first} {}

    bool next(element& out) {
      return reach([&] { return from_.next(out); }) && from_.next(out);
    }

    template <class Buffer> bool next_into(Buffer& to, element& out) requires FillsBuffer<StreamOf<D>, element> {
      return reach([&] { return from_.next_into(to, out); }) && from_.next_into(to, out);
    }

   private:
    /// Skips the elements before the next selected one. False if there is none.
    template <class Next> bool reach(Next next) {
      if (which_.count == 0) return false;
      for (; pass_over_ > 0; --pass_over_)
        if (!next()) return false;
      --which_.count, pass_over_ = which_.step - 1;
      return true;
    }

    StreamOf<D> from_;
    Every which_;
    std::size_t pass_over_;  // elements before the next selected one
  };

  Stream stream(std::size_t epoch) const { return {from_.stream(epoch), which_}; }

  std::optional<std::size_t> size() const {
    auto const all = from_.size();
    if (!all) return {};
    auto const left = *all - std::min(which_.first, *all);
    return std::min(which_.count, left / which_.step + (left % which_.step != 0 ? 1 : 0));
  }

  bool reorders() const { return detail::reorders_by_option(from_); }
  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("elements from " + std::to_string(which_.first) + " step " + std::to_string(which_.step) +
                    (which_.count == Every{}.count ? "" : " count " + std::to_string(which_.count)));
  }

 private:
  D from_;
  Every which_;
};

}  // namespace chorale::data
