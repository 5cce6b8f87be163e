// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/manifest.hpp>
#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// All that training needs to continue as if it had not been interrupted. The bytes belong to the caller.
///
/// at         step, epoch, batch, seed, world, strategy, plan; files, block and job are filled in by the save
/// variables  under their names, whole: no trace of replicas or shards
/// optimizer  its slots, "dense/kernel/m"
/// state      everything else that steps change: residuals of compression, counters, positions of streams
struct CheckpointState {
  Manifest at{};
  std::vector<NamedTensor> variables{}, optimizer{}, state{};

  std::vector<NamedTensor> const& operator[](Section section) const {
    return section == Section::variables ? variables : section == Section::optimizer ? optimizer : state;
  }
  std::vector<NamedTensor>& operator[](Section section) {
    return const_cast<std::vector<NamedTensor>&>(std::as_const(*this)[section]);
  }
};

inline constexpr auto all_sections = std::array{Section::variables, Section::optimizer, Section::state};

/// Returns the tensors that part i of n writes: whole, consecutive ones, so that all parts are of about equal size.
///
/// keeps   each tensor is in exactly one part, whatever n; a part may be empty
inline std::vector<NamedTensor> part_of(std::vector<NamedTensor> const& tensors, FilePart part) {
  auto all = std::size_t{0}, before = std::size_t{0};
  for (auto const& tensor : tensors) all += tensor.bytes.size() + 1;  // 1: empty ones are dealt out, too
  auto mine        = std::vector<NamedTensor>{};
  auto const range = share(all, static_cast<int>(part.i), static_cast<int>(part.n));
  for (auto const& tensor : tensors) {
    auto const middle = before + tensor.bytes.size() / 2;
    if (middle >= range.begin && middle < range.end) mine.push_back(tensor);
    before += tensor.bytes.size() + 1;
  }
  return mine;
}

/// A copy of a state at one moment: training may continue while it is written. Its memory is reused.
class Snapshot {
 public:
  CheckpointState const& take(CheckpointState const& state) {
    state_   = state;
    auto all = std::size_t{0};
    for (auto const section : all_sections)
      for (auto const& tensor : state[section]) all += tensor.bytes.size();
    if (all > size_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(all);
      size_  = all;
    }
    auto at = std::size_t{0};
    for (auto const section : all_sections)
      for (auto& tensor : state_[section]) {
        auto const copy = Bytes{bytes_.get(), size_}.subspan(at, tensor.bytes.size());
        if (!copy.empty()) std::memcpy(copy.data(), tensor.bytes.data(), copy.size());
        tensor.bytes = copy;
        at += copy.size();
      }
    return state_;
  }

 private:
  CheckpointState state_;
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
};

}  // namespace chorale
