// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace chorale {

/// A text from another process or from a file, made safe for one line of a log: every byte that is not printable ASCII
/// becomes '?', so that no peer can move a terminal's cursor, or forge a line.
inline std::string printable(std::string_view text) {
  auto line = std::string{text};
  for (char& c : line)
    if (c < ' ' || c > '~') c = '?';
  return line;
}

}  // namespace chorale
