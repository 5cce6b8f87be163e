// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/tcp/control_thread.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/receive_queue.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Messages of a rank to itself: copied once, when the send and the receive are posted.
class SelfConnection {
 public:
  explicit SelfConnection(Rank me) : ends_{me, me, 0} {}

  PostedReceives sends, recvs;  // `left` of a send is only read

  /// Completes sends and receives that match; true if there were any. Throws ConnectionFault.
  bool meet() {
    auto any = false;
    for (int place = 0; place < recvs.places(); ++place) {
      if (recvs.is_over(place, recvs[place].turn)) continue;
      auto& in       = recvs[recvs.oldest(recvs[place].tag)];
      auto const out = sends.oldest(in.tag);
      if (out == PostedReceives::none) continue;
      auto head        = wire::Header{};
      head.sequence    = sends[out].announced.sequence;
      head.fingerprint = sends[out].announced.fingerprint;
      head.count       = sends[out].size;
      detail::expect_same(ends_, in, head, sends[out].size, false);
      if (in.size != 0) std::memcpy(in.left.data(), sends[out].left.data(), in.size);
      sends.finish(out);
      recvs.finish(recvs.oldest(in.tag));
      any = true;
    }
    return any;
  }

 private:
  detail::Ends ends_;
};

/// Data connection to another rank, with the messages on it.
///
/// broken   with FailureScope::peer: a fault of this direction was reported, and it is not used any more
template <wire::Protection P> struct DataConnection {
  FileDescriptor socket{};
  SendQueue<P> outbox{};
  ReceiveQueue<P> inbox{};
  std::optional<P> protection{};
  std::uint8_t minor = wire::version.minor;  // of the wire version that both ends use
  bool out_broken = false, in_broken = false;
  bool said_goodbye = false;

  /// ends    without the minor, which `line` has
  void open(detail::Ends ends, DataSocket line) {
    ends.minor = minor = line.minor;
    socket             = std::move(line.socket);
    inbox              = ReceiveQueue<P>{ends};
    if constexpr (P::tag_bytes != 0) protection.emplace(line.key->session, line.key->end);
    else protection.emplace();
  }

  /// Sends a goodbye frame, once, if no message is left to send. The peer reads it after all messages.
  ///
  /// ends    of this rank, with its own incarnation
  /// last    the operation that this rank announced last
  void say_goodbye(detail::Ends ends, detail::LoggedOperation const& last) {
    if (!socket.is_open() || !outbox.empty() || std::exchange(said_goodbye, true)) return;
    auto head        = wire::Header{};
    head.type        = wire::FrameType::goodbye;
    head.incarnation = ends.incarnation;
    head.from        = ends.me;
    head.to          = ends.peer;
    head.minor       = minor;
    if (last.sequence != 0) describe(head, last);
    auto bytes = wire::HeaderBytes{};
    auto tag   = std::array<std::byte, P::tag_bytes>{};
    wire::write(head, bytes);
    protection->seal(bytes, {}, {}, tag);
    auto parts        = std::array{iovec{bytes.data(), bytes.size()}, iovec{tag.data(), tag.size()}};
    auto packet       = msghdr{};
    packet.msg_iov    = parts.data();
    packet.msg_iovlen = parts.size();
    ::sendmsg(socket.number(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Closing a socket with unread bytes in it would throw away what the peer has not got yet.
  void hang_up() {
    if (!socket.is_open()) return;
    auto bytes = std::array<std::byte, 4096>{};
    ::shutdown(socket.number(), SHUT_WR);
    while (::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {}
  }
};

/// Direction of a message, as seen by this rank.
enum class Direction { out, in };

/// Progress engine of one rank: sends and receives messages on its working thread, and starts its control thread.
template <wire::Protection P> class ProgressEngine {
 public:
  ProgressEngine(Setup setup, bool insecure_network, int ranks_here)
      : rank_{setup.me()}, incarnation_{setup.identity.incarnation}, spins_{ranks_here <= usable_cores() ? 200 : 0},
        self_{setup.me()}, links_(static_cast<std::size_t>(setup.size())), shared_{setup.size(), setup.failures},
        control_{std::move(setup), insecure_network, shared_} {
    polled_.reserve(links_.size() + 1);
  }

  ~ProgressEngine() {
    if (!shared_.settled()) say_goodbye();
    control_.leave();
    for (auto& link : links_) link.hang_up();
  }
  ProgressEngine(ProgressEngine const&)            = delete;
  ProgressEngine& operator=(ProgressEngine const&) = delete;

  std::uint16_t port() const { return control_.port(); }
  void start(std::vector<TcpAddress> addresses) { control_.start(std::move(addresses)); }

  /// throws  PeerLost, Disagreement, OutOfDescriptors
  void throw_if_failed() { control_.throw_if_failed(); }

  /// Opens the data connections. Only after all ranks have connected.
  void finish_start() {
    auto lines = control_.take_lines();
    for (Rank peer = 0; peer < size(); ++peer) {
      auto& line = lines[static_cast<std::size_t>(peer)];
      if (!line.socket.is_open()) continue;
      link(peer).open({rank_, peer, incarnation_}, std::move(line));
      linked_.push_back(peer);
    }
  }

  /// Begins a call of the thread that owns this rank. The functions below need it, except begin_step(), fail(), lost().
  ///
  /// throws  BadArgument when another thread owns it
  auto use() {
    return owner_.use(rank_, [this] { return is_idle(); });
  }

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }

  void announce(Operation const& operation, auto const&... group) {
    check();
    shared_.announce(operation, group...);
  }
  void begin_step(std::uint64_t step) { shared_.step.store(step, std::memory_order_relaxed); }

  void fail(std::string const& why, Fault fault) {
    if (!shared_.settled()) control_.fail(why, fault);
  }

  void listen(bool on) { control_.listen(on); }

  void check() const {
    if (shared_.settled()) shared_.throw_root_cause(rank_);
  }

  /// Throws if the group has failed or, with FailureScope::peer, the peer is lost for this direction.
  void check(Rank peer, Direction way) const {
    check();
    auto const fate = shared_.fate(peer);
    if (fate == PeerState::lost || (fate == PeerState::closed && way == Direction::out)) {
      detail::throw_peer_loss(rank_, shared_.loss_of(peer));
    }
  }

  /// True if nothing can be received from that rank any more.
  bool lost(Rank peer) const {
    if (shared_.settled()) return true;
    auto const& l   = links_[static_cast<std::size_t>(peer)];
    auto const fate = shared_.fate(peer);
    return fate == PeerState::lost ||
           (fate == PeerState::closed && (l.in_broken || !l.inbox.has_more(l.socket.number())));
  }

  /// Enqueues a message, and returns its number for SendQueue::sent().
  std::uint64_t send(Rank peer, Tag tag, ConstBytes out) {
    auto const& announced = announced_.of(tag, peer);
    auto& l               = link_with(peer);
    check(peer, Direction::out);
    wait_until(peer, Direction::out, announced.sequence, [&] { return !l.outbox.full(); });
    auto head        = wire::Header{};
    head.incarnation = incarnation_;
    head.from        = rank_;
    head.to          = peer;
    head.minor       = l.minor;
    describe(head, announced);
    head.tag = tag;
    if (announced.sequence == 0) head.count = out.size();
    auto const number = l.outbox.post(head, out);
    flush(peer, l);
    return number;
  }

  /// Posts a receive, and returns its place for ReceiveQueue::received().
  int recv(Rank peer, Tag tag, Bytes in) {
    auto const& announced = announced_.of(tag, peer);
    auto& l               = link_with(peer);
    check(peer, Direction::in);
    wait_until(peer, Direction::in, announced.sequence, [&] { return !l.inbox.full(); });
    auto place = PostedReceives::none;
    guarded(peer, l.in_broken, PeerState::lost, [&] { place = l.inbox.post(announced, tag, in); });
    if (place == PostedReceives::none) wait_until(peer, Direction::in, 0, [] { return false; });  // throws the loss
    return place;
  }

  int send_to_self(Tag tag, ConstBytes out) {
    check();
    wait_until(rank_, Direction::out, 0, [&] { return !self_.sends.full(); });
    return self_.sends.post(announced_.of(tag, rank_), tag, {const_cast<std::byte*>(out.data()), out.size()});
  }
  int recv_from_self(Tag tag, Bytes in) {
    check();
    wait_until(rank_, Direction::in, 0, [&] { return !self_.recvs.full(); });
    return self_.recvs.post(announced_.of(tag, rank_), tag, in);
  }

  SendQueue<P> const& outbox(Rank peer) const { return links_[static_cast<std::size_t>(peer)].outbox; }
  ReceiveQueue<P> const& inbox(Rank peer) const { return links_[static_cast<std::size_t>(peer)].inbox; }
  SelfConnection const& self() const { return self_; }

  /// Sends and receives as much as the sockets allow; true if something moved.
  bool progress() {
    auto const before = moves_;
    for (Rank const peer : linked_) {
      auto& l = link(peer);
      if (!l.outbox.empty()) flush(peer, l);
      if (l.inbox.wants()) receive(peer, l);
    }
    if (!self_.recvs.empty()) guarded(rank_, self_broken_, PeerState::lost, [&] { moves_ += self_.meet() ? 1 : 0; });
    return moves_ != before;
  }

  /// Polls a message: true if over(), perhaps after some progress.
  ///
  /// operation   number of the message's operation; 0 for none
  template <class Over> bool look(Rank peer, Direction way, std::uint64_t operation, Over over) {
    check();
    if (over()) return true;
    check(peer, way);
    if (shared_.failures == FailureScope::peer) shared_.add_poll();
    else shared_.add_look(peer, operation);
    progress();
    return over();
  }

  /// Makes progress until over() is true.
  ///
  /// operation   see look()
  /// throws      PeerLost, Disagreement
  template <class Over> void wait_until(Rank peer, Direction way, std::uint64_t operation, Over over) {
    auto patience = Backoff{spins_};
    for (check(); !over(); check()) {
      check(peer, way);
      shared_.add_look(peer, operation);
      if (progress()) patience = Backoff{spins_};
      else if (patience.asleep()) sleep(shared_.sleeps, longest_sleep);
      else patience.pause();
    }
  }

  /// Reports that this rank calls no more operations, and returns when all ranks have reported it.
  void close() {
    check();
    if (shared_.failures == FailureScope::peer || size() == 1) return;
    for (Rank const peer : linked_) {
      auto const& outbox = link(peer).outbox;
      if (!outbox.empty()) wait_until(peer, Direction::out, outbox.operation(), [&] { return outbox.empty(); });
    }
    say_goodbye();
    control_.close();
    wait_until((rank_ + 1) % size(), Direction::in, 0, [&] { return shared_.closed(); });
  }

  /// Waits until something has moved since the last call, or a rank is lost; false if the time is over first.
  bool wait_any(std::chrono::nanoseconds longest) {
    auto const deadline = Deadline::after(longest);
    for (int turns = 0;; ++turns) {
      check();
      progress();
      auto const moved = std::exchange(seen_moves_, moves_) != moves_, lost = has_new_fates();
      if (moved || lost) return true;
      if (deadline.passed()) return false;
      shared_.add_poll();
      if (turns < spins_) relax();
      else if (turns < spins_ + rests) std::this_thread::yield();
      else
        sleep(shared_.rests,
              std::min<std::chrono::nanoseconds>(deadline.at - std::chrono::steady_clock::now(), longest_sleep));
    }
  }

 private:
  using Link = DataConnection<P>;

  static constexpr auto longest_sleep = std::chrono::milliseconds{100};  // then a message may become unexpected
  static constexpr int rests          = 20;                              // yields of wait_any() before it sleeps

  Link& link(Rank peer) { return links_[static_cast<std::size_t>(peer)]; }

  bool is_idle() const {
    auto const idle = [](Link const& l) { return l.outbox.empty() && !l.inbox.wants(); };
    return self_.sends.empty() && self_.recvs.empty() && std::ranges::all_of(links_, idle);
  }

  void say_goodbye() {
    for (Rank peer = 0; peer < size(); ++peer)
      link(peer).say_goodbye({rank_, peer, incarnation_}, announced_.at(announced_.last()));
  }

  Link& link_with(Rank peer) {
    CHORALE_EXPECTS(link(peer).socket.is_open(),
                    "rank " + std::to_string(rank_) + " and rank " + std::to_string(peer) +
                        " have no connection for data: TcpTransport::topology leaves it out. "
                        "Use Topology::all_pairs(), or topology_of<..>() of all schedules");
    return link(peer);
  }

  void flush(Rank peer, Link& l) {
    if (l.out_broken || shared_.fate(peer) != PeerState::alive) return;
    guarded(peer, l.out_broken, PeerState::closed,
            [&] { moved(peer, l.outbox.flush(l.socket.number(), *l.protection)); });
  }
  void receive(Rank peer, Link& l) {
    if (l.in_broken || shared_.fate(peer) == PeerState::lost) return;
    guarded(peer, l.in_broken, PeerState::lost,
            [&] { moved(peer, l.inbox.receive(l.socket.number(), announced_, *l.protection)); });
  }
  void moved(Rank peer, std::size_t bytes) {
    if (bytes == 0) return;
    ++moves_;
    shared_.add_moved(peer, bytes);
  }

  /// Calls f, and reports its fault. With FailureScope::peer it does not throw: the rank's PeerState changes later.
  template <class F> void guarded(Rank peer, bool& broken, PeerState fate, F f) {
    auto fault = std::optional<detail::ConnectionFault>{};
    try {
      f();
    } catch (detail::ConnectionFault& found) { fault = std::move(found); }
    if (!fault) return;
    broken = true;
    control_.report(peer, std::move(*fault), fate);
    if (shared_.failures == FailureScope::group) shared_.throw_root_cause(rank_);
  }

  bool has_new_fates() {
    auto const fates = shared_.fates();
    return std::exchange(seen_fates_, fates) != fates;
  }

  /// Sleeps until a socket is ready, a rank is lost, or the time is over.
  ///
  /// asleep  true meanwhile
  void sleep(std::atomic<bool>& asleep, std::chrono::nanoseconds longest) {
    polled_.assign(1, {shared_.wake(), POLLIN, 0});
    for (Rank const peer : linked_) {
      auto const& l     = link(peer);
      auto const fate   = shared_.fate(peer);
      auto const events = (l.outbox.empty() || l.out_broken || fate != PeerState::alive ? 0 : POLLOUT) |
                          (l.inbox.can_read() && !l.in_broken && fate != PeerState::lost ? POLLIN : 0);
      if (events != 0) polled_.push_back({l.socket.number(), static_cast<short>(events), 0});
    }
    auto const ns   = std::max<std::chrono::nanoseconds>(longest, std::chrono::nanoseconds{1}).count();
    auto const time = timespec{ns / 1'000'000'000, ns % 1'000'000'000};
    asleep.store(true, std::memory_order_relaxed);
    ::ppoll(polled_.data(), polled_.size(), &time, nullptr);
    asleep.store(false, std::memory_order_relaxed);
    if (polled_[0].revents != 0) shared_.silence();
  }

  OwnerThread owner_;
  Rank rank_;
  std::uint32_t incarnation_;
  int spins_;
  SelfConnection self_;
  std::vector<Link> links_;   // [rank]
  std::vector<Rank> linked_;  // those with a data connection
  std::vector<pollfd> polled_;
  std::uint64_t moves_ = 0, seen_moves_ = 0, seen_fates_ = 0;  // seen: by wait_any()
  bool self_broken_ = false;
  ThreadSharedState shared_;
  detail::OperationLog const& announced_ = shared_.announced();
  ControlThread control_;  // last: its thread uses shared_
};

}  // namespace chorale::tcp
