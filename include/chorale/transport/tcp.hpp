// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/secret.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/endpoint.hpp>
#include <chorale/transport/tcp/progress_engine.hpp>
#include <chorale/transport/tcp/rendezvous.hpp>
#include <chorale/transport/tcp_header.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/topology.hpp>
#include <chorale/transport/transport.hpp>
#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/plan_message.hpp>

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

/// Connects ranks by TCP: processes on any hosts, or threads of one process.
///
///   TcpTransport{.addresses = {"10.0.0.7:2222", "10.0.0.8:2222"}, .secret = Secret::from_env(), .job = "lenet 17"}
///
/// addresses     address on which each rank listens, in the order of ranks; if empty, the group's, or what the group's
///               rendezvous finds; if it has neither, all ranks are threads of this process
/// secret        the same on all ranks; without one, a rank may listen on this host only: see insecure_network. If
///               it is not set, a group of several processes uses the environment's: Secret::from_env()
/// job           name of the job; the group's has precedence
/// plan          one line for each thing that ranks must agree on, such as a variable with its shape
/// topology      the pairs of ranks that have a data connection: all, or only the pairs that an algorithm uses
/// incarnation   number of restarts of the job: ranks of an earlier start cannot join
/// failures      with FailureScope::peer, the loss of a rank affects only operations with it, once all have joined
/// log           receives status lines: which ranks are missing, what was refused; called by other threads
/// while_joining called ten times a second while ranks are missing, by the thread that connects, if there is one; what
///               it throws ends connect()
///
/// keeps   every rank has a control connection to every other, and data connections to its peers in `topology`: it can
///         send only to these. Bytes from strangers have no effect
/// throws  from connect(): PeerLost when ranks do not connect in time; Disagreement when they do not fit; BadArgument
///         when an address cannot be used, OutOfDescriptors when there are too few sockets
template <class P> requires wire::Protection<P> struct BasicTcpTransport<P> {
  using endpoint = BasicTcpEndpoint<P>;

  std::vector<std::string> addresses{};
  Timeouts timeouts{};
  std::optional<Secret> secret{};
  std::string job = "chorale";
  std::vector<std::string> plan{};
  std::uint8_t role         = 0;
  std::uint32_t incarnation = 0;
  Topology topology         = Topology::all_pairs();
  std::optional<AllowInsecureNetwork> insecure_network{};
  FailureScope failures                       = FailureScope::group;
  std::chrono::nanoseconds report_every       = std::chrono::seconds{10};  // while ranks are missing
  std::function<void(std::string const&)> log = [](std::string const& line) { std::clog << "chorale: " + line + "\n"; };
  std::function<void()> while_joining{};

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  std::vector<endpoint> connect(Group const& group) const { return completed_by(group).connect_all(group); }

 private:
  BasicTcpTransport completed_by(Group const& group) const {
    auto whole          = *this;
    auto const& meeting = group.meeting();
    if (addresses.empty()) whole.addresses = meeting.addresses;
    if (!meeting.job.empty()) whole.job = meeting.job;
    if (incarnation == 0) whole.incarnation = meeting.incarnation;
    if (!secret && !group.is_all_local()) whole.secret = Secret::from_env();
    whole.plan.insert(whole.plan.end(), meeting.lines.begin(), meeting.lines.end());
    if (addresses.empty() && meeting.spare_ports > 0 && !meeting.addresses.empty())
      whole.addresses = whole.met(group, meeting.addresses.front());
    else if (whole.addresses.empty() && !meeting.meets_at.empty()) whole.addresses = whole.met(group, meeting.meets_at);
    return whole;
  }

  /// Runs the rendezvous, and returns the addresses of all ranks: one host for each process, one port for each rank.
  ///
  /// at   where rank 0 is to listen
  std::vector<std::string> met(Group const& group, std::string const& at) const {
    auto const first = TcpAddress::parse(at);
    auto const each  = group.meeting().ranks_per_process;
    CHORALE_EXPECTS(first.port + group.size() <= 65'535,
                    std::to_string(group.size()) + " ranks that meet need a port each from " +
                        std::to_string(first.port) + " on, and one more, up to 65535");
    auto setup             = tcp::RendezvousOptions{};
    setup.at               = {first.host, static_cast<std::uint16_t>(first.port + group.size())};
    setup.me               = group.local().front() / each;
    setup.members          = group.size() / each;
    setup.each             = each;
    setup.first_port       = first.port;
    setup.spare_ports      = group.meeting().spare_ports;
    setup.job              = job_bytes();
    setup.incarnation      = incarnation;
    setup.secret           = secret;
    setup.insecure_network = insecure_network.has_value();
    setup.timeouts         = timeouts;
    setup.report_every     = report_every;
    setup.log              = log;
    setup.while_joining    = while_joining;
    auto meeting           = tcp::Rendezvous{std::move(setup)};
    auto const hosts       = meeting.hosts();
    auto all               = std::vector<std::string>{};
    for (Rank rank = 0; rank < group.size(); ++rank)
      all.push_back(TcpAddress{hosts[static_cast<std::size_t>(rank / each)],
                               static_cast<std::uint16_t>(meeting.first_port() + rank)}
                        .text());
    return all;
  }

  std::vector<endpoint> connect_all(Group const& group) const {
    CHORALE_EXPECTS(!is_sealed || secret,
                    "SealedTcpTransport makes its keys from a secret, and has none: give one, "
                    "such as .secret = Secret::from_env()");
    auto const arrivals = std::make_shared<tcp::JoinLatch>(static_cast<int>(group.local().size()));
    auto at             = parsed(group);
    auto nodes          = std::vector<std::unique_ptr<tcp::ProgressEngine<P>>>{};
    for (Rank const rank : group.local()) {
      nodes.push_back(node(rank, at, arrivals));
      at[static_cast<std::size_t>(rank)].port = nodes.back()->port();
    }
    for (auto& node : nodes) node->start(at);
    arrivals->wait(while_joining);
    for (auto& node : nodes) node->throw_if_failed();
    auto endpoints = std::vector<endpoint>{};
    for (auto& node : nodes) {
      node->finish_start();
      endpoints.emplace_back(std::move(node));
    }
    return endpoints;
  }

  static constexpr bool is_sealed = P::tag_bytes != 0;

  std::vector<TcpAddress> parsed(Group const& group) const {
    auto const size = static_cast<std::size_t>(group.size());
    if (addresses.empty() && group.is_all_local()) return {size, TcpAddress{"127.0.0.1", 0}};
    if (addresses.empty() && !group.meeting().no_addresses.empty())
      throw BadArgument{group.meeting().no_addresses, "what docs/35-clusters.md lists for this launcher."};
    CHORALE_EXPECTS(addresses.size() == size, "a group of " + std::to_string(size) +
                                                  " ranks needs as many addresses, "
                                                  "got " +
                                                  std::to_string(addresses.size()));
    auto at = std::vector<TcpAddress>{};
    for (auto const& text : addresses) at.push_back(TcpAddress::parse(text));
    for (Rank rank = 0; rank < group.size(); ++rank)
      CHORALE_EXPECTS(at[static_cast<std::size_t>(rank)].port != 0 || std::ranges::count(group.local(), rank) != 0,
                      "rank " + std::to_string(rank) + " has port 0, which is for ranks of this process only");
    return at;
  }

  std::unique_ptr<tcp::ProgressEngine<P>> node(Rank rank, std::vector<TcpAddress> const& at,
                                               std::shared_ptr<tcp::JoinLatch> arrivals) const {
    auto to     = setup(rank, at);
    to.arrivals = std::move(arrivals);
    try {
      return std::make_unique<tcp::ProgressEngine<P>>(std::move(to), insecure_network.has_value(), on_host(at, rank));
    } catch (boost::system::system_error const& error) {  // from an io_context
      tcp::throw_no_socket(error.code().value());
    }
  }

  static int on_host(std::vector<TcpAddress> const& at, Rank rank) {
    return static_cast<int>(std::ranges::count(at, at[static_cast<std::size_t>(rank)].host, &TcpAddress::host));
  }

  tcp::Setup setup(Rank rank, std::vector<TcpAddress> const& at) const {
    auto setup                 = tcp::Setup{};
    setup.addresses            = at;
    setup.identity.job         = job_bytes();
    setup.identity.rank        = rank;
    setup.identity.world       = static_cast<int>(at.size());
    setup.identity.role        = role;
    setup.identity.incarnation = incarnation;
    setup.plan                 = told_plan(setup.size());
    setup.topology             = topology;
    setup.secret               = secret;
    setup.sealed               = is_sealed;
    setup.timeouts             = timeouts;
    setup.failures             = failures;
    setup.report_every         = report_every;
    setup.log                  = log;
    return setup;
  }

  /// Returns the plan for a frame: of a longer plan the start, and a hash. Last, a topology that is not all pairs.
  ///
  /// throws  BadArgument when a line is empty, or has a line break
  std::vector<std::string> told_plan(int ranks) const {
    constexpr auto room = wire::max_plan_bytes - 256;
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
    if (topology.pairs(ranks) != Topology::of(ranks)) told.push_back(topology.text(ranks));
    return wire::PlanPayload::parse(wire::PlanPayload{told}.write())->lines;  // as all other ranks read it
  }

  /// Returns the name of the job if it has at most 16 bytes, else its hash.
  std::array<std::byte, 16> job_bytes() const {
    auto bytes      = std::array<std::byte, 16>{};
    auto const name = std::as_bytes(Span<char const>{job});
    auto const hash = wire::plan_hash(std::array{job});
    auto const from = name.size() <= bytes.size() ? name : ConstBytes{hash}.first(bytes.size());
    std::ranges::copy(from, bytes.begin());
    return bytes;
  }
};

static_assert(Transport<TcpTransport>);

}  // namespace chorale
