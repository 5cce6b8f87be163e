// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace chorale {

/// The permission bits of a file's mode as chmod takes them: "0644".
inline std::string mode_text(unsigned mode) {
  auto text = std::string{"0"};
  for (auto const shift : {6U, 3U, 0U}) text += static_cast<char>('0' + (mode >> shift & 7U));
  return text;
}

}  // namespace chorale
