// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class, in one piece: the clock, the queue of events and the ranks are one state.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/owner_thread.hpp>
#include <chorale/transport/common/shared_operation_log.hpp>
#include <chorale/transport/network_model.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/simulated/options.hpp>
#include <chorale/transport/simulated/records.hpp>
#include <chorale/transport/timeouts.hpp>

#include <gsl/util>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace chorale {

/// The ranks of a simulation, their messages and their clock.
///
/// Each rank is a fibre with its own clock. It runs until it has to wait; then the simulator takes the earliest event,
/// which may let a rank continue at that time. A rank's clock may be ahead of the simulator's, by the computing since
/// then: a message that it sends then leaves by an event of that time, so that shared lines serve in order of time.
///
/// keeps   used by one thread
/// order   events of equal times in the order of their creation: the run is a function of program and options
class Simulator {
 public:
  Simulator(SimulatedTransport options, int ranks)
      : options_{std::move(options)}, timeout_{options_.timeout}, lines_{checked(options_), ranks},
        members_(static_cast<std::size_t>(ranks)), faulty_{options_.faults.any()} {}

  int size() const { return static_cast<int>(members_.size()); }

  /// Runs body(rank) on every rank, until all have ended. The clock continues from one run to the next.
  SimulatedRun run(std::function<void(Rank)> body);

  // Operations of an endpoint, for the rank that runs: see Endpoint.

  simulation::Handle send(Rank me, Rank peer, Tag tag, ConstBytes out);
  simulation::Handle receive(Rank me, Rank peer, Tag tag, Bytes in);

  bool is_sent(Rank me, simulation::Handle h);
  bool is_received(Rank me, Rank peer, simulation::Handle h);
  void wait_sent(Rank me, simulation::Handle h);
  void wait_received(Rank me, Rank peer, simulation::Handle h);
  bool wait_any(Rank me, VirtualTime longest);
  bool lost(Rank me, Rank peer) { return running(me).loss >= 0 || loss_about(me, peer) >= 0; }

  void work(Rank me, VirtualTime duration) {
    running(me);
    charge(me, duration);
    sleep_until(me, member(me).clock);
  }

  VirtualTime clock(Rank me) const { return members_[static_cast<std::size_t>(me)].clock; }

  void announce(Rank me, Operation const& operation, SubGroup const* part);
  void begin_step(Rank me, std::uint64_t step) {
    member(me).step = step;
    if (options_.compute.count() > 0) work(me, options_.compute);
  }
  void wake_all() {
    for (Rank rank = 0; rank < size(); ++rank) stir(rank);
  }

  void fail(Rank me, std::string const& why, Fault fault) {
    if (options_.failures == FailureScope::peer) fault = Fault::peer_lost;
    if (member(me).loss < 0)
      lose({.fault = fault, .rank = me, .step = member(me).step, .reason = why}, me, Concerns::its_peers);
  }

 private:
  using Message = simulation::Message;
  enum class What : std::uint8_t { depart, arrive, left, wake, rested, deadline, silence, start_again };
  struct Next {
    What what;
    std::uint32_t index;  // of a message, a rank, or a scheduled loss
  };
  enum class Gone : std::uint8_t { soon, already };                            // the memory of a rank's messages: freed
  enum class Concerns : std::uint8_t { all, its_peers, witness, other_side };  // affected, with FailureScope::peer
  struct First {                                                               // rank that announced an operation
    Rank rank = 0;
    detail::Label label{};
  };
  static constexpr std::size_t remembered_of_groups = 32;
  struct Silence {
    Loss loss;
    Rank witness;
    Concerns whom;
  };
  struct Parted {
    SimulatedEvent event;
    VirtualTime until;
  };

  static NetworkModel const& checked(SimulatedTransport const& options) {
    options.model.check();
    options.faults.check();
    CHORALE_EXPECTS(options.timeout.count() > 0 && options.stack_bytes >= (std::size_t{16} << 10),
                    "a simulation has a timeout of " + std::to_string(options.timeout.count()) + " ns and stacks of " +
                        std::to_string(options.stack_bytes) + " bytes; 16 KiB are little");
    return options.model;
  }

  simulation::Member& member(Rank rank) { return members_[static_cast<std::size_t>(rank)]; }

  simulation::Member& running(Rank me) {
    if (thread_.load(std::memory_order_relaxed) != detail::this_thread) refuse_thread(me);
    CHORALE_EXPECTS(me == running_, "rank " + std::to_string(me) + " of a simulation is used while " +
                                        (running_ < 0 ? "none" : "rank " + std::to_string(running_)) +
                                        " runs; its endpoint is for the body that simulate() runs, on its own rank");
    return member(me);
  }

  [[noreturn]] void refuse_thread(Rank me) const {
    throw BadArgument{"rank " + std::to_string(me) + " of a simulation is used while " +
                          (thread_.load() == nullptr
                               ? "none runs"
                               : "ranks run in another thread than " + detail::thread_text(syscall(SYS_gettid))) +
                          ".",
                      "its endpoint in the body that simulate() runs, on its own rank."};
  }

  /// Returns the state of the running rank; throws if the rank has a loss.
  simulation::Member& enter(Rank me) {
    auto& rank = running(me);
    if (rank.loss >= 0) throw_told(me);
    return rank;
  }

  /// Index of the loss of `peer` that was reported to this rank with FailureScope::peer; -1: none.
  int loss_about(Rank me, Rank peer) {
    auto const& parted = member(me).parted;
    if (parted.empty()) return -1;
    auto const found = parted.find(peer);
    return found == parted.end() ? -1 : found->second;
  }

  void expect_not_lost(Rank me, Rank peer) {
    if (auto const loss = loss_about(me, peer); loss >= 0) throw_told(me, loss);
  }

  [[noreturn]] void throw_told(Rank me) { throw_told(me, member(me).loss); }
  [[noreturn]] void throw_told(Rank me, int loss) {
    auto const& told = told_[static_cast<std::size_t>(loss)];
    if (told.fault >= Fault::collective_mismatch) detail::throw_peer_loss(me, told);
    throw PeerLost{me, told};
  }

  // Time.

  void push(VirtualTime at, What what, std::uint32_t index) { queue_.push(at.count(), {what, index}); }

  /// Advances a rank's clock by `duration` of computing, plus slowness and noise.
  void charge(Rank me, VirtualTime duration) {
    auto const& model = options_.model;
    if (model.slow > 0 && model.is_slow(me)) duration = virtual_seconds(seconds(duration) * model.slowness);
    member(me).clock += duration + noise_on(me, duration);
  }

  VirtualTime noise_on(Rank me, VirtualTime duration) {
    if (options_.model.noise <= 0) return {};
    auto const u = Random{options_.model.seed, 2 + static_cast<std::uint64_t>(me)}.uniform(member(me).draws++);
    return virtual_seconds(seconds(duration) * options_.model.noise * static_cast<double>(u));
  }

  void sleep_until(Rank me, VirtualTime at) {
    if (at <= now_) return;
    auto& rank  = member(me);
    rank.clock  = std::max(rank.clock, at);
    rank.status = simulation::Status::asleep;
    push(at, What::wake, static_cast<std::uint32_t>(me));
    leave(rank);
  }

  void block(Rank me, simulation::WaitsFor what, simulation::Handle handle) {
    auto& rank     = member(me);
    rank.status    = simulation::Status::waiting;
    rank.waits_for = what;
    rank.handle    = handle;
    rank.since     = rank.clock;
    rank.looks     = 0;
    if (!rank.has_deadline) arm(me, rank.clock + timeout_);
    leave(rank);
    if (rank.loss >= 0) throw_told(me);
  }

  void leave(simulation::Member& rank) {
    rank.fiber.pause();
    rank.clock = std::max(rank.clock, now_);
  }

  void arm(Rank me, VirtualTime at) {
    member(me).has_deadline = true;
    ++deadlines_;
    push(at, What::deadline, static_cast<std::uint32_t>(me));
  }

  /// Counts an unsuccessful poll. After many in a row the rank waits for any event, else it would stop the clock.
  bool look_in_vain(Rank me) {
    if (++member(me).looks >= std::max(1'000, 4 * size())) block(me, simulation::WaitsFor::anything, {});
    return false;
  }

  /// Counts an event of a rank, and wakes the rank if it waits for any event.
  void stir(Rank me) {
    auto& rank = member(me);
    ++rank.moves;
    if (rank.status == simulation::Status::waiting && simulation::is_any(rank.waits_for)) make_ready(me);
  }

  void make_ready(Rank me) {
    auto& rank = member(me);
    if (rank.status != simulation::Status::waiting && rank.status != simulation::Status::asleep) return;
    rank.status = simulation::Status::ready;
    ready_.push_back(me);
  }

  bool is_waiting(Rank me) { return member(me).status == simulation::Status::waiting; }

  void add_to_trace(std::uint64_t what, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    for (auto const word : {static_cast<std::uint64_t>(now_.count()), what << 60 ^ a << 30 ^ b, c}) {
      trace_ = (trace_ ^ word) * 0x9E3779B97F4A7C15U;
      trace_ ^= trace_ >> 29;
    }
  }

  // Messages: delivery.hpp.

  simulation::Channel& channel(Rank to, Rank from, Tag tag);
  void capture(Message& message) const;
  void corrupt(Message& message);
  void depart(std::uint32_t index);
  bool is_lost_on_its_way(std::uint32_t index);
  void arrive(std::uint32_t index);
  void judge(std::uint32_t index);
  void accept(std::uint32_t index);
  void match(std::uint32_t message, std::uint32_t receive);
  void is_taken(std::uint32_t message);
  void disagree(Message const& message, simulation::Receive const& receive);
  void disagree(Rank me, Rank peer, detail::Label const& label, std::string const& reason);

  // Faults and losses: failures.hpp.

  void suffer(Rank me, Rank peer, std::uint64_t number, Message& message);
  void freeze(Rank me, std::uint64_t number);
  [[noreturn]] void die(Rank me, std::uint64_t number, SimulatedFault what);
  void part(SimulatedEvent const& event);
  bool are_parted(Rank a, Rank b) const;
  bool is_cut(Rank a, Rank b) const;
  void later(VirtualTime after, Loss loss, Rank witness, Concerns whom);
  void lose(Loss const& loss, Rank witness, Concerns whom);
  void lose_apart(Loss loss, Rank witness, Concerns whom);
  void part(Rank me, Rank peer, Loss const& loss);
  void part_one(Rank me, Rank peer, Loss loss);
  void let_go(Rank me, Gone memory, Rank peer = -1);
  void give_up(Rank me);
  Rank blame(Rank me);
  Rank awaited(Rank me);
  Rank other_than(Rank me) const { return (me + 1) % size(); }
  std::string wait_of(Rank me);
  std::string operation_of(Rank me);
  void end_by_deadlock();

  // From one event to the next: run.hpp.

  void start(Rank me);
  void run_body(Rank me);
  void next_event();
  void next_choice();

  SimulatedTransport options_;
  VirtualTime timeout_;
  NetworkLines lines_;
  std::vector<simulation::Member> members_;
  bool faulty_;
  VirtualTime now_{};
  OwnerThread owner_;                                         // of run()
  std::atomic<detail::ThreadRecord const*> thread_{nullptr};  // the thread in which ranks run
  Rank running_          = -1;
  int alive_             = 0;  // bodies that have not ended
  std::size_t deadlines_ = 0;  // queued timeouts and ends of rests
  EventQueue<Next> queue_;
  std::deque<Rank> ready_;
  simulation::Pool<Message> messages_;
  simulation::Pool<simulation::Receive> receives_;
  std::vector<std::uint32_t> on_their_way_;  // messages, when `choose` sets their order
  std::array<First, 256> firsts_{};          // [number]
  std::unordered_map<std::uint32_t, std::array<First, remembered_of_groups>> firsts_of_groups_;  // [group][number]
  std::deque<Loss> told_;
  std::vector<Silence> silences_;
  std::vector<std::pair<Rank, Rank>> cut_;
  std::optional<Parted> parted_;
  std::function<void(Rank)> body_;
  SimulatedRun result_;
  std::uint64_t trace_ = 0;
};

inline SimulatedRun Simulator::run(std::function<void(Rank)> body) {
  CHORALE_EXPECTS(detail::this_thread == nullptr || thread_.load(std::memory_order_relaxed) != detail::this_thread,
                  "a simulation is started by one of its own ranks");
  auto const use  = owner_.use(0, [this] { return alive_ == 0; });
  auto const ends = gsl::finally([this] { thread_.store(nullptr, std::memory_order_relaxed); });
  thread_.store(detail::this_thread, std::memory_order_relaxed);
  body_   = std::move(body);
  result_ = {};
  result_.ranks.resize(members_.size());
  for (auto const& rank : members_) now_ = std::max(now_, rank.clock);
  for (Rank rank = 0; rank < size(); ++rank) {
    member(rank).clock = now_;
    start(rank);
  }
  alive_ = size();
  while (alive_ > 0) {
    if (!ready_.empty() && !queue_.has_more_now()) {
      if (ready_.size() > 4) member(ready_[4]).fiber.prefetch();
      running_ = ready_.front();
      ready_.pop_front();
      auto& rank  = member(running_);
      rank.clock  = std::max(rank.clock, now_);
      rank.status = simulation::Status::running;
      rank.fiber.resume();
      running_ = -1;
    } else if (!ready_.empty() || queue_.size() > deadlines_) {
      next_event();
    } else if (!on_their_way_.empty()) {
      next_choice();
    } else {
      end_by_deadlock();
    }
  }
  result_.trace = trace_;
  for (auto const& end : result_.ranks) result_.time = std::max(result_.time, end.at);
  return std::move(result_);
}

inline void Simulator::start(Rank me) {
  auto& rank  = member(me);
  rank.status = simulation::Status::ready;
  rank.looks  = 0;
  rank.fiber.start([this, me] { run_body(me); }, options_.stack_bytes);
  ready_.push_back(me);
}

inline void Simulator::run_body(Rank me) {
  auto& rank      = member(me);
  auto end        = SimulatedEnd{};
  auto const sent = rank.sent, bytes = static_cast<std::uint64_t>(rank.bytes);
  try {
    body_(me);
  } catch (PeerLost const& lost) {
    end.error   = std::current_exception();
    end.message = lost.what();
    end.lost    = lost.rank();
  } catch (std::exception const& error) {
    end.error   = std::current_exception();
    end.message = error.what();
  } catch (...) {
    end.error   = std::current_exception();
    end.message = "something that is no std::exception";
  }
  if (end.error != nullptr && rank.loss < 0) {
    let_go(me, Gone::already);
    lose({.rank = me, .step = rank.step, .reason = "it threw: " + end.message}, me, Concerns::its_peers);
  }
  end.at         = rank.clock;
  end.was_killed = rank.killed;
  end.messages   = rank.sent - sent;
  end.bytes      = rank.bytes - bytes;
  add_to_trace(3, static_cast<std::uint64_t>(me), end.error != nullptr ? 1 : 0,
               static_cast<std::uint64_t>(rank.clock.count()));
  result_.ranks[static_cast<std::size_t>(me)] = std::move(end);
  rank.status                                 = simulation::Status::over;
  --alive_;
}

inline void Simulator::next_event() {
  auto const event = queue_.pop();
  auto const index = event.what.index;
  auto const me    = static_cast<Rank>(index);
  now_             = std::max(now_, VirtualTime{event.at});
  switch (event.what.what) {
    case What::depart: return depart(index);
    case What::arrive: return arrive(index);
    case What::left: return stir(me);
    case What::silence: return lose(silences_[index].loss, silences_[index].witness, silences_[index].whom);
    case What::rested: {
      auto& rank    = member(me);
      rank.has_rest = false;
      --deadlines_;
      if (!is_waiting(me) || rank.waits_for != simulation::WaitsFor::rest) return;
      if (rank.rests_until <= now_) return make_ready(me);
      rank.has_rest = true;
      ++deadlines_;
      return push(rank.rests_until, What::rested, index);
    }
    case What::wake: {
      auto const& rank  = member(me);
      auto const sent   = rank.status == simulation::Status::waiting && rank.waits_for == simulation::WaitsFor::sent;
      auto const asleep = rank.status == simulation::Status::asleep && rank.clock <= now_;
      if (asleep || (sent && (messages_.is_over(rank.handle) || messages_[rank.handle.index].left <= now_)))
        make_ready(me);
      return;
    }
    case What::deadline:
      --deadlines_;
      member(me).has_deadline = false;
      if (!is_waiting(me) || member(me).waits_for == simulation::WaitsFor::rest) return;
      return member(me).since + timeout_ <= now_ ? give_up(me) : arm(me, member(me).since + timeout_);
    case What::start_again:
      told_.push_back({.fault = Fault::evicted, .rank = me, .reason = "it was started again; others had lost it"});
      member(me).loss   = static_cast<int>(told_.size()) - 1;
      member(me).killed = false;
      return start(me);
  }
}

/// Delivers the oldest message of one channel, which SimulatedTransport::choose picks.
inline void Simulator::next_choice() {
  auto firsts = std::vector<std::size_t>{};  // indices into on_their_way_
  for (std::size_t i = 0; i < on_their_way_.size(); ++i) {
    auto const same = [&](std::size_t k) {
      return messages_[on_their_way_[k]].channel == messages_[on_their_way_[i]].channel;
    };
    if (std::none_of(firsts.begin(), firsts.end(), same)) firsts.push_back(i);
  }
  auto const chosen = firsts.size() == 1 ? 0 : options_.choose(firsts.size());
  CHORALE_EXPECTS(chosen < firsts.size(),
                  "choice " + std::to_string(chosen) + " of " + std::to_string(firsts.size()) + " messages");
  auto const index = on_their_way_[firsts[chosen]];
  on_their_way_.erase(on_their_way_.begin() + static_cast<std::ptrdiff_t>(firsts[chosen]));
  arrive(index);
}

}  // namespace chorale

#include <chorale/transport/simulated/delivery.hpp>
#include <chorale/transport/simulated/failures.hpp>
