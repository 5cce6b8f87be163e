// SPDX-License-Identifier: Apache-2.0
//
// Where the real MNIST lies, for the tests that are about it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace mnist {

/// The folder with MNIST's files: $CHORALE_MNIST, or ../shared/data/mnist seen from here or from a folder above.
///
/// Nothing, and a line that says that the test was skipped, where there is none:
///   auto const folder = mnist::folder_or_skip("the name of this test");
///   if (!folder) return;
inline std::optional<std::filesystem::path> folder_or_skip(std::string const& test) {
  auto code = std::error_code{};
  if (auto const* named = std::getenv("CHORALE_MNIST"); named != nullptr && *named != '\0') return named;
  auto here = std::filesystem::current_path(code);
  for (int level = 0; level < 8; ++level, here = here.parent_path())
    if (auto const folder = here / "../shared/data/mnist"; std::filesystem::is_directory(folder, code)) return folder;
  std::printf("SKIPPED: %s: no MNIST folder\n", test.c_str());
  return {};
}

}  // namespace mnist
