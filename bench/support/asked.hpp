// SPDX-License-Identifier: Apache-2.0
//
// A process that measures whenever it is asked to, because its start takes long.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {

/// Lines go to its standard input, and for each one comes back.
class Asked {
 public:
  /// Waits for a first line, which says that it is ready.
  ///
  /// throws  std::runtime_error when it ends before; what it wrote to standard error says why
  explicit Asked(std::string const& command) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)  // no other child keeps them open
      throw std::runtime_error{"chorale: no pipe for " + command};
    process_ = fork();
    if (process_ == 0) {
      dup2(to[0], 0), dup2(from[1], 1);
      execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      _exit(127);
    }
    close(to[0]), close(from[1]);
    questions_.reset(fdopen(to[1], "w"));
    answers_.reset(fdopen(from[0], "r"));
    if (process_ < 0 || !questions_ || !answers_) throw std::runtime_error{"chorale: cannot start: " + command};
    ready_ = line();
  }
  Asked(Asked const&)            = delete;
  Asked& operator=(Asked const&) = delete;
  ~Asked() { end(); }

  /// What it said first.
  std::string const& ready() const { return ready_; }

  std::string ask(std::string const& question) {
    std::fputs((question + "\n").c_str(), questions_.get());
    std::fflush(questions_.get());
    return line();
  }

 private:
  using File = std::unique_ptr<FILE, int (*)(FILE*)>;

  std::string line() {
    auto text = std::string{};
    for (int c = 0; (c = std::fgetc(answers_.get())) != '\n'; text += static_cast<char>(c)) {
      if (c != EOF) continue;
      end();
      throw std::runtime_error{"chorale: the peer ended" + (text.empty() ? "" : " after: " + text)};
    }
    return text;
  }
  void end() {
    questions_.reset();  // then it has no more lines to read
    if (process_ > 0) waitpid(std::exchange(process_, 0), nullptr, 0);
  }

  pid_t process_ = 0;
  File questions_{nullptr, std::fclose}, answers_{nullptr, std::fclose};
  std::string ready_;
};

}  // namespace bench
