// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace chorale::parameter_server {

/// Memory of an endpoint that other ranks read without a copy; empty if there is none.
template <Endpoint E>
Bytes readable(E& at) {
  if constexpr (ReadsInPlace<E>) return at.memory();
  else return {};
}

/// Names the place of gradients in this rank's memory(): 1 + their offset in bytes; 0 if they are not stored there.
template <Endpoint E>
std::uint64_t place_of(E& at, Span<float const> gradients) {
  if constexpr (ReadsInPlace<E>) {
    auto const memory = at.memory();
    auto const bytes  = std::as_bytes(gradients);
    auto const before = std::less<>{};
    if (bytes.empty() || before(bytes.data(), memory.data()) ||
        before(memory.data() + memory.size(), bytes.data() + bytes.size()))
      return 0;
    return 1 + static_cast<std::uint64_t>(bytes.data() - memory.data());
  } else {
    return 0;
  }
}

/// The gradients that a request names by their place: the flat buffer, or rows. Empty if they are not in that memory.
template <Endpoint E>
Span<float const> in_place(E& at, Rank worker, Request const& r, ShardLayout const& shards) {
  if constexpr (ReadsInPlace<E>) {
    auto const memory = at.memory_of(worker);
    auto const first  = r.place - 1;
    auto const floats = of_rows(r.call) ? r.count * r.table.width : shards.extent();
    if (first % sizeof(float) != 0 || first > memory.size() || floats > (memory.size() - first) / sizeof(float))
      return {};
    return {reinterpret_cast<float const*>(memory.data() + first), floats};
  } else {
    return {};
  }
}

}  // namespace chorale::parameter_server
