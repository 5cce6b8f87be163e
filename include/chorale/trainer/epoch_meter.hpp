// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/work.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/cpu/machine_speed.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/speed.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale {

/// The least time in which the replicas of this process can make a step: its multiplications at the speed of a large
/// matrix product, or the bytes that it must move at the speed of memory, whichever is longer.
///
///   products    multiplications of forward and backward, for the rows of all replicas here: NetworkWork
///   bytes       of each replica its variables, gradients and slots: gradients are written; an update reads them, and
///               reads and writes variables and slots. Activations and rows of tables are moved once. Of tables nothing
///               else counts, as it depends on which ids are equal
///
/// keeps   a lower limit: additions, exponentials, rereading and communication count as nothing
/// source  LLM.Q, which reports the speed of training as a part of the machine's
class StepFloor {
 public:
  /// update_slots   of the optimizer
  StepFloor(NetworkWork const& work, PlanView const& plan, int update_slots)
      : work_{work}, dense_bytes_{static_cast<double>((plan.elements - plan::header - plan::trailer) * sizeof(float))},
        slots_{static_cast<double>(update_slots)} {}

  /// Bytes that one replica moves in a step with an update.
  double bytes(double rows, double positions = 0) const {
    return dense_bytes_ * (4 + 2 * slots_) + work_.bytes(rows, positions);
  }
  /// Seconds of a step of so many rows on `replicas` replicas, which together have the speed of `machine`.
  double seconds(MachineSpeed const& machine, int replicas, double rows, double positions = 0) const {
    auto const moved = dense_bytes_ * (4 + 2 * slots_) * replicas + work_.bytes(rows, positions);
    return std::max(work_.products(rows, positions) / machine.products, moved / machine.bytes);
  }
  NetworkWork const& work() const { return work_; }

 private:
  NetworkWork work_;
  double dense_bytes_, slots_;
};

}  // namespace chorale

namespace chorale::detail {

/// A number with 3 digits, or all digits before the point, and commas: "0.52", "41,203".
inline std::string rounded(double value) {
  return value >= 100 ? with_commas(static_cast<std::size_t>(value + 0.5)) : formatted("%.3g", value);
}

/// The text after the metrics of an epoch: " - 41,203 images/s - 62% of floor".
inline std::string text_of(Speed const& done) {
  auto text = std::string{};
  if (done.amount > 0 && done.seconds > 0)
    text.append(" - ") += rounded(done.per_second()) + " " + std::string{done.counted.name} + "/s";
  if (auto const percent = done.percent_of_floor()) text += formatted(" - %.0f%% of floor", *percent);
  return text;
}

/// What fit has measured, as a line.
///
///   floor: 0.814 ms a step, of 112 G multiplications/s and 57.8 GB/s on 2 replicas here
inline std::string text_of(MachineSpeed const& machine, double seconds, std::size_t replicas) {
  return formatted("floor: %.3g ms a step, of %.3g G multiplications/s and %.3g GB/s on %zu replica%s here\n",
                   seconds * 1e3, machine.products / 1e9, machine.bytes / 1e9, replicas, replicas == 1 ? "" : "s");
}

/// The lines for models and devices whose floor is not known.
inline constexpr std::string_view no_floor_of_model =
    "floor: none, as the multiplications of a model with a learner of its own are not known\n";
inline constexpr std::string_view no_floor_of_device = "floor: none, as only devices of type Cpu are measured\n";

/// What the speed of model M is counted in.
template <class M> constexpr CountedAs counted_of() {
  if constexpr (requires {
                  { M::counted } -> std::convertible_to<CountedAs>;
                })
    return M::counted;
  else return {};
}

/// Counts what the replicas of this process compute in an epoch, for its speed; before the first step, tells the memory
/// that it takes, and measures the machine.
///
/// D         device of its replicas, which are Replicas: ModelReplicas
template <class M, class D, class Replicas> class EpochMeter {
  using instance = typename Replicas::instance;

  static constexpr int slots = std::remove_cvref_t<decltype(std::declval<M const&>().optimizer)>::slots;

 public:
  /// budget   bytes that a replica may take; of_task: all replicas of this process together. 0: any
  explicit EpochMeter(Replicas& replicas, std::size_t budget = 0, std::size_t of_task = 0)
      : replicas_{replicas}, budget_{budget}, task_budget_{of_task} {}

  bool has_budget() const { return budget_ != 0 || task_budget_ != 0; }

  /// rows_before   of all replicas, that the epoch had before a checkpoint
  void begin_epoch(std::size_t rows_before) {
    rows_before_ = rows_before;
    rows_ = positions_ = floor_seconds_ = spent_ = 0;
  }

  /// Counts a batch. Before the first one of a trainer, tells what memory its step takes; before the first one of a fit
  /// that asks for it, measures the machine.
  ///
  /// line    null: tells nothing
  /// throws  BadArgument before the first batch of a fit if its step takes more memory than the budget
  template <class Batch> void look_at(PerReplica<Batch>& shares, ProgressLine* line, bool measures) {
    auto rows = std::size_t{0}, positions = rows;
    for (auto const& share : shares) {
      rows += share.rows;
      positions += ragged_positions(share);
    }
    auto const start = std::chrono::steady_clock::now();
    auto const tells = line != nullptr && replicas_.is_first_telling();
    if (auto const checks = has_budget() && !std::exchange(checked_, true); tells || checks) {
      auto const memory = memory_for(shares);
      if (tells) line->note(text_of(memory, replicas_.live().num_replicas()));
      if (tells) line->note(text_of_products());
      auto const shared = shares_variables<typename Replicas::strategy_type> ? memory.variables + memory.slots : 0;
      replicas_.live().telling(
          [&] {
            check_budget(memory, budget_);
            check_task_budget(memory, replicas_.copies().size(), shared, task_budget_);
          },
          true);
    }
    if (measures && !std::exchange(measured_, true))
      measure(static_cast<double>(rows), static_cast<double>(positions), line);
    spent_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rows_ += static_cast<double>(rows);
    positions_ += static_cast<double>(positions);
    if (machine_) floor_seconds_ += seconds(static_cast<double>(rows), static_cast<double>(positions));
  }

  /// Writes the speed of an epoch to it. Its scores and seconds are known.
  void end_epoch(Epoch& done) const {
    auto const rows = static_cast<double>(done.scores.rows() - rows_before_);
    auto& speed     = done.speed;
    speed.counted   = counted_of<M>();
    speed.seconds   = done.seconds - spent_;
    speed.amount    = rows * static_cast<double>(speed.counted.per_row);
    if (speed.counted.per_row == 0) speed.amount = rows_ > 0 ? positions_ * rows / rows_ : 0;
    if (machine_) speed.floor_seconds = floor_seconds_;
  }

 private:
  /// A line about products that are to be rounded, where a Cpu computes them; else empty.
  static std::string text_of_products() {
    if constexpr (std::is_same_v<D, Cpu> && requires {
                    { M::network::products } -> std::convertible_to<Products>;
                  })
      return onednn::text_of_products(M::network::products);
    else return {};
  }

  static constexpr bool has_stages = StrategyTraits<typename Replicas::strategy_type>::has_stages;

  /// What a step computes for each row; all zeros if the model does not know.
  static constexpr NetworkWork work() {
    if constexpr (requires {
                    { instance::work } -> std::convertible_to<NetworkWork>;
                  })
      return instance::work;
    else return {};
  }
  /// Positions of the first ragged field in a batch; 0 if the model has none.
  template <class Batch> std::size_t ragged_positions(Batch const& batch) const {
    if constexpr (requires(instance const& copy) { copy.learner().ragged_positions(batch); })
      return batch.rows == 0 ? 0 : replicas_.copies()[0].learner().ragged_positions(batch);
    else return 0;
  }

  /// Plans the memory of this process's first replica, or of its stage that takes most, in threads that will compute.
  ///
  /// shares   of the next batch
  template <class Batch> ReplicaMemory memory_for(PerReplica<Batch>& shares) {
    auto& live        = replicas_.live();
    auto memory       = PerReplica<ReplicaMemory>(shares.size());
    auto const first  = live.local_replica(0).id();
    auto const device = live.strategy().local_devices()[0];
    live.run(
        [&](auto& replica, Batch const& share, ReplicaMemory& to) {
          if (replica.id() != first && !has_stages) return;
          auto const n = static_cast<std::size_t>(replicas_on(device));
          to           = memory_plan<typename Replicas::strategy_type>(
              replicas_.model(), replicas_.reduce(), device, (share.rows + n - 1) / n,
              shard_of(live.strategy(), replica.id()), ragged_positions(share));
        },
        shares, memory);
    return *std::max_element(memory.begin(), memory.end(),
                             [](ReplicaMemory const& a, ReplicaMemory const& b) { return a.peak() < b.peak(); });
  }

  /// Measures what the replicas of this process can do together, all at the same time; nothing if they are on no Cpu.
  ///
  /// moved   bytes that a replica moves in a step
  std::optional<MachineSpeed> measured(std::size_t moved) {
    if constexpr (std::is_same_v<D, Cpu>) {
      auto speeds       = PerReplica<MachineSpeed>(replicas_.copies().size());
      auto const device = replicas_.live().strategy().local_devices()[0];
      replicas_.live().run([&](auto&, MachineSpeed& speed) { speed = cpu::measure_speed(device, moved); }, speeds);
      auto sum = MachineSpeed{};
      for (auto const& speed : speeds) sum += speed;
      return sum;
    }
    return {};
  }
  void measure(double rows, double positions, ProgressLine* line) {
    auto const n        = static_cast<double>(replicas_.copies().size());
    auto const is_known = !(work() == NetworkWork{});
    if (is_known) machine_ = measured(static_cast<std::size_t>(floor_.bytes(rows / n, positions / n)));
    if (line == nullptr) return;
    if (machine_) line->note(text_of(*machine_, seconds(rows, positions), replicas_.copies().size()));
    else line->note(is_known ? no_floor_of_device : no_floor_of_model);
  }
  double seconds(double rows, double positions) const {
    return floor_.seconds(*machine_, static_cast<int>(replicas_.copies().size()), rows, positions);
  }

  Replicas& replicas_;
  StepFloor floor_{work(), replicas_.plan(), slots};
  std::optional<MachineSpeed> machine_;  // measured before the first step
  std::size_t budget_ = 0, task_budget_ = 0;
  bool measured_ = false, checked_ = false;
  std::size_t rows_before_ = 0;
  double rows_ = 0, positions_ = 0, floor_seconds_ = 0, spent_ = 0;  // spent: seconds of telling and measuring
};

}  // namespace chorale::detail
