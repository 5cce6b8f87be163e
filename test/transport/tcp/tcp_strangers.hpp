// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/wire/frame.hpp>
#include <chorale/transport/wire/handshake.hpp>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::test {

/// A socket that is connected to a port of this host, or listens on one.
inline FileDescriptor connected(std::string const& address) {
  auto at            = sockaddr_in{};
  at.sin_family      = AF_INET;
  at.sin_port        = htons(TcpAddress::parse(address).port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int tries = 0; tries < 100'000; ++tries) {  // until somebody listens
    auto socket = FileDescriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (::connect(socket.number(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0) return socket;
    std::this_thread::yield();
  }
  throw Error{"nobody listens on " + address};
}

inline void send_all(FileDescriptor const& socket, ConstBytes bytes) {
  ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}
inline void send_all(FileDescriptor const& socket, std::string const& text) {
  send_all(socket, std::as_bytes(Span<char const>{text}));
}

/// Rank 1 of 2 by hand: it passes the handshake, and then sends what a test wants.
class FakeRank {
 public:
  explicit FakeRank(std::string const& address, wire::Identity identity = {}) {
    identity.rank  = 1;
    identity.world = 2;
    std::ranges::copy(std::as_bytes(Span<char const>{std::string_view{"chorale"}}), identity.job.begin());
    for (std::uint8_t channel = 0; channel < 2; ++channel) {
      identity.channel = channel;
      sockets[channel] = connected(address);
      auto dialer      = wire::Initiator{identity, 0, nullptr};
      while (dialer.state() == wire::Handshake::State::talking) {
        auto const out = dialer.to_send();
        send_all(sockets[channel], out);
        dialer.sent(out.size());
        auto byte = std::byte{};
        if (::recv(sockets[channel].number(), &byte, 1, 0) != 1) return;
        dialer.feed({&byte, 1});
      }
      send_all(sockets[channel], dialer.to_send());
      reason = dialer.reason();
      if (!reason.empty()) return;
      if (channel == 0) send(0, {.type = wire::FrameType::plan, .from = 1, .to = 0});
    }
  }

  void send(std::size_t channel, wire::Header const& head) {
    auto bytes = wire::HeaderBytes{};
    wire::write(head, bytes);
    send_all(sockets[channel], bytes);
  }

  std::array<FileDescriptor, 2> sockets;
  std::string reason;  // of a refusal
};

/// Stands between rank 1 and rank 0, and does something to the bytes of the data connection after the k-th.
class Proxy {
 public:
  enum class Deed { flip, cut };

  Proxy(std::string from, std::string to, Deed deed, std::size_t k)
      : to_{std::move(to)}, deed_{deed}, k_{k}, listens_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    auto at            = sockaddr_in{};
    at.sin_family      = AF_INET;
    at.sin_port        = htons(TcpAddress::parse(from).port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    tcp::set_option(listens_.number(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(listens_.number(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0 ||
        ::listen(listens_.number(), 8) != 0)
      throw Error{"a proxy cannot listen on " + from};
    thread_ = NamedThread{"proxy", [this] { run(); }};
  }
  ~Proxy() { stop_ = true; }

 private:
  struct Pair {
    FileDescriptor dialer, listener;
    std::size_t passed = 0;  // bytes from the dialer
  };

  void run() {
    while (!stop_) {
      auto polled = std::vector<pollfd>{{listens_.number(), POLLIN, 0}};
      for (auto const& pair : pairs_)
        for (int const socket : {pair.dialer.number(), pair.listener.number()}) polled.push_back({socket, POLLIN, 0});
      ::poll(polled.data(), polled.size(), 20);
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        auto& pair = pairs_[i];
        if (!pair.dialer.is_open()) continue;
        auto const up   = polled[1 + 2 * i].revents == 0 || pass(pair.dialer, pair.listener, &pair, i == 1);
        auto const down = polled[2 + 2 * i].revents == 0 || pass(pair.listener, pair.dialer, &pair, false);
        if (!up || !down) pair = {};
      }
      if (polled[0].revents != 0)
        pairs_.push_back({FileDescriptor{::accept(listens_.number(), nullptr, nullptr)}, connected(to_)});
    }
  }

  bool pass(FileDescriptor const& from, FileDescriptor const& to, Pair* pair, bool spoils) {
    auto bytes   = std::array<std::byte, 4096>{};
    auto const n = ::recv(from.number(), bytes.data(), bytes.size(), 0);
    if (n <= 0) return false;
    auto all = Bytes{bytes}.first(static_cast<std::size_t>(n));
    if (spoils) {
      auto const before = std::exchange(pair->passed, pair->passed + all.size());
      if (before <= k_ && k_ < before + all.size()) {
        if (deed_ == Deed::cut) {
          send_all(to, all.first(k_ - before));
          for (auto const* socket : {&from, &to}) {
            auto const at_once = linger{1, 0};  // RST
            ::setsockopt(socket->number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
          }
          return false;
        }
        all[k_ - before] ^= std::byte{4};
      }
    }
    send_all(to, all);
    return true;
  }

  std::string to_;
  Deed deed_;
  std::size_t k_;
  FileDescriptor listens_;
  std::vector<Pair> pairs_;  // the second one is for data
  std::atomic<bool> stop_{false};
  NamedThread thread_;
};

}  // namespace chorale::test
