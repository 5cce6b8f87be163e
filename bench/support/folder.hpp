// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace bench {

/// An empty folder among the system's temporary files, which is removed with this object.
///
/// throws  std::runtime_error when it cannot be made
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "chorale-bench-XXXXXX").string();

  Folder() {
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error{"chorale: no folder for files: " + path};
  }
  ~Folder() {
    auto code = std::error_code{};
    std::filesystem::remove_all(path, code);
  }
  Folder(Folder const&)            = delete;
  Folder& operator=(Folder const&) = delete;
};

}  // namespace bench
