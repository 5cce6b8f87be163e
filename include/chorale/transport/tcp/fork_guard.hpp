// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace chorale::tcp {

/// Removes the sockets of this process from children made by fork(). While a child has a copy of a connection, the
/// kernel does not close it when the parent is killed, and the other end waits for `Timeouts::dead` without need.
///
/// A child that calls exec() loses them by FD_CLOEXEC. In other children, pthread_atfork() replaces them by /dev/null,
/// so that the descriptors stay in use, and nothing that the child does with its copies of endpoints reaches a peer.
///
/// keeps   an entry is a descriptor and the inode of its socket: if the descriptor was closed and is another file at
///         the fork, the child keeps that file. A child of clone(), vfork() or _Fork() is not covered
class ForkGuard {
 public:
  static void add(int socket) {
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);
    struct stat about {};
    if (::fstat(socket, &about) != 0) return;
    auto& all       = instance();
    auto const lock = std::scoped_lock{all.mutex_};
    auto const at   = static_cast<std::size_t>(socket);
    if (all.inodes_.size() <= at) all.inodes_.resize(at + 1);
    all.inodes_[at] = about.st_ino;
  }

 private:
  ForkGuard() {
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] {
                       instance().replace();
                       instance().mutex_.unlock();
                     });
  }

  static ForkGuard& instance() {
    static auto& only = *new ForkGuard{};                                  // a child may be forked while statics end
    return only;
  }

  /// Called in the child, where only async-signal-safe functions are allowed.
  void replace() const {
    auto const none = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (std::size_t at = 0; at < inodes_.size(); ++at) {
      auto const socket = static_cast<int>(at);
      struct stat about {};
      if (inodes_[at] == 0 || ::fstat(socket, &about) != 0) continue;
      if (!S_ISSOCK(about.st_mode) || about.st_ino != inodes_[at]) continue;
      if (none < 0) ::close(socket);
      else ::dup3(none, socket, O_CLOEXEC);
    }
    if (none >= 0) ::close(none);
  }

  std::mutex mutex_;
  std::vector<ino_t> inodes_;                                              // [descriptor]; 0: none
};

}  // namespace chorale::tcp
