// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/atomic_file.hpp>
#include <chorale/core/types.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

namespace chorale {

/// Marker file that `fit` writes next to its checkpoints when it finishes, so that a sidecar evaluator knows that no
/// further checkpoint will follow, even if a callback stopped training early.
///
/// keeps   written after the last checkpoint, and removed when a fit begins. Preempted and other exceptions leave none:
///         such a job continues when it is started again
struct CompletionMarker {
  std::uint64_t epochs = 0;                                                // FitOptions::epochs
  std::uint64_t step   = 0;                                                // updates

  static constexpr auto file_name = "ended";

  /// Reads the marker in a folder; empty if there is none, or if it cannot be read.
  static std::optional<CompletionMarker> in(std::filesystem::path const& folder) {
    auto from  = std::ifstream{folder / file_name};
    auto found = CompletionMarker{};
    if (from >> found.epochs >> found.step) return found;
    return {};
  }

  /// Writes the marker as a whole, or throws BadFile.
  void write_to(std::filesystem::path const& folder) const {
    auto const text = std::to_string(epochs) + " " + std::to_string(step) + "\n";
    auto file       = AtomicFile{folder / file_name};
    file.write(std::as_bytes(Span<char const>{text}));
    file.commit();
  }

  static void remove_from(std::filesystem::path const& folder) {
    auto none = std::error_code{};
    std::filesystem::remove(folder / file_name, none);
  }
};

}  // namespace chorale
