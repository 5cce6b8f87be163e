// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <string>

namespace chorale::test {

/// The first line of the BadArgument that body throws, without "chorale: "; empty when it throws none.
template <class Body> std::string said(Body body) {
  try {
    body();
  } catch (BadArgument const& error) {
    auto const text = std::string{error.what()}.substr(std::string{"chorale: "}.size());
    return text.substr(0, text.find('\n'));
  }
  return {};
}

}  // namespace chorale::test
