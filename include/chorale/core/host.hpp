// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>

namespace chorale {

/// Name of this machine; "" if the system does not provide one.
inline std::string host_name() {
  auto name = std::string(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.substr(0, name.find('\0'));
}

}  // namespace chorale
