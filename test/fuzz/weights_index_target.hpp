// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/checkpoint/weights_file.hpp>

#include <filesystem>
#include <string_view>

namespace chorale::test {

/// Any bytes as a model.safetensors.index.json: it names only files that lie beside it.
inline void fuzz_weights_index(ConstBytes in) {
  try {
    auto const files = weights_index({reinterpret_cast<char const*>(in.data()), in.size()}, "f");
    for (auto const& [tensor, file] : files) {
      must(std::filesystem::path{file}.filename() == file && file.ends_with(".safetensors"), "a file elsewhere");
      must(file.find('\0') == file.npos, "another file is opened than is named");
      must(tensor.size() <= in.size() && file.size() <= in.size(), "names from nowhere");
    }
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
