// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace chorale::test {

/// An empty folder that goes with the test, and with everything in it.
struct Folder {
  std::filesystem::path path = make();

  Folder()                         = default;
  Folder(Folder const&)            = delete;
  Folder& operator=(Folder const&) = delete;
  ~Folder() {
    auto code = std::error_code{};
    std::filesystem::remove_all(path, code);
  }

  std::filesystem::path operator/(std::string_view name) const { return path / name; }

 private:
  static std::filesystem::path make() {
    auto name = (std::filesystem::temp_directory_path() / "chorale-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error{"no folder for this test"};
    return name;
  }
};

}  // namespace chorale::test
