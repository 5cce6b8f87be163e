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

/// That a fit has ended, beside its checkpoints: no later one comes, although epochs may be left that a callback has
/// spared it.
///
/// keeps   written after the last checkpoint, and gone while a fit goes on. Preempted and other exceptions leave none:
///         such a job goes on when it is started again
struct CompletionMarker {
  std::uint64_t epochs = 0;                                                // FitOptions::epochs
  std::uint64_t step   = 0;                                                // updates

  static constexpr auto file_name = "ended";

  /// Nothing when there is none, or when it cannot be read.
  static std::optional<CompletionMarker> in(std::filesystem::path const& folder) {
    auto from  = std::ifstream{folder / file_name};
    auto found = CompletionMarker{};
    if (from >> found.epochs >> found.step) return found;
    return {};
  }

  /// throws  BadFile
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
