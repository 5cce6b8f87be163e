// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/host.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/abort_consensus.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/control_connection.hpp>
#include <chorale/transport/tcp/failure_detector.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>
#include <chorale/transport/tcp/position_check.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/control_messages.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Loses peers one by one, with FailureScope::peer. See Membership, which fails all ranks at once.
///
///   alive ──its connections end──▶ closed ──all that it had sent is received, or after Timeouts::dead──▶ lost
///     └────────────silent, stuck, damaged, or it reported that it failed────────────────────────────────▲
///
/// keeps   runs on one thread, the io_context's. The loss is reported only to the lost rank, so that it stops
///         waiting if it lives; each of the two ranks then throws a PeerLost that names the other
class PeerLossPolicy {
 public:
  struct Host {
    std::function<void(Rank)> forget;  // stops watching the rank
    std::function<void(Rank, Loss const&)> tell;
    std::function<bool(Rank)> hears;        // true if its control connection is open
    std::function<std::string(Rank)> name;  // of its host
  };

  PeerLossPolicy(asio::io_context& io, Setup const& setup, ThreadSharedState& shared, Host host)
      : io_{io}, setup_{setup}, shared_{shared}, host_{std::move(host)},
        drained_(static_cast<std::size_t>(setup.size())) {}

  /// Closes a rank that sends nothing more; it is lost at once if all that it had sent was received.
  void end(Rank rank, std::string const& reason) {
    settle(rank, drained_[static_cast<std::size_t>(rank)] ? PeerState::lost : PeerState::closed, Fault::peer_lost,
           reason);
  }

  /// Loses a rank, and reports the loss to it unless its connections have ended.
  void part(Rank rank, Fault fault, std::string const& reason) {
    if (shared_.fate(rank) == PeerState::lost) return;
    auto const known = shared_.fate(rank) == PeerState::closed;
    settle(rank, PeerState::lost, fault, reason);
    if (!known) host_.tell(rank, AbortConsensus::as_sent(shared_.loss_of(rank)));
  }

  /// Reports that the working thread could not use its connection to a rank.
  ///
  /// fate    closed: messages that the rank had sent may still be received
  void suspect(Rank rank, detail::ConnectionFault const& fault, PeerState fate) {
    auto const give_up = [this, rank, fault, fate] {
      if (fate == PeerState::closed) end(rank, fault.reason);
      else part(rank, fault.fault, fault.reason);
    };
    if (fate == PeerState::lost) drained_[static_cast<std::size_t>(rank)] = true;
    if (fault.fault != Fault::peer_lost || !host_.hears(rank) || shared_.fate(rank) != PeerState::alive) give_up();
    else later(for_evidence, give_up);
  }

  /// Receives a rank's report that it has failed, or has lost this rank.
  void hear(Rank rank, Loss const& loss) {
    auto const about_me = loss.rank == setup_.me() && loss.fault != Fault::collective_mismatch;
    settle(rank, PeerState::lost, about_me ? Fault::evicted : loss.fault,
           about_me ? "it went on without rank " + std::to_string(setup_.me()) + ": " + loss.reason : loss.reason);
  }

 private:
  static constexpr auto for_evidence = std::chrono::milliseconds{50};  // a report of that rank, or its end

  void settle(Rank rank, PeerState fate, Fault fault, std::string const& reason) {
    host_.forget(rank);
    shared_.decide(rank, fate, shared_.loss(fault, rank, host_.name(rank), reason));
    if (fate == PeerState::closed)
      later(setup_.timeouts.dead, [this, rank] { shared_.decide(rank, PeerState::lost, {}); });
  }

  template <class F> void later(std::chrono::nanoseconds duration, F f) {
    auto const timer = std::make_shared<asio::steady_timer>(io_, duration);
    timer->async_wait([timer, f = std::move(f)](auto stopped) {
      if (!stopped) f();
    });
  }

  asio::io_context& io_;
  Setup const& setup_;
  ThreadSharedState& shared_;
  Host host_;
  std::vector<bool> drained_;  // [rank]: all that it had sent is received
};

/// Membership of a rank in its group, over control connections: plans, heartbeats, goodbyes and failure reports.
///
///   rank 2 detects that rank 3 is lost ──abort──▶ ranks 0 and 1, which send an abort, too. Each waits until all live
///   ranks have sent theirs, at most 200 ms, and takes the least: the root cause
///
/// With FailureScope::peer, once all ranks have joined, each loss concerns two ranks only: see PeerLossPolicy.
///
/// keeps   runs on one thread, the io_context's
class Membership {
 public:
  struct Host {
    std::function<void(Rank)> agreed;      // its plan is the same as this rank's
    std::function<bool(Rank)> may_return;  // its connection is closed; true: not a loss
    std::function<void(Loss)> settled;     // the root cause, once or more often
    std::function<void(std::string const&)> say;
  };

  Membership(asio::io_context& io, Setup const& setup, ThreadSharedState& shared, Host host)
      : setup_{setup}, shared_{shared}, host_{std::move(host)}, members_(static_cast<std::size_t>(setup.size())),
        cause_{setup.me(), setup.size()},
        watch_{setup.timeouts, setup.failures, setup.me(), setup.size(), Clock::now()},
        positions_{shared, setup.me(), setup.size(), positions_host()}, partings_{io, setup, shared, partings_host()},
        tick_timer_{io}, abort_timer_{io}, evidence_timer_{io} {}

  void start() { tick(); }

  bool has_cause() const { return cause_.begun(); }

  /// Reports that all ranks have joined: FailureScope::peer applies from now on.
  void joined() { apart_ = setup_.failures == FailureScope::peer; }

  /// incarnation   of that rank
  void add(Rank rank, std::uint32_t incarnation, AuthenticatedSocket with) {
    auto host  = ControlConnection::Host{};
    host.heard = [this, rank](wire::Header const& head, ConstBytes payload) { hear(rank, head, payload); };
    host.lost  = [this, rank](detail::ConnectionFault const& fault) { lose(rank, fault); };
    auto& m    = member(rank);
    if (m.link) m.link->close();
    auto const ends = detail::Ends{setup_.me(), rank, incarnation, with.minor};
    m = {std::make_shared<ControlConnection>(std::move(with), ends, setup_.identity.incarnation, std::move(host)),
         false};
    watch_.begin(rank, Clock::now());
    m.link->start();
    m.link->send(wire::FrameType::plan, 0, wire::PlanPayload{setup_.plan}.write());
    beat(*m.link);
    if (cause_.begun()) send_cause(*m.link);
  }

  /// Reports that the working thread could not use its connection to a rank.
  ///
  /// fate    see PeerLossPolicy
  void suspect(Rank rank, detail::ConnectionFault const& fault, PeerState fate) {
    if (apart_) return partings_.suspect(rank, fault, fate);
    if (fault.fault != Fault::peer_lost) return detect(rank, fault.fault, fault.reason);
    if (!member(rank).link) return detect_lost(rank, fault);
    after(evidence_timer_, for_evidence, [this, rank, fault] { detect_lost(rank, fault); });
  }

  /// Reports a fault to the other ranks, if it is the first of this rank: later faults are consequences.
  void detect(Rank rank, Fault fault, std::string const& reason) {
    if (cause_.begun() && is_for_all(cause_.of(setup_.me()).fault) && !member(rank).link) {
      cause_.expect_nothing_of(rank);  // another rank that does not fit
      return settle_if_complete();
    }
    if (cause_.begun() || shared_.settled()) return;
    if (apart_ && rank != setup_.me()) return partings_.part(rank, fault, reason);
    my_fault_ = rank == setup_.me();
    cause_.hear(setup_.me(), AbortConsensus::as_sent(shared_.loss(fault, rank, host_of(rank), reason)));
    spread();
  }

  /// waits   true if this rank then waits for the goodbyes of all others
  void say_goodbye(bool waits = false) {
    if (cause_.begun() || std::exchange(said_goodbye_, true)) return;
    auto const farewell = positions_.farewell().write();
    to_all([&](ControlConnection& link) { link.send(wire::FrameType::goodbye, waits ? waits_flag : 0, farewell); });
  }

  /// Sends a goodbye: the working thread calls no more operations, and waits until no rank does.
  void close() {
    say_goodbye(true);
    positions_.end();
  }

  bool has_sent_all() const {
    for (auto const& m : members_)
      if (m.link && !m.link->is_idle()) return false;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint8_t waits_flag = 1, polls_flag = 2;  // what this rank does: see docs/55-wire.md
  static constexpr int ticks_per_beat = 4;
  static constexpr auto for_aborts    = std::chrono::milliseconds{200};
  static constexpr auto for_evidence  = std::chrono::milliseconds{50};  // an abort that explains it, or a goodbye

  static constexpr char const* has_ended = "it had ended and left the group";

  struct Member {
    std::shared_ptr<ControlConnection> link;  // null: not connected yet, or closed
    bool left = false;                        // it has sent a goodbye
  };

  Member& member(Rank rank) { return members_[static_cast<std::size_t>(rank)]; }

  template <class F> void to_all(F f) {
    for (auto& m : members_)
      if (m.link) f(*m.link);
  }

  /// Reports a rank whose connection has failed, perhaps because the rank has ended as it should.
  void detect_lost(Rank rank, detail::ConnectionFault const& fault) {
    auto const another = positions_.left_in_another(rank);
    if (another) detect(rank, another->fault, another->reason);
    else detect(rank, fault.fault, member(rank).left ? std::string{has_ended} : fault.reason);
  }

  PositionCheck::Host positions_host() {
    auto host    = PositionCheck::Host{};
    host.differs = [this](Rank rank, detail::ConnectionFault const& fault) { detect(rank, fault.fault, fault.reason); };
    host.tell    = [this](Rank rank, detail::LoggedOperation const& at) {
      if (auto& link = member(rank).link) link->send(wire::FrameType::position, 0, {}, at);
    };
    return host;
  }

  PeerLossPolicy::Host partings_host() {
    auto host   = PeerLossPolicy::Host{};
    host.forget = [this](Rank rank) { watch_.end(rank); };
    host.hears  = [this](Rank rank) { return member(rank).link != nullptr; };
    host.name   = [this](Rank rank) { return host_of(rank); };
    host.tell   = [this](Rank rank, Loss const& loss) {
      if (auto& link = member(rank).link) send_abort(*link, loss);
    };
    return host;
  }

  template <class F> static void after(asio::steady_timer& timer, std::chrono::nanoseconds duration, F f) {
    timer.expires_after(duration);
    timer.async_wait([f = std::move(f)](auto stopped) {
      if (!stopped) f();
    });
  }

  std::string host_of(Rank rank) const {
    if (rank == setup_.me()) return name_;
    return watch_.host(rank).empty() ? setup_.addresses[static_cast<std::size_t>(rank)].text() : watch_.host(rank);
  }

  void tick() {
    auto const looks = shared_.looks.load(std::memory_order_relaxed);
    waits_           = std::exchange(looks_, looks) != looks || shared_.sleeps.load(std::memory_order_relaxed);
    if (ticks_++ % ticks_per_beat == 0) {
      auto const polls = shared_.polls.load(std::memory_order_relaxed);
      polled_          = std::exchange(polls_, polls) != polls || shared_.rests.load(std::memory_order_relaxed);
      to_all([this](ControlConnection& link) {
        if (link.is_idle()) beat(link);
      });
    }
    look_around();
    if (!apart_) positions_.look(position());
    after(tick_timer_, watch_.tick(ticks_per_beat), [this] { tick(); });
  }

  void look_around() {
    auto const awaited = shared_.waits_for.load(std::memory_order_relaxed);
    auto at            = position();
    if (apart_) at.moved = shared_.moved_with(awaited);
    auto const look = [&] { return watch_.check(at, awaited, Clock::now(), host_.say); };
    for (auto found = look(); found; found = apart_ ? look() : std::nullopt)
      detect(found->rank, Fault::peer_stalled, found->reason);
  }

  RankProgress position() const {
    return {shared_.step.load(std::memory_order_relaxed), shared_.sequence.load(std::memory_order_relaxed),
            shared_.moved.load(std::memory_order_relaxed), waits_, polled_};
  }

  std::uint8_t flags() const {
    return static_cast<std::uint8_t>((waits_ ? waits_flag : 0) | (polled_ ? polls_flag : 0));
  }

  void beat(ControlConnection& link) {
    auto const at   = position();
    auto bytes      = std::array<std::byte, wire::HeartbeatPayload::max_bytes>{};
    auto const size = wire::HeartbeatPayload{at.sequence, at.step, at.moved, name_}.write(bytes);
    link.send(wire::FrameType::heartbeat, flags(), ConstBytes{bytes}.first(size));
  }

  void hear(Rank rank, wire::Header const& head, ConstBytes payload) {
    watch_.heard(rank, Clock::now());
    switch (head.type) {
      case wire::FrameType::heartbeat:
        if (auto beat = wire::HeartbeatPayload::parse(payload))
          watch_.heard(rank,
                       {beat->step, beat->sequence, beat->bytes_moved, (head.flags & waits_flag) != 0,
                        (head.flags & polls_flag) != 0},
                       std::move(beat->host), Clock::now());
        break;
      case wire::FrameType::plan: return compare_plans(rank, payload);
      case wire::FrameType::abort:
        if (auto abort = wire::AbortPayload::parse(payload)) hear_cause(rank, std::move(abort->loss));
        break;
      case wire::FrameType::goodbye:
        member(rank).left = true;
        if (apart_) return partings_.end(rank, has_ended);
        watch_.end(rank);
        if ((head.flags & waits_flag) == 0) cause_.expect_nothing_of(rank);
        positions_.hear_goodbye(rank, payload);
        return settle_if_complete();
      case wire::FrameType::position:
        if (!apart_) positions_.hear(rank, head);
        break;
      case wire::FrameType::data: break;  // not sent here; ignored
    }
  }

  void lose(Rank rank, detail::ConnectionFault const& fault) {
    auto& m = member(rank);
    m.link  = nullptr;
    watch_.end(rank);
    if (!cause_.begun() && host_.may_return(rank)) return;
    if (apart_ && fault.fault == Fault::peer_lost)
      return partings_.end(rank, m.left ? std::string{has_ended} : fault.reason);
    cause_.expect_nothing_of(rank);
    if (!m.left) detect(rank, fault.fault, fault.reason);
    settle_if_complete();
  }

  void compare_plans(Rank rank, ConstBytes payload) {
    auto const theirs = wire::PlanPayload::parse(payload).value_or(wire::PlanPayload{}).lines;
    if (theirs == setup_.plan) return host_.agreed(rank);
    detect(rank, Fault::model_mismatch,
           "rank " + std::to_string(rank) + ": " + wire::first_difference(setup_.plan, theirs) + " of rank " +
               std::to_string(setup_.me()));
  }

  void hear_cause(Rank from, Loss loss) {
    if (apart_) return partings_.hear(from, loss);
    auto const news = !cause_.begun();
    cause_.hear(from, loss);
    if (!news) return settle_if_complete();
    cause_.hear(setup_.me(), std::move(loss));
    spread();
  }

  void spread() {
    auto const& cause  = cause_.of(setup_.me());
    auto const for_all = is_for_all(cause.fault);
    for (Rank rank = 0; rank < setup_.size(); ++rank)
      if (rank != setup_.me() && (apart_ || (!member(rank).link && (!for_all || never_joins(rank, cause)))))
        cause_.expect_nothing_of(rank);
    to_all([this](ControlConnection& link) { send_cause(link); });
    after(abort_timer_, for_all ? setup_.timeouts.handshake : for_aborts, [this] { settle(cause_.least()); });
    settle_if_complete();
  }

  /// True if the cause names this rank, and it cannot even connect. A rank with another model connects, and waits for
  /// the report.
  static bool never_joins(Rank rank, Loss const& cause) {
    return rank == cause.rank && cause.fault != Fault::model_mismatch;
  }

  /// True if no restart helps, so that the fault is also reported to ranks that have yet to join.
  static bool is_for_all(Fault f) {
    return f == Fault::model_mismatch || f == Fault::world_mismatch || f == Fault::version_mismatch ||
           f == Fault::not_authentic;
  }

  void send_cause(ControlConnection& link) {
    if (cause_.has(setup_.me())) send_abort(link, cause_.of(setup_.me()));
  }

  static void send_abort(ControlConnection& link, Loss const& loss) {
    auto bytes      = std::array<std::byte, wire::AbortPayload::max_bytes>{};
    auto const size = wire::AbortPayload{loss}.write(bytes);
    link.send(wire::FrameType::abort, 0, ConstBytes{bytes}.first(size));
  }

  void settle_if_complete() {
    if (cause_.complete()) settle(cause_.least());
  }

  bool is_about_me(Loss const& loss) const {
    return loss.rank == setup_.me() && (loss.fault == Fault::peer_stalled || loss.fault == Fault::peer_lost);
  }

  void settle(Loss loss) {
    if (is_about_me(loss) && !my_fault_) {
      loss.fault  = Fault::evicted;
      loss.reason = "the others went on without it: " + loss.reason;
    }
    host_.settled(std::move(loss));
  }

  Setup const& setup_;
  ThreadSharedState& shared_;
  Host host_;
  std::vector<Member> members_;  // [rank]
  AbortConsensus cause_;
  FailureDetector watch_;
  PositionCheck positions_;
  PeerLossPolicy partings_;
  asio::steady_timer tick_timer_, abort_timer_, evidence_timer_;
  std::string name_    = host_name().substr(0, wire::max_host_bytes);
  std::uint64_t ticks_ = 0, looks_ = 0, polls_ = 0;
  bool apart_ = false;                                      // FailureScope::peer, once all have joined
  bool waits_ = false, polled_ = false, my_fault_ = false;  // my_fault_: this rank reported itself
  bool said_goodbye_ = false;
};

}  // namespace chorale::tcp
