// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/config.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chorale {

template <class T> using Span = std::span<T>;
using Bytes                   = std::span<std::byte>;
using ConstBytes              = std::span<std::byte const>;

/// A participant of a group of communicating peers: 0-based, below the size of the group.
using Rank = int;

/// Distinguishes messages between the same two ranks. Sender and receiver use the same tag.
enum class Tag : std::uint32_t {};

/// The start of every random sequence of a program. The same seed gives the same bits on any number of threads.
struct Seed {
  constexpr Seed(std::uint64_t v = 0) : value{v} {}  // implicit: `create(model, 1)` reads well
  std::uint64_t value;
};

/// Rows that one replica handles in a step.
struct LocalBatch {
  int rows;
};

/// Rows that all replicas together handle in a step. A LocalBatch becomes one only by naming the replicas.
struct GlobalBatch {
  constexpr GlobalBatch(int n) : rows{n} {}  // implicit: `.batch(128)` reads well
  constexpr GlobalBatch(std::same_as<LocalBatch> auto local) : rows{local.rows} {
    static_assert(sizeof(local) == 0,
                  "chorale: a LocalBatch is the rows of one replica, but the rows of all replicas are "
                  "needed here. Write batch * strategy.num_replicas()");
  }
  int rows;
};

constexpr GlobalBatch operator*(LocalBatch local, int replicas) { return GlobalBatch{local.rows * replicas}; }
constexpr GlobalBatch operator*(int replicas, LocalBatch local) { return local * replicas; }

/// The moment at which a wait gives up.
struct Deadline {
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::time_point::max();

  static Deadline after(std::chrono::nanoseconds duration) { return {std::chrono::steady_clock::now() + duration}; }
  static constexpr Deadline never() { return {}; }
  bool passed() const { return at != never().at && std::chrono::steady_clock::now() >= at; }
};

/// A half-open range of rows or elements.
struct Range {
  std::size_t begin = 0, end = 0;

  constexpr std::size_t size() const { return end - begin; }
  friend constexpr bool operator==(Range, Range) = default;
};

/// Part i of n when `total` items are distributed in order, as evenly as possible.
///
/// keeps   the parts are disjoint, in order, cover [0, total), and differ in size by at most one; some may be empty
constexpr Range share(std::size_t total, int i, int n) {
  auto const at = [&](std::size_t k) {  // total · k / n without overflow
    auto const parts = static_cast<std::size_t>(n);
    return total / parts * k + total % parts * k / parts;
  };
  return {at(static_cast<std::size_t>(i)), at(static_cast<std::size_t>(i) + 1)};
}

}  // namespace chorale
