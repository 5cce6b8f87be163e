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

/// The number that the system, top and debuggers know this thread by.
inline long thread_number() {
  thread_local auto const number = ::syscall(SYS_gettid);
  return number;
}

/// thread 4711 (replica 1)
inline std::string thread_text(long number) {
  auto name = std::string{};
  std::getline(std::ifstream{"/proc/self/task/" + std::to_string(number) + "/comm"}, name);
  return "thread " + std::to_string(number) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace detail

/// The right to use an object that is for one thread at a time: the first to ask has it until it lets go.
///
/// cost    to ask and to let go, one atomic operation each
class OneThread {
 public:
  /// The right, while it lives. The same thread may ask again meanwhile.
  class Hold {
   public:
    explicit Hold(std::atomic<long>* owner) : owner_{owner} {}
    Hold(Hold&& other) noexcept : owner_{std::exchange(other.owner_, nullptr)} {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (owner_ != nullptr) owner_->store(nobody, std::memory_order_release);
    }

   private:
    std::atomic<long>* owner_;                                             // null: another Hold of this thread lets go
  };

  /// what     is used, for the error
  ///
  /// throws   BadArgument when another thread has the right: it names both
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
