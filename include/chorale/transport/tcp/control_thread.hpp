// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/listener.hpp>
#include <chorale/transport/tcp/membership.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Control thread of a rank: connects it with the others, sends heartbeats, and detects and reports failures.
///
/// keeps   one thread, and one connection to each rank; never touches the memory of a message. However many faults
///         there are, ThreadSharedState gets one root cause, the same on all live ranks
class ControlThread {
 public:
  /// Starts to listen, which replaces port 0 by a free port. Does not start the thread.
  ControlThread(Setup setup, bool insecure_network, ThreadSharedState& shared)
      : setup_{std::move(setup)}, shared_{shared}, listener_{io_,
                                                             setup_.addresses[static_cast<std::size_t>(setup_.me())],
                                                             setup_.secret.has_value(),
                                                             insecure_network,
                                                             setup_.me(),
                                                             NamePatience::within(setup_.timeouts.join, setup_.log)} {}

  ~ControlThread() { leave(); }
  ControlThread(ControlThread const&)            = delete;
  ControlThread& operator=(ControlThread const&) = delete;

  std::uint16_t port() const { return listener_.port(); }

  /// addresses   [rank], now with the ports on which the ranks listen
  void start(std::vector<TcpAddress> addresses) {
    setup_.addresses = std::move(addresses);
    join_.emplace(io_, listener_, setup_, join_host());
    conference_.emplace(io_, setup_, shared_, conference_host());
    asio::post(io_, [this] { begin(); });
    thread_ = NamedThread{"rank " + std::to_string(setup_.me()) + " watch", [this] { run(); }};
  }

  /// Throws the reason if this rank cannot join.
  ///
  /// throws  PeerLost, Disagreement, OutOfDescriptors
  void throw_if_failed() {
    auto const lock = std::scoped_lock{mutex_};
    if (starved_ != 0) throw_no_socket(starved_);
    if (shared_.settled()) shared_.throw_root_cause(setup_.me());
  }

  /// Returns the sockets of the data connections, [rank]. Only after all ranks have connected.
  std::vector<DataSocket> take_lines() {
    auto const lock = std::scoped_lock{mutex_};
    return std::move(lines_);
  }

  /// Reports that the working thread could not use its connection to a rank. Returns when there is a root cause, or at
  /// once with FailureScope::peer.
  ///
  /// fate    closed: messages that the rank had sent may still be received
  void report(Rank rank, detail::ConnectionFault fault, PeerState fate) {
    asio::post(io_, [this, rank, fault = std::move(fault), fate] { conference_->suspect(rank, fault, fate); });
    if (setup_.failures == FailureScope::group) shared_.wait_until_settled();
  }

  /// Fails this rank. Returns when there is a root cause.
  void fail(std::string const& why, Fault fault) {
    if (setup_.failures == FailureScope::peer) fault = Fault::peer_lost;
    asio::post(io_, [this, why, fault] { conference_->detect(setup_.me(), fault, why); });
    shared_.wait_until_settled();
  }

  /// Sends a goodbye, and compares how all ranks end: ThreadSharedState is then closed, or gets a root cause.
  void close() {
    asio::post(io_, [this] { conference_->close(); });
  }

  /// Frees the address of this rank, or listens on it again. Returns when it is done.
  void listen(bool on) {
    auto const done = std::make_shared<JoinLatch>(1);
    asio::post(io_, [this, on, done] {
      listener_.listen(on);
      done->one_more();
    });
    done->wait([&] {
      if (shared_.settled()) done->fail();  // the thread may have ended
    });
  }

  /// Sends a goodbye, and ends the thread.
  void leave() {
    if (!conference_ || left_) return;
    left_ = true;
    asio::post(io_, [this] {
      conference_->say_goodbye();
      stop_when_sent(50);
    });
    thread_ = {};
  }

 private:
  void run() {
    try {
      io_.run();
    } catch (std::exception const& error) {  // out of memory, or a log that throws
      settle(shared_.loss(Fault::peer_lost, setup_.me(), {}, error.what()));
    }
  }

  void begin() {
    join_timer_.expires_after(setup_.timeouts.join);
    join_timer_.async_wait([this](auto stopped) {
      if (!stopped) give_up_joining();
    });
    report_missing();
    conference_->start();
    join_->start();
  }

  MeshBuilder::Host join_host() {
    auto host    = MeshBuilder::Host{};
    host.control = [this](Rank rank, std::uint32_t incarnation, AuthenticatedSocket with) {
      conference_->add(rank, incarnation, std::move(with));
    };
    host.complete   = [this] { finish_joining(); };
    host.starved    = [this](int error) { starve(error); };
    host.impossible = [this](Rank rank, Fault fault, std::string const& reason) {
      auto const mine = fault == Fault::evicted || fault == Fault::duplicate_rank;
      conference_->detect(mine ? setup_.me() : rank, fault, reason);
    };
    return host;
  }

  Membership::Host conference_host() {
    auto host       = Membership::Host{};
    host.agreed     = [this](Rank rank) { join_->plans_agree(rank); };
    host.settled    = [this](Loss loss) { settle(std::move(loss)); };
    host.say        = [this](std::string const& line) { say(line); };
    host.may_return = [this](Rank rank) {
      if (join_->complete()) return false;
      join_->forget(rank);
      return true;
    };
    return host;
  }

  void say(std::string const& line) { setup_.log("rank " + std::to_string(setup_.me()) + ": " + line); }

  void report_missing() {
    report_timer_.expires_after(setup_.report_every);
    report_timer_.async_wait([this](auto stopped) {
      if (stopped || join_->complete() || conference_->has_cause()) return;
      say("waiting for " + join_->missing());
      report_missing();
    });
  }

  void give_up_joining() {
    if (join_->complete()) return;
    auto const waited = std::chrono::duration<double>(setup_.timeouts.join).count();
    conference_->detect(join_->first_missing(), Fault::join_timeout,
                        formatted("after %.1f s rank %d still misses ", waited, setup_.me()) + join_->missing());
  }

  void finish_joining() {
    join_timer_.cancel();
    report_timer_.cancel();
    conference_->joined();
    {
      auto const lock = std::scoped_lock{mutex_};
      lines_          = join_->take_data();
    }
    setup_.arrivals->one_more();
  }

  void settle(Loss loss) {
    shared_.settle(std::move(loss));
    setup_.arrivals->fail();
  }

  void starve(int error) {
    if (join_->complete()) return say("cannot accept a connection: " + errno_text(error));
    {
      auto const lock = std::scoped_lock{mutex_};
      starved_        = error;
    }
    setup_.arrivals->fail();
  }

  void stop_when_sent(int tries) {
    if (conference_->has_sent_all() || tries == 0) return io_.stop();
    join_timer_.expires_after(std::chrono::milliseconds{1});
    join_timer_.async_wait([this, tries](auto) { stop_when_sent(tries - 1); });
  }

  asio::io_context io_{1};  // first: other members use it
  Setup setup_;
  ThreadSharedState& shared_;
  Listener listener_;
  std::optional<MeshBuilder> join_;
  std::optional<Membership> conference_;
  asio::steady_timer join_timer_{io_}, report_timer_{io_};
  bool left_ = false;

  std::mutex mutex_;  // of starved_ and lines_
  int starved_ = 0;   // an errno
  std::vector<DataSocket> lines_;
  NamedThread thread_;  // last: ends before the rest is destroyed
};

}  // namespace chorale::tcp
