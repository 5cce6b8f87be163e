// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/strategy/runtime/gradient_reducer.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Header and trailer of the gradients of a step, which every rank needs whole.
using StepEnds = std::array<float, plan::header + plan::trailer>;

inline StepEnds ends_of(Gradients const& gradients) {
  auto both         = StepEnds{};
  auto const header = gradients.header().all(), trailer = gradients.trailer().all();
  std::copy(trailer.begin(), trailer.end(), std::copy(header.begin(), header.end(), both.begin()));
  return both;
}
inline void put_ends(StepEnds const& both, Gradients const& gradients) {
  std::copy_n(both.begin(), plan::header, gradients.header().all().begin());
  std::copy_n(both.begin() + plan::header, plan::trailer, gradients.trailer().all().begin());
}

/// Copies a rank's shard of a unit's gradients out of the buffer.
inline void keep_shard(UnitMemory& memory, std::size_t unit) {
  auto const& cut = memory.cut();
  auto const rank = memory.shard().rank;
  auto const own  = cut.shard(unit, rank);
  std::ranges::copy(memory.gradients_of(unit).subspan(own.begin, own.size()),
                    memory.shard_of_gradients().begin() + static_cast<std::ptrdiff_t>(cut.at(unit, rank)));
}

/// The sums of the units of a copy: each is reduce-scattered when its gradients are final, while others are computed.
///
/// order   the first half of R, for each unit by itself
template <class R, class E> class UnitSums {
  using Operation = typename ScatterOperation<typename R::scatter, E>::type;

 public:
  UnitSums(R const&, E& at, UnitMemory& memory) : at_{&at}, memory_{&memory} {}

  /// Computes forward, loss and backward of a share.
  template <class Model, class Batch> Sum<float> compute(Model& model, Batch const& batch) {
    return compute_gradients(model, batch, LooksAtEnd{}, Together{});
  }

  /// Returns when the buffer of a unit is free.
  void free(std::size_t unit) { finish(place_of(unit)); }

  void start(std::size_t unit, Tag tag, ReduceStatistics& traffic) {
    auto const x = memory_->gradients_of(unit);
    traffic.bytes += x.size_bytes();
    if (at_->size() == 1) return keep_shard(*memory_, unit);
    auto& here = under_way_[place_of(unit)];
    here.operation.restart(*at_, {.collective = Collective::reduce_scatter,
                                  .x          = x,
                                  .op         = Op::sum,
                                  .tag        = tag,
                                  .ends       = memory_->cut().ends(unit)});
    here.unit = static_cast<int>(unit);
  }

  void poll() {
    for (auto& here : under_way_)
      if (here.unit >= 0 && here.operation.poll()) complete(here);
  }
  void finish_all() {
    for (std::size_t i = 0; i < under_way_.size(); ++i) finish(i);
  }

  /// Adds up header and trailer.
  void reduce_ends(Gradients const& gradients, Tag tag) {
    if (at_->size() == 1) return;
    auto both = ends_of(gradients);
    ends_.restart(*at_, Span<float>{both}, Op::sum, tag);
    ends_.finish();
    put_ends(both, gradients);
  }

 private:
  struct UnderWay {
    int unit = -1;
    Operation operation;
  };

  std::size_t place_of(std::size_t unit) const { return unit == memory_->units().turns ? 2 : memory_->buffer_of(unit); }
  void complete(UnderWay& here) { keep_shard(*memory_, static_cast<std::size_t>(std::exchange(here.unit, -1))); }
  void finish(std::size_t i) {
    if (under_way_[i].unit < 0) return;
    under_way_[i].operation.finish();
    complete(under_way_[i]);
  }

  E* at_;
  UnitMemory* memory_;
  std::array<UnderWay, 3> under_way_;  // of the two buffers, and the kept unit
  ScheduleExecution<RecursiveDoublingAllReduce, E, float> ends_;
};

/// The sums of the units under Reproducible: each rank adds up its logical shards along the tree, unit by unit, and
/// sends the units during the last shard.
///
/// keeps   every rank makes as many passes; a rank with fewer logical shards only takes part in the last one
/// cost    memory for the sums of all units, as Reproducible has it under other strategies
template <int L, class R, class E> class UnitSums<Reproducible<L, R>, E> {
 public:
  UnitSums(Reproducible<L, R> const& reduce, E& at, UnitMemory& memory)
      : reduce_{reduce}, at_{&at}, memory_{&memory}, half_{Reproducible<L, typename R::scatter>::traffic_of(at.size())},
        whole_{Reproducible<L, R>::traffic_of(at.size())}, sums_(memory.units().count()) {
    for (std::size_t u = 0; u < sums_.size(); ++u) sums_[u].resize(memory.size_of(u));
  }

  template <class Model, class Batch> Sum<float> compute(Model& model, Batch const& batch) {
    auto const shards = share(static_cast<std::size_t>(L), at_->rank(), at_->size());
    auto const passes = static_cast<std::size_t>((L + at_->size() - 1) / at_->size());  // of the rank with most
    auto const whole  = batch.global_rows != 0 ? batch.global_rows : batch.rows;
    CHORALE_EXPECTS(batch.first_row + batch.rows <= whole,
                    "rows " + std::to_string(batch.first_row) + " and " + std::to_string(batch.rows) +
                        " more are not in a global batch of " + std::to_string(whole));
    auto loss = Sum<float>{};
    for (auto& sums : sums_) sums.clear();
    ends_.resize(std::tuple_size_v<StepEnds>);
    for (std::size_t pass = 0; pass < passes; ++pass) {
      is_last_ = pass + 1 == passes;
      shard_   = pass < shards.size() ? static_cast<int>(shards.begin + pass) : none;
      if (shard_ == none) {
        model.take_part();
        continue;
      }
      auto const rows = share(whole, shard_, L);
      loss += compute_gradients(model, batch.rows_in({rows.begin - batch.first_row, rows.end - batch.first_row}),
                                LooksAtEnd{}, Together{});
      auto ends       = ends_.memory();
      auto const both = ends_of(model.gradients());
      std::copy(both.begin(), both.end(), ends.get());
      ends_.add(L + shard_, std::move(ends));
    }
    return loss;
  }

  void free(std::size_t) {}
  void start(std::size_t unit, Tag tag, ReduceStatistics& traffic) {
    auto const x = memory_->gradients_of(unit);
    auto& sums   = sums_[unit];
    if (shard_ != none) {
      auto leaf = sums.memory();
      std::copy(x.begin(), x.end(), leaf.get());
      sums.add(L + shard_, std::move(leaf));
    }
    if (!is_last_) return;
    traffic.bytes += x.size_bytes();
    auto const& cut = memory_->cut();
    if (at_->size() == cut.world()) reduce_.reduce_scatter(*at_, half_, sums, 0, cut.ends(unit), x, tag);
    else reduce_.all_reduce(*at_, whole_, sums, x, tag);  // several ranks have the same shard
    keep_shard(*memory_, unit);
  }
  void poll() {}
  void finish_all() {}

  void reduce_ends(Gradients const& gradients, Tag tag) {
    auto both = StepEnds{};
    reduce_.all_reduce(*at_, whole_, ends_, Span<float>{both}, tag);
    put_ends(both, gradients);
  }

 private:
  static constexpr int none = -1;

  Reproducible<L, R> reduce_;
  E* at_;
  UnitMemory* memory_;
  ShardTraffic<typename R::scatter> half_;
  ShardTraffic<R> whole_;
  std::vector<shard_tree::Sums> sums_;  // of each unit
  shard_tree::Sums ends_;
  int shard_    = none;  // that is computed now
  bool is_last_ = false;
};

/// Moves the units of one copy between ranks: gathers the variables of the next unit while one computes, if a copy has a
/// shard of them, and reduce-scatters gradients.
///
/// keeps   a unit that is still in its buffer is not gathered again before the variables change
/// cost    after the first step nothing is allocated, except under Reproducible
template <class R, class E> class UnitExchange final : public UnitTraffic {
 public:
  /// first     of 65536 tags
  UnitExchange(R const& reduce, E& at, UnitMemory& memory, Tag first, ReduceStatistics& traffic)
      : at_{&at}, memory_{&memory}, first_{first}, traffic_{&traffic}, sums_{reduce, at, memory} {}
  UnitExchange(UnitExchange const&)            = delete;  // the memory has its address
  UnitExchange& operator=(UnitExchange const&) = delete;
  ~UnitExchange() { *link_ = nullptr; }

  /// What the memory of a copy asks for its units.
  std::shared_ptr<UnitTraffic*> link() const { return link_; }

  UnitSums<R, E>& sums() { return sums_; }

  void begin() override {
    if (!memory_->splits() || std::exchange(seen_, memory_->version()) == memory_->version()) return;
    held_ = {none, none};
    if (!memory_->units().keeps) return;
    gather(memory_->units().turns);
    finish_gather();
  }
  void fetch(std::size_t unit) override { bring(unit, unit + 1 < memory_->units().turns ? unit + 1 : none); }
  void open(std::size_t unit) override {
    bring(unit, unit == 0 ? none : unit - 1);
    sums_.free(unit);
    std::ranges::fill(memory_->gradients_of(unit), 0.0F);
  }
  void done(std::size_t unit) override { sums_.start(unit, next_tag(), *traffic_); }
  void poll() override {
    if (gathers_ != none) static_cast<void>(gather_.poll());
    sums_.poll();
  }
  void end() override { sums_.finish_all(); }

  /// Brings every rank all variables of all units, each rank its shard, where a copy has memory for all.
  ///
  /// body      of all variables
  void gather_all(Span<float> body) {
    if (at_->size() == 1) return;
    for (std::size_t unit = 0; unit < memory_->units().count(); ++unit) {
      auto const ranges = memory_->ranges_of(unit);
      auto const whole  = ranges.size() == 1;
      auto const x      = whole ? body.subspan(ranges[0].begin, ranges[0].size()) : memory_->gradients_of(unit);
      auto to           = x.begin();
      for (auto const range : ranges)
        if (!whole) to = std::copy_n(body.begin() + static_cast<std::ptrdiff_t>(range.begin), range.size(), to);
      gather_.restart(
          *at_, {.collective = Collective::all_gather, .x = x, .tag = next_tag(), .ends = memory_->cut().ends(unit)});
      gather_.finish();
      auto from = x.begin();
      for (auto const range : ranges) {
        if (whole) continue;
        std::copy_n(from, range.size(), body.begin() + static_cast<std::ptrdiff_t>(range.begin));
        from += static_cast<std::ptrdiff_t>(range.size());
      }
    }
  }

 private:
  static constexpr auto none = static_cast<std::size_t>(-1);

  Tag next_tag() { return Tag{static_cast<std::uint32_t>(first_) + (turn_++ & 0xFFFFU)}; }

  void bring(std::size_t unit, std::size_t next) {
    if (!memory_->splits()) return;
    if (held_[memory_->buffer_of(unit)] != unit) gather(unit);
    if (gathers_ == unit) finish_gather();
    if (next != none && held_[memory_->buffer_of(next)] != next) gather(next);
  }
  void gather(std::size_t unit) {
    finish_gather();
    auto const& cut = memory_->cut();
    auto const rank = memory_->shard().rank;
    auto const own  = cut.shard(unit, rank);
    auto const x    = memory_->values_of(unit);
    std::ranges::copy(memory_->values().subspan(cut.at(unit, rank), own.size()),
                      x.begin() + static_cast<std::ptrdiff_t>(own.begin));
    if (unit != memory_->units().turns) held_[memory_->buffer_of(unit)] = unit;
    if (at_->size() == 1) return;
    gather_.restart(*at_, {.collective = Collective::all_gather, .x = x, .tag = next_tag(), .ends = cut.ends(unit)});
    gathers_ = unit;
  }
  void finish_gather() {
    if (gathers_ != none) gather_.finish();
    gathers_ = none;
  }

  E* at_;
  UnitMemory* memory_;
  Tag first_;
  std::uint32_t turn_ = 0;
  ReduceStatistics* traffic_;
  std::shared_ptr<UnitTraffic*> link_ = std::make_shared<UnitTraffic*>(this);
  std::array<std::size_t, 2> held_{none, none};  // unit in each buffer of variables
  std::size_t gathers_ = none;                   // unit that is being gathered
  std::uint64_t seen_  = 0;                      // version of the variables that are gathered
  ScheduleExecution<typename GatherOf<R>::type, E, float> gather_;
  UnitSums<R, E> sums_;
};

}  // namespace chorale::detail
