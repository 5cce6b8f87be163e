// SPDX-License-Identifier: Apache-2.0
//
// Counts what each thread allocates with operator new, and the most bytes that it asks for at once. For one source file of a program, as it replaces that operator.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace chorale::test {

/// Calls of operator new in this thread so far.
inline thread_local int allocations                = 0;
/// The most bytes of one call since it was set to 0.
inline thread_local std::size_t largest_allocation = 0;

}  // namespace chorale::test

void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++chorale::test::allocations;
  if (bytes > chorale::test::largest_allocation) chorale::test::largest_allocation = bytes;
  return std::malloc(bytes);
}
void* operator new(std::size_t bytes) {
  if (auto* const p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc{};
}
// Not inlined, or g++ sees free() of what it takes for another operator new's.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
