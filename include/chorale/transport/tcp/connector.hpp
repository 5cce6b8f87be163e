// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/handshake_session.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/wire/handshake.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace chorale::tcp {

/// Connects to another rank, and retries until it accepts, or refuses because the two do not fit.
///
/// keeps   after each failure it waits twice as long, from 10 ms to 1 s; names are resolved again each time
class Connector {
 public:
  using Socket = asio::ip::tcp::socket;

  struct Host {
    wire::Identity identity;  // with the channel to connect
    Rank peer;
    TcpAddress address;
    std::optional<Secret> secret;
    Timeouts timeouts;
    std::function<void(wire::Identity const&, AuthenticatedSocket)> admit;
    std::function<void(wire::Refusal const&)> refused;
    std::function<void(int)> starved;  // no descriptors left; with the errno
    std::function<void()> failed{};    // if set, there is one attempt and no retry
  };

  Connector(asio::io_context& io, Host host)
      : host_{std::move(host)}, io_{io}, resolver_{io}, socket_{io}, timer_{io} {}

  /// Why the last attempt failed; empty before the first failure.
  std::string const& problem() const { return problem_; }

  void start() {
    stop();
    resolver_.async_resolve(host_.address.host, std::to_string(host_.address.port),
                            [this, call = calls_](auto error, auto found) {
                              if (call != calls_) return;
                              if (error || found.empty()) return retry(error.message());
                              connect(found.begin()->endpoint());
                            });
  }

  void stop() {
    ++calls_;
    auto ignored = boost::system::error_code{};
    resolver_.cancel();
    timer_.cancel();
    socket_.close(ignored);
    if (call_) call_->close();
    call_ = nullptr;
  }

 private:
  using Call = HandshakeSession<wire::Initiator>;

  void connect(asio::ip::tcp::endpoint const& at) {
    auto error = boost::system::error_code{};
    socket_    = Socket{io_};
    if (socket_.open(at.protocol(), error)) return fail(error);
    ForkGuard::add(socket_.native_handle());
    timer_.expires_after(host_.timeouts.handshake);  // some networks never answer
    timer_.async_wait([this, call = calls_](auto stopped) {
      auto ignored = boost::system::error_code{};
      if (!stopped && call == calls_) socket_.close(ignored);
    });
    socket_.async_connect(at, [this, call = calls_](auto failed) {
      if (call != calls_) return;
      timer_.cancel();
      if (failed) return fail(failed);
      greet();
    });
  }

  void greet() {
    auto const* secret = host_.secret ? &*host_.secret : nullptr;
    call_ =
        std::make_shared<Call>(std::move(socket_), wire::Initiator{host_.identity, host_.peer, secret}, host_.timeouts,
                               [this](Call& call, std::string const& broken) { on_change(call, broken); });
    socket_ = Socket{io_};
    call_->start();
  }

  void on_change(Call& call, std::string const& broken) {
    auto const kept = std::exchange(call_, nullptr);
    if (!broken.empty()) {
      call.close();
      return retry(broken);
    }
    if (call.side().state() == wire::Handshake::State::accepted) {
      auto peer    = call.side().peer();
      peer.channel = host_.identity.channel;  // the listener's identity has no channel
      host_.admit(peer, call.finish(wire::End::dialer));
    } else {
      auto const refusal = wire::Refusal{call.side().fault(), call.side().reason()};
      call.close();
      if (refusal.fault == Fault::join_timeout) retry(refusal.reason);  // it is still of an older incarnation
      else host_.refused(refusal);
    }
  }

  void fail(boost::system::error_code const& error) {
    if (error.value() == EMFILE || error.value() == ENFILE) return host_.starved(error.value());
    retry(error == asio::error::operation_aborted ? std::string{"no answer"} : error.message());
  }

  void retry(std::string problem) {
    problem_ = std::move(problem);
    if (host_.failed) return host_.failed();
    timer_.expires_after(pause_);
    timer_.async_wait([this, call = calls_](auto stopped) {
      if (!stopped && call == calls_) start();
    });
    pause_ = std::min<std::chrono::milliseconds>(2 * pause_, std::chrono::seconds{1});
  }

  Host host_;
  asio::io_context& io_;
  asio::ip::tcp::resolver resolver_;
  Socket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Call> call_;
  std::chrono::milliseconds pause_{10};
  int calls_ = 0;  // completions of earlier calls are ignored
  std::string problem_;
};

}  // namespace chorale::tcp
