// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/handshake.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace chorale::tcp {

/// Socket of a connection whose handshake is complete.
struct AuthenticatedSocket {
  asio::ip::tcp::socket socket;
  asio::ip::tcp::endpoint remote;
  std::optional<wire::EndKey> key;  // if both ends have proved a secret
  std::uint8_t minor;               // of the wire version that both ends use
};

/// One end of a handshake over a socket, within a time limit.
///
/// Side    wire::Initiator or wire::Responder
/// keeps   takes no byte from the socket that follows the handshake. Stays alive while it waits; allocates once,
///         whatever the other end sends
template <class Side> class HandshakeSession : public std::enable_shared_from_this<HandshakeSession<Side>> {
 public:
  using Socket = asio::ip::tcp::socket;

  /// broken  empty if the side's state is not talking any more, else why the connection failed. A Responder that refuses
  ///         has not sent the refusal yet: see tell_refusal()
  using Ended = std::function<void(HandshakeSession&, std::string const& broken)>;

  HandshakeSession(Socket socket, Side side, Timeouts const& timeouts, Ended ended)
      : socket_{std::move(socket)}, side_{std::move(side)}, timer_{socket_.get_executor()}, ended_{std::move(ended)} {
    auto ignored = boost::system::error_code{};
    remote_      = socket_.remote_endpoint(ignored);
    prepare(socket_.native_handle(), remote_.address().is_loopback(), timeouts.dead);
    limit_ = timeouts.handshake;
  }

  Side& side() { return side_; }
  Socket& socket() { return socket_; }
  asio::ip::tcp::endpoint const& remote() const { return remote_; }

  void start() {
    timer_.expires_after(limit_);
    timer_.async_wait([self = this->shared_from_this()](auto error) {
      if (!error) self->end(self->lingers_ ? "" : "no answer in time");
    });
    go_on();
  }

  /// Sends the refusal of a Responder, which waits for this call.
  void tell_refusal() { flush(); }

  /// Sends the end of the handshake, after side() has accepted or refused, and returns the socket.
  AuthenticatedSocket finish(wire::End end) {
    flush();
    timer_.cancel();
    ended_   = nullptr;
    auto key = std::optional<wire::EndKey>{};
    if (side_.has_session_key()) key = {side_.session_key(), end};
    return {std::move(socket_), remote_, key, side_.agreed().minor};
  }

  void close() {
    auto ignored = boost::system::error_code{};
    timer_.cancel();
    socket_.close(ignored);
    ended_ = nullptr;
  }

 private:
  void go_on() {
    auto const refused = side_.state() == Side::State::refused;
    if (refused && std::same_as<Side, wire::Responder>) return end({});
    lingers_ = refused && !side_.to_send().empty();
    if (!flush()) return end(errno_text(errno));
    if (lingers_) return linger();
    if (side_.state() != Side::State::talking) return end({});
    socket_.async_wait(Socket::wait_read, [self = this->shared_from_this()](auto error) {
      if (!error) self->read();
      else if (error != asio::error::operation_aborted) self->end(error.message());
    });
  }

  /// Waits until the other end closes the connection that this Initiator has refused: the other end may still ask
  /// whether the two fit (see IdentityProbe), and this process ends soon.
  void linger() {
    socket_.async_wait(Socket::wait_read, [self = this->shared_from_this()](auto error) {
      auto bytes   = std::array<std::byte, wire::Handshake::buffer_bytes>{};
      auto const n = error ? 0 : ::recv(self->socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (error == asio::error::operation_aborted) return;
      if (n > 0 || (n < 0 && errno == EAGAIN)) self->linger();
      else self->end({});
    });
  }

  void read() {
    auto bytes   = std::array<std::byte, wire::Handshake::buffer_bytes>{};
    auto const n = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) return end("it closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return end(errno_text(errno));
    if (n > 0) {
      auto const taken = side_.feed(ConstBytes{bytes}.first(static_cast<std::size_t>(n)));
      ::recv(socket_.native_handle(), bytes.data(), taken, MSG_DONTWAIT);
    }
    go_on();
  }

  // A message has at most 256 bytes, and each is answered before the next: a socket that cannot take one has failed.
  bool flush() {
    auto const bytes = side_.to_send();
    if (bytes.empty()) return true;
    auto const n = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != static_cast<::ssize_t>(bytes.size())) return false;
    side_.sent(bytes.size());
    return true;
  }

  void end(std::string const& broken) {
    if (!ended_) return;
    if (!broken.empty()) timer_.cancel();
    auto const keep  = this->shared_from_this();
    auto const ended = broken.empty() ? ended_ : std::exchange(ended_, nullptr);
    ended(*this, broken);
  }

  Socket socket_;
  Side side_;
  asio::steady_timer timer_;
  Ended ended_;
  std::chrono::nanoseconds limit_{};
  bool lingers_ = false;
  asio::ip::tcp::endpoint remote_;
};

}  // namespace chorale::tcp
