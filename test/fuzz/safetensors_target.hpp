// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/checkpoint/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace chorale::test {

inline SafetensorsFile safetensors_of(ConstBytes in) {
  return SafetensorsFile::of(MappedFile::copied(in.size(), [&](Bytes to) { std::ranges::copy(in, to.begin()); }), "f");
}

inline std::vector<std::byte> bytes_of_image(SafetensorsFile const& file) {
  auto all = std::vector<std::byte>{};
  SafetensorsImage{file.tensors(), file.metadata()}.write_to(
      [&](ConstBytes bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

/// Any bytes as a safetensors file. What is one has its tensors inside of it, each byte once; and it is the same one
/// when it is written and read again, where our own limits let it be written.
inline void fuzz_safetensors_file(ConstBytes in) {
  try {
    auto const file = safetensors_of(in);
    auto total      = std::size_t{0};
    for (auto const& tensor : file.tensors()) {
      must(bytes_of(tensor.dtype, tensor.shape) == tensor.bytes.size(), "the shape is not that of the bytes");
      must(file.find(tensor.name) == &tensor, "a tensor that is not found");
      total += tensor.bytes.size();
    }
    auto length = std::uint64_t{0};
    std::memcpy(&length, in.data(), sizeof(length));
    must(total + 8 + length == in.size(), "bytes that belong to no tensor, or to two");
    auto const written = bytes_of_image(file);
    auto const again   = safetensors_of(written);
    must(again.metadata() == file.metadata() && again.tensors().size() == file.tensors().size(), "it is not the same");
    for (auto const& tensor : file.tensors()) {
      auto const& other = again.at(tensor.name);
      must(other.dtype == tensor.dtype && other.shape == tensor.shape && std::ranges::equal(other.bytes, tensor.bytes),
           "a tensor is not the same after it was written");
    }
    must(bytes_of_image(again) == written, "the same tensors are written in two ways");
  } catch (BadFile const&) {
  } catch (BadArgument const&) {  // a name that may be read but is not written
  }
}

/// Any bytes: as they are; and as a header with the right length in front, and some data behind it.
inline void fuzz_safetensors(ConstBytes in) {
  fuzz_safetensors_file(in);
  auto const behind = in.empty() ? 0 : std::min<std::size_t>(std::to_integer<std::size_t>(in[0]), in.size() - 1);
  auto const header = in.subspan(in.empty() ? 0 : 1);
  auto const length = std::uint64_t{header.size()};
  auto bytes        = std::vector<std::byte>(8);
  std::memcpy(bytes.data(), &length, 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + behind);
  fuzz_safetensors_file(bytes);
}

}  // namespace chorale::test
