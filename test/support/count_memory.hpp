// SPDX-License-Identifier: Apache-2.0
//
// Counts the memory that all threads allocate: blocks of devices by their bytes, and calls of operator new outside
// oneDNN, whose products allocate in each call. For one source file of a program, as it replaces these functions.
#pragma once

#include <link.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace chorale::test {

struct Memory {
  std::atomic<std::size_t> block_bytes{0};          // of aligned_alloc, which Cpu::block calls
  std::atomic<long> blocks{0}, ours{0}, onednn{0};  // calls; of operator new: ours and oneDNN's
};
inline Memory memory;

/// The bytes that this thread asks operator new for, call by call, while `on`.
struct Asked {
  std::array<std::size_t, 4096> bytes;
  std::size_t calls = 0;
  bool on           = false;
};
inline thread_local Asked asked{};

/// Bytes that are held by what all threads took from operator new since `on`, and the most that were held at once.
struct Held {
  std::atomic<bool> on{false};
  std::atomic<std::ptrdiff_t> now{0}, most{0};

  void add(void* p) noexcept {
    if (!on) return;
    auto const after = now += static_cast<std::ptrdiff_t>(malloc_usable_size(p));
    for (auto before = most.load(); after > before && !most.compare_exchange_weak(before, after);) continue;
  }
  void remove(void* p) noexcept {
    if (on) now -= static_cast<std::ptrdiff_t>(malloc_usable_size(p));
  }
};
inline Held held;

/// The most bytes that f() held at once, of operator new, beyond what was held before.
template <class F> std::size_t most_held_by(F&& f) {
  struct On {
    On() { held.now = 0, held.most = 0, held.on = true; }
    ~On() { held.on = false; }
  } const counts{};
  f();
  return static_cast<std::size_t>(held.most.load());
}

/// Where oneDNN's code lies.
struct Code {
  std::uintptr_t begin = 0, end = 0;

  static Code of_onednn() {
    auto code = Code{};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          if (std::strstr(info->dlpi_name, "libdnnl") == nullptr) return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            auto const& part = info->dlpi_phdr[i];
            if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
            auto const first        = info->dlpi_addr + part.p_vaddr;
            *static_cast<Code*>(to) = {first, first + part.p_memsz};
          }
          return 1;
        },
        &code);
    return code;
  }
};
inline Code const onednn = Code::of_onednn();

inline void* counted(std::size_t bytes, void* caller) noexcept {
  auto const at = reinterpret_cast<std::uintptr_t>(caller);
  (at >= onednn.begin && at < onednn.end ? memory.onednn : memory.ours).fetch_add(1, std::memory_order_relaxed);
  if (asked.on && asked.calls < asked.bytes.size()) asked.bytes[asked.calls++] = bytes;
  auto* const p = std::malloc(bytes);
  held.add(p);
  return p;
}

}  // namespace chorale::test

extern "C" void* aligned_alloc(std::size_t align, std::size_t bytes) noexcept {
  chorale::test::memory.block_bytes += bytes;
  ++chorale::test::memory.blocks;
  void* p = nullptr;
  return posix_memalign(&p, align, bytes) == 0 ? p : nullptr;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (auto* const p = chorale::test::counted(bytes, __builtin_return_address(0))) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  return chorale::test::counted(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t align) {
  ++chorale::test::memory.ours;
  void* p = nullptr;
  if (posix_memalign(&p, static_cast<std::size_t>(align), bytes) != 0) throw std::bad_alloc{};
  chorale::test::held.add(p);
  return p;
}
// Not inlined, or g++ sees free() of what it takes for another operator new's.
[[gnu::noinline]] void operator delete(void* p) noexcept {
  chorale::test::held.remove(p);
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
