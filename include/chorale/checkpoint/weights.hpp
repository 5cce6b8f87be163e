// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/checkpoint/weights_file.hpp>
#include <chorale/checkpoint/weights_to_load.hpp>
#include <chorale/checkpoint/weights_to_save.hpp>
#include <chorale/core/error.hpp>
#include <chorale/tensor/variable.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Writes variables as float32 under their names, one logical tensor each, whatever the layout in memory was. With a map:
/// under the names and in the layouts of another program.
///
/// throws  BadFile when the file cannot be written; BadArgument when the map has no name for a variable. An old file is
///         then untouched
inline void save_weights(std::filesystem::path const& file, Variables const& variables, WeightMap const& names = {}) {
  auto const mapped = detail::TensorsToSave{variables, names};
  write_safetensors(file, mapped.tensors(), {{"format", names.rules.empty() ? "chorale" : "pt"}});
}

/// Reads variables by their names, or by those that a map gives them. Numbers of 16 and 64 bits become float.
///
/// path    of a safetensors file, or of the index of several, model.safetensors.index.json
/// throws  BadFile when the file is damaged, or does not fit the network: it names the first three differences, such as a
///         variable that is missing, a tensor that the network does not have, or another shape. No variable has changed
///         then
inline void load_weights(std::filesystem::path const& path, Variables const& variables, WeightMap const& names = {}) {
  auto const file = WeightsFile{path};
  auto const plan = detail::WeightsToLoad{file.tensors(), variables, names};
  if (auto const text = plan.differences(); !text.empty())
    throw BadFile{path.string() + ": " + text + ".",
                  names.rules.empty() ? "the file that was saved from this network, or a WeightMap with the names and "
                                        "layouts of the program that wrote it."
                                      : "rules of the WeightMap for them; weights::ignored for tensors that are not "
                                        "needed, weights::kept for variables that the file does not have."};
  plan.copy();
}

}  // namespace chorale
