// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorale {

/// Role of a task in a job, in the order of ranks.
enum class Role : std::uint8_t {
  chief,       // trains, and writes checkpoints and logs
  worker,      // trains
  ps,          // holds variables: a parameter server
  evaluator,   // evaluates what the chief wrote; no member of the group that trains
};

inline constexpr auto role_names = std::array<std::string_view, 4>{"chief", "worker", "ps", "evaluator"};

constexpr std::string_view name(Role role) { return role_names[static_cast<std::size_t>(role)]; }

constexpr std::optional<Role> role_named(std::string_view text) {
  for (std::size_t i = 0; i < role_names.size(); ++i)
    if (role_names[i] == text) return static_cast<Role>(i);
  return std::nullopt;
}

/// A task of a job: "worker 1". Ordered as ranks are.
struct TaskId {
  Role role = Role::worker;
  int index = 0;

  std::string text() const { return std::string{name(role)} + " " + std::to_string(index); }

  friend constexpr auto operator<=>(TaskId const&, TaskId const&) = default;
};

/// A task, and the address it listens on.
struct Task {
  TaskId id;
  std::string address{};                                                   // "host:port"; empty when it is not known

  friend bool operator==(Task const&, Task const&) = default;
};

}  // namespace chorale
