// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>

namespace chorale {

/// Bytes that a copy of a model allocates to compute with a number of rows, beside its arena.
struct ShareMemory {
  std::size_t activations = 0;  // values, workspaces, gradients by values
  std::size_t gradients   = 0;  // of variables, for other threads' slices
};

/// Bytes that one replica takes: what its copy of a model has allocated after its first step.
struct ReplicaMemory {
  std::size_t parameters = 0;                // trainable numbers, not bytes
  std::size_t variables  = 0;                // with header, trailer, padding, and tables
  std::size_t gradients  = 0;                // once for each thread with a slice
  std::size_t slots      = 0;                // what the optimizer remembers
  std::size_t rows       = 0;                // of a share, for which activations are
  std::optional<std::size_t> activations{};  // none: known to the model's learner alone
  bool has_tables      = false;              // on top come gradients by rows, as many as
                                             // a step has, and 4 bytes a row of a table
  std::size_t gathered = 0;                  // layers that other ranks keep, while in use
  std::size_t received = 0;                  // messages, until they are added up
  /// Bytes of everything that is known, which lives at once during backward.
  constexpr std::size_t peak() const {
    return variables + gradients + slots + activations.value_or(0) + gathered + received;
  }
  friend bool operator==(ReplicaMemory const&, ReplicaMemory const&) = default;
};

namespace detail {

/// Makes kernels of this thread run on a device: for a Cpu, on its threads; otherwise it does nothing.
template <class D> struct DeviceScope {
  explicit DeviceScope(D const&) {}
};
template <> struct DeviceScope<Cpu> : Cpu::Scope {
  using Cpu::Scope::Scope;
};

}  // namespace detail

/// Plans the memory of one replica, and allocates none of it.
///
/// rows        of the replica's share of a batch
/// positions   of each ragged input of the model, in all rows; 0 if it has none
/// returns     for a network of nn the exact bytes, as its kernels report them with the threads of `device`; for a
///             custom model the bytes of its variables, without activations
template <class M, class D>
ReplicaMemory memory_of(M const& model, std::size_t rows, D const& device, std::size_t positions = 0) {
  using Instance   = typename M::template instance<D>;
  auto const& plan = PlanView{model.plan};
  auto const slots = static_cast<std::size_t>(std::remove_cvref_t<decltype(model.optimizer)>::slots);
  auto memory      = ReplicaMemory{.parameters = plan.parameters,
                                   .variables  = plan.values() * sizeof(float),
                                   .gradients  = plan.bytes_per_step(),
                                   .slots      = slots * plan.values() * sizeof(float),
                                   .rows       = rows,
                                   .has_tables = plan.table_elements != 0};
  auto const add   = [&](ShareMemory const& share) {
    memory.activations = share.activations;
    memory.gradients += share.gradients;
  };
  [[maybe_unused]] auto const scope = detail::DeviceScope<D>{device};  // kernels ask for the threads of this one
  if constexpr (requires { model.planned(device, rows, positions); }) add(model.planned(device, rows, positions));
  else if constexpr (requires { Instance::planned(device, rows); }) add(Instance::planned(device, rows));
  return memory;
}

/// Bytes as a text of three digits: "1.32 MiB".
inline std::string text_of_bytes(std::size_t bytes) {
  constexpr auto units = std::array{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value           = static_cast<double>(bytes);
  std::size_t unit     = 0;
  for (; value >= 1000 && unit + 1 < units.size(); ++unit) value /= 1024;
  return formatted("%.*f %s", unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2, value, units[unit]);
}

/// A whole number with commas: "347,146".
inline std::string with_commas(std::size_t n) {
  auto text         = std::string{};
  auto const digits = std::to_string(n);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// Two lines: what a run tells before its first step.
///
///   347,146 parameters: variables 1.32 MiB, gradients 1.32 MiB, optimizer slots 2.65 MiB
///   2 replicas of 32 rows: activations 2.82 MiB each, received messages 906 KiB each, peak 9.00 MiB each
inline std::string text_of(ReplicaMemory const& memory, int replicas) {
  auto text = with_commas(memory.parameters) + (memory.parameters == 1 ? " parameter" : " parameters") +
              ": variables " + text_of_bytes(memory.variables) + ", gradients " + text_of_bytes(memory.gradients) +
              (memory.has_tables ? " and rows of tables" : "") + ", optimizer slots " + text_of_bytes(memory.slots) +
              "\n";
  auto const each = std::string{replicas == 1 ? "" : " each"};
  text += std::to_string(replicas) + (replicas == 1 ? " replica" : " replicas") + " of " + std::to_string(memory.rows) +
          (memory.rows == 1 ? " row: " : " rows: ");
  if (memory.activations) text += "activations " + text_of_bytes(*memory.activations) + each + ", ";
  else text += "activations are not known before a step, without them ";
  if (memory.gathered != 0) text += "gathered layers " + text_of_bytes(memory.gathered) + each + ", ";
  if (memory.received != 0) text += "received messages " + text_of_bytes(memory.received) + each + ", ";
  return text + "peak " + text_of_bytes(memory.peak()) + each + "\n";
}

/// The bytes that a replica may take. 0: any.
///
/// rows    of a replica's share of a batch, where none has come yet; 0: activations are not counted before one comes
struct MemoryBudget {
  std::size_t bytes = 0;
  std::size_t rows  = 0;
};

/// Refuses a task whose replicas together take more than its budget; 0: any.
///
/// shared   bytes that all replicas of the task have once
/// throws   BadArgument with both numbers
inline void check_task_budget(ReplicaMemory const& memory, std::size_t replicas, std::size_t shared,
                              std::size_t budget) {
  auto const all = replicas * memory.peak() - (replicas == 0 ? 0 : replicas - 1) * shared;
  if (budget == 0 || all <= budget) return;
  throw BadArgument{"the " + std::to_string(replicas) + " replicas of this task take " + text_of_bytes(all) + " (" +
                        with_commas(all) + " bytes) together, and its memory budget is " + text_of_bytes(budget) +
                        " (" + with_commas(budget) + " bytes).",
                    "fewer replicas in this task, or fewer rows in a batch."};
}

/// Refuses a replica that takes more than its budget.
///
/// throws  BadArgument with both numbers, the largest part, and what would take less
inline void check_budget(ReplicaMemory const& memory, std::size_t budget) {
  if (budget == 0 || memory.peak() <= budget) return;
  struct Part {
    char const* name;
    std::size_t bytes;
    char const* less;
  };
  auto const parts =
      std::array{Part{"optimizer slots", memory.slots,
                      "ShardedStrategy, where a replica keeps those of its shard; or an optimizer "
                      "with fewer slots, such as optim::SGD."},
                 Part{"activations", memory.activations.value_or(0),
                      "fewer rows in a batch, with FitOptions::accumulate for the "
                      "same updates; or nn::Recompute around blocks."},
                 Part{"gradients", memory.gradients,
                      "fewer threads for each device, each of which has gradients; or "
                      "ShardedStrategy with shards of gradients."},
                 Part{"variables", memory.variables, "ShardedStrategy with shards of variables; or a smaller model."},
                 Part{"gathered layers", memory.gathered, "smaller layers; or a strategy that keeps whole variables."},
                 Part{"received messages", memory.received,
                      "DirectAllReduce where replicas share memory; or fewer buckets: "
                      "Bucketed<R, OneBucket>."}};
  auto const& largest = *std::ranges::max_element(parts, {}, &Part::bytes);
  throw BadArgument{"a replica takes " + text_of_bytes(memory.peak()) + " (" + with_commas(memory.peak()) +
                        " bytes), and its memory budget is " + text_of_bytes(budget) + " (" + with_commas(budget) +
                        " bytes): most of it are " + largest.name + ", " + text_of_bytes(largest.bytes) + ".",
                    largest.less};
}

}  // namespace chorale
