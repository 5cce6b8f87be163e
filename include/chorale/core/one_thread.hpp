// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <utility>

namespace chorale {

namespace detail {

/// Number of this thread as the system, top and debuggers show it.
inline long thread_number() {
  thread_local auto const number = ::syscall(SYS_gettid);
  return number;
}

/// Number and name of a thread for a sentence: "thread 4711 (replica 1)".
inline std::string thread_text(long number) {
  auto name = std::string{};
  std::getline(std::ifstream{"/proc/self/task/" + std::to_string(number) + "/comm"}, name);
  return "thread " + std::to_string(number) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace detail

/// The right to use an object that is for one thread at a time: the first thread to ask holds it until it releases it.
///
/// cost    to acquire and to release, one atomic operation each
class OneThread {
 public:
  /// Holds the right while it lives. The same thread may ask again meanwhile.
  class Hold {
   public:
    explicit Hold(std::atomic<long>* owner) : owner_{owner} {}
    Hold(Hold&& other) noexcept : owner_{std::exchange(other.owner_, nullptr)} {}
    Hold& operator=(Hold&&) = delete;
    bool is_first() const { return owner_ != nullptr; }  // false: this thread held it already
    ~Hold() {
      if (owner_ != nullptr) owner_->store(nobody, std::memory_order_release);
    }

   private:
    std::atomic<long>* owner_;  // null: another Hold of this thread owns it
  };

  /// Acquires the right for the calling thread.
  ///
  /// what     name of the object, for the error
  /// throws   BadArgument when another thread holds the right: the error names both threads
  [[nodiscard]] Hold hold(char const* what) {
    auto owner    = nobody;
    auto const me = detail::thread_number();
    if (owner_.compare_exchange_strong(owner, me, std::memory_order_acquire)) return Hold{&owner_};
    if (owner != me)
      throw BadArgument{std::string{what} + " is used by " + detail::thread_text(owner) + ", and " +
                            detail::thread_text(me) + " called it meanwhile; it is for one thread at a time.",
                        "a mutex around the calls, or a Trainer or Live for each thread."};
    return Hold{nullptr};
  }

 private:
  static constexpr long nobody = 0;

  std::atomic<long> owner_{nobody};
};

}  // namespace chorale
