// SPDX-License-Identifier: Apache-2.0
//
// What tests of checkpoints share: a folder of their own, files as strings, and a state that can be told from others.
#pragma once

#include "test/support/folder.hpp"

#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/checkpoint/checkpoint_state.hpp>
#include <chorale/checkpoint/reader.hpp>
#include <chorale/core/random.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::test {

/// A folder of the test's, and one in it for checkpoints, which is not there yet.
class OwnFolder {
 public:
  std::filesystem::path const& path() const { return folder_.path; }
  std::filesystem::path run() const { return folder_ / "run"; }

 private:
  Folder folder_;
};

inline void put(std::filesystem::path const& path, std::string const& bytes) {
  std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get(std::filesystem::path const& path) {
  auto file = std::ifstream{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// The names in a folder.
inline std::set<std::string> names_in(std::filesystem::path const& folder) {
  auto names = std::set<std::string>{};
  for (auto const& entry : std::filesystem::directory_iterator{folder}) names.insert(entry.path().filename().string());
  return names;
}

/// A model and its optimizer as they are at a step: every number depends on the step.
struct Training {
  std::map<std::string, std::vector<float>> values;
  std::uint64_t calls;
  CheckpointState state;

  /// n    numbers of the largest tensor
  explicit Training(std::uint64_t step, std::size_t n = 3000) : calls{step * 3} {
    auto const fill = [&](std::vector<NamedTensor>& in, std::string const& name, std::vector<std::uint64_t> shape) {
      auto size = std::size_t{1};
      for (auto const d : shape) size *= d;
      auto& x = values[name];
      x.resize(size);
      for (std::size_t i = 0; i < size; ++i) x[i] = Random{step, values.size()}.uniform(i);
      in.push_back({name, Dtype::f32, std::move(shape), std::as_bytes(Span<float const>{x})});
    };
    state.at = {.step     = step,
                .epoch    = step / 10,
                .batch    = step % 10,
                .seed     = 7,
                .world    = 2,
                .strategy = "MirroredStrategy",
                .plan     = "plan of \"small\""};
    fill(state.variables, "dense/kernel", {n / 10, 10});
    fill(state.variables, "dense/bias", {10});
    fill(state.variables, "empty", {0, 3});
    fill(state.optimizer, "dense/kernel/m", {n / 10, 10});
    fill(state.optimizer, "dense/bias/m", {10});
    state.state.push_back({"calls", Dtype::u64, {}, std::as_bytes(Span<std::uint64_t const>{&calls, 1})});
  }
  Training(Training const&)            = delete;
  Training& operator=(Training const&) = delete;
};

/// Is it what was saved at its step, bit for bit?
inline bool is_whole(Checkpoint const& checkpoint, std::size_t n = 3000) {
  auto const expected = Training{checkpoint.manifest().step, n};
  for (auto const section : all_sections) {
    if (checkpoint[section].size() != expected.state[section].size()) return false;
    for (auto const& tensor : expected.state[section]) {
      auto const* found = checkpoint.find(section, tensor.name);
      if (found == nullptr || found->dtype != tensor.dtype || found->shape != tensor.shape ||
          !std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        return false;
    }
  }
  auto const& at = checkpoint.manifest();
  return at.epoch == at.step / 10 && at.batch == at.step % 10 && at.seed == 7 && at.world == 2 &&
         at.plan == "plan of \"small\"";
}

/// Options that keep what is logged, with small blocks.
struct Logged {
  std::vector<std::string> lines;
  CheckpointOptions options;

  explicit Logged(std::filesystem::path folder) {
    options     = {.folder = std::move(folder), .block = 4096};
    options.log = [this](std::string const& line) { lines.push_back(line); };
  }
  Logged(Logged const&)            = delete;
  Logged& operator=(Logged const&) = delete;

  std::string all() const {
    auto text = std::string{};
    for (auto const& line : lines) text += line + "\n";
    return text;
  }
};

}  // namespace chorale::test
