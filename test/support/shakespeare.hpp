// SPDX-License-Identifier: Apache-2.0
//
// Where tiny Shakespeare lies, for the tests that are about it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace chorale::test {

/// The text file: $CHORALE_SHAKESPEARE, or ../shared/data/tinyshakespeare/input.txt seen from here or from a folder above.
/// Nothing, and a line that says that the test was skipped, where there is none.
inline std::optional<std::filesystem::path> shakespeare_or_skip(std::string const& test) {
  auto code = std::error_code{};
  if (auto const* named = std::getenv("CHORALE_SHAKESPEARE"); named != nullptr && *named != '\0') return named;
  auto here = std::filesystem::current_path(code);
  for (int level = 0; level < 8; ++level, here = here.parent_path())
    if (auto const file = here / "../shared/data/tinyshakespeare/input.txt";
        std::filesystem::is_regular_file(file, code))
      return file;
  std::printf("SKIPPED: %s: no tiny Shakespeare\n", test.c_str());
  return {};
}

}  // namespace chorale::test
