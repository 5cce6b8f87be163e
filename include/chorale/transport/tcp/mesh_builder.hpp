// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/connector.hpp>
#include <chorale/transport/tcp/listener.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/topology.hpp>
#include <chorale/transport/wire/handshake.hpp>
#include <chorale/transport/wire/identity.hpp>

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Finds out whether a refused connection comes from the rank that it claims to be, or from a stranger.
///
///   "I am rank 1" ──▶ rank 0 refuses, but does not send the refusal yet
///                     rank 0 ──▶ the address of rank 1: do the two ranks fit?     no: the job ends at once, on both
///                                                                                 yes, or no answer: a stranger
///   "I am rank 1" ◀── refused
///
/// A claim proves nothing: if it could end the job, anyone could end the job. Only the rank itself listens at its
/// address. The refusal waits because the process of a refused rank ends, and could not be asked any more.
///
/// keeps   at most one question to a rank at a time, and one connection for each connection of a stranger
class IdentityProbe {
 public:
  struct Host {
    std::function<Connector::Host(Rank)> call_to;                // to its control channel
    std::function<bool(Rank)> is_expected;                       // it should connect, and has not
    std::function<void(Rank, wire::Refusal const&)> impossible;  // that rank can never join this job
  };

  IdentityProbe(asio::io_context& io, int ranks, Host host)
      : io_{io}, host_{std::move(host)}, questions_(static_cast<std::size_t>(ranks)) {}

  /// then    called when the answer has arrived, or none can arrive
  void ask(Rank claimed, std::function<void()> then) {
    if (claimed < 0 || static_cast<std::size_t>(claimed) >= questions_.size() || !host_.is_expected(claimed))
      return then();
    auto& [dial, waiting] = questions_[static_cast<std::size_t>(claimed)];
    waiting.push_back(std::move(then));
    if (waiting.size() > 1) return;
    if (!dial) dial = std::make_unique<Connector>(io_, question_to(claimed));
    dial->start();
  }

 private:
  struct Question {
    std::unique_ptr<Connector> dial;
    std::vector<std::function<void()>> waiting;
  };

  Connector::Host question_to(Rank rank) {
    auto to                 = host_.call_to(rank);
    to.identity.incarnation = wire::only_asks;
    to.admit                = [this, rank](auto const&, AuthenticatedSocket) { answer(rank); };
    to.failed               = [this, rank] { answer(rank); };
    to.starved              = [this, rank](int) { answer(rank); };
    to.refused              = [this, rank](wire::Refusal const& no) {
      answer(rank);
      if (host_.is_expected(rank)) host_.impossible(rank, no);
    };
    return to;
  }

  void answer(Rank rank) {
    for (auto const& then : std::exchange(questions_[static_cast<std::size_t>(rank)].waiting, {})) then();
  }

  asio::io_context& io_;
  Host host_;
  std::vector<Question> questions_;  // [rank]
};

/// Latch on which connect() waits for all ranks of this process, or for the first that cannot join.
class JoinLatch {
 public:
  explicit JoinLatch(int ranks) : missing_{ranks} {}

  void one_more() {
    auto const lock = std::scoped_lock{mutex_};
    --missing_;
    changed_.notify_all();
  }
  void fail() {
    auto const lock = std::scoped_lock{mutex_};
    failed_         = true;
    changed_.notify_all();
  }

  /// meanwhile   called ten times a second, if there is one; what it throws ends the wait
  void wait(std::function<void()> const& meanwhile) {
    auto lock       = std::unique_lock{mutex_};
    auto const over = [&] { return missing_ == 0 || failed_; };
    if (!meanwhile) return changed_.wait(lock, over);
    while (!changed_.wait_for(lock, std::chrono::milliseconds{100}, over)) {
      lock.unlock();
      meanwhile();
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int missing_;
  bool failed_ = false;
};

/// Job, peers and options of a rank.
struct Setup {
  std::vector<TcpAddress> addresses;  // [rank]
  wire::Identity identity;            // of this rank; the plan is compared later
  std::vector<std::string> plan;      // at most wire::max_plan_bytes
  std::optional<Secret> secret;
  bool sealed = false;  // frames are sealed; then there is a secret
  Timeouts timeouts;
  FailureScope failures = FailureScope::group;
  Topology topology;
  std::chrono::nanoseconds report_every{};  // while ranks are missing
  std::function<void(std::string const&)> log;
  std::shared_ptr<JoinLatch> arrivals;

  Rank me() const { return identity.rank; }
  int size() const { return identity.world; }
};

/// Socket of the data connection to another rank; not open if the two have none.
struct DataSocket {
  FileDescriptor socket{};
  std::optional<wire::EndKey> key{};
  std::uint8_t minor = wire::version.minor;
};

/// Connects a rank with all others on channel 0, for control, and once the plans agree, with its peers in the topology
/// on channel 1, for data. Ranks that seal their frames use channels 2 and 3.
///
///   rank 0 ◀──── rank 1 ◀──── rank 2          a rank connects to all lower ranks, and accepts all higher ranks
///      ▲                        │
///      └────────────────────────┘
///
/// keeps   runs on one thread, the io_context's, and calls Host there. After all ranks have connected it still
///         listens, only to refuse
class MeshBuilder {
 public:
  using Socket = asio::ip::tcp::socket;

  struct Host {
    std::function<void(Rank, std::uint32_t, AuthenticatedSocket)> control;  // channel 0 to that rank; its incarnation
    std::function<void()> complete;                                         // all channels are connected
    std::function<void(Rank, Fault, std::string const&)> impossible;        // the reason: a part of a sentence
    std::function<void(int)> starved;                                       // no descriptors left; with the errno
  };

  MeshBuilder(asio::io_context& io, Listener& listener, Setup const& setup, Host host)
      : io_{io}, listener_{listener}, setup_{setup}, host_{std::move(host)},
        members_(static_cast<std::size_t>(setup.size())), doubt_{io, setup.size(), doubt_host()} {
    for (Rank rank = 0; rank < setup.size(); ++rank)
      member(rank).linked = setup.topology.connects(setup.me(), rank, setup.size());
  }

  void start() {
    auto to     = Listener::Host{};
    to.identity = setup_.identity;
    to.secret   = setup_.secret;
    to.timeouts = setup_.timeouts;
    to.log      = [this](std::string const& line) { setup_.log(name(setup_.me()) + ": " + line); };
    to.judge    = [this](auto const& who, auto const& from) { return judge(who, from); };
    to.doubt    = [this](Rank claimed, std::function<void()> then) { doubt_.ask(claimed, std::move(then)); };
    to.admit    = [this](auto const& who, AuthenticatedSocket with) { admit(who, std::move(with)); };
    to.starved  = [this](int error) { host_.starved(error); };
    listener_.start(std::move(to));
    for (Rank rank = 0; rank < setup_.me(); ++rank) dial(rank, control);
    finish_if_complete();
  }

  /// Reports that the plans of this rank and the given rank are the same.
  void plans_agree(Rank rank) {
    member(rank).agrees = true;
    if (!member(rank).linked) return finish_if_complete();
    if (rank < setup_.me()) dial(rank, data);
  }

  /// Reports that the control connection to a rank is closed: the two must connect again.
  void forget(Rank rank) {
    member(rank).agrees = false;
    for (auto& channel : member(rank).channels) {
      if (channel.dial) channel.dial->stop();
      channel.here = false;
      channel.line = std::nullopt;
    }
    if (rank < setup_.me()) dial(rank, control);
  }

  bool complete() const { return complete_; }

  /// Returns the missing ranks as text, such as "1 of 4: rank 3 (10.0.0.7:2222): Connection refused".
  std::string missing() const {
    auto s = std::string{};
    int n  = 0;
    for (Rank rank = 0; rank < setup_.size(); ++rank) {
      if (is_here(rank)) continue;
      s.append(n++ == 0 ? "" : ", ") += name(rank) + " (" + address(rank) + "): " + problem(rank);
    }
    return std::to_string(n) + " of " + std::to_string(setup_.size()) + ": " + s;
  }
  Rank first_missing() const {
    Rank rank = 0;
    while (rank < setup_.size() && is_here(rank)) ++rank;
    return rank;
  }

  /// Returns the sockets of the data connections, [rank], not open if there is none. Only if complete().
  std::vector<DataSocket> take_data() {
    auto lines = std::vector<DataSocket>{};
    for (auto& m : members_) {
      auto& line = m.channels[data].line;
      lines.push_back(line ? DataSocket{FileDescriptor{line->socket.release()}, line->key, line->minor} : DataSocket{});
      line.reset();
    }
    return lines;
  }

  std::string address(Rank rank) const { return setup_.addresses[static_cast<std::size_t>(rank)].text(); }

 private:
  static constexpr std::size_t control = 0, data = 1, kinds = 2;

  struct Channel {
    bool here = false;
    asio::ip::tcp::endpoint from{};
    std::optional<AuthenticatedSocket> line{};  // for data, until take_data()
    std::unique_ptr<Connector> dial{};
  };
  struct Member {
    std::array<Channel, kinds> channels{};
    bool linked = false, agrees = false;  // linked for data; agrees on the plan
  };

  static std::string name(Rank rank) { return "rank " + std::to_string(rank); }

  Member& member(Rank rank) { return members_[static_cast<std::size_t>(rank)]; }
  bool is_here(Rank rank) const {
    auto const& m = members_[static_cast<std::size_t>(rank)];
    return rank == setup_.me() || (m.channels[control].here && (m.linked ? m.channels[data].here : m.agrees));
  }
  std::string problem(Rank rank) const {
    auto const& [channels, linked, agrees] = members_[static_cast<std::size_t>(rank)];
    if (channels[control].here && !linked) return "has not sent its plan";
    auto const& dial = channels[channels[control].here ? data : control].dial;
    if (rank > setup_.me()) return channels[control].here ? "has called only once" : "has not called";
    return dial && !dial->problem().empty() ? dial->problem() : "has not answered";
  }

  void dial(Rank rank, std::size_t channel) {
    auto& dial = member(rank).channels[channel].dial;
    if (!dial) dial = std::make_unique<Connector>(io_, call_to(rank, channel));
    dial->start();
  }

  Connector::Host call_to(Rank rank, std::size_t channel) {
    auto to             = Connector::Host{};
    to.identity         = setup_.identity;
    to.identity.channel = static_cast<std::uint8_t>(channel + (setup_.sealed ? kinds : 0));
    to.peer             = rank;
    to.address          = setup_.addresses[static_cast<std::size_t>(rank)];
    to.secret           = setup_.secret;
    to.timeouts         = setup_.timeouts;
    to.admit            = [this](auto const& who, AuthenticatedSocket with) { admit(who, std::move(with)); };
    to.refused = [this, rank](wire::Refusal const& refusal) { host_.impossible(rank, refusal.fault, refusal.reason); };
    to.starved = [this](int error) { host_.starved(error); };
    return to;
  }

  IdentityProbe::Host doubt_host() {
    auto host        = IdentityProbe::Host{};
    host.call_to     = [this](Rank rank) { return call_to(rank, control); };
    host.is_expected = [this](Rank rank) {
      return !complete_ && rank > setup_.me() && !member(rank).channels[control].here;
    };
    host.impossible = [this](Rank rank, wire::Refusal const& no) { host_.impossible(rank, no.fault, no.reason); };
    return host;
  }

  /// Returns why a rank that has proved to be of the job cannot have the channel that it asks for; empty if it can.
  std::optional<wire::Refusal> judge(wire::Identity const& who, asio::ip::tcp::endpoint const& from) {
    auto const them = name(who.rank), me = name(setup_.me());
    auto const ours = setup_.identity.incarnation;
    auto const both =
        them + " is of incarnation " + std::to_string(who.incarnation) + ", and " + me + " of " + std::to_string(ours);
    if (who.incarnation < ours) return wire::Refusal{Fault::evicted, both};
    if (who.incarnation > ours) return wire::Refusal{Fault::join_timeout, both};
    if (who.channel < 2 * kinds && (who.channel >= kinds) != setup_.sealed)
      return wire::Refusal{Fault::world_mismatch, (setup_.sealed ? me : them) + " seals its frames, and " +
                                                      (setup_.sealed ? them : me) + " does not"};
    if (who.channel >= 2 * kinds || who.rank < setup_.me())
      return wire::Refusal{Fault::world_mismatch,
                           them + " does not call " + me + " on channel " + std::to_string(who.channel)};
    if (who.channel % kinds == data && !member(who.rank).linked)
      return wire::Refusal{Fault::world_mismatch, them + " calls " + me + " for data, and they have no link"};
    auto& channel = member(who.rank).channels[who.channel % kinds];
    if (!channel.here || (!complete_ && channel.line && has_ended(channel.line->socket))) return std::nullopt;
    return wire::Refusal{Fault::duplicate_rank, "two processes claim to be " + them + ": the first called " + me +
                                                    " from " + detail::text(channel.from) + ", the second from " +
                                                    detail::text(from)};
  }

  static bool has_ended(Socket& socket) {
    auto byte    = std::byte{};
    auto const n = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }

  void admit(wire::Identity const& who, AuthenticatedSocket with) {
    auto& channel = member(who.rank).channels[who.channel % kinds];
    channel.here  = true;
    channel.from  = with.remote;
    if (!setup_.sealed) with.key.reset();
    if (who.channel % kinds == control) {
      auto& old = member(who.rank).channels[data];  // belongs to an earlier control connection
      old.here  = false;
      old.line.reset();
      host_.control(who.rank, who.incarnation, std::move(with));
    } else {
      channel.line = std::move(with);
    }
    finish_if_complete();
  }

  void finish_if_complete() {
    if (complete_ || first_missing() != setup_.size()) return;
    complete_ = true;
    host_.complete();
  }

  asio::io_context& io_;
  Listener& listener_;
  Setup const& setup_;
  Host host_;
  std::vector<Member> members_;  // [rank]
  IdentityProbe doubt_;          // for connections that are refused
  bool complete_ = false;
};

}  // namespace chorale::tcp
