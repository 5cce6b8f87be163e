// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/handshake_session.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/wire/handshake.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace chorale::tcp {

/// Limits a log to one line per source and 10 s.
class LogLimiter {
 public:
  bool allows(std::string const& source) {
    auto const now = std::chrono::steady_clock::now();
    if (last_.size() >= most) last_.clear();
    auto const [entry, fresh] = last_.try_emplace(source, now);
    if (!fresh && now - entry->second < std::chrono::seconds{10}) return false;
    entry->second = now;
    return true;
  }

 private:
  static constexpr std::size_t most = 256;  // sources; then all are forgotten

  std::map<std::string, std::chrono::steady_clock::time_point> last_;
};

/// Patience with a name server that does not know the name of a rank's own host yet, as when a pod has just started.
struct NamePatience {
  static constexpr auto longest = std::chrono::seconds{60};  // twice as long as CoreDNS keeps a "no"

  std::chrono::nanoseconds most{};  // 0: a name that is not known is an error
  std::function<void(std::string const&)> log{};

  static NamePatience within(std::chrono::nanoseconds join, std::function<void(std::string const&)> log) {
    return {std::min<std::chrono::nanoseconds>(join, longest), std::move(log)};
  }
};

/// Listening socket of a rank, and its guests: connections whose handshake is not complete.
///
/// keeps   at most 64 guests: then the oldest is closed. It never waits for a guest, and the bytes of a guest change
///         only its own state, before it has proved that it is of the job
class Listener {
 public:
  using Socket   = asio::ip::tcp::socket;
  using Endpoint = asio::ip::tcp::endpoint;

  struct Host {
    wire::Identity identity;
    std::optional<Secret> secret;
    Timeouts timeouts;
    std::function<std::optional<wire::Refusal>(wire::Identity const&, Endpoint const&)> judge;
    std::function<void(Rank, std::function<void()>)> doubt{};  // see IdentityProbe::ask(); empty: no rank is asked
    std::function<void(wire::Identity const&, AuthenticatedSocket)> admit;
    std::function<void(std::string const&)> log;
    std::function<void(int)> starved;  // no descriptors left; with the errno
  };

  /// throws  BadArgument when it cannot listen on the address, or has no secret and other hosts can reach it
  Listener(asio::io_context& io, TcpAddress const& address, bool has_secret, bool insecure_network, Rank me,
           NamePatience const& patience = {})
      : acceptor_{io}, pause_{io} {
    auto const who = "rank " + std::to_string(me) + " cannot listen on " + address.text();
    at_            = own_endpoint(io, address, has_secret, patience, who);
    detail::expect_safe(at_.address(), has_secret, insecure_network);
    auto const error = open();
    if (!acceptor_.is_open()) throw_no_socket(error.value());
    if (error)
      throw BadArgument{who + ": " + error.message() + ".",
                        "an address of this host, with a port that no other program or rank uses."};
    at_ = acceptor_.local_endpoint();
  }

  std::uint16_t port() const { return at_.port(); }

  void start(Host host) {
    host_ = std::move(host);
    accept();
  }

  /// Frees the address, or listens on it again if nobody has taken it meanwhile.
  void listen(bool on) {
    if (on == acceptor_.is_open()) return;
    if (on && !open()) return accept();
    auto error = boost::system::error_code{};
    acceptor_.close(error);
  }

 private:
  using Guest = HandshakeSession<wire::Responder>;

  static constexpr std::size_t most_guests = 64;

  boost::system::error_code open() {
    auto error = boost::system::error_code{};
    if (acceptor_.open(at_.protocol(), error)) return error;
    acceptor_.set_option(asio::socket_base::reuse_address{true}, error);
    if (!error) acceptor_.bind(at_, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    ForkGuard::add(acceptor_.native_handle());
    return error;
  }

  /// Returns the address of this rank's name, when it is known. A name that means the loopback, as the host's own name
  /// does in Debian's /etc/hosts, stands for all addresses of this host, if there is a secret. Names of the loopback
  /// itself, such as localhost.localdomain, stay what they are.
  static Endpoint own_endpoint(asio::io_context& io, TcpAddress const& address, bool has_secret,
                               NamePatience const& patience, std::string const& who) {
    auto const begin = std::chrono::steady_clock::now();
    auto pause       = std::chrono::milliseconds{10};
    for (auto is_first = true;; is_first = false) {
      auto error = boost::system::error_code{};
      auto found = asio::ip::tcp::resolver{io}.resolve(address.host, std::to_string(address.port),
                                                       asio::ip::tcp::resolver::passive, error);
      if (!error && !found.empty()) return seen_by_others(found.begin()->endpoint(), address.host, has_secret);
      auto const may_come = error == asio::error::host_not_found || error == asio::error::host_not_found_try_again;
      if (!may_come || std::chrono::steady_clock::now() + pause > begin + patience.most)
        throw BadArgument{who + ": " + error.message() + ".", "an address of this host."};
      if (is_first && patience.log)
        patience.log(who + " yet: " + error.message() + ". It asks again for " + seconds_text(patience.most));
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds{1000});
    }
  }

  static Endpoint seen_by_others(Endpoint const& at, std::string const& host, bool has_secret) {
    auto not_literal = boost::system::error_code{};
    static_cast<void>(asio::ip::make_address(host, not_literal));
    auto const is_localhost = host.starts_with("localhost") || host.ends_with("localhost") || host == "ip6-loopback";
    if (!at.address().is_loopback() || !has_secret || !not_literal || is_localhost) return at;
    return {at.address().is_v6() ? asio::ip::address{asio::ip::address_v6::any()} : asio::ip::address_v4::any(),
            at.port()};
  }

  void accept() {
    acceptor_.async_accept([this](auto error, Socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) return welcome(std::move(socket)), accept();
      if (error.value() != EMFILE && error.value() != ENFILE) return accept();  // closed before it was accepted
      make_room(error.value());
    });
  }

  /// Handles the lack of a descriptor: gives the oldest guest 100 ms to complete its handshake, then closes it, and
  /// accepts again.
  void make_room(int error) {
    auto const oldest = guests_.empty() ? nullptr : guests_.front();
    if (!oldest && limiter_.allows("no descriptor")) host_.starved(error);
    pause_.expires_after(std::chrono::milliseconds{100});
    pause_.async_wait([this, oldest](auto stopped) {
      if (stopped || !acceptor_.is_open()) return;
      if (oldest && !guests_.empty() && guests_.front() == oldest) dismiss(oldest);
      accept();
    });
  }

  void welcome(Socket socket) {
    if (guests_.size() == most_guests) dismiss(guests_.front());
    auto const* secret = host_.secret ? &*host_.secret : nullptr;
    auto const guest =
        std::make_shared<Guest>(std::move(socket), wire::Responder{host_.identity, secret}, host_.timeouts,
                                [this](Guest& who, std::string const& broken) { on_change(who, broken); });
    guests_.push_back(guest);
    guest->start();
  }

  void on_change(Guest& guest, std::string const& broken) {
    auto& side = guest.side();
    if (side.state() == wire::Handshake::State::refused) return turn_away(guest, broken);
    if (broken.empty() && side.state() == wire::Handshake::State::asking) {
      if (auto no = host_.judge(side.peer(), guest.remote())) {
        side.refuse(no->fault, no->reason);
        if (side.peer().incarnation != wire::only_asks) say(guest, side.reason());
        guest.finish(wire::End::acceptor);
      } else {
        auto const peer = side.peer();
        side.accept();
        host_.admit(peer, guest.finish(wire::End::acceptor));
      }
    } else {
      say(guest, broken);
    }
    dismiss(guest.shared_from_this());
  }

  /// Refuses a guest. If it claims to be a rank, the refusal is sent only after that rank has been asked: if the guest
  /// is that rank, its process ends with the refusal, and could not be asked any more.
  ///
  /// broken  not empty: no time is left to wait for the answer
  void turn_away(Guest& guest, std::string const& broken) {
    auto const claimed  = guest.side().claimed();
    auto const show_out = [this, who = guest.weak_from_this()] {
      auto const here = who.lock();
      if (!here) return;
      here->tell_refusal();
      dismiss(here);
    };
    if (!broken.empty()) return show_out();
    say(guest, guest.side().reason());
    if (claimed && host_.doubt) host_.doubt(*claimed, show_out);
    else show_out();
  }

  void say(Guest const& guest, std::string const& reason) {
    if (limiter_.allows(guest.remote().address().to_string()))
      host_.log("a connection from " + detail::text(guest.remote()) + " was refused: " + reason);
  }

  void dismiss(std::shared_ptr<Guest> const& guest) {
    auto const kept = guest;  // `guest` may be an element of the list
    guests_.remove(kept);
    kept->close();
  }

  Endpoint at_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  Host host_;
  LogLimiter limiter_;
  std::list<std::shared_ptr<Guest>> guests_;  // the oldest first
};

}  // namespace chorale::tcp
