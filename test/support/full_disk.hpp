// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <stdexcept>

namespace chorale::test {

/// While it lives, no file of this process can grow beyond some bytes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    auto const small = rlimit{bytes, before_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) throw std::runtime_error{"no limit of files"};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);  // so that write() says EFBIG
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(FullDisk const&)            = delete;
  FullDisk& operator=(FullDisk const&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

}  // namespace chorale::test
