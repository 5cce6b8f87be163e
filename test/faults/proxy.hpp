// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/socket.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::test {

/// "127.0.0.1:2222" for the system.
inline sockaddr_in address_of(std::string const& text) {
  auto at            = sockaddr_in{};
  at.sin_family      = AF_INET;
  at.sin_port        = htons(TcpAddress::parse(text).port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

/// A connection to a port of this host; tried again until somebody listens.
inline FileDescriptor connect_to(std::string const& address) {
  auto const at = address_of(address);
  for (int tries = 0; tries < 100'000; ++tries) {
    auto socket = FileDescriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (::connect(socket.number(), reinterpret_cast<sockaddr const*>(&at), sizeof(at)) == 0) return socket;
    std::this_thread::yield();
  }
  throw Error{"nobody listens on " + address};
}

inline void send_all(FileDescriptor const& socket, ConstBytes bytes) {
  while (!bytes.empty()) {
    auto const n = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the other end has gone
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// Closes with a reset instead of an end.
inline void reset(FileDescriptor socket) {
  auto const at_once = linger{1, 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

/// Stands between those who call `from` and the rank that listens on `to`.
///
/// passes   called with the number of the connection (0 is control, 1 data), how many bytes came before, and the bytes
///          from the caller, which it may change; how many of them go on. When not all, both ends get a reset
class Proxy {
 public:
  using Passes = std::function<std::size_t(std::size_t, std::size_t, Bytes)>;

  Proxy(std::string const& from, std::string to, Passes passes)
      : to_{std::move(to)}, passes_{std::move(passes)}, listens_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    auto const at = address_of(from);
    tcp::set_option(listens_.number(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(listens_.number(), reinterpret_cast<sockaddr const*>(&at), sizeof(at)) != 0 ||
        ::listen(listens_.number(), 8) != 0)
      throw Error{"a proxy cannot listen on " + from};
    thread_ = NamedThread{"proxy", [this] { run(); }};
  }
  ~Proxy() { stop_ = true; }
  Proxy(Proxy const&)            = delete;
  Proxy& operator=(Proxy const&) = delete;

 private:
  struct Pair {
    FileDescriptor caller, rank;
    std::size_t passed = 0;  // bytes from the caller
  };

  void run() {
    while (!stop_) {
      auto polled = std::vector<pollfd>{{listens_.number(), POLLIN, 0}};
      for (auto const& pair : pairs_)
        for (int const socket : {pair.caller.number(), pair.rank.number()}) polled.push_back({socket, POLLIN, 0});
      ::poll(polled.data(), polled.size(), 20);
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        auto& pair = pairs_[i];
        if (!pair.caller.is_open()) continue;
        auto const up   = polled[1 + 2 * i].revents == 0 || pass_up(i, pair);
        auto const down = !up || polled[2 + 2 * i].revents == 0 || pass_down(pair);
        if (!up || !down) pair = {};
      }
      if (polled[0].revents != 0)
        pairs_.push_back({FileDescriptor{::accept(listens_.number(), nullptr, nullptr)}, connect_to(to_)});
    }
  }

  bool pass_up(std::size_t number, Pair& pair) {
    auto bytes   = std::array<std::byte, 4096>{};
    auto const n = ::recv(pair.caller.number(), bytes.data(), bytes.size(), 0);
    if (n <= 0) return false;
    auto const all  = Bytes{bytes}.first(static_cast<std::size_t>(n));
    auto const some = passes_(number, std::exchange(pair.passed, pair.passed + all.size()), all);
    send_all(pair.rank, all.first(some));
    if (some == all.size()) return true;
    reset(std::move(pair.caller));
    reset(std::move(pair.rank));
    return false;
  }

  static bool pass_down(Pair& pair) {
    auto bytes   = std::array<std::byte, 4096>{};
    auto const n = ::recv(pair.rank.number(), bytes.data(), bytes.size(), 0);
    if (n > 0) send_all(pair.caller, ConstBytes{bytes}.first(static_cast<std::size_t>(n)));
    return n > 0;
  }

  std::string to_;
  Passes passes_;
  FileDescriptor listens_;
  std::vector<Pair> pairs_;
  std::atomic<bool> stop_{false};
  NamedThread thread_;  // last: it uses the above
};

}  // namespace chorale::test
