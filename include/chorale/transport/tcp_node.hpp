// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/frame.hpp>
#include <chorale/transport/tcp_control.hpp>
#include <chorale/transport/tcp_inbox.hpp>
#include <chorale/transport/tcp_outbox.hpp>
#include <chorale/transport/tcp_socket.hpp>
#include <chorale/transport/tcp_standing.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::detail {

/// What a rank sends to itself: one copy, when both sides are there.
class ToSelf {
 public:
  explicit ToSelf(Rank me) : ends_{me, me, 0} {}

  WantedList sends, recvs;                                                 // of the first, `left` is only read

  /// throws  LinkFault
  bool meet() {
    auto any = false;
    for (int place = 0; place < static_cast<int>(messages_per_link); ++place) {
      if (recvs.is_over(place, recvs[place].turn)) continue;
      auto& in       = recvs[recvs.oldest(recvs[place].tag)];
      auto const out = sends.oldest(in.tag);
      if (out == WantedList::none) continue;
      auto head        = wire::Header{};
      head.sequence    = sends[out].announced.sequence;
      head.fingerprint = sends[out].announced.fingerprint;
      head.count       = sends[out].size;
      expect_same(ends_, in, head, sends[out].size, false);
      if (in.size != 0) std::memcpy(in.left.data(), sends[out].left.data(), in.size);
      sends.finish(out);
      recvs.finish(recvs.oldest(in.tag));
      any = true;
    }
    return any;
  }

 private:
  Ends ends_;
};

/// One rank's connections, as its working thread uses them.
class TcpNode {
 public:
  TcpNode(TcpSetup setup, bool insecure_network, int ranks_here)
      : rank_{setup.me()}, incarnation_{setup.identity.incarnation},
        spins_{static_cast<unsigned>(ranks_here) <= std::thread::hardware_concurrency() ? 200 : 0},
        self_{setup.me()}, links_(static_cast<std::size_t>(setup.size())),
        control_{std::move(setup), insecure_network, standing_} {
    polled_.reserve(links_.size() + 1);
  }

  ~TcpNode() {
    if (!standing_.settled()) say_goodbye();
    control_.leave();
    for (auto& link : links_)
      if (link.socket.open()) hang_up(link.socket.get());
  }
  TcpNode(TcpNode const&)            = delete;
  TcpNode& operator=(TcpNode const&) = delete;

  std::uint16_t port() const { return control_.port(); }
  void start(std::vector<TcpAddress> addresses) { control_.start(std::move(addresses)); }

  /// throws  PeerLost, Disagreement, OutOfDescriptors
  void throw_if_failed() { control_.throw_if_failed(); }

  /// Only when all ranks are there.
  void finish_start() {
    auto sockets = control_.take_sockets();
    for (Rank peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      auto& l  = link(peer);
      l.socket = std::move(sockets[static_cast<std::size_t>(peer)]);
      l.inbox  = TcpInbox{{rank_, peer, incarnation_}};
    }
  }

  Rank rank() const { return rank_; }
  int  size() const { return static_cast<int>(links_.size()); }

  void announce(Operation const& operation) {
    check();
    announced_.add(operation);
    standing_.now_in(operation, announced_.last());
  }
  void begin_step(std::uint64_t step) { standing_.step.store(step, std::memory_order_relaxed); }

  void fail(std::string const& why) {
    if (!standing_.settled()) control_.fail(why);
  }

  void check() const {
    if (standing_.settled()) standing_.throw_verdict(rank_);
  }

  /// The number of the message for is_sent().
  std::uint64_t send(Rank peer, Tag tag, ConstBytes out) {
    auto const& announced = announced_.of(tag);
    auto& l               = link(peer);
    wait_until(peer, [&] { return !l.outbox.full(); });
    auto head        = wire::Header{};
    head.incarnation = incarnation_;
    head.from        = rank_;
    head.to          = peer;
    head.tag         = tag;
    head.sequence    = announced.sequence;
    head.fingerprint = announced.fingerprint;
    head.collective  = announced.operation.collective;
    head.op          = announced.operation.op;
    head.element     = announced.operation.element;
    head.count       = announced.sequence == 0 ? out.size() : announced.operation.count;
    auto const number = l.outbox.post(head, out);
    guarded(peer, [&] { standing_.add_moved(l.outbox.flush(l.socket.get())); });
    return number;
  }

  /// The place of the message for is_received().
  int recv(Rank peer, Tag tag, Bytes in) {
    auto& l = link(peer);
    wait_until(peer, [&] { return !l.inbox.full(); });
    auto place = 0;
    guarded(peer, [&] { place = l.inbox.post(announced_.of(tag), tag, in); });
    return place;
  }

  int send_to_self(Tag tag, ConstBytes out) {
    wait_until(rank_, [&] { return !self_.sends.full(); });
    return self_.sends.post(announced_.of(tag), tag, {const_cast<std::byte*>(out.data()), out.size()});
  }
  int recv_from_self(Tag tag, Bytes in) {
    wait_until(rank_, [&] { return !self_.recvs.full(); });
    return self_.recvs.post(announced_.of(tag), tag, in);
  }

  TcpOutbox const& outbox(Rank peer) const { return links_[static_cast<std::size_t>(peer)].outbox; }
  TcpInbox const&  inbox(Rank peer) const { return links_[static_cast<std::size_t>(peer)].inbox; }
  ToSelf const&    self() const { return self_; }

  /// Gives sockets what they take, and takes what they have; true when something moved.
  bool progress() {
    auto moved = std::size_t{0};
    for (Rank peer = 0; peer < size(); ++peer) {
      auto& l = link(peer);
      if (!l.outbox.empty()) guarded(peer, [&] { moved += l.outbox.flush(l.socket.get()); });
      if (l.inbox.wants()) guarded(peer, [&] { moved += l.inbox.receive(l.socket.get(), announced_); });
    }
    auto met = false;
    if (!self_.recvs.empty()) guarded(rank_, [&] { met = self_.meet(); });
    if (moved != 0) standing_.add_moved(moved);
    return moved != 0 || met;
  }

  /// One look: true when it is over, perhaps after some progress.
  template <class Over>
  bool look(Rank peer, Over over) {
    check();
    if (over()) return true;
    standing_.add_look(peer);
    progress();
    return over();
  }

  /// throws  PeerLost, Disagreement
  template <class Over>
  void wait_until(Rank peer, Over over) {
    auto patience = Patience{spins_};
    for (check(); !over(); check()) {
      standing_.add_look(peer);
      if (progress()) patience = Patience{spins_};
      else if (patience.asleep()) sleep();
      else patience.pause();
    }
  }

 private:
  struct Link {
    Descriptor socket{};
    TcpOutbox outbox{};
    TcpInbox  inbox{};
  };

  static constexpr int longest_sleep = 100;                                // ms: then a message may be put aside

  Link& link(Rank peer) { return links_[static_cast<std::size_t>(peer)]; }

  template <class F>
  void guarded(Rank peer, F f) {
    auto fault = std::optional<LinkFault>{};
    try {
      f();
    } catch (LinkFault& found) {
      fault = std::move(found);
    }
    if (!fault) return;
    control_.report(peer, std::move(*fault));
    standing_.throw_verdict(rank_);
  }

  /// Until a socket is ready or there is a verdict.
  void sleep() {
    polled_.assign(1, {standing_.wake(), POLLIN, 0});
    for (auto const& link : links_) {
      auto const events = (link.outbox.empty() ? 0 : POLLOUT) | (link.inbox.can_read() ? POLLIN : 0);
      if (events != 0) polled_.push_back({link.socket.get(), static_cast<short>(events), 0});
    }
    standing_.sleeps.store(true, std::memory_order_relaxed);
    ::poll(polled_.data(), polled_.size(), longest_sleep);
    standing_.sleeps.store(false, std::memory_order_relaxed);
  }

  void say_goodbye() {
    for (Rank peer = 0; peer < size(); ++peer) {
      auto& l = link(peer);
      if (!l.socket.open() || !l.outbox.empty()) continue;
      auto head        = wire::Header{};
      head.type        = wire::FrameType::goodbye;
      head.incarnation = incarnation_;
      head.from        = rank_;
      head.to          = peer;
      auto bytes       = wire::HeaderBytes{};
      wire::write(head, bytes);
      ::send(l.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  // Closing a socket with unread bytes in it would throw away what the peer has not got yet.
  static void hang_up(int socket) {
    auto bytes = std::array<std::byte, 4096>{};
    ::shutdown(socket, SHUT_WR);
    while (::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {}
  }

  Rank rank_;
  std::uint32_t incarnation_;
  int spins_;
  Announcements announced_;
  ToSelf self_;
  std::vector<Link> links_;                                                // [rank]
  std::vector<pollfd> polled_;
  TcpStanding standing_;
  TcpControl control_;                                                     // last: its thread uses standing_
};

}  // namespace chorale::detail
