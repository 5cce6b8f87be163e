// SPDX-License-Identifier: Apache-2.0
//
// Counts every allocation of this program, and tells those that oneDNN makes inside a call from all others.
// To be included by one source file: it replaces operator new and malloc.
#pragma once

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" void* __libc_malloc(std::size_t) noexcept;
extern "C" void __libc_free(void*) noexcept;

namespace bench {

struct Allocations {
  std::atomic<long> ours{0}, onednn{0};
};
inline Allocations allocations;

namespace detail {
inline std::atomic<std::uintptr_t> onednn_begin{0}, onednn_end{0};
}

/// Finds where oneDNN's library lies in memory. Until then all allocations count as ours.
inline void watch_onednn() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        if (std::strstr(info->dlpi_name, "libdnnl") == nullptr) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          auto const& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          detail::onednn_begin = info->dlpi_addr + part.p_vaddr;
          detail::onednn_end   = info->dlpi_addr + part.p_vaddr + part.p_memsz;
        }
        return 1;
      },
      nullptr);
}

inline void* counted(std::size_t bytes, void* caller) noexcept {
  auto const at     = reinterpret_cast<std::uintptr_t>(caller);
  bool const inside = at >= detail::onednn_begin.load(std::memory_order_relaxed) &&
                      at < detail::onednn_end.load(std::memory_order_relaxed);
  (inside ? allocations.onednn : allocations.ours).fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

}  // namespace bench

extern "C" void* malloc(std::size_t bytes) { return bench::counted(bytes, __builtin_return_address(0)); }

void* operator new(std::size_t bytes) {
  auto* const p = bench::counted(bytes, __builtin_return_address(0));
  if (p == nullptr) throw std::bad_alloc{};
  return p;
}
void operator delete(void* p) noexcept { __libc_free(p); }
void operator delete(void* p, std::size_t) noexcept { __libc_free(p); }
