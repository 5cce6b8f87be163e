// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/secret.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/connector.hpp>
#include <chorale/transport/tcp/listener.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/identity.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Options of a Rendezvous. A member is a process; all members know the address of the first one.
///
/// first_port    of the ranks, which have one each
/// spare_ports   how much higher it, and the rendezvous's port, may be where other programs have these ports
struct RendezvousOptions {
  TcpAddress at{};
  int me = 0, members = 1, each = 1;  // each: ranks of a member
  std::uint16_t first_port = 0;
  int spare_ports          = 0;
  std::array<std::byte, 16> job{};
  std::uint32_t incarnation = 0;
  std::optional<Secret> secret{};
  bool insecure_network = false;
  Timeouts timeouts{};
  std::chrono::nanoseconds report_every       = std::chrono::seconds{10};
  std::function<void(std::string const&)> log = [](std::string const&) {};
  std::function<void()> while_joining{};  // see TcpTransport
};

/// Addresses of another member's connection, as the first member sees them.
struct ObservedPeer {
  asio::ip::address from, reached;  // its own, and the one it connected to
};

/// Returns the hosts at which members reach each other: the addresses that the first member sees, but for members on its
/// own host, the address at which the others have reached that host.
///
/// others    [member - 1]
/// returns   [member]: an IP address
inline std::vector<std::string> hosts_of(std::vector<ObservedPeer> const& others) {
  auto const plain = [](asio::ip::address const& at) {
    if (!at.is_v6() || !at.to_v6().is_v4_mapped()) return at;
    return asio::ip::address{asio::ip::make_address_v4(asio::ip::v4_mapped, at.to_v6())};
  };
  auto first = plain(others.front().reached);
  for (auto const& seen : others)
    if (first.is_loopback()) first = plain(seen.reached);
  auto hosts = std::vector{first.to_string()};
  for (auto const& seen : others) {
    auto const from = plain(seen.from);
    hosts.push_back((from.is_loopback() ? first : from).to_string());
  }
  return hosts;
}

/// Returns the first port, at most `spare` higher, from which on so many are free on this host; if none is, that port.
inline std::uint16_t free_from(asio::io_context& io, std::uint16_t port, int ports, int spare) {
  auto const is_free = [&](int number) {
    auto error = boost::system::error_code{};
    auto probe = asio::ip::tcp::acceptor{io};
    if (probe.open(asio::ip::tcp::v4(), error)) return false;
    probe.set_option(asio::socket_base::reuse_address{true}, error);
    if (!error) probe.bind({asio::ip::tcp::v4(), static_cast<std::uint16_t>(number)}, error);
    if (!error) probe.listen(1, error);
    return !error;
  };
  for (int first = port; first <= port + spare; ++first) {
    auto n = 0;
    while (n < ports && is_free(first + n)) ++n;
    if (n == ports) return static_cast<std::uint16_t>(first);
  }
  return port;
}

/// Rendezvous of members that know only where the first one listens: each gets the hosts of all.
///
///   member 0                                                   member i
///                                                ◀──────       connects, and both prove that they have the secret
///     once all connected: size (4), text, MAC (32) ──────▶     text: "+", the first port of ranks and all hosts, or
///                                                             "-" and the reason
///
/// The MAC is made with the key of the connection; without a secret it is 0.
///
/// keeps   bytes from strangers have no effect; a member that has disconnected may connect again
class Rendezvous {
 public:
  explicit Rendezvous(RendezvousOptions setup) : setup_{std::move(setup)} {
    others_.resize(static_cast<std::size_t>(setup_.members - 1));
  }

  /// Runs the rendezvous, and returns the host of each member: [member].
  ///
  /// throws  PeerLost when not all connect within timeouts.join; Disagreement when members are of different jobs, or
  ///         have different secrets; BadArgument when the first member cannot listen on its address
  std::vector<std::string> hosts() {
    if (setup_.members == 1) {
      setup_.first_port = free_from(io_, setup_.first_port, setup_.each, setup_.spare_ports);
      return {setup_.at.host};
    }
    return setup_.me == 0 ? wait_for_all() : call_first();
  }

  /// The port of rank 0, once hosts() has returned; the ports of other ranks follow it.
  std::uint16_t first_port() const { return setup_.first_port; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Other {
    AuthenticatedSocket connection;
    int visit;  // number of the connection
    std::vector<std::byte> told{};
  };

  wire::Identity identity() const {
    auto who        = wire::Identity{};
    who.job         = setup_.job;
    who.rank        = setup_.me;
    who.world       = setup_.members;
    who.incarnation = setup_.incarnation;
    who.plan_hash   = wire::plan_hash(std::array{std::string{"a meeting"}});
    return who;
  }
  std::string place() const {
    return "the rendezvous of " + std::to_string(setup_.members) + " processes at " + setup_.at.text();
  }

  /// Runs until done(), and logs missing() from time to time; false if the time to join is over first.
  template <class Done, class Missing> bool run_until(Done done, Missing missing) {
    auto const end = Clock::now() + setup_.timeouts.join;
    auto report    = Clock::now() + setup_.report_every;
    while (!done()) {
      if (Clock::now() >= end) return false;
      if (Clock::now() >= report) {
        setup_.log("still waiting at " + place() + ": " + missing());
        report += setup_.report_every;
      }
      if (io_.stopped()) io_.restart();
      auto until = std::min(end, report);
      if (setup_.while_joining) {
        setup_.while_joining();
        io_.poll();  // however long that took
        until = std::min(until, Clock::now() + std::chrono::milliseconds{100});
      }
      io_.run_one_until(until);
    }
    return true;
  }

  // The first member.

  std::vector<std::string> wait_for_all() {
    if (setup_.spare_ports > 0) setup_.at.port = free_from(io_, setup_.at.port, 1, setup_.spare_ports);
    auto listener = Listener{io_,
                             listens_at(),
                             setup_.secret.has_value(),
                             setup_.insecure_network,
                             0,
                             NamePatience::within(setup_.timeouts.join, setup_.log)};
    auto host     = Listener::Host{};
    host.identity = identity();
    host.secret   = setup_.secret;
    host.timeouts = setup_.timeouts;
    host.judge    = [this](wire::Identity const& who, auto const&) { return judge(who); };
    host.admit    = [this](wire::Identity const& who, AuthenticatedSocket with) { admit(who.rank, std::move(with)); };
    host.log      = setup_.log;
    host.starved  = [](int error) { throw_no_socket(error); };
    listener.start(std::move(host));
    if (!run_until([&] { return first_missing() == setup_.members; }, [&] { return missing(); })) {
      tell("-" + missing());
      throw PeerLost{first_missing() * setup_.each, missing() + ", to " + place() + ", within " + seconds_text() + ".",
                     "look at how they ended."};
    }
    auto seen = std::vector<ObservedPeer>{};
    for (auto const& other : others_)
      seen.push_back({other->connection.remote.address(), other->connection.socket.local_endpoint().address()});
    auto const hosts = hosts_of(seen);
    if (setup_.spare_ports > 0) {
      listener.listen(false);  // all are connected: its port is free, too
      setup_.first_port = free_from(io_, setup_.first_port, setup_.members * setup_.each, setup_.spare_ports);
    }
    auto text = "+" + std::to_string(setup_.first_port);
    for (auto const& one : hosts) text.append("\n") += one;
    tell(text);
    return hosts;
  }

  /// Returns where to listen: with a secret, on all addresses if the host's name resolves to the loopback on this host,
  /// as with Debian's /etc/hosts.
  TcpAddress listens_at() {
    auto error       = boost::system::error_code{};
    auto const found = asio::ip::tcp::resolver{io_}.resolve(setup_.at.host, std::to_string(setup_.at.port), error);
    if (error || found.empty() || !setup_.secret) return setup_.at;
    auto const at = found.begin()->endpoint().address();
    if (!at.is_loopback()) return setup_.at;
    return {at.is_v6() ? "::" : "0.0.0.0", setup_.at.port};
  }

  std::optional<wire::Refusal> judge(wire::Identity const& who) const {
    auto const both = "member " + std::to_string(who.rank) + " is of incarnation " + std::to_string(who.incarnation) +
                      ", and the first one of " + std::to_string(setup_.incarnation);
    if (who.incarnation < setup_.incarnation) return wire::Refusal{Fault::evicted, both};
    if (who.incarnation > setup_.incarnation) return wire::Refusal{Fault::join_timeout, both};
    if (others_[static_cast<std::size_t>(who.rank - 1)])
      return wire::Refusal{Fault::duplicate_rank, "two processes claim to be member " + std::to_string(who.rank)};
    return std::nullopt;
  }

  void admit(int member, AuthenticatedSocket with) {
    auto& other      = others_[static_cast<std::size_t>(member - 1)];
    auto const visit = ++visits_;
    other.emplace(Other{std::move(with), visit});
    other->connection.socket.async_wait(asio::socket_base::wait_read, [&other, visit](auto error) {
      if (!error && other && other->visit == visit && other->told.empty()) other.reset();  // it has closed
    });
  }

  int first_missing() const {
    auto const found = std::ranges::find_if(others_, [](auto const& other) { return !other; });
    return 1 + static_cast<int>(found - others_.begin());
  }
  std::string missing() const {
    auto text = std::string{};
    auto n    = std::size_t{0};
    for (std::size_t i = 0; i < others_.size(); ++i)
      if (!others_[i] && ++n <= 8) text.append(n == 1 ? "" : ", ") += std::to_string(i + 1);
    return std::to_string(n) + " of " + std::to_string(setup_.members) + " members did not come: " + text +
           (n > 8 ? ", .." : "");
  }
  std::string seconds_text() const {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(setup_.timeouts.join).count()) + " s";
  }

  void tell(std::string const& text) {
    auto open = 0;
    for (auto& other : others_) {
      if (!other) continue;
      other->told = message(text, other->connection.key);
      ++open;
      asio::async_write(other->connection.socket, asio::buffer(other->told), [&open](auto, auto) { --open; });
    }
    run_until([&] { return open == 0; }, [&] { return std::to_string(open) + " processes have not been answered"; });
  }

  static std::vector<std::byte> message(std::string const& text, std::optional<wire::EndKey> const& key) {
    auto bytes = std::vector<std::byte>(sizeof(std::uint32_t) + text.size() + sizeof(wire::Mac));
    auto to    = wire::Writer{bytes};
    to.number(static_cast<std::uint32_t>(text.size()));
    to.text(text);
    to.bytes(mac_of(text, key));
    return bytes;
  }
  static wire::Mac mac_of(std::string const& text, std::optional<wire::EndKey> const& key) {
    if (!key) return {};
    auto const said = "chorale 1 hosts " + text;
    return wire::hmac_sha256(key->session, std::as_bytes(Span<char const>{said}));
  }

  // All others.

  std::vector<std::string> call_first() {
    auto call     = Connector::Host{};
    call.identity = identity();
    call.peer     = 0;
    call.address  = setup_.at;
    call.secret   = setup_.secret;
    call.timeouts = setup_.timeouts;
    call.admit    = [this](wire::Identity const&, AuthenticatedSocket with) { listen_to(std::move(with)); };
    call.refused  = [this](wire::Refusal const& no) {  // perhaps by a job that has one of the ports
      auto const other = no.fault == Fault::world_mismatch || no.fault == Fault::not_authentic;
      refusal_         = place() + ": " + no.reason + ".";
      fault_           = no.fault;
      if (setup_.spare_ports == 0 || !other) throw Disagreement{no.fault, refusal_};
    };
    call.starved = [](int error) { throw_no_socket(error); };
    auto dials   = std::list<Connector>{};
    for (int i = 0; i <= setup_.spare_ports; ++i) {
      dials.emplace_back(io_, call).start();
      ++call.address.port;
    }
    auto const waits = [&] {
      if (first_) return std::string{"the other processes"};
      return "rank 0: " + (refusal_.empty() ? dials.front().problem() : refusal_);
    };
    auto const answered = run_until([&] { return told_.has_value(); }, waits);
    if (!answered && !first_ && !refusal_.empty()) throw Disagreement{fault_, refusal_};
    if (!answered)
      throw PeerLost{0, "no answer within " + seconds_text() + " from " + place() + "; waited for " + waits() + ".",
                     "check that rank 0 runs on that host, and that no firewall blocks the port."};
    if (told_->empty() || told_->front() != '+')
      throw PeerLost{
          0, place() + ": " + (told_->empty() ? "rank 0 closed the connection" : printable(told_->substr(1))) + ".",
          "look at how they ended."};
    auto hosts = std::vector<std::string>{{}};
    for (char const c : told_->substr(1)) {
      if (c == '\n') hosts.emplace_back();
      else hosts.back() += c;
    }
    auto const port = number_in(hosts.front());
    hosts.erase(hosts.begin());
    if (port < 1 || port > 65'535) throw PeerLost{0, place() + ": its port is none."};
    setup_.first_port = static_cast<std::uint16_t>(port);
    if (hosts.size() != static_cast<std::size_t>(setup_.members))
      throw PeerLost{0, place() + ": " + std::to_string(hosts.size()) + " hosts were named."};
    return hosts;
  }

  static int number_in(std::string const& text) {
    auto number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }

  void listen_to(AuthenticatedSocket with) {
    first_.emplace(std::move(with));
    heard_.resize(sizeof(std::uint32_t));
    asio::async_read(first_->socket, asio::buffer(heard_), [this](auto error, auto) {
      auto const size = error ? 0 : wire::Reader{heard_}.template number<std::uint32_t>();
      if (size == 0 || size > 64 * static_cast<std::size_t>(setup_.members) + 1024) return void(told_.emplace());
      heard_.resize(size + sizeof(wire::Mac));
      asio::async_read(first_->socket, asio::buffer(heard_), [this, size](auto cut, auto) { hear(cut, size); });
    });
  }

  /// Stores the text received; empty if it was cut off, or its MAC is wrong.
  void hear(boost::system::error_code const& cut, std::size_t size) {
    auto text = std::string{reinterpret_cast<char const*>(heard_.data()), size};
    if (cut || !wire::same(ConstBytes{heard_}.last(sizeof(wire::Mac)), mac_of(text, first_->key))) text.clear();
    told_ = std::move(text);
  }

  RendezvousOptions setup_;
  asio::io_context io_;
  std::vector<std::optional<Other>> others_;  // [member - 1], used by the first member
  int visits_ = 0;
  std::optional<AuthenticatedSocket> first_;  // used by all others
  std::vector<std::byte> heard_;
  std::optional<std::string> told_;
  std::string refusal_;                 // by whoever has one of the ports
  Fault fault_ = Fault::not_authentic;  // why
};

}  // namespace chorale::tcp
