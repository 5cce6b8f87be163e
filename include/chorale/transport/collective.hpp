// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale {

/// How two elements with the same index, of two ranks, are combined.
enum class Op : std::uint8_t { sum, min, max, product };

/// Type of one element of a message. The values are part of the wire format.
enum class Element : std::uint8_t { byte, f32, f64, bf16, f16, i32, i64, u32, u64 };

constexpr std::size_t size_of(Element e) {
  return std::array<std::size_t, 9>{1, 4, 8, 2, 2, 4, 8, 4, 8}[static_cast<std::size_t>(e)];
}

/// Kind of a collective operation. The values are part of the wire format.
enum class Collective : std::uint8_t {
  message,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier
};

constexpr std::string_view name(Op op) {
  return std::array<std::string_view, 4>{"sum", "min", "max", "product"}[static_cast<std::size_t>(op)];
}
constexpr std::string_view name(Element e) {
  return std::array<std::string_view, 9>{"byte",  "float", "double", "bf16",  "fp16",
                                         "int32", "int64", "uint32", "uint64"}[static_cast<std::size_t>(e)];
}
constexpr std::string_view name(Collective c) {
  return std::array<std::string_view, 8>{"message",    "all_reduce", "reduce",     "reduce_scatter",
                                         "all_gather", "broadcast",  "all_to_all", "barrier"}[static_cast<std::size_t>(
      c)];
}

/// Messages and bytes that one rank has sent.
struct Sent {
  int messages      = 0;  // with access in place: times all ranks synchronized
  std::size_t bytes = 0;  // with access in place: moved to or from peers

  friend constexpr bool operator==(Sent const&, Sent const&) = default;
};

}  // namespace chorale
