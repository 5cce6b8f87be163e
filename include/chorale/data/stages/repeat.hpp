// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/shuffle.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace chorale::data {

/// Several passes as one. See Pipe::repeat.
///
/// order   pass k of epoch e is pass e · n + k of the source: a shuffle before it gives each another order
template <class D>
class Repeated : public Pipe<Repeated<D>> {
 public:
  using element = typename D::element;
  static constexpr bool stable = Stable<D>;

  Repeated(D from, std::size_t n) : from_{std::move(from)}, n_{n} {
    CHORALE_EXPECTS(n > 0, "repeat needs at least one pass");
  }

  class Stream {
   public:
    using buffer = typename BufferOf<StreamOf<D>>::type;

    Stream(D from, std::size_t first, std::size_t n) : from_{std::move(from)}, pass_{first}, left_{n} {}

    bool next(element& out) {
      return any_pass([&](StreamOf<D>& pass) { return pass.next(out); });
    }

    template <class Buffer>
    bool next_into(Buffer& to, element& out) requires FillsBuffer<StreamOf<D>, element> {
      return any_pass([&](StreamOf<D>& pass) { return pass.next_into(to, out); });
    }

   private:
    template <class Next>
    bool any_pass(Next next) {
      for (; left_ > 0; now_.reset(), ++pass_, --left_) {
        if (!now_) now_.emplace(from_.stream(pass_));
        if (next(*now_)) return true;
      }
      return false;
    }

    D from_;
    std::size_t pass_, left_;                              // number of this pass; passes left, with this one
    std::optional<StreamOf<D>> now_;
  };

  Stream stream(std::size_t epoch) const { return {from_, epoch * n_, n_}; }

  std::optional<std::size_t> size() const {
    auto const once = from_.size();
    if (!once || *once > std::numeric_limits<std::size_t>::max() / n_) return {};
    return *once * n_;
  }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("repeat " + std::to_string(n_));
  }

 private:
  D from_;
  std::size_t n_;
};

/// A shuffle and several passes over it as one stage: .shuffle(buffer).repeat(n).
///
/// order   that of the two stages: each pass is shuffled by itself, in its own order
/// cost    the buffer is made once, not for each pass
/// source  shuffle_and_repeat of tf.data.experimental
template <class D>
class ShuffleRepeated : public Pipe<ShuffleRepeated<D>> {
 public:
  using element = typename D::element;
  static constexpr bool stable = Stable<D>;

  ShuffleRepeated(Shuffled<D> from, std::size_t n) : from_{std::move(from)}, n_{n} {
    CHORALE_EXPECTS(n > 0, "repeat needs at least one pass");
  }

  class Stream {
   public:
    Stream(Shuffled<D> from, std::size_t first, std::size_t n)
        : from_{std::move(from)}, pass_{first}, last_{first + n - 1}, now_{from_.stream(first)} {}

    bool next(element& out) {
      while (!now_.next(out)) {
        if (pass_ == last_) return false;
        from_.begin_again(now_, ++pass_);
      }
      return true;
    }

   private:
    Shuffled<D> from_;
    std::size_t pass_, last_;
    StreamOf<Shuffled<D>> now_;
  };

  Stream stream(std::size_t epoch) const { return {from_, epoch * n_, n_}; }
  std::optional<std::size_t> size() const { return Repeated<Shuffled<D>>{from_, n_}.size(); }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("repeat " + std::to_string(n_));
  }

 private:
  Shuffled<D> from_;
  std::size_t n_;
};

}  // namespace chorale::data
