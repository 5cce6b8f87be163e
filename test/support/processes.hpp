// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test {

/// Says something to the parent of a process: one line. Never more than a pipe holds.
class Voice {
 public:
  explicit Voice(int pipe) : pipe_{pipe} {}

  void say(std::string line) const {
    for (auto& c : line) c = c == '\n' ? ' ' : c;
    line += '\n';
    if (::write(pipe_, line.data(), line.size()) != static_cast<::ssize_t>(line.size())) ::_exit(70);
  }

 private:
  int pipe_;
};

/// Ranks that are processes, which a test may stop and kill.
///
/// keeps   each ends after `seconds` at the latest, and with its parent; so a test that hangs fails. To be made while
///         the parent has one thread
class Processes {
 public:
  /// body(rank, voice) is what each does. What it throws becomes its last line; exit_code() then is its exit code.
  template <class Body> Processes(int n, Body body, unsigned seconds = 120) {
    for (int rank = 0; rank < n; ++rank) {
      int ends[2];
      if (::pipe(ends) != 0) throw Error{"no pipe for a test's process"};
      auto const pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        live(rank, body, Voice{ends[1]}, seconds);
      }
      ::close(ends[1]);
      children_.push_back({pid, ends[0], {}});
    }
  }

  ~Processes() {
    for (auto const& child : children_) {
      if (child.pid > 0) {
        ::kill(child.pid, SIGKILL);
        ::waitpid(child.pid, nullptr, 0);
      }
      ::close(child.pipe);
    }
  }
  Processes(Processes const&)            = delete;
  Processes& operator=(Processes const&) = delete;

  void send(int rank, int signal) { ::kill(of(rank).pid, signal); }

  /// The next line that this process said; empty when it ends without one.
  std::string line(int rank) {
    auto& child = of(rank);
    auto end    = child.text.find('\n');
    while (end == std::string::npos) {
      char bytes[4096];
      auto const n = ::read(child.pipe, bytes, sizeof(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return {};
      child.text.append(bytes, static_cast<std::size_t>(n));
      end = child.text.find('\n');
    }
    auto line = child.text.substr(0, end);
    child.text.erase(0, end + 1);
    return line;
  }

  /// Reads what this process says up to that line.
  ///
  /// throws  Error when the process ends without it, with what it said last
  void expect(int rank, std::string const& what) {
    auto last = std::string{};
    for (auto next = line(rank); next != what; next = line(rank)) {
      if (next.empty()) throw Error{"process " + std::to_string(rank) + " ended without \"" + what + "\": " + last};
      last = next;
    }
  }

  /// Waits for its end: the exit code, or 128 and the signal that ended it.
  int exit(int rank) {
    auto& child = of(rank);
    int status  = 0;
    ::waitpid(std::exchange(child.pid, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  struct Child {
    ::pid_t pid;
    int pipe;
    std::string text;  // read, and not yet a line() of a test
  };

  Child& of(int rank) { return children_[static_cast<std::size_t>(rank)]; }

  template <class Body> [[noreturn]] static void live(int rank, Body& body, Voice voice, unsigned seconds) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(seconds);
    try {
      body(rank, voice);
    } catch (std::exception const& error) {
      voice.say(error.what());
      ::_exit(exit_code(error));
    }
    ::_exit(0);
  }

  std::vector<Child> children_;
};

/// On the one clock that all processes of a host have.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace chorale::test
