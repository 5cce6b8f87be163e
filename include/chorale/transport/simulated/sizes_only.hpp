// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace chorale {

/// Element of four bytes that are never read or written: an algorithm sends the same messages as for float, and its
/// loops over elements vanish. With SimulatedPayload::sizes, time and memory do not depend on the size of a model.
///
///   template <> inline constexpr Element chorale::element_of<NoData> = Element::f32;   // where it is reduced
class NoData {
 public:
  NoData() = default;
  explicit constexpr NoData(float) {}
  constexpr NoData(NoData const&) {}
  constexpr NoData& operator=(NoData const&) { return *this; }

  friend constexpr NoData operator+(NoData const& a, NoData const&) { return a; }
  friend constexpr NoData operator*(NoData const& a, NoData const&) { return a; }
  friend constexpr bool operator<(NoData const&, NoData const&) { return false; }
  friend constexpr bool operator>(NoData const&, NoData const&) { return false; }
  friend constexpr bool operator!=(NoData const&, NoData const&) { return false; }

 private:
  [[maybe_unused]] std::array<std::byte, 4> nothing_;
};

/// Range of addresses without memory, which all ranks of a simulation may share.
///
/// throws  Error when there are not as many addresses
class UnmappedMemory {
 public:
  explicit UnmappedMemory(std::size_t elements) : bytes_{(elements + 1) * sizeof(NoData)}, size_{elements} {
    begin_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin_ == MAP_FAILED) throw Error{"no room for " + std::to_string(bytes_) + " bytes of addresses."};
  }
  UnmappedMemory(UnmappedMemory const&)            = delete;
  UnmappedMemory& operator=(UnmappedMemory const&) = delete;
  ~UnmappedMemory() { munmap(begin_, bytes_); }

  Span<NoData> span() const { return {static_cast<NoData*>(begin_), size_}; }

 private:
  std::size_t bytes_, size_;
  void* begin_;
};

}  // namespace chorale
