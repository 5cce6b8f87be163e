// SPDX-License-Identifier: Apache-2.0
//
// What a fuzzer has kept, and inputs near it. For one source file of a program: it counts memory.
#pragma once

#include "test/fuzz/mutate.hpp"
#include "test/fuzz/property.hpp"
#include "test/support/count_memory.hpp"
#include "test/support/slow.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace chorale::test {

inline constexpr auto most_bytes = std::size_t{16} << 20;  // that a reader may hold beside its input

/// The target, which fails if it holds more.
template <class Target> auto bounded(Target target) {
  return [target](ConstBytes in) {
    auto const most = most_held_by([&] { target(in); });
    if (most > most_bytes + in.size()) throw std::logic_error{std::to_string(most) + " bytes are held at once"};
  };
}

/// Gives a target test/fuzz/corpus/NAME and ten thousand inputs near it; among the slow tests a million.
template <class Target> void replay(std::string const& name, Target target) {
  auto const inputs = corpus(name);
  REQUIRE(inputs.size() >= 20);  // else it is not where it should be
  REQUIRE_NOTHROW(mutate(inputs, 1, 10'000, bounded(target)));
  if (slow_or_skip("a million inputs of " + name)) REQUIRE_NOTHROW(mutate(inputs, 2, 1'000'000, bounded(target)));
}

}  // namespace chorale::test
