// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/checkpoint/directory.hpp>
#include <chorale/checkpoint/manifest.hpp>
#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/verified_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale {

/// Destination of a tensor of a checkpoint: the memory belongs to the caller.
struct TensorSlot {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape{};
  Bytes bytes{};
};

/// A checkpoint that was read, with every byte checked.
///
/// keeps   a copy of it in memory, as large as its files; later changes on the disk do not matter
class Checkpoint {
 public:
  /// path    of the checkpoint's own folder, under any name
  /// throws  BadFile with the file and the byte, when anything is missing, cut off or changed
  static Checkpoint read(std::filesystem::path const& path) {
    try {
      return Checkpoint{Directory{path}};
    } catch (std::system_error const& error) { detail::bad_checkpoint(error.what()); }
  }

  explicit Checkpoint(Directory const& folder) : path_{folder.path()}, manifest_{read_manifest(folder)} {
    check_sizes(folder, manifest_);  // the cheapest reason to refuse comes first
    for (auto const& file : manifest_.files) {
      files_.push_back(SafetensorsFile::of(read_verified(folder, file, manifest_.block), path_ + "/" + file.name()));
      auto& section = tensors_[static_cast<std::size_t>(file.section)];
      section.insert(section.end(), files_.back().tensors().begin(), files_.back().tensors().end());
    }
    for (auto const section : all_sections_) {
      auto& tensors = tensors_[static_cast<std::size_t>(section)];
      std::sort(tensors.begin(), tensors.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
      auto const same  = [](auto const& a, auto const& b) { return a.name == b.name; };
      auto const twice = std::adjacent_find(tensors.begin(), tensors.end(), same);
      if (twice != tensors.end())
        detail::bad_checkpoint(path_ + ": two parts of " + std::string{name_of(section)} + " have \"" +
                               safetensors::HeaderReader::printable(twice->name) + "\"");
    }
  }

  std::string const& path() const& { return path_; }
  std::string path() && { return std::move(path_); }
  Manifest const& manifest() const& { return manifest_; }
  Manifest manifest() && { return std::move(manifest_); }

  /// Tensors of a section, ascending by name, whichever rank wrote them; the bytes live as long as this object.
  std::vector<NamedTensor> const& operator[](Section section) const& {
    return tensors_[static_cast<std::size_t>(section)];
  }
  std::vector<NamedTensor> const& operator[](Section) const&& = delete;  // they would be gone: keep the checkpoint

  /// Compares a section with the tensors that are needed: a line for each tensor that is missing, left over, or of
  /// another type or shape.
  std::vector<std::string> differences(Section section, std::vector<TensorSlot> const& wanted) const {
    auto lines          = std::vector<std::string>{};
    auto const& have    = (*this)[section];
    auto const describe = [](auto const& t) { return std::string{name_of(t.dtype)} + shape_of(t.shape); };
    auto names          = std::set<std::string_view>{};
    for (auto const& slot : wanted) {
      names.insert(slot.name);
      if (auto const* tensor = find(section, slot.name); tensor == nullptr)
        lines.push_back(in_quotes(slot.name) + ": not in the checkpoint, but " + describe(slot) + " is needed");
      else if (tensor->dtype != slot.dtype || tensor->shape != slot.shape)
        lines.push_back(in_quotes(slot.name) + ": " + describe(*tensor) + ", but " + describe(slot) + " is needed");
    }
    for (auto const& tensor : have)
      if (names.count(tensor.name) == 0)
        lines.push_back(in_quotes(tensor.name) + ": " + describe(tensor) + ", but nothing is called so");
    return lines;
  }

  /// Copies a section into place; nothing is copied unless all of it fits.
  ///
  /// throws  BadFile with the first differences
  void copy(Section section, std::vector<TensorSlot> const& to) const {
    auto const lines = differences(section, to);
    auto text        = std::string{};
    for (std::size_t i = 0; i < lines.size() && i < 8; ++i) text += "\n           " + lines[i];
    if (!lines.empty())
      throw BadFile{path_ + ": " + std::string{name_of(section)} + ": " + std::to_string(lines.size()) +
                        " tensors are not as this model needs them." + text +
                        (lines.size() > 8 ? "\n           ..." : ""),
                    "a checkpoint of this model and this optimizer; world and strategy may differ."};
    for (auto const& slot : to)
      CHORALE_EXPECTS(slot.bytes.size() == find(section, slot.name)->bytes.size(),
                      in_quotes(slot.name) + " has " + std::to_string(slot.bytes.size()) + " bytes of memory, but " +
                          std::to_string(find(section, slot.name)->bytes.size()) + " are needed");
    detail::in_turn_by_threads(to.size(), [&](std::size_t i) {
      if (!to[i].bytes.empty())
        std::memcpy(to[i].bytes.data(), find(section, to[i].name)->bytes.data(), to[i].bytes.size());
    });
  }

  /// Returns the tensor of that name, or null.
  NamedTensor const* find(Section section, std::string_view name) const& {
    auto const& all = (*this)[section];
    auto const at   = std::lower_bound(all.begin(), all.end(), name,
                                       [](NamedTensor const& t, std::string_view wanted) { return t.name < wanted; });
    return at != all.end() && at->name == name ? &*at : nullptr;
  }
  NamedTensor const* find(Section, std::string_view) const&& = delete;

 private:
  static constexpr auto all_sections_ = std::array{Section::variables, Section::optimizer, Section::state};

  static std::string in_quotes(std::string_view name) {
    return "\"" + safetensors::HeaderReader::printable(name) + "\"";
  }

  static std::string shape_of(std::vector<std::uint64_t> const& shape) {
    auto text = std::string{"["};
    for (std::size_t i = 0; i < shape.size(); ++i) text.append(i == 0 ? "" : ",") += std::to_string(shape[i]);
    return text + "]";
  }

  std::string path_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;
  std::array<std::vector<NamedTensor>, section_names.size()> tensors_;
};

/// Returns the steps of the checkpoints in a folder, newest first; none when the folder does not exist. The checkpoints
/// are not opened.
inline std::vector<std::uint64_t> checkpoint_steps(std::filesystem::path const& folder) {
  auto steps = std::vector<std::uint64_t>{};
  if (!std::filesystem::exists(folder)) return steps;
  try {
    for (auto const& name : Directory{folder}.names())
      if (auto const step = step_of(name)) steps.push_back(*step);
  } catch (std::system_error const& error) { detail::bad_checkpoint(folder.string() + ": " + error.what()); }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// Returns the newest checkpoint that is whole; nothing when the folder has none at all.
///
/// keeps   other processes may write to the folder and tidy it meanwhile; nothing is changed in it
/// throws  NoValidCheckpoint when there are some and none can be used, or, with OnDamage::stop, the newest cannot
inline std::optional<Checkpoint> newest_checkpoint(CheckpointOptions const& options) {
  for (int again = 0;; ++again) {
    auto const steps = checkpoint_steps(options.folder);
    auto why         = std::vector<std::string>{};
    auto found       = std::optional<Checkpoint>{};
    for (auto const step : steps) {
      try {
        found.emplace(Directory{Directory{options.folder}, checkpoint_name(step)});
        if (found->manifest().step == step) break;
        why.push_back(found->path() + ": its manifest is of step " + std::to_string(found->manifest().step));
        found.reset();
      } catch (BadFile const& error) { why.push_back(first_line(error)); } catch (std::system_error const& error) {
        why.push_back(options.folder.string() + "/" + error.what());
      }
      if (options.on_damage == OnDamage::stop) break;
    }
    if (!found && again < 8 && checkpoint_steps(options.folder) != steps) continue;  // tidied while it was read
    if (steps.empty()) return {};
    auto all = std::string{};
    for (auto const& line : why) all += (all.empty() ? "" : "\n           ") + line;
    if (!found)
      throw NoValidCheckpoint{options.folder.string() + ": " +
                                  (options.on_damage == OnDamage::stop ? "the newest of " : "none of ") +
                                  std::to_string(steps.size()) + " checkpoints can be used: " + all,
                              "OnDamage::fall_back for an older one, or another folder to start again."};
    if (options.log)
      for (auto const& line : why)
        options.log(line + " Passed over: step " + std::to_string(found->manifest().step) + " is used.");
    return found;
  }
}

}  // namespace chorale
