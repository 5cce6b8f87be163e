// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

/// What make_cnn.py starts from, to the bit: the batch and the initial variables behind cnn.safetensors.
namespace chorale::golden {

inline constexpr std::size_t rows = 16;

/// In [0, 1), a multiple of 2^-24.
constexpr float value(std::uint32_t i, std::uint32_t salt) {
  return static_cast<float>((i * std::uint32_t{2654435761} + salt) >> 8) * 0x1p-24F;
}

/// In [0, 1), a multiple of 2^-24: MurmurHash3's last step, of each index. For large matrices, in which `value` has a
/// pattern.
constexpr float mixed(std::uint32_t i, std::uint32_t salt) {
  i = i * std::uint32_t{0x9E3779B9} + salt;
  i = (i ^ (i >> 16)) * std::uint32_t{0x85EBCA6B};
  i = (i ^ (i >> 13)) * std::uint32_t{0xC2B2AE35};
  return static_cast<float>((i ^ (i >> 16)) >> 8) * 0x1p-24F;
}

struct Variable {
  std::string_view name;
  std::size_t size;  // elements
  std::uint32_t salt;
  float scale;  // a power of two: scaling does not round
};

inline constexpr auto variables = std::array{
    Variable{"conv2d/kernel", 3 * 3 * 1 * 32, 0x2545F491, 0x1p-2F},  // (KH, KW, Cin, Cout)
    Variable{"conv2d/bias", 32, 0x4F6CDD1D, 0x1p-3F},
    Variable{"dense/kernel", 5408 * 64, 0x7F4A7C15, 0x1p-4F},  // (In, Units), In in (H, W, C) order
    Variable{"dense/bias", 64, 0x1CE4E5B9, 0x1p-3F},
    Variable{"dense_1/kernel", 64 * 10, 0x133111EB, 0x1p-1F},  // (In, Units)
    Variable{"dense_1/bias", 10, 0x5851F42D, 0x1p-3F},
};

inline std::vector<float> initial(Variable const& variable) {
  auto values = std::vector<float>(variable.size);
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = (value(i, variable.salt) - 0.5F) * variable.scale;
  return values;
}

/// (16, 28, 28, 1)
inline std::vector<float> images() {
  auto values = std::vector<float>(rows * 28 * 28);
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = value(i, 0);
  return values;
}

/// (16)
inline std::vector<int> labels() {
  auto values = std::vector<int>(rows);
  for (std::size_t i = 0; i < rows; ++i) values[i] = static_cast<int>(i * 7 % 10);
  return values;
}

}  // namespace chorale::golden
