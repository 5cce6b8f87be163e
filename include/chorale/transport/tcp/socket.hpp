// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
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
    struct stat about{};
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
    static auto& only = *new ForkGuard{};  // a child may be forked while statics end
    return only;
  }

  /// Called in the child, where only async-signal-safe functions are allowed.
  void replace() const {
    auto const none = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (std::size_t at = 0; at < inodes_.size(); ++at) {
      auto const socket = static_cast<int>(at);
      struct stat about{};
      if (inodes_[at] == 0 || ::fstat(socket, &about) != 0) continue;
      if (!S_ISSOCK(about.st_mode) || about.st_ino != inodes_[at]) continue;
      if (none < 0) ::close(socket);
      else ::dup3(none, socket, O_CLOEXEC);
    }
    if (none >= 0) ::close(none);
  }

  std::mutex mutex_;
  std::vector<ino_t> inodes_;  // [descriptor]; 0: none
};

inline std::string errno_text(int error) {
  return error == EMFILE   ? "EMFILE: this process has too many open files"
         : error == ENFILE ? "ENFILE: the system has too many open files"
                           : std::generic_category().message(error);
}

/// throws  OutOfDescriptors for EMFILE and ENFILE, else Error
[[noreturn]] inline void throw_no_socket(int error) {
  if (error == EMFILE || error == ENFILE)
    throw OutOfDescriptors{"cannot open a socket: " + errno_text(error) + ".",
                           "a higher limit (ulimit -n); a rank needs two sockets for each other rank, one where "
                           "TcpTransport::topology has none for data."};
  throw Error{"cannot open a socket: " + errno_text(error) + "."};
}

inline void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof(value));  // best effort: failures are ignored
}

/// Sets the options of a connection between ranks: small messages are sent at once, the kernel detects a dead host, too,
/// and no child process keeps the socket.
///
/// dead    see Timeouts. The kernel reports a dead host later: after 11 s of silence, or if sent bytes are not
///         acknowledged for 10 s or twice `dead`, whichever is longer
/// source  on loopback, pacing by BBR halves the speed, and reno is always allowed; on other links the host's choice
inline void prepare(int socket, bool loopback, std::chrono::nanoseconds dead) {
  auto const unacknowledged = std::max<std::chrono::milliseconds>(
      std::chrono::seconds{10}, std::chrono::duration_cast<std::chrono::milliseconds>(2 * dead));
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);   // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);  // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged.count()));
  ForkGuard::add(socket);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  auto const reno = std::string_view{"reno"};
  if (loopback) ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, reno.data(), static_cast<socklen_t>(reno.size()));
}

}  // namespace chorale::tcp
