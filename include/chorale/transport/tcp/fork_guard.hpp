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

/// The sockets of this process that a child made by fork() must not keep. While a child holds a copy of a connection,
/// the kernel does not close it when the parent is killed, and the other end waits for `Timeouts::dead` in vain.
///
/// A child that calls exec() loses them by FD_CLOEXEC. In one that does not, pthread_atfork() puts /dev/null in their
/// place, so that the numbers stay taken and what the child does with its copies of endpoints reaches nobody.
///
/// keeps   an entry is a descriptor and the inode of its socket: when the descriptor was closed and is another file by
///         then, the child keeps that. A child of clone(), vfork() or _Fork() is not seen
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

  /// In the child, where only the calls of signal handlers are allowed.
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
