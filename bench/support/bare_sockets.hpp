// SPDX-License-Identifier: Apache-2.0
//
// The least that an all-reduce over loopback TCP can be: a ring, or an exchange of whole vectors, without frames,
// checks or limits of time.
#pragma once

#include "ranks.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace bench {

inline void expect(bool done) {
  if (!done) throw std::runtime_error{std::string{"chorale: sockets by hand: "} + std::strerror(errno)};
}

/// A connection between every two ranks, made before they are forked.
class BareMesh {
 public:
  explicit BareMesh(int ranks) : ranks_{static_cast<std::size_t>(ranks)}, sockets_(ranks_ * ranks_, -1) {
    auto const listener     = socket(AF_INET, SOCK_STREAM, 0);
    auto address            = sockaddr_in{};
    auto size               = socklen_t{sizeof address};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    for (std::size_t a = 0; a < ranks_; ++a)
      for (std::size_t b = 0; b < a; ++b) {
        auto const one = socket(AF_INET, SOCK_STREAM, 0);
        expect(connect(one, reinterpret_cast<sockaddr*>(&address), size) == 0);
        sockets_[a * ranks_ + b] = tuned(one);
        sockets_[b * ranks_ + a] = tuned(accept(listener, nullptr, nullptr));
      }
    close(listener);
  }

  int between(int me, int peer) const {
    return sockets_[static_cast<std::size_t>(me) * ranks_ + static_cast<std::size_t>(peer)];
  }

 private:
  static int tuned(int s) {
    int const on        = 1;
    char const method[] = "reno";  // twice as fast as BBR on loopback
    expect(s >= 0 && setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
           setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, method, sizeof method - 1) == 0 &&
           fcntl(s, F_SETFL, O_NONBLOCK) == 0);
    return s;
  }

  std::size_t ranks_;
  std::vector<int> sockets_;  // [me][peer]
};

/// One rank of it.
class BareSockets {
 public:
  enum class How { ring, exchange };

  BareSockets(BareMesh const& mesh, How how, int rank, int ranks, chorale::Span<float> x)
      : mesh_{&mesh}, how_{how}, rank_{rank}, ranks_{ranks}, crowded_{ranks > cores()}, x_{x},
        arrived_(how == How::ring ? x.size() / static_cast<std::size_t>(ranks) + 1 : x.size()) {}

  void operator()() {
    if (how_ == How::ring) ring();
    else exchange();
  }

 private:
  /// Steps of P/2 pairs; the whole vector in each.
  void exchange() {
    for (int far = 1; far < ranks_; far *= 2) {
      auto const peer = mesh_->between(rank_, rank_ ^ far);
      transfer(peer, x_, peer, arrived_, [](std::size_t, std::size_t) {});
      auto* __restrict x          = x_.data();
      auto const* __restrict more = arrived_.data();
      for (std::size_t i = 0; i < x_.size(); ++i) x[i] += more[i];
    }
  }

  void ring() {
    auto const to   = mesh_->between(rank_, (rank_ + 1) % ranks_);
    auto const from = mesh_->between(rank_, (rank_ + ranks_ - 1) % ranks_);
    for (int step = 0; step < 2 * (ranks_ - 1); ++step) {
      auto const out = chunk(rank_ - step), mine = chunk(rank_ - step - 1);
      if (step >= ranks_ - 1) {
        transfer(to, out, from, mine, [](std::size_t, std::size_t) {});
        continue;
      }
      auto const in = chorale::Span<float>{arrived_}.first(mine.size());
      transfer(to, out, from, in, [&](std::size_t begin, std::size_t end) {
        auto* __restrict x          = mine.data();
        auto const* __restrict more = in.data();
        for (auto i = begin; i < end; ++i) x[i] += more[i];  // while it is in the cache
      });
    }
  }

  chorale::Span<float> chunk(int i) const {
    auto const part = chorale::share(x_.size(), (i + 2 * ranks_) % ranks_, ranks_);
    return x_.subspan(part.begin, part.size());
  }

  /// Sends and receives at once; came(begin, end) tells which floats have arrived since the last time.
  template <class Came>
  void transfer(int to, chorale::Span<float const> out, int from, chorale::Span<float> in, Came came) {
    constexpr std::size_t most = 256 << 10;  // bytes a call: they stay in the cache
    auto sent = std::size_t{0}, got = std::size_t{0}, told = std::size_t{0};
    auto const bytes_out = std::as_bytes(out);
    auto const bytes_in  = std::as_writable_bytes(in);
    for (int idle = 0; sent < bytes_out.size() || got < bytes_in.size(); ++idle) {
      if (auto const n = std::min(most, bytes_out.size() - sent); n != 0)
        idle = moved(send(to, bytes_out.data() + sent, n, MSG_NOSIGNAL), sent, idle);
      if (auto const n = std::min(most, bytes_in.size() - got); n != 0) {
        idle = moved(recv(from, bytes_in.data() + got, n, 0), got, idle);
        came(std::exchange(told, got / sizeof(float)), got / sizeof(float));
      }
      if (crowded_ && idle > 2) sched_yield();
    }
  }

  static int moved(ssize_t n, std::size_t& total, int idle) {
    expect(n > 0 || (n < 0 && errno == EAGAIN));
    if (n < 0) return idle;
    total += static_cast<std::size_t>(n);
    return 0;
  }

  BareMesh const* mesh_;
  How how_;
  int rank_, ranks_;
  bool crowded_;
  chorale::Span<float> x_;
  std::vector<float> arrived_;
};

inline double bare_sockets(BareSockets::How how, int ranks, std::size_t bytes) {
  auto const mesh = BareMesh{ranks};
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    auto x = std::vector<float>(bytes / sizeof(float));
    return times_of(rank, ranks, x, BareSockets{mesh, how, rank, ranks, x});
  });
}

}  // namespace bench
