// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorale {

/// "ckpt-000812". Names of the same length sort as their steps do.
inline std::string checkpoint_name(std::uint64_t step) {
  auto const digits = std::to_string(step);
  return "ckpt-" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}

/// The step of a name that checkpoint_name() makes; nothing for all others.
inline std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with("ckpt-") || name.size() > 25) return {};
  auto step = std::uint64_t{0};
  for (char const c : name.substr(5))
    if (c < '0' || c > '9' || __builtin_mul_overflow(step, 10, &step) ||
        __builtin_add_overflow(step, static_cast<unsigned>(c - '0'), &step))
      return {};
  if (checkpoint_name(step) != name) return {};
  return step;
}

/// Folder that a job writes before it commits: "ckpt-000812.tmp.mnist-17". No reader opens it.
inline std::string unfinished_name(std::uint64_t step, std::string_view job) {
  return checkpoint_name(step) + ".tmp." + std::string{job};
}

/// Name of a checkpoint that a job is about to remove: "ckpt-000700.old.mnist-17". No reader opens it.
inline std::string removed_name(std::uint64_t step, std::string_view job) {
  return checkpoint_name(step) + ".old." + std::string{job};
}

/// True if unfinished_name() or removed_name() makes the name for this job.
inline bool is_left_over(std::string_view name, std::string_view job) {
  auto const dot = name.find('.');
  if (dot == name.npos) return false;
  auto const rest = name.substr(dot);
  return step_of(name.substr(0, dot)) && (rest.starts_with(".tmp.") || rest.starts_with(".old.")) &&
         rest.substr(5) == job;
}

/// True if a job may have this name: 1 to 64 of A-Z a-z 0-9 - _ . and no dot in front.
inline bool is_job_name(std::string_view job) {
  return !job.empty() && job.size() <= 64 && job.front() != '.' &&
         job.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == job.npos;
}

}  // namespace chorale
