// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/limits.hpp>
#include <chorale/transport/plan_text.hpp>
#include <chorale/transport/secret.hpp>
#include <chorale/transport/tcp_address.hpp>
#include <chorale/transport/tcp_node.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// One rank of a TcpTransport.
///
/// The thread that uses it moves the bytes, whenever it sends, asks or waits. A thread of its own tells the other ranks
/// that this one lives, and watches them.
///
/// keeps   64 messages may be under way to each rank and from each, then send() and recv() wait. A message goes from
///         memory to memory without another copy, and is done when the system has taken it all; nothing is allocated
///         after connect(). Only a message that another overtakes is copied, up to 64 MiB from each rank. An endpoint
///         may be moved while operations are in flight
/// cost    each message has 64 bytes in front of every 256 KiB, and a checksum of all bytes
/// throws  PeerLost when a rank has ended, is silent or stands still for too long, or what it sent is damaged;
///         Disagreement when ranks are in different operations. The first cause is the same on all ranks that live, and
///         comes out of every operation from then on
class TcpEndpoint {
 public:
  class pending;

  explicit TcpEndpoint(std::unique_ptr<detail::TcpNode> node) : node_{std::move(node)} {}

  Rank rank() const { return node_->rank(); }
  int  size() const { return node_->size(); }

  pending send(Rank peer, Tag tag, ConstBytes out);
  pending recv(Rank peer, Tag tag, Bytes in);

  /// See chorale::announce().
  void announce(Operation const& operation) { node_->announce(operation); }

  /// See chorale::begin_step().
  void begin_step(std::uint64_t step) { node_->begin_step(step); }

  /// Ends every wait of every rank with a PeerLost that names this rank and says why.
  void fail(std::string const& why) { node_->fail(why); }

 private:
  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(), "no rank " + std::to_string(peer) + " in a group of " +
                                                    std::to_string(size()));
  }

  std::unique_ptr<detail::TcpNode> node_;
};

/// A message that is under way.
class TcpEndpoint::pending {
 public:
  pending() = default;

  /// throws  PeerLost, Disagreement
  bool done() {
    if (kind_ != Kind::done && node_->look(peer_, [this] { return over(); })) kind_ = Kind::done;
    return kind_ == Kind::done;
  }

  void wait() {
    if (kind_ != Kind::done) node_->wait_until(peer_, [this] { return over(); });
    kind_ = Kind::done;
  }

 private:
  friend TcpEndpoint;
  enum class Kind { done, send, recv, send_to_self, recv_from_self };

  pending(Kind kind, detail::TcpNode& node, Rank peer, int place, std::uint64_t turn)
      : kind_{kind}, peer_{peer}, place_{place}, turn_{turn}, node_{&node} {}

  bool over() const {
    switch (kind_) {
      case Kind::send: return node_->outbox(peer_).sent(turn_);
      case Kind::recv: return node_->inbox(peer_).received(place_, turn_);
      case Kind::send_to_self: return node_->self().sends.is_over(place_, turn_);
      case Kind::recv_from_self: return node_->self().recvs.is_over(place_, turn_);
      case Kind::done: break;
    }
    return true;
  }

  Kind kind_ = Kind::done;
  Rank peer_ = 0;
  int place_ = 0;
  std::uint64_t turn_ = 0;                                                 // of the place; of a send: its number
  detail::TcpNode* node_ = nullptr;
};

inline TcpEndpoint::pending TcpEndpoint::send(Rank peer, Tag tag, ConstBytes out) {
  expect_rank(peer);
  node_->check();
  if (peer != rank()) return {pending::Kind::send, *node_, peer, 0, node_->send(peer, tag, out)};
  auto const place = node_->send_to_self(tag, out);
  return {pending::Kind::send_to_self, *node_, peer, place, node_->self().sends[place].turn};
}

inline TcpEndpoint::pending TcpEndpoint::recv(Rank peer, Tag tag, Bytes in) {
  expect_rank(peer);
  node_->check();
  if (peer == rank()) {
    auto const place = node_->recv_from_self(tag, in);
    return {pending::Kind::recv_from_self, *node_, peer, place, node_->self().recvs[place].turn};
  }
  auto const place = node_->recv(peer, tag, in);
  return {pending::Kind::recv, *node_, peer, place, node_->inbox(peer).turn(place)};
}

/// Which ranks have a connection.
enum class Links { all_pairs };

/// Ranks that are processes anywhere, or threads of one process, connected by TCP.
///
///   TcpTransport{.addresses = {"10.0.0.7:2222", "10.0.0.8:2222"}, .secret = Secret::from_env(), .job = "lenet 17"}
///
/// addresses     where each rank listens, in the order of ranks; without any, all ranks are threads of this process
/// secret        the same on all ranks; without one, a rank listens on this host only, see insecure_network
/// plan          a line for each thing that ranks must agree on, such as a variable with its shape
/// incarnation   how often the job was started again: ranks of an earlier start cannot join
/// log           takes lines for people: who is waited for, who was turned away; called by other threads
///
/// keeps   every rank is connected with every other, twice. What strangers send to a rank changes nothing
/// throws  from connect(): PeerLost when ranks do not come in time; Disagreement when they do not fit; BadArgument when
///         an address cannot be used, OutOfDescriptors when there are too few sockets
struct TcpTransport {
  using endpoint = TcpEndpoint;

  std::vector<std::string> addresses{};
  Limits limits{};
  std::optional<Secret> secret{};
  std::string job = "chorale";
  std::vector<std::string> plan{};
  std::uint8_t role         = 0;
  std::uint32_t incarnation = 0;
  Links links               = Links::all_pairs;
  std::optional<AllowInsecureNetwork> insecure_network{};
  std::chrono::nanoseconds report_every = std::chrono::seconds{10};        // while ranks are missing
  std::function<void(std::string const&)> log =
      [](std::string const& line) { std::clog << "chorale: " + line + "\n"; };

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  std::vector<endpoint> connect(Group const& group) const {
    auto const arrivals = std::make_shared<detail::Arrivals>(static_cast<int>(group.local().size()));
    auto at             = parsed(group);
    auto nodes          = std::vector<std::unique_ptr<detail::TcpNode>>{};
    for (Rank const rank : group.local()) {
      nodes.push_back(node(rank, at, arrivals));
      at[static_cast<std::size_t>(rank)].port = nodes.back()->port();
    }
    for (auto& node : nodes) node->start(at);
    arrivals->wait();
    for (auto& node : nodes) node->throw_if_failed();
    auto endpoints = std::vector<endpoint>{};
    for (auto& node : nodes) {
      node->finish_start();
      endpoints.emplace_back(std::move(node));
    }
    return endpoints;
  }

 private:
  std::vector<TcpAddress> parsed(Group const& group) const {
    auto const size = static_cast<std::size_t>(group.size());
    if (addresses.empty() && group.is_all_local()) return {size, TcpAddress{"127.0.0.1", 0}};
    CHORALE_EXPECTS(addresses.size() == size, "a group of " + std::to_string(size) + " ranks needs as many addresses, "
                                              "got " + std::to_string(addresses.size()));
    auto at = std::vector<TcpAddress>{};
    for (auto const& text : addresses) at.push_back(TcpAddress::parse(text));
    for (Rank rank = 0; rank < group.size(); ++rank)
      CHORALE_EXPECTS(at[static_cast<std::size_t>(rank)].port != 0 || std::ranges::count(group.local(), rank) != 0,
                      "rank " + std::to_string(rank) + " has port 0, which is for ranks of this process only");
    return at;
  }

  std::unique_ptr<detail::TcpNode> node(Rank rank, std::vector<TcpAddress> const& at,
                                        std::shared_ptr<detail::Arrivals> arrivals) const {
    auto to     = setup(rank, at);
    to.arrivals = std::move(arrivals);
    try {
      return std::make_unique<detail::TcpNode>(std::move(to), insecure_network.has_value(), on_host(at, rank));
    } catch (boost::system::system_error const& error) {                   // of an io_context
      detail::throw_no_socket(error.code().value());
    }
  }

  static int on_host(std::vector<TcpAddress> const& at, Rank rank) {
    return static_cast<int>(std::ranges::count(at, at[static_cast<std::size_t>(rank)].host, &TcpAddress::host));
  }

  detail::TcpSetup setup(Rank rank, std::vector<TcpAddress> const& at) const {
    auto setup = detail::TcpSetup{};
    setup.addresses            = at;
    setup.identity.job         = job_bytes();
    setup.identity.rank        = rank;
    setup.identity.world       = static_cast<int>(at.size());
    setup.identity.role        = role;
    setup.identity.incarnation = incarnation;
    setup.plan                 = told_plan();
    setup.secret               = secret;
    setup.limits               = limits;
    setup.report_every         = report_every;
    setup.log                  = log;
    return setup;
  }

  /// The plan as it fits into a frame: of a longer one the beginning, and a hash of all.
  ///
  /// throws  BadArgument when a line is none
  std::vector<std::string> told_plan() const {
    constexpr auto room = wire::max_plan_bytes - 128;
    auto told           = std::vector<std::string>{};
    auto size           = std::size_t{0};
    for (auto const& line : plan) {
      CHORALE_EXPECTS(!line.empty() && line.find('\n') == line.npos,
                      "a line of a plan is empty, or is two: \"" + line + "\"");
      size += line.size() + 1;
      if (size > room) {
        told.push_back("all " + std::to_string(plan.size()) + " lines, hash " +
                       wire::detail::hexadecimal(wire::plan_hash(plan)));
        break;
      }
      told.push_back(line);
    }
    return wire::PlanPayload::parse(wire::PlanPayload{told}.write())->lines;   // as all other ranks read it
  }

  /// The name itself when it is short, else its hash.
  std::array<std::byte, 16> job_bytes() const {
    auto bytes = std::array<std::byte, 16>{};
    auto const name = std::as_bytes(Span<char const>{job});
    auto const hash = wire::plan_hash(std::array{job});
    auto const from = name.size() <= bytes.size() ? name : ConstBytes{hash}.first(bytes.size());
    std::ranges::copy(from, bytes.begin());
    return bytes;
  }
};

static_assert(Transport<TcpTransport>);

}  // namespace chorale
