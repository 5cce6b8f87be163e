// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/transport/tcp/fork_guard.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace chorale::tcp {

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
  ::setsockopt(socket, level, name, &value, sizeof(value));                // best effort: failures are ignored
}

/// Sets the options of a connection between ranks: small messages are sent at once, the kernel detects a dead host, too,
/// and no child process keeps the socket.
///
/// dead    see Timeouts. The kernel reports a dead host later: after 11 s of silence, or if sent bytes are not
///         acknowledged for 10 s or twice `dead`, whichever is longer
/// source  on loopback, pacing by BBR halves the speed, and reno is always allowed; on other links the host's choice
inline void prepare(int socket, bool loopback, std::chrono::nanoseconds dead) {
  auto const unacknowledged =
      std::max<std::chrono::milliseconds>(std::chrono::seconds{10},
                                          std::chrono::duration_cast<std::chrono::milliseconds>(2 * dead));
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);                        // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);                       // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged.count()));
  ForkGuard::add(socket);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  auto const reno = std::string_view{"reno"};
  if (loopback)
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, reno.data(), static_cast<socklen_t>(reno.size()));
}

}  // namespace chorale::tcp
