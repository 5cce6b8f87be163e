// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>

namespace chorale {

/// Bytes that a copy of a model allocates to compute with a number of rows, beside its arena.
struct ShareMemory {
  std::size_t activations = 0;                                             // values, workspaces, gradients by values
  std::size_t gradients   = 0;                                             // of variables, for other threads' slices
};

/// Bytes that one replica takes: what its copy of a model has allocated after its first step.
struct ReplicaMemory {
  std::size_t parameters = 0;                                              // trainable numbers, not bytes
  std::size_t variables  = 0;                                              // with header, trailer, padding, and tables
  std::size_t gradients  = 0;                                              // once for each thread with a slice
  std::size_t slots      = 0;                                              // what the optimizer remembers
  std::size_t rows       = 0;                                              // of a share, for which activations are
  std::optional<std::size_t> activations{};                                // none: known to the model's learner alone
  bool has_tables = false;                                                 // on top come gradients by rows, as many as
                                                                           // a step has, and 4 bytes a row of a table
  /// Bytes of everything that is known, which lives at once during backward.
  constexpr std::size_t peak() const { return variables + gradients + slots + activations.value_or(0); }
  friend bool operator==(ReplicaMemory const&, ReplicaMemory const&) = default;
};

namespace detail {

/// Runs kernels of this thread as those of a device; of a Cpu, on its threads.
template <class D>
struct DeviceScope {
  explicit DeviceScope(D const&) {}
};
template <>
struct DeviceScope<Cpu> : Cpu::Scope {
  using Cpu::Scope::Scope;
};

}  // namespace detail

/// Plans the memory of one replica, and allocates none of it.
///
/// rows        of the replica's share of a batch
/// positions   of each ragged input of the model, in all rows; 0 if it has none
/// returns     the exact bytes of networks of nn, which their kernels are asked for, with the threads of `device`; of a
///             custom model those of its variables, and no activations
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
  [[maybe_unused]] auto const scope = detail::DeviceScope<D>{device};      // kernels ask for the threads of this one
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
  auto text = std::array<char, 32>{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : value >= 10 ? "%.1f %s" : "%.2f %s",
                value, units[unit]);
  return text.data();
}

/// A whole number with commas: "347,146".
inline std::string with_commas(std::size_t n) {
  auto text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

/// Two lines: what a run tells before its first step.
///
///   347,146 parameters: variables 1.32 MiB, gradients 1.32 MiB, optimizer slots 2.65 MiB
///   2 replicas of 32 rows: activations 3.48 MiB each, peak 8.78 MiB each
inline std::string text_of(ReplicaMemory const& memory, int replicas) {
  auto text = with_commas(memory.parameters) + (memory.parameters == 1 ? " parameter" : " parameters") +
              ": variables " + text_of_bytes(memory.variables) + ", gradients " + text_of_bytes(memory.gradients) + (memory.has_tables ? " and rows of tables" : "") +
              ", optimizer slots " + text_of_bytes(memory.slots) + "\n";
  auto const each = std::string{replicas == 1 ? "" : " each"};
  text += std::to_string(replicas) + (replicas == 1 ? " replica" : " replicas") + " of " + std::to_string(memory.rows) +
          (memory.rows == 1 ? " row: " : " rows: ");
  if (memory.activations) text += "activations " + text_of_bytes(*memory.activations) + each + ", ";
  else text += "activations are not known before a step, without them ";
  return text + "peak " + text_of_bytes(memory.peak()) + each + "\n";
}

}  // namespace chorale
