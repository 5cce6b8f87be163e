// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/data/formats/tf_example.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace chorale::test {

/// Any bytes, as a tf.train.Example.
inline void fuzz_data_example(ConstBytes in) {
  auto example = data::Example{};
  try {
    example = data::Example::parse(in);
  } catch (BadFile const&) { return; }
  auto numbers = std::size_t{0}, bytes = std::size_t{0};
  for (auto const& [name, feature] : example.features) {
    if (auto const* floats = std::get_if<std::vector<float>>(&feature)) numbers += floats->size();
    if (auto const* integers = std::get_if<std::vector<std::int64_t>>(&feature)) numbers += integers->size();
    if (auto const* strings = std::get_if<std::vector<std::string>>(&feature))
      for (auto const& s : *strings) bytes += s.size();
    bytes += name.size();
  }
  must(numbers <= in.size() && bytes <= in.size(), "more is read than is there");
  auto const written = example.bytes();
  auto const again   = data::Example::parse(written);
  must(again.bytes() == written, "an Example is not the same after it was written and parsed");  // NaN is not NaN
  must(again.features.size() == example.features.size(), "features are lost when they are written");
  for (auto const& name : {"a", "image"}) {
    try {
      static_cast<void>(example.get<float>(name));
    } catch (BadFile const&) {}
  }
}

}  // namespace chorale::test
