// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/core/error.hpp>
#include <chorale/tensor/variable.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace chorale {

namespace detail {

template <class Dims>
std::string shape_text(Dims const& dims) {
  auto text = std::string{"("};
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + (dims.size() == 1 ? ",)" : ")");
}

}  // namespace detail

/// Writes variables under their names, one logical tensor each, whatever the layout in memory was.
///
/// throws  BadFile when the file cannot be written; an old file is then untouched
inline void save_weights(std::filesystem::path const& file, Variables const& variables) {
  auto tensors = std::vector<NamedTensor>{};
  for (std::size_t i = 0; i < variables.size(); ++i) {
    auto const v = variables[i];
    tensors.push_back({.name = std::string{v.name}, .dtype = Dtype::f32, .shape = {v.shape.begin(), v.shape.end()},
                       .bytes = std::as_bytes(v.value)});
  }
  write_safetensors(file, std::move(tensors), {{"format", "chorale"}});
}

/// Reads variables by their names.
///
/// throws  BadFile when the file is damaged, lacks a variable, or has one of another type or shape; no variable has
///         changed then. Tensors that the network does not have are refused too: the file is of another network
inline void load_weights(std::filesystem::path const& path, Variables const& variables) {
  auto const file = SafetensorsFile::read(path);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    auto const v     = variables[i];
    auto const& have = file.at(v.name);
    auto const wanted = std::vector<std::uint64_t>(v.shape.begin(), v.shape.end());
    if (have.dtype != Dtype::f32 || have.shape != wanted)
      throw BadFile{path.string() + ": \"" + have.name + "\" is " + std::string{name_of(have.dtype)} + " " +
                        detail::shape_text(have.shape) + ", but the network needs F32 " + detail::shape_text(wanted) +
                        ".",
                    "the file that was saved from this network."};
  }
  if (file.tensors().size() != variables.size())
    throw BadFile{path.string() + ": has " + std::to_string(file.tensors().size()) + " tensors, but the network has " +
                      std::to_string(variables.size()) + " variables.",
                  "the file that was saved from this network."};
  for (std::size_t i = 0; i < variables.size(); ++i) file.copy(variables[i].name, variables[i].value);
}

}  // namespace chorale
