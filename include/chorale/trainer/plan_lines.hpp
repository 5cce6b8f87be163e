// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// True if a transport of this type compares a plan when its ranks connect: its own, or one of a transport within it.
template <class T> constexpr bool compares_plans() {
  if constexpr (requires(T& t) { t.plan.empty(); }) return true;
  else if constexpr (requires(T& t) { t.transport; }) return compares_plans<decltype(T::transport)>();
  else if constexpr (requires(T& t) { t.far; }) return compares_plans<decltype(T::far)>();
  else return false;
}

/// Appends lines to the plan that a transport compares, if it compares one.
template <class T> void add_plan(T& transport, std::vector<std::string> const& lines) {
  if constexpr (requires { transport.plan = lines; }) {
    transport.plan.insert(transport.plan.end(), lines.begin(), lines.end());
  } else if constexpr (requires { transport.plan = std::string{}; }) {
    for (auto const& line : lines) transport.plan.append(transport.plan.empty() ? "" : "\n") += line;
  } else if constexpr (requires { transport.transport; }) {
    add_plan(transport.transport, lines);  // Staged, Counting, Faulty
  } else if constexpr (requires { transport.far; }) {
    add_plan(transport.far, lines);  // Layered: it connects all ranks
  }
}

}  // namespace detail

/// Lines that must be equal on all ranks before they train a model: the model's own lines(), or only its variables and
/// their shapes, and the seed of their first values.
template <class Model> std::vector<std::string> plan_lines(Model const& model, Seed seed) {
  auto lines = std::vector<std::string>{};
  if constexpr (requires {
                  { model.lines() } -> std::same_as<std::vector<std::string>>;
                })
    lines = model.lines();
  else lines = lines_of(model.plan);
  lines.push_back("seed " + word_of(seed.value));
  return lines;
}

/// Returns the transport with the plan that its ranks compare when they connect, so that ranks which were built from
/// different models refuse each other. A transport over shared memory also gets room for the gradients.
///
/// times     as much room: buffers in which units take turns may be larger than the gradients of a small network
template <class T>
T with_plan(T transport, PlanView const& plan, std::vector<std::string> const& lines, std::size_t times = 1) {
  detail::add_plan(transport, lines);
  if constexpr (requires { transport.arena = std::size_t{0}; })
    transport.arena = std::max(transport.arena, times * plan.bytes_per_step());
  return transport;
}
template <class T> T with_plan(T transport, PlanView const& plan) {
  return with_plan(std::move(transport), plan, lines_of(plan));
}

}  // namespace chorale
