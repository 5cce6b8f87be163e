// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Elements in a random order: each is picked among `buffer` elements, and the next one of the source takes its place.
///
///   source  … 7 6 5 ->  [3 | 1 | 4 | 2]  -> picked
///
/// order   a function of (seed, epoch), or of the seed alone with Order::fixed; a buffer of all elements gives every
///         order the same chance
/// cost    views of a stable source, else copies; no allocation once the buffer is full, also in a later pass of
///         .shuffle(n).repeat(m)
template <class D, Order order> class Shuffled : public Pipe<Shuffled<D, order>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Shuffled(D from, std::size_t buffer, Seed seed) : from_{std::move(from)}, buffer_{buffer}, seed_{seed} {
    CHORALE_EXPECTS(buffer > 0, "shuffle needs a buffer of at least one element");
  }

  class Stream {
   public:
    Stream(StreamOf<D> from, std::size_t expected, std::size_t buffer, Random random)
        : from_{std::move(from)}, expected_{expected}, buffer_{buffer}, random_{random} {}

    bool next(element& out) {
      if (count_ == 0) fill();
      else if (size_ > 0) refill(picked_);  // only now: until this call the reader may use it
      if (size_ == 0) return false;
      picked_ = random_.below(count_++, size_);
      out     = get(slots_[picked_]);
      return true;
    }

    /// Memory for one element.
    using Slot = std::conditional_t<Stable<D>, element, Kept<element>>;

    /// True if the source has ended: from now on each call of next() frees a slot.
    bool drains() const { return ended_; }

    /// Moves slots that hold no element to `spare`.
    void release(std::vector<Slot>& spare) {
      for (; slots_.size() > size_; slots_.pop_back()) spare.push_back(std::move(slots_.back()));
    }

    /// Takes all slots of `spare`, as memory for elements to come.
    void reuse(std::vector<Slot>& spare) {
      for (; !spare.empty(); spare.pop_back()) slots_.push_back(std::move(spare.back()));
    }

    /// Reads one element ahead of the first call of next(), if there is room, into a slot of `spare` if it has one.
    void fill_one(std::vector<Slot>& spare) {
      if (size_ == buffer_ || !more()) return;
      if (spare.empty()) slots_.emplace_back();
      else slots_.push_back(std::move(spare.back())), spare.pop_back();
      put(slots_[size_++]);
    }

    /// Begins another pass in the same memory. No element of the last pass may be in use.
    void begin_again(StreamOf<D> from, Random random) {
      from_.emplace(std::move(from));  // streams may have no assignment
      random_ = random;
      count_ = 0, size_ = 0, ended_ = false;
    }

   private:
    bool more() {
      if (!ended_) ended_ = !from_->next(in_);
      return !ended_;
    }

    void put(Slot& slot) {
      if constexpr (Stable<D>) slot = in_;
      else slot.keep(in_);
    }
    static element const& get(Slot const& slot) {
      if constexpr (Stable<D>) return slot;
      else return slot.get();
    }

    void fill() {
      slots_.reserve(std::min(buffer_, expected_));
      for (; size_ < buffer_ && more(); ++size_) put(size_ < slots_.size() ? slots_[size_] : slots_.emplace_back());
    }
    void refill(std::size_t at) {
      if (more()) return put(slots_[at]);
      std::swap(slots_[at], slots_[--size_]);
    }

    std::optional<StreamOf<D>> from_;  // never empty
    std::size_t expected_;             // elements of the pass; 0: unknown
    std::size_t buffer_;
    Random random_;
    std::uint64_t count_ = 0;  // elements picked so far
    std::size_t picked_  = 0;  // slot of the element that the reader holds
    bool ended_          = false;
    element in_{};
    std::vector<Slot> slots_;  // the first size_ hold elements, the others only memory
    std::size_t size_ = 0;
  };

  Stream stream(std::size_t epoch) const {
    return {from_.stream(epoch), from_.size().value_or(0), buffer_, random(epoch)};
  }

  /// Begins another pass over this dataset in a stream of it.
  void begin_again(Stream& stream, std::size_t epoch) const { stream.begin_again(from_.stream(epoch), random(epoch)); }

  /// Concatenates n passes into one, as Pipe::repeat does; all passes shuffle in one buffer, each in another
  /// order, unless that is Order::fixed.
  auto repeat(std::size_t n) const {
    if constexpr (order == Order::any) return ShuffleRepeated<D>{*this, n};
    else return Repeated<Shuffled>{*this, n};
  }
  bool reorders() const { return detail::reorders_by_option(from_); }

  std::optional<std::size_t> size() const { return from_.size(); }

  void describe(std::vector<std::string>& lines) const {
    data::describe(from_, lines);
    lines.push_back("shuffle " + std::to_string(buffer_) + " seed " + std::to_string(seed_.value) +
                    (order == Order::fixed ? " fixed" : ""));
  }

 private:
  Random random(std::size_t epoch) const {
    constexpr auto purpose = std::uint64_t{0x73687566} << 32;  // "shuf": used by no other stage
    return {seed_, purpose + (order == Order::fixed ? 0 : epoch)};
  }

  D from_;
  std::size_t buffer_;
  Seed seed_;
};

}  // namespace chorale::data
