// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <string>

namespace chorale::wire {

/// Returns a value for Identity::plan_hash: the SHA-256 of all lines, each with a line break. Needs -lcrypto.
inline std::array<std::byte, 32> plan_hash(Span<std::string const> lines) {
  auto text = std::string{};
  for (auto const& line : lines) text += line + "\n";
  auto hash = std::array<std::byte, 32>{};
  SHA256(reinterpret_cast<unsigned char const*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

}  // namespace chorale::wire
