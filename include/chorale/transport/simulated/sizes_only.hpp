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

/// Four bytes that are never read nor written: an algorithm over these sends the messages that it sends for float, and
/// its loops over elements vanish. With SimulatedPayload::sizes, time and memory do not depend on the size of a model.
///
///   template <> inline constexpr Element chorale::element_of<Weightless> = Element::f32;   // where it is reduced
class Weightless {
 public:
  Weightless() = default;
  explicit constexpr Weightless(float) {}
  constexpr Weightless(Weightless const&) {}
  constexpr Weightless& operator=(Weightless const&) { return *this; }

  friend constexpr Weightless operator+(Weightless const& a, Weightless const&) { return a; }
  friend constexpr Weightless operator*(Weightless const& a, Weightless const&) { return a; }
  friend constexpr bool operator<(Weightless const&, Weightless const&) { return false; }
  friend constexpr bool operator>(Weightless const&, Weightless const&) { return false; }
  friend constexpr bool operator!=(Weightless const&, Weightless const&) { return false; }

 private:
  [[maybe_unused]] std::array<std::byte, 4> nothing_;
};

/// Addresses without memory behind them, which all ranks of a simulation may share.
///
/// throws  Error when there are not as many addresses
class Nowhere {
 public:
  explicit Nowhere(std::size_t elements) : bytes_{(elements + 1) * sizeof(Weightless)}, size_{elements} {
    begin_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin_ == MAP_FAILED) throw Error{"no room for " + std::to_string(bytes_) + " bytes of addresses."};
  }
  Nowhere(Nowhere const&)            = delete;
  Nowhere& operator=(Nowhere const&) = delete;
  ~Nowhere() { munmap(begin_, bytes_); }

  Span<Weightless> span() const { return {static_cast<Weightless*>(begin_), size_}; }

 private:
  std::size_t bytes_, size_;
  void* begin_;
};

}  // namespace chorale
