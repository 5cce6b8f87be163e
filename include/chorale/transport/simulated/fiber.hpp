// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

// A sanitizer must be notified of every stack switch. Without a sanitizer these are null.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, void const* bottom, std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, void const** bottom, std::size_t* size);
[[gnu::weak]] void __asan_unpoison_memory_region(void const volatile* begin, std::size_t size);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace chorale {
namespace detail {

#if defined(__x86_64__)
using StackPointer = void*;

/// Saves the callee-saved registers on this stack and its top in *from, and resumes the stack *to.
[[gnu::naked, gnu::noinline]] inline void switch_stack(StackPointer* /*from*/, StackPointer* /*to*/) {
  asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq (%rsi), %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

inline void prepare_stack(StackPointer& at, std::byte* bottom, std::size_t size, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(bottom + size) - 4;  // where `ret` leaves a stack as a call does
  top[0]    = reinterpret_cast<void*>(entry);
  std::memset(top - 6, 0, 6 * sizeof(void*));
  at = top - 6;
}
#else
using StackPointer = ucontext_t;

inline void switch_stack(StackPointer* from, StackPointer* to) { swapcontext(from, to); }

inline void prepare_stack(StackPointer& at, std::byte* bottom, std::size_t size, void (*entry)()) {
  getcontext(&at);
  at.uc_stack = {.ss_sp = bottom, .ss_flags = 0, .ss_size = size};
  at.uc_link  = nullptr;
  makecontext(&at, entry, 0);
}
#endif

/// Memory for a stack, above a guard page. A thread keeps some for its next stacks: mapping is slow.
class StackMemory {
 public:
  StackMemory() = default;

  /// throws  Error when there is none
  explicit StackMemory(std::size_t bytes) : size_{(bytes + 2 * page() - 1) / page() * page()} {
    auto& kept = kept_.stacks;
    for (; !kept.empty() && begin_ == nullptr; kept.pop_back()) {
      if (kept.back().size_ == size_) begin_ = std::exchange(kept.back().begin_, nullptr);
    }
    if (begin_ != nullptr) return;
    auto* const p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      throw Error{"no memory for the stack of a fibre, " + std::to_string(size_) + " bytes.",
                  "fewer virtual ranks, or a smaller SimulatedTransport::stack_bytes."};
    begin_ = static_cast<std::byte*>(p);
    mprotect(begin_, page(), PROT_NONE);  // an overflow ends here
  }
  StackMemory(StackMemory&& other) noexcept : begin_{std::exchange(other.begin_, nullptr)}, size_{other.size_} {}
  StackMemory& operator=(StackMemory&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~StackMemory() {
    if (begin_ == nullptr) return;
    if (kept_.open && kept_.stacks.size() < 64) kept_.stacks.push_back(std::move(*this));
    else munmap(begin_, size_);
  }

  bool empty() const { return begin_ == nullptr; }
  std::byte* bottom() const { return begin_ + page(); }
  std::size_t size() const { return size_ - page(); }

 private:
  struct Kept {
    std::vector<StackMemory> stacks;
    bool open;
    Kept() : open{true} {}
    ~Kept() { open = false; }
  };
  static std::size_t page() {
    static auto const bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
  }

  static inline thread_local Kept kept_{};

  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

/// A function that can pause in the middle of any call, on its own stack. Many fibres take turns in one thread.
///
/// keeps   it is resumed by one thread, and does not move while it lives. A fibre may pause while it handles an
///         exception. The function does not throw. A fibre destroyed before its end does not destroy its objects
/// cost    a stack, whose pages are taken when they are touched, above a guard page; 50 ns to resume and pause on
///         x86-64, 1 us elsewhere, by ucontext
/// throws  Error when memory for a stack is missing
class Fiber {
 public:
  Fiber()                        = default;
  Fiber(Fiber const&)            = delete;
  Fiber& operator=(Fiber const&) = delete;
  ~Fiber() { release(); }

  /// body    runs from the first resume() on. The stack of an earlier body is reused
  void start(std::function<void()> body, std::size_t stack_bytes) {
    release();
    body_ = std::move(body);
    over_ = false;
    if (stack_.empty()) stack_ = detail::StackMemory{stack_bytes + most_shift};
    if (__asan_unpoison_memory_region != nullptr)  // poisoned by an earlier fibre
      __asan_unpoison_memory_region(stack_.bottom(), stack_.size());
    auto const shift = reinterpret_cast<std::uintptr_t>(this) / 64 % 31 * 128;  // else all stacks share one cache set
    detail::prepare_stack(inside_, stack_.bottom(), stack_.size() - shift, &Fiber::entry);
    if (__tsan_create_fiber != nullptr) tsan_inside_ = __tsan_create_fiber(0);
  }

  /// Runs the function until it pauses or ends.
  void resume() {
    current_ = this;
    if (__tsan_get_current_fiber != nullptr) tsan_outside_ = __tsan_get_current_fiber();
    exchange_exceptions();
    void* fake = nullptr;
    if (__sanitizer_start_switch_fiber != nullptr)
      __sanitizer_start_switch_fiber(&fake, stack_.bottom(), stack_.size());
    if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(tsan_inside_, 0);
    detail::switch_stack(&outside_, &inside_);
    if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
    exchange_exceptions();
  }

  /// Called by the function: pauses it until the next resume().
  void pause() {
    void* fake = nullptr;
    if (__sanitizer_start_switch_fiber != nullptr)
      __sanitizer_start_switch_fiber(over_ ? nullptr : &fake, outer_bottom_, outer_size_);
    if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(tsan_outside_, 0);
    detail::switch_stack(&inside_, &outside_);
    if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake, &outer_bottom_, &outer_size_);
  }

  bool over() const { return over_; }

  /// A hint that it will be resumed soon.
  void prefetch() const {
#if defined(__x86_64__)
    for (int line = 0; line < 16; ++line) __builtin_prefetch(static_cast<std::byte const*>(inside_) + 64 * line);
#endif
  }

 private:
  static constexpr std::size_t most_shift = 4096;

  void release() {
    if (tsan_inside_ != nullptr) __tsan_destroy_fiber(std::exchange(tsan_inside_, nullptr));
  }

  static void entry() {
    auto& self = *current_;
    if (__sanitizer_finish_switch_fiber != nullptr)
      __sanitizer_finish_switch_fiber(nullptr, &self.outer_bottom_, &self.outer_size_);
    self.body_();
    self.over_ = true;
    self.pause();  // for good
  }

  /// Swaps the thread's exception state with the saved one: exceptions being handled, and the number in flight.
  void exchange_exceptions() {
    auto* const here = abi::__cxa_get_globals();
    auto before      = exceptions_;
    std::memcpy(exceptions_.data(), here, sizeof exceptions_);
    std::memcpy(here, before.data(), sizeof before);
  }

  static inline thread_local Fiber* current_ = nullptr;

  std::function<void()> body_;
  bool over_ = true;
  detail::StackMemory stack_;
  detail::StackPointer inside_{}, outside_{};
  std::array<void*, 2> exceptions_{};
  void const* outer_bottom_ = nullptr;
  std::size_t outer_size_   = 0;
  void* tsan_inside_        = nullptr;
  void* tsan_outside_       = nullptr;
};

}  // namespace chorale
