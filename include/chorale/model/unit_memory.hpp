// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// How a network is cut into units: runs of its calls, whose variables and gradients have memory for a part of a step
/// only.
///
///   unit 0, 1, .. turns - 1    take turns in two buffers, in the order of forward, and backward in the reverse of it
///   unit turns                 if `keeps`: variables that several calls use, and untrained variables; for a whole
///                              step
///
/// keeps   a view of constants
struct UnitsView {
  Span<int const> of_call;  // the unit of each call; -1: of none
  Span<int const> of_variable;
  Span<int const> first_call;  // of each unit that takes turns
  std::size_t turns = 0;
  bool keeps        = false;

  constexpr std::size_t count() const { return turns + (keeps ? 1 : 0); }
};

/// What brings the variables of a unit, and takes its gradients.
///
/// order   in every pass, on every rank: begin, then fetch() of the units 0 to turns - 1; in training then open() and
///         done() of turns - 1 to 0, done() of the kept unit if there is one, then end
class UnitTraffic {
 public:
  virtual void begin()              = 0;
  virtual void fetch(std::size_t u) = 0;  // returns when its variables are there
  virtual void open(std::size_t u)  = 0;  // as well, and its gradients are zeros
  virtual void done(std::size_t u)  = 0;  // its gradients are final
  virtual void poll()               = 0;  // advances what is under way
  virtual void end()                = 0;  // of backward

 protected:
  ~UnitTraffic() = default;
};

/// Memory of one copy of a network under a strategy that keeps a shard of the gradients, or of the variables too: the
/// shards, two buffers in which units take turns, and a place for the unit that is kept for a step.
///
///   | variables: all, or the shard, the kept unit, two buffers | header | shard of the gradients | trailer | slots |
///   | kept gradients | two buffers of gradients |
///
/// keeps   an address of each variable and of each gradient is the same in all steps
class UnitMemory {
 public:
  /// plan      of the network, which outlives it, as the units do
  /// slots     of the optimizer
  /// splits    true: a copy has the shard of its variables; false: all of them
  UnitMemory(PlanView const& plan, UnitsView units, placement::Shard shard, int slots, bool splits)
      : plan_{plan}, units_{units}, shard_{shard}, slots_{static_cast<std::size_t>(slots)}, splits_{splits},
        ranges_{parts()}, cut_{ranges_, shard.world}, inside_(plan.variables.size()), size_(units.count()) {
    auto by_place = std::vector<std::size_t>(plan.variables.size());
    for (std::size_t i = 0; i < by_place.size(); ++i) by_place[i] = i;
    std::ranges::sort(by_place, {}, [&](std::size_t i) { return plan.variables[i].offset; });
    for (auto const i : by_place) {
      auto& size = size_[unit_of(i)];
      inside_[i] = std::exchange(size, size + plan::aligned(plan.variables[i].size));
    }
    for (std::size_t u = 0; u < units.turns; ++u) largest_ = std::max(largest_, size_[u]);
  }

  std::size_t held() const { return cut_.held(shard_.rank); }  // elements of the shard
  /// Elements of all memory, and of that part of it which other ranks may read.
  std::size_t elements() const {
    return first_of_gradients() + plan::header + held() + plan::trailer + slots_ * held() + exposed();
  }
  std::size_t exposed() const { return kept() + buffers() * largest_; }

  /// Sets the memory, elements() zeros.
  void place(Span<float> memory) {
    memory_ = memory;
    expose(memory.last(exposed()));
  }
  /// Sets another memory for kept gradients and buffers, exposed() elements.
  void expose(Span<float> memory) {
    exposed_ = memory.first(exposed());
    std::ranges::fill(exposed_, 0.0F);
  }

  bool splits() const { return splits_; }
  placement::Shard shard() const { return shard_; }
  placement::ShardCut const& cut() const { return cut_; }
  UnitsView const& units() const { return units_; }
  std::size_t size_of(std::size_t unit) const { return size_[unit]; }
  /// The ranges of the body that a unit has.
  Span<Range const> ranges_of(std::size_t unit) const { return ranges_[unit]; }

  /// All variables, laid out by the plan; empty if there is only a shard of them.
  Span<float> variables() const { return memory_.first(splits_ ? 0 : plan_.values()); }
  /// Header and trailer of variables that are in runs: zeros.
  Span<float> ends() { return ends_; }
  /// What the optimizer updates: the body of all variables, or the shard.
  Span<float> values() const {
    return splits_ ? memory_.first(held()) : variables().subspan(plan_.body().begin, plan_.body().size());
  }
  /// Header, shard and trailer of the gradients.
  Span<float> gradients() const { return memory_.subspan(first_of_gradients(), held() + plan::header + plan::trailer); }
  Span<float> shard_of_gradients() const { return gradients().subspan(plan::header, held()); }
  Span<float> slots() const {
    return memory_.subspan(first_of_gradients() + plan::header + held() + plan::trailer, slots_ * held());
  }

  /// Where the gathered variables of a unit lie, if a copy has only a shard of them; and its gradients.
  Span<float> values_of(std::size_t unit) const {
    auto const first = held() + (unit == units_.turns ? 0 : kept() + buffer_of(unit) * largest_);
    return memory_.subspan(first, size_[unit]);
  }
  Span<float> gradients_of(std::size_t unit) const {
    return exposed_.subspan(unit == units_.turns ? 0 : kept() + buffer_of(unit) * largest_, size_[unit]);
  }
  std::size_t buffer_of(std::size_t unit) const { return unit % 2; }

  /// The addresses of a variable and of its gradient in all steps.
  float* value(std::size_t variable) const {
    return splits_ ? values_of(unit_of(variable)).data() + inside_[variable]
                   : variables().data() + plan_.variables[variable].offset;
  }
  float* gradient(std::size_t variable) const { return gradients_of(unit_of(variable)).data() + inside_[variable]; }

  /// Takes the shard out of all variables.
  ///
  /// body      laid out by the plan, without header and trailer
  void take(Span<float const> body) {
    for (auto const& run : cut_.runs_of(shard_.rank))
      std::ranges::copy(body.subspan(run.range.begin, run.range.size()),
                        values().begin() + static_cast<std::ptrdiff_t>(run.at));
    changed();
  }
  /// Reports that the variables are others now: none that was gathered is used again. All ranks report it.
  void changed() { ++version_; }
  std::uint64_t version() const { return version_; }

  /// Connects this memory with what moves units: the traffic disconnects itself when it ends.
  void connect(std::shared_ptr<UnitTraffic*> traffic) { traffic_ = std::move(traffic); }

  /// Begins a pass.
  ///
  /// check     the gradients of a training step are looked at
  /// finite    of the device's kernels
  void begin(bool training, bool check, bool (*finite)(Span<float const>)) {
    CHORALE_EXPECTS(traffic_ != nullptr && *traffic_ != nullptr,
                    "a copy with 1 of " + std::to_string(shard_.world) +
                        " shards computes without its replica: call "
                        "replica.connect(copy) after replicas were connected again");
    check_  = check;
    finite_ = finite;
    now_    = none;
    bad_.reset();
    if (training && units_.keeps) std::ranges::fill(gradients_of(units_.turns), 0.0F);
    traffic().begin();
  }
  /// Before a call computes forward.
  void forward_to(std::size_t call) {
    if (takes_turn(call)) traffic().fetch(now_);
  }
  /// Before a call computes backward, or forward again.
  void backward_to(std::size_t call) {
    if (takes_turn(call)) traffic().open(now_);
  }
  /// After the gradients of a call are final.
  void passed(std::size_t call) {
    backward_to(call);
    auto const unit = units_.of_call[call];
    if (unit < 0 || static_cast<std::size_t>(unit) == units_.turns) return;
    if (units_.first_call[static_cast<std::size_t>(unit)] == static_cast<int>(call))
      done(static_cast<std::size_t>(unit));
  }
  /// Before backward begins.
  void turn() { now_ = none; }
  /// After backward.
  void end() {
    if (units_.keeps) done(units_.turns);
    traffic().end();
  }
  /// Takes part in a pass without rows.
  void take_part(bool training, bool (*finite)(Span<float const>)) {
    begin(training, false, finite);
    for (std::size_t u = 0; u < units_.turns; ++u) traffic().fetch(u);
    if (!training) return;
    for (auto u = units_.turns; u-- > 0;) {
      traffic().open(u);
      traffic().done(u);
    }
    end();
  }

  /// The first variable, of those seen so far, whose gradient was not finite.
  std::optional<std::size_t> bad() const { return bad_; }

 private:
  static constexpr auto none = static_cast<std::size_t>(-1);

  UnitTraffic& traffic() const { return **traffic_; }
  std::size_t unit_of(std::size_t variable) const { return static_cast<std::size_t>(units_.of_variable[variable]); }
  std::size_t kept() const { return units_.keeps ? size_[units_.turns] : 0; }
  std::size_t buffers() const { return std::min<std::size_t>(units_.turns, 2); }
  std::size_t first_of_gradients() const { return splits_ ? held() + kept() + buffers() * largest_ : plan_.values(); }

  /// The ranges of the body that each unit has.
  std::vector<std::vector<Range>> parts() const {
    auto all      = std::vector<std::vector<Range>>(units_.count());
    auto by_place = std::vector<std::size_t>(plan_.variables.size());
    for (std::size_t i = 0; i < by_place.size(); ++i) by_place[i] = i;
    std::ranges::sort(by_place, {}, [&](std::size_t i) { return plan_.variables[i].offset; });
    for (auto const i : by_place) {
      auto const& v    = plan_.variables[i];
      auto const range = Range{v.offset - plan::header, v.offset - plan::header + plan::aligned(v.size)};
      auto& part       = all[unit_of(i)];
      if (!part.empty() && part.back().end == range.begin) part.back().end = range.end;
      else part.push_back(range);
    }
    return all;
  }

  /// True if a call belongs to another unit than the one before; else advances what is under way.
  bool takes_turn(std::size_t call) {
    auto const unit = units_.of_call[call];
    if (unit >= 0 && static_cast<std::size_t>(unit) != units_.turns && static_cast<std::size_t>(unit) != now_) {
      now_ = static_cast<std::size_t>(unit);
      return true;
    }
    traffic().poll();
    return false;
  }

  void done(std::size_t unit) {
    if (check_ && !bad_ && !finite_(gradients_of(unit)))
      for (std::size_t i = 0; i < plan_.variables.size() && !bad_; ++i)
        if (unit_of(i) == unit && !finite_({gradient(i), plan_.variables[i].size})) bad_ = i;
    traffic().done(unit);
  }

  PlanView plan_;
  UnitsView units_;
  placement::Shard shard_;
  std::size_t slots_;
  bool splits_;
  std::vector<std::vector<Range>> ranges_;  // of the body, of each unit
  placement::ShardCut cut_;
  std::vector<std::size_t> inside_;  // place of each variable in its unit
  std::vector<std::size_t> size_;    // elements of each unit
  std::size_t largest_ = 0;          // of the units that take turns
  Span<float> memory_, exposed_;
  std::array<float, plan::header + plan::trailer> ends_{};
  std::uint64_t version_ = 1;
  std::shared_ptr<UnitTraffic*> traffic_;
  std::size_t now_                   = none;
  bool check_                        = false;
  bool (*finite_)(Span<float const>) = nullptr;
  std::optional<std::size_t> bad_;
};

/// The check of gradients on D, as UnitMemory::begin() takes it; null where they are not in host memory.
template <class D> constexpr bool (*finite_on())(Span<float const>) {
  if constexpr (D::memory == Memory::host) return &Kernels<D>::finite;
  else return nullptr;
}

/// Begins a pass without gradients of a copy on D, whose units take turns if it has any. Returns false if there is
/// nothing to compute.
template <class D> bool begin_pass(UnitMemory* units, std::size_t rows) {
  if (units != nullptr && rows == 0) units->take_part(false, finite_on<D>());
  if (units != nullptr && rows != 0) units->begin(false, false, finite_on<D>());
  return rows != 0;
}

/// Writes the first values of all variables into memory that may have a shard of them. All copies get the same values.
inline void first_values(UnitMemory& memory, PlanView const& plan, Seed seed) {
  auto whole           = std::vector<float>(memory.splits() ? plan.values() : 0);
  auto const variables = Variables{memory.splits() ? Span<float>{whole} : memory.variables(), plan.variables};
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    initialize(variables[i].value, plan.variables[i].spec, Random{seed, i});
  if (memory.splits()) memory.take(variables.body());
}

/// Refuses the variables of a copy that has a shard of them.
inline void expect_whole(Variables const& variables) {
  CHORALE_EXPECTS(!variables.values.empty() || variables.plan.empty(),
                  "a copy under ShardedStrategy<Zero::three> has a shard of its " +
                      std::to_string(variables.plan.size()) +
                      " variables. Trainer::variables() brings all together, on every process");
}

}  // namespace chorale
