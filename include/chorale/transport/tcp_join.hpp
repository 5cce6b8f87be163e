// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/asio.hpp>
#include <chorale/transport/handshake.hpp>
#include <chorale/transport/limits.hpp>
#include <chorale/transport/tcp_address.hpp>
#include <chorale/transport/tcp_dial.hpp>
#include <chorale/transport/tcp_listener.hpp>
#include <chorale/transport/tcp_socket.hpp>

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

namespace chorale::detail {

/// Lets the one who connects the ranks of this process wait for all of them, or for the first that cannot join.
class Arrivals {
 public:
  explicit Arrivals(int ranks) : missing_{ranks} {}

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

  void wait() {
    auto lock = std::unique_lock{mutex_};
    changed_.wait(lock, [&] { return missing_ == 0 || failed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int missing_;
  bool failed_ = false;
};

/// What a rank is told about its job, and how it is to behave in it.
struct TcpSetup {
  std::vector<TcpAddress> addresses;                                       // [rank]
  wire::Identity identity;                                                 // of this rank; the plan is compared later
  std::vector<std::string> plan;                                           // at most wire::max_plan_bytes
  std::optional<Secret> secret;
  Limits limits;
  std::chrono::nanoseconds report_every{};                                 // while ranks are missing
  std::function<void(std::string const&)> log;
  std::shared_ptr<Arrivals> arrivals;

  Rank me() const { return identity.rank; }
  int  size() const { return identity.world; }
};

/// Connects a rank with all others, twice: channel 0 for control, and when the plans agree, channel 1 for data.
///
///   rank 0 ◀──── rank 1 ◀──── rank 2          a rank calls all that are below it, and is called by all above it
///      ▲                        │
///      └────────────────────────┘
///
/// keeps   on one thread, that of the io_context; what it tells is told there. After all ranks are there it goes on
///         listening, only to refuse
class TcpJoin {
 public:
  using Socket = asio::ip::tcp::socket;

  struct Host {
    std::function<void(Rank, std::uint32_t, Socket)> control;              // channel 0 to that rank; its incarnation
    std::function<void()> complete;                                        // all channels are
    std::function<void(Rank, Fault, std::string const&)> impossible;       // a part of a sentence
    std::function<void(int)> starved;                                      // of descriptors; the errno
  };

  TcpJoin(asio::io_context& io, TcpListener& listener, TcpSetup const& setup, Host host)
      : io_{io}, listener_{listener}, setup_{setup}, host_{std::move(host)},
        members_(static_cast<std::size_t>(setup.size())) {}

  void start() {
    auto to = TcpListener::Host{};
    to.identity = setup_.identity;
    to.secret   = setup_.secret;
    to.limits   = setup_.limits;
    to.log      = [this](std::string const& line) { setup_.log(name(setup_.me()) + ": " + line); };
    to.judge    = [this](auto const& who, auto const& from) { return judge(who, from); };
    to.admit    = [this](auto const& who, Socket socket, auto const& from) { admit(who, std::move(socket), from); };
    to.starved  = [this](int error) { host_.starved(error); };
    listener_.start(std::move(to));
    for (Rank rank = 0; rank < setup_.me(); ++rank) dial(rank, control);
    finish_if_complete();
  }

  /// The plans of this rank and of that one are the same.
  void plans_agree(Rank rank) {
    if (rank < setup_.me()) dial(rank, data);
  }

  /// The control connection of this rank is gone: it has to come again.
  void forget(Rank rank) {
    for (auto& channel : member(rank).channels) {
      if (channel.dial) channel.dial->stop();
      channel.here   = false;
      channel.socket = std::nullopt;
    }
    if (rank < setup_.me()) dial(rank, control);
  }

  bool complete() const { return complete_; }

  /// "1 of 4: rank 3 (10.0.0.7:2222): Connection refused"
  std::string missing() const {
    auto s = std::string{};
    int  n = 0;
    for (Rank rank = 0; rank < setup_.size(); ++rank) {
      if (is_here(rank)) continue;
      s += (n++ == 0 ? "" : ", ") + name(rank) + " (" + address(rank) + "): " + problem(rank);
    }
    return std::to_string(n) + " of " + std::to_string(setup_.size()) + ": " + s;
  }
  Rank first_missing() const {
    Rank rank = 0;
    while (rank < setup_.size() && is_here(rank)) ++rank;
    return rank;
  }

  /// The sockets of channel 1, of all ranks but this. Only once it is complete.
  std::vector<Descriptor> take_data() {
    auto sockets = std::vector<Descriptor>{};
    for (auto& m : members_) {
      auto& socket = m.channels[data].socket;
      sockets.push_back(socket ? Descriptor{socket->release()} : Descriptor{});
      socket.reset();
    }
    return sockets;
  }

  std::string address(Rank rank) const { return setup_.addresses[static_cast<std::size_t>(rank)].text(); }

 private:
  static constexpr std::size_t control = 0, data = 1;

  struct Channel {
    bool here = false;
    asio::ip::tcp::endpoint from{};
    std::optional<Socket> socket{};                                        // of data, until it is taken
    std::unique_ptr<TcpDial> dial{};
  };
  struct Member {
    std::array<Channel, 2> channels{};
  };

  static std::string name(Rank rank) { return "rank " + std::to_string(rank); }

  Member& member(Rank rank) { return members_[static_cast<std::size_t>(rank)]; }
  bool is_here(Rank rank) const {
    auto const& channels = members_[static_cast<std::size_t>(rank)].channels;
    return rank == setup_.me() || (channels[control].here && channels[data].here);
  }
  std::string problem(Rank rank) const {
    auto const& channels = members_[static_cast<std::size_t>(rank)].channels;
    auto const& dial     = channels[channels[control].here ? data : control].dial;
    if (rank > setup_.me()) return channels[control].here ? "has called only once" : "has not called";
    return dial && !dial->problem().empty() ? dial->problem() : "has not answered";
  }

  void dial(Rank rank, std::size_t channel) {
    auto& dial = member(rank).channels[channel].dial;
    if (!dial) {
      auto to     = TcpDial::Host{};
      to.identity = setup_.identity;
      to.identity.channel = static_cast<std::uint8_t>(channel);
      to.peer     = rank;
      to.address  = setup_.addresses[static_cast<std::size_t>(rank)];
      to.secret   = setup_.secret;
      to.limits   = setup_.limits;
      to.admit    = [this](auto const& who, Socket socket, auto const& from) { admit(who, std::move(socket), from); };
      to.refused  = [this, rank](wire::Refusal const& refusal) {
        host_.impossible(rank, refusal.fault, refusal.reason);
      };
      to.starved  = [this](int error) { host_.starved(error); };
      dial        = std::make_unique<TcpDial>(io_, std::move(to));
    }
    dial->start();
  }

  /// Why one who has proved to be of the job cannot have the place that it asks for; nothing when it can.
  std::optional<wire::Refusal> judge(wire::Identity const& who, asio::ip::tcp::endpoint const& from) {
    auto const them = name(who.rank), me = name(setup_.me());
    auto const ours = setup_.identity.incarnation;
    auto const both = them + " is of incarnation " + std::to_string(who.incarnation) + ", and " + me + " of " +
                      std::to_string(ours);
    if (who.incarnation < ours) return wire::Refusal{Fault::evicted, both};
    if (who.incarnation > ours) return wire::Refusal{Fault::join_timeout, both};
    if (who.channel > data || who.rank < setup_.me())
      return wire::Refusal{Fault::world_mismatch, them + " does not call " + me + " on channel " +
                                                      std::to_string(who.channel)};
    auto& channel = member(who.rank).channels[who.channel];
    if (!channel.here || (!complete_ && channel.socket && has_ended(*channel.socket))) return std::nullopt;
    return wire::Refusal{Fault::duplicate_rank, "two processes claim to be " + them + ": the first called " + me +
                                                    " from " + text(channel.from) + ", the second from " + text(from)};
  }

  static bool has_ended(Socket& socket) {
    auto byte    = std::byte{};
    auto const n = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }

  void admit(wire::Identity const& who, Socket socket, asio::ip::tcp::endpoint const& from) {
    auto& channel = member(who.rank).channels[who.channel];
    channel.here  = true;
    channel.from  = from;
    if (who.channel == control) host_.control(who.rank, who.incarnation, std::move(socket));
    else channel.socket = std::move(socket);
    finish_if_complete();
  }

  void finish_if_complete() {
    if (complete_ || first_missing() != setup_.size()) return;
    complete_ = true;
    host_.complete();
  }

  asio::io_context& io_;
  TcpListener& listener_;
  TcpSetup const& setup_;
  Host host_;
  std::vector<Member> members_;                                            // [rank]
  bool complete_ = false;
};

}  // namespace chorale::detail
