// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace chorale {

// clang-format off
/// The element types of a safetensors file, in the order in which a file sorts them.
enum class Dtype : std::uint8_t {
  boolean, f4, f6_e2m3, f6_e3m2, u8, i8, f8_e5m2, f8_e4m3, f8_e8m0, f8_e4m3fnuz, f8_e5m2fnuz,
  i16, u16, f16, bf16, i32, u32, f32, c64, f64, i64, u64
};
// clang-format on

namespace detail {

struct DtypeRow {
  std::string_view name;
  unsigned bits;
};

inline constexpr auto dtype_rows = std::array<DtypeRow, 22>{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

}  // namespace detail

/// Name of a type in a file: "F32".
constexpr std::string_view name_of(Dtype dtype) { return detail::dtype_rows[static_cast<std::size_t>(dtype)].name; }

constexpr unsigned bits_of(Dtype dtype) { return detail::dtype_rows[static_cast<std::size_t>(dtype)].bits; }

constexpr std::optional<Dtype> dtype_named(std::string_view name) {
  auto const& rows = detail::dtype_rows;
  auto const row   = std::find_if(rows.begin(), rows.end(), [&](auto const& r) { return r.name == name; });
  if (row == rows.end()) return std::nullopt;
  return static_cast<Dtype>(row - rows.begin());
}

/// Bytes of a tensor, or nothing when they are more than 64 bits can count or do not end on a whole byte.
inline std::optional<std::uint64_t> bytes_of(Dtype dtype, std::vector<std::uint64_t> const& shape) {
  auto bits = std::uint64_t{1};
  for (auto const dimension : shape)
    if (__builtin_mul_overflow(bits, dimension, &bits)) return std::nullopt;
  if (__builtin_mul_overflow(bits, std::uint64_t{bits_of(dtype)}, &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

}  // namespace chorale
