// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/threads/reorder_buffer.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// How elements of several datasets become one sequence.
struct Interleave {
  std::size_t cycle = 1;          // datasets that are read at the same time
  std::size_t block = 1;          // consecutive elements from each of them
  std::optional<Seed> shuffle{};  // another order of the datasets in each epoch
};

namespace detail {

/// The order in which the sources are opened, a function of (seed, epoch).
inline std::vector<std::size_t> order_of_sources(std::size_t n, std::optional<Seed> seed, std::size_t epoch) {
  auto order = std::vector<std::size_t>(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  constexpr auto purpose = std::uint64_t{0x66696c65} << 32;  // "file": used by no other stage
  if (seed) shuffle(order, Random{*seed, purpose + epoch});
  return order;
}

/// Appends the number of sources, and a checksum of their descriptions.
template <class D> void describe_sources(std::vector<D> const& sources, std::vector<std::string>& lines) {
  auto sum = std::uint32_t{0};
  for (auto const& source : sources) {
    auto all = std::vector<std::string>{};
    data::describe(source, all);
    for (auto const& line : all) sum = crc32c(std::as_bytes(Span<char const>{line.c_str(), line.size() + 1}), sum);
  }
  lines.push_back("sources " + std::to_string(sources.size()) + " checksum " + std::to_string(sum));
}

template <class D> std::optional<std::size_t> sum_of_sizes(std::vector<D> const& sources) {
  auto sum = std::size_t{0};
  for (auto const& source : sources) {
    auto const size = source.size();
    if (!size) return {};
    sum += *size;
  }
  return sum;
}

}  // namespace detail

/// Several datasets. A few are read at a time, a block of elements from each in turn.
///
///   A: a0 a1 a2 a3 a4 a5 ┐
///   B: b0 b1 b2          ├  cycle 2, block 2:  a0 a1  b0 b1  a2 a3  b2  a4 a5  c0 c1 …
///   C: c0 c1 …           ┘                                            C takes the place of B
///
/// order   a function of (sources, cycle, block, shuffle, epoch). Sources that prefetch are read in parallel
template <class D> class Interleaved : public Pipe<Interleaved<D>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Interleaved(std::vector<D> sources, Interleave how)
      : sources_{std::make_shared<std::vector<D> const>(std::move(sources))}, how_{how} {
    CHORALE_EXPECTS(how.cycle > 0, "interleave reads from at least one dataset at a time");
    CHORALE_EXPECTS(how.block > 0, "interleave takes at least one element at a time");
  }

  class Stream {
   public:
    Stream(std::shared_ptr<std::vector<D> const> sources, Interleave how, std::size_t epoch)
        : sources_{std::move(sources)}, block_{how.block}, epoch_{epoch},
          order_{detail::order_of_sources(sources_->size(), how.shuffle, epoch)},
          open_(std::min(how.cycle, order_.size())) {}

    bool next(element& out) {
      if (next_source_ == 0)
        for (auto& stream : open_) open(stream);  // all at once: sources that prefetch begin
      for (auto ended = std::size_t{0}; ended < open_.size();) {
        auto& stream = open_[at_];
        if (stream && stream->next(out)) {
          if (++taken_ == block_) turn();
          return true;
        }
        ended = stream && open(stream) ? 0 : ended + 1;  // the next source begins in this place, in a later turn
        turn();
      }
      return false;
    }

   private:
    bool open(std::optional<StreamOf<D>>& stream) {
      stream.reset();
      if (next_source_ == order_.size()) return false;
      stream.emplace((*sources_)[order_[next_source_++]].stream(epoch_));
      return true;
    }
    void turn() { taken_ = 0, at_ = (at_ + 1) % open_.size(); }

    std::shared_ptr<std::vector<D> const> sources_;
    std::size_t block_, epoch_;
    std::vector<std::size_t> order_;  // of the sources
    std::vector<std::optional<StreamOf<D>>> open_;
    std::size_t next_source_ = 0;     // index in order_
    std::size_t at_ = 0, taken_ = 0;  // index in open_; elements of the block
  };

  Stream stream(std::size_t epoch) const { return {sources_, how_, epoch}; }
  std::optional<std::size_t> size() const { return detail::sum_of_sizes(*sources_); }

  bool reorders() const {
    return how_.shuffle.has_value() || std::ranges::any_of(*sources_, detail::reorders_by_option<D>);
  }
  void describe(std::vector<std::string>& lines) const {
    detail::describe_sources(*sources_, lines);
    lines.push_back("interleave cycle " + std::to_string(how_.cycle) + " block " + std::to_string(how_.block) +
                    (how_.shuffle ? " seed " + std::to_string(how_.shuffle->value) : ""));
  }

 private:
  std::shared_ptr<std::vector<D> const> sources_;
  Interleave how_;
};

/// The elements of several datasets, in the order in which they are ready. See gather.
template <class D> class Gathered : public Pipe<Gathered<D>> {
 public:
  using element                = typename D::element;
  static constexpr bool stable = Stable<D>;

  Gathered(std::vector<D> sources, std::size_t threads, std::size_t ahead)
      : sources_{std::make_shared<std::vector<D> const>(std::move(sources))}, threads_{threads}, ahead_{ahead} {
    CHORALE_EXPECTS(threads > 0, "gather needs at least one thread");
    CHORALE_EXPECTS(ahead > 0, "gather needs room for at least one element");
  }

  class Stream {
   public:
    Stream(std::shared_ptr<std::vector<D> const> sources, std::size_t threads, std::size_t ahead, std::size_t epoch)
        : work_{std::make_unique<Work>(std::move(sources), threads, ahead, epoch)} {}

    bool next(element& out) { return work_->slots.next(out); }

   private:
    struct Nothing {};
    using Memory = std::conditional_t<Stable<D>, Nothing, Kept<element>>;

    struct Work {
      Work(std::shared_ptr<std::vector<D> const> from, std::size_t n, std::size_t ahead, std::size_t e)
          : sources{std::move(from)}, epoch{e}, slots{ahead + 1, Order::any}, left{std::min(n, sources->size())} {
        if (left == 0) slots.end();
        try {
          for (auto i = left.load(); i > 0; --i) threads.emplace_back("gather", [this] { read(); });
        } catch (...) {  // threads that have begun end
          slots.stop();
          throw;
        }
      }
      ~Work() { slots.stop(); }
      Work(Work const&)            = delete;
      Work& operator=(Work const&) = delete;

      void read() {
        for (std::size_t i = next_source++; i < sources->size() && read(i); i = next_source++) continue;
        if (--left == 0) slots.end();
      }
      bool read(std::size_t source) {
        auto* slot = slots.claim(0);
        if (slot == nullptr) return false;
        try {
          auto stream = (*sources)[source].stream(epoch);
          for (auto in = element{}; stream.next(in);) {
            if constexpr (!Stable<D>) slot->memory.keep(in), in = slot->memory.get();
            slots.finish(*std::exchange(slot, nullptr), in);
            if ((slot = slots.claim(0)) == nullptr) return false;
          }
          slots.drop(*slot);
          return true;
        } catch (...) {
          if (slot != nullptr) slots.fail(*slot, std::current_exception());
          return false;
        }
      }

      std::shared_ptr<std::vector<D> const> sources;
      std::size_t epoch;
      ReorderBuffer<element, Memory> slots;
      std::atomic<std::size_t> next_source{0};
      std::atomic<std::size_t> left;     // threads that still read
      std::vector<NamedThread> threads;  // last: they use the above
    };

    std::unique_ptr<Work> work_;
  };

  Stream stream(std::size_t epoch) const { return {sources_, threads_, ahead_, epoch}; }
  std::optional<std::size_t> size() const { return detail::sum_of_sizes(*sources_); }

  void describe(std::vector<std::string>& lines) const { detail::describe_sources(*sources_, lines); }

 private:
  std::shared_ptr<std::vector<D> const> sources_;
  std::size_t threads_, ahead_;
};

/// Several datasets as one, in a fixed order.
///
///   auto rows = data::interleave(std::vector{a.prefetch(64), b.prefetch(64)}, {.cycle = 2, .block = 16});
template <class D> Interleaved<D> interleave(std::vector<D> sources, Interleave how = {}) {
  return {std::move(sources), how};
}

/// Several datasets as one, each read by one of `threads` threads, in the order in which elements are ready.
///
/// ahead   elements that wait for the reader, over all datasets
/// order   none: two passes may differ. Every element comes once
template <class D> Gathered<D> gather(std::vector<D> sources, std::size_t threads, std::size_t ahead = 256) {
  return {std::move(sources), threads, ahead};
}

}  // namespace chorale::data
