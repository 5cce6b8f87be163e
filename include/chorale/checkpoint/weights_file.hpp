// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/observe/json.hpp>
#include <chorale/observe/run_file.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// What an index of weights in parts says: the file of each tensor, by its name, ascending.
///
///   {"weight_map": {"wte.weight": "model-00001-of-00002.safetensors", "h.0.attn.weight": "model-00002-of-..."}}
///
/// where   begins errors
/// throws  BadFile when the text is another one, has a key twice, or names a file that would be in another folder
/// source  save_pretrained of the package transformers: model.safetensors.index.json
inline std::map<std::string, std::string> weights_index(std::string_view text, std::string const& where) {
  auto const refuse = [&](std::string const& what, std::string const&) {
    throw BadFile{where + ": " + what + ".", "the index and the parts that one program wrote together."};
  };
  auto const json = parse_json(text, {}, refuse);
  auto const all  = json.is_object() ? json.find("weight_map") : json.end();
  if (all == json.end() || !all->is_object()) refuse("has no object \"weight_map\" of tensors and their files", {});
  auto files = std::map<std::string, std::string>{};
  for (auto const& [tensor, file] : all->items()) {
    if (!file.is_string()) refuse("the file of " + in_quotes(tensor) + " is no text", {});
    auto const& name = file.get_ref<std::string const&>();
    if (name.find_first_of(std::string_view{"/\0", 2}) != name.npos || !name.ends_with(".safetensors"))
      refuse(
          "the file of " + in_quotes(tensor) + " is " + in_quotes(name) + ", which is no .safetensors beside the index",
          {});
    files.emplace(tensor, name);
  }
  return files;
}

/// The tensors of a safetensors file, or of the parts that an index beside them names: model.safetensors.index.json.
///
/// keeps   the index names every tensor of every part; the bytes of `tensors()` live as long as this object
/// throws  BadFile when that is not so, or a file is damaged
class WeightsFile {
 public:
  explicit WeightsFile(std::filesystem::path const& path) {
    if (path.filename().native().ends_with(".index.json")) read_parts(path);
    else files_.push_back(SafetensorsFile::read(path)), tensors_ = files_[0].tensors();
  }

  std::vector<NamedTensor> const& tensors() const& { return tensors_; }  // by name, ascending
  std::vector<NamedTensor> const& tensors() const&& = delete;

 private:
  void read_parts(std::filesystem::path const& path) {
    auto const index  = weights_index(read_file(path), path.string());
    auto const differ = [&](std::string const& part, std::string const& tensor, char const* how) {
      throw BadFile{
          path.string() + ": " + in_quotes(part) + " has " + how + in_quotes(tensor) + ", unlike the index says.",
          "the index and the parts that one program wrote together."};
    };
    auto parts = std::map<std::string, std::size_t>{};  // of files_
    for (auto const& [name, part] : index) {
      auto const [at, is_new] = parts.emplace(part, files_.size());
      if (is_new) files_.push_back(SafetensorsFile::read(path.parent_path() / part));
      auto const* tensor = files_[at->second].find(name);
      if (tensor == nullptr) differ(part, name, "no ");
      else tensors_.push_back(*tensor);
    }
    for (auto const& [part, at] : parts)
      for (auto const& tensor : files_[at].tensors())
        if (auto const named = index.find(tensor.name); named == index.end() || named->second != part)
          differ(part, tensor.name, "");
  }

  std::vector<SafetensorsFile> files_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace chorale
