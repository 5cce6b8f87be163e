// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/socket.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chorale {

/// Option of a transport whose ranks accept connections from other hosts without a secret.
struct AllowInsecureNetwork {};

/// Address on which a rank listens.
struct TcpAddress {
  std::string host;        // a name, or an IP address without brackets
  std::uint16_t port = 0;  // 0: any free port, for ranks of this process

  /// Parses a text such as "node3:2222", "10.0.0.7:2222" or "[::1]:2222".
  ///
  /// throws  BadArgument
  static TcpAddress parse(std::string_view text) {
    auto const colon = text.rfind(':');
    auto host        = text.substr(0, std::min(colon, text.size()));
    auto const port  = colon == text.npos ? std::string_view{} : text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    else if (host.find_first_of("[]:") != host.npos) host = {};  // unclear which colon starts the port
    auto number           = std::uint16_t{0};
    auto const [end, bad] = std::from_chars(port.data(), port.data() + port.size(), number);
    CHORALE_EXPECTS(!host.empty() && !port.empty() && bad == std::errc{} && end == port.data() + port.size(),
                    "\"" + std::string{text} +
                        "\" is not an address: it needs a host and a port up to 65535, such as "
                        "\"10.0.0.7:2222\" or \"[::1]:2222\"");
    return {std::string{host}, number};
  }

  std::string text() const {
    return (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + std::to_string(port);
  }

  friend bool operator==(TcpAddress const&, TcpAddress const&) = default;
};

namespace detail {

inline std::string text(asio::ip::tcp::endpoint const& at) {
  return TcpAddress{at.address().to_string(), at.port()}.text();
}

/// throws  BadArgument when other hosts can reach the address, without a secret or `insecure_network`
inline void expect_safe(asio::ip::address const& listens, bool has_secret, bool insecure_network) {
  CHORALE_EXPECTS(
      has_secret || insecure_network || listens.is_loopback(),
      "a rank that listens on " + listens.to_string() +
          " can be reached from other hosts, but there is no "
          "secret to tell a rank from a stranger. Give all ranks one .secret of at least 16 bytes, or, in a "
          "network where nobody else is, write .insecure_network = AllowInsecureNetwork{}");
}

}  // namespace detail

/// Returns n different loopback addresses whose ports were free a moment ago, for ranks that are processes.
///
/// keeps   no port is reserved: another program may take one before a rank does. Ranks of one process can use port 0
///         instead
inline std::vector<std::string> free_loopback_addresses(int n) {
  auto sockets   = std::vector<int>{};
  auto addresses = std::vector<std::string>{};
  for (int i = 0; i < n; ++i) {
    auto address            = sockaddr_in{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto size               = static_cast<socklen_t>(sizeof(address));
    auto* const any         = reinterpret_cast<sockaddr*>(&address);
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (sockets.back() < 0 || ::bind(sockets.back(), any, size) != 0 || ::getsockname(sockets.back(), any, &size) != 0)
      break;
    addresses.push_back("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  }
  auto const error = errno;
  for (int const socket : sockets)  // only now, so that no two are the same
    if (socket >= 0) ::close(socket);
  if (addresses.size() != static_cast<std::size_t>(n)) { tcp::throw_no_socket(error); }
  return addresses;
}

}  // namespace chorale
