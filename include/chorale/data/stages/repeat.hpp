// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/shuffle.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace chorale::data {

/// Several passes as one. See Pipe::repeat.
///
/// order   pass k of epoch e is pass e · n + k of the source: a shuffle before it gives each another order
template <class D> class Repeated : public Pipe<Repeated<D>> {
 public:
  using element                = typename D::element;
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

    template <class Buffer> bool next_into(Buffer& to, element& out) requires FillsBuffer<StreamOf<D>, element> {
      return any_pass([&](StreamOf<D>& pass) { return pass.next_into(to, out); });
    }

   private:
    template <class Next> bool any_pass(Next next) {
      for (; left_ > 0; now_.reset(), ++pass_, --left_) {
        if (!now_) now_.emplace(from_.stream(pass_));
        if (next(*now_)) return true;
      }
      return false;
    }

    D from_;
    std::size_t pass_, left_;  // number of this pass; passes left, with this one
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
///   pass 0   … 8 9 ->  [4 . . 7]  -> picked               when the source of a pass has ended, each pick frees a slot,
///   pass 1   … 2 1 ->  [. 0 1 .]                          into which an element of the next pass is read
///
/// order   the order of the two stages: each pass is shuffled separately, in its own order
/// cost    one buffer for all passes. Where a pass begins, nobody waits for a buffer to be filled: the next pass has
///         been read, an element for each that was picked, since the source of the last one ended
/// throws  what the source throws, where the pass begins in which it does
/// source  shuffle_and_repeat of tf.data.experimental
template <class D> class ShuffleRepeated : public Pipe<ShuffleRepeated<D>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  ShuffleRepeated(Shuffled<D> from, std::size_t n) : from_{std::move(from)}, n_{n} {
    CHORALE_EXPECTS(n > 0, "repeat needs at least one pass");
  }

  class Stream {
   public:
    Stream(Shuffled<D> from, std::size_t first, std::size_t n)
        : from_{std::move(from)}, pass_{first}, last_{first + n - 1} {
      two_[0].emplace(from_.stream(first));
    }

    bool next(element& out) {
      while (!now().next(out)) {
        if (pass_ == last_) return false;
        begin_next();
      }
      if (now().drains() && pass_ != last_) read_ahead();
      return true;
    }

   private:
    using Pass = StreamOf<Shuffled<D>>;

    Pass& now() { return *two_[at_]; }

    /// Begins the next pass. Some of its elements may have been read.
    void begin_next() {
      if (!opened_ && !failure_) open();
      if (failure_) std::rethrow_exception(failure_);
      now().release(spare_);
      at_     = 1 - at_;
      opened_ = false;
      now().reuse(spare_);
      ++pass_;
    }

    void read_ahead() {
      now().release(spare_);
      if (failure_) return;
      try {
        if (!opened_) open();
        two_[1 - at_]->fill_one(spare_);
      } catch (...) {
        failure_ = std::current_exception();  // to be thrown after the elements of this pass
      }
    }

    void open() {
      auto& other = two_[1 - at_];
      if (other) from_.begin_again(*other, pass_ + 1);
      else other.emplace(from_.stream(pass_ + 1));
      opened_ = true;
    }

    Shuffled<D> from_;
    std::size_t pass_, last_;
    std::array<std::optional<Pass>, 2> two_;  // this pass and the next one
    std::size_t at_ = 0;                      // of this pass in two_
    bool opened_    = false;                  // the next pass
    std::vector<typename Pass::Slot> spare_;
    std::exception_ptr failure_;  // of the next pass
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
