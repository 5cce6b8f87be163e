// SPDX-License-Identifier: Apache-2.0
// Failures of a Simulator's ranks, and their reports. It is included at the end of simulator.hpp.
#pragma once

#include <chorale/core/text.hpp>
#include <chorale/transport/simulated/simulator.hpp>

namespace chorale {

/// Injects the fault of this message, if it has one: a scheduled one, or one drawn from the seed.
inline void Simulator::suffer(Rank me, Rank peer, std::uint64_t number, Message& message) {
  if (result_.injected.size() >= static_cast<std::size_t>(options_.faults.most)) return;
  auto const what = options_.faults.of(me, number);
  if (!what || me == peer) return;
  auto const event = SimulatedEvent{*what, me, number, peer};
  result_.injected.push_back(event);
  add_to_trace(4, static_cast<std::uint64_t>(me), static_cast<std::uint64_t>(*what), number);
  switch (*what) {
    case SimulatedFault::kill:
    case SimulatedFault::restart: die(me, number, *what);
    case SimulatedFault::freeze: return freeze(me, number);
    case SimulatedFault::partition: return part(event);
    case SimulatedFault::cut:
      cut_.emplace_back(me, peer);
      return later(lines_.latency(me, peer),
                   {.rank      = peer,
                    .operation = operation_of(me),
                    .reason    = "its connection to rank " + std::to_string(me) + " was cut at message " +
                              std::to_string(number) + " of that rank"},
                   me, Concerns::witness);
    default: message.fault = *what; message.has_fault = true;
  }
}

inline void Simulator::freeze(Rank me, std::uint64_t number) {
  auto const& faults  = options_.faults;
  auto const duration = faults.part_of(faults.pause, me, number);
  if (duration > faults.dead)
    later(faults.dead,
          {.fault     = Fault::peer_stalled,
           .rank      = me,
           .operation = operation_of(me),
           .reason    = "nothing was heard of it for " + number_text(seconds(faults.dead)) + " s"},
          other_than(me), Concerns::its_peers);
  sleep_until(me, member(me).clock + duration);
  enter(me);
}

inline void Simulator::die(Rank me, std::uint64_t number, SimulatedFault what) {
  auto const at     = "its process ended at message " + std::to_string(number);
  member(me).killed = true;
  let_go(me, Gone::soon);
  later(lines_.latency(me, other_than(me)), {.rank = me, .operation = operation_of(me), .reason = at}, other_than(me),
        Concerns::its_peers);
  if (what == SimulatedFault::restart) {
    ++alive_;
    auto const pause = options_.faults.part_of(options_.faults.pause, me, number);
    push(now_ + lines_.latency(me, other_than(me)) + pause, What::start_again, static_cast<std::uint32_t>(me));
  }
  told_.push_back({.rank = me, .reason = at});
  member(me).loss = static_cast<int>(told_.size()) - 1;
  throw_told(me);
}

/// Starts a partition: for a while, no message passes between two parts of the ranks.
inline void Simulator::part(SimulatedEvent const& event) {
  if (parted_ && now_ < parted_->until) return;
  auto const& faults  = options_.faults;
  auto const duration = faults.part_of(faults.pause, event.rank, event.message);
  parted_             = Parted{event, now_ + duration};
  if (duration <= faults.dead) return;
  for (auto const& [mine, theirs] : {std::pair{event.rank, event.peer}, std::pair{event.peer, event.rank}})
    later(faults.dead,
          {.fault = Fault::peer_stalled,
           .rank  = theirs,
           .host  = "the other side of a partition",
           .reason =
               "rank " + std::to_string(mine) + " heard nothing of it for " + number_text(seconds(faults.dead)) + " s"},
          mine, Concerns::other_side);
}

inline bool Simulator::are_parted(Rank a, Rank b) const {
  return parted_ && now_ < parted_->until &&
         options_.faults.part_of_rank(a, parted_->event) != options_.faults.part_of_rank(b, parted_->event);
}

inline bool Simulator::is_cut(Rank a, Rank b) const {
  return std::any_of(cut_.begin(), cut_.end(),
                     [&](auto const& pair) { return pair == std::pair{a, b} || pair == std::pair{b, a}; });
}

inline void Simulator::later(VirtualTime after, Loss loss, Rank witness, Concerns whom) {
  silences_.push_back({std::move(loss), witness, whom});
  push(now_ + after, What::silence, static_cast<std::uint32_t>(silences_.size()) - 1);
}

/// Reports a loss to all ranks that the witness can reach; a rank that has a loss already keeps it.
inline void Simulator::lose(Loss const& loss, Rank witness, Concerns whom) {
  add_to_trace(5, static_cast<std::uint64_t>(loss.rank), static_cast<std::uint64_t>(loss.fault), 0);
  if (options_.failures == FailureScope::peer && whom != Concerns::all) return lose_apart(loss, witness, whom);
  auto const first = static_cast<int>(told_.size());
  told_.push_back(loss);
  auto evicted = loss;
  if (loss.fault != Fault::collective_mismatch) {
    evicted.fault  = Fault::evicted;
    evicted.reason = "the others took it for lost: " + loss.reason;
  }
  told_.push_back(std::move(evicted));
  for (Rank rank = 0; rank < size(); ++rank) {
    auto& one = member(rank);
    if (one.loss >= 0 || one.killed || are_parted(witness, rank)) continue;
    if (one.status != simulation::Status::over) let_go(rank, Gone::soon);
    one.loss = rank == loss.rank && rank != witness ? first + 1 : first;
    if (is_waiting(rank)) make_ready(rank);
  }
}

/// Reports to each rank concerned the ranks that it has lost; across a partition, when that ends. For
/// FailureScope::peer.
inline void Simulator::lose_apart(Loss loss, Rank witness, Concerns whom) {
  if (whom == Concerns::witness) return part(witness, loss.rank, loss);
  if (whom == Concerns::its_peers && parted_ && now_ < parted_->until)
    later(parted_->until - now_, loss, witness, whom);
  if (whom == Concerns::its_peers && loss.rank == witness && member(witness).loss < 0) {  // it reported itself
    let_go(witness, Gone::soon);
    told_.push_back(loss);
    member(witness).loss = static_cast<int>(told_.size()) - 1;
  }
  for (Rank a = 0; a < size(); ++a) {
    if (are_parted(witness, a)) continue;
    if (whom == Concerns::its_peers && a != loss.rank) part(a, loss.rank, loss);
    for (Rank b = 0; whom == Concerns::other_side && b < size(); ++b)
      if (are_parted(witness, b)) part(a, loss.rank = b, loss);
  }
}

/// Disconnects two ranks for good: reports to each the loss of the other.
inline void Simulator::part(Rank me, Rank peer, Loss const& loss) {
  auto evicted = loss;
  evicted.rank = me;
  if (loss.fault != Fault::collective_mismatch) {
    evicted.fault  = Fault::evicted;
    evicted.reason = "it went on without rank " + std::to_string(peer) + ": " + loss.reason;
  }
  part_one(me, peer, loss);
  part_one(peer, me, std::move(evicted));
}

inline void Simulator::part_one(Rank me, Rank peer, Loss loss) {
  auto& one = member(me);
  if (one.loss >= 0 || one.killed || !one.parted.emplace(peer, static_cast<int>(told_.size())).second) return;
  told_.push_back(std::move(loss));
  if (one.status == simulation::Status::over) return;
  let_go(me, Gone::soon, peer);
  ++one.moves;
  if (is_waiting(me)) make_ready(me);
}

/// Ends the use of a rank's memory by its messages, or by those with one peer. With Gone::soon, messages that have
/// left are copied and still delivered.
inline void Simulator::let_go(Rank me, Gone memory, Rank peer) {
  for (std::uint32_t i = 0; i < messages_.size(); ++i) {
    auto& message = messages_[i];
    if (!message.used || message.from != me || message.captured || (peer >= 0 && message.to != peer)) continue;
    if (memory == Gone::soon && message.left >= VirtualTime{}) capture(message);
    else message.cancelled = true;
  }
  for (auto& [key, way] : member(me).channels)
    while ((peer < 0 || static_cast<Rank>(key >> 32) == peer) && !way.posted.empty())
      receives_.give_back(way.posted.pop(receives_));
}

/// Reports that the wait of this rank has timed out.
inline void Simulator::give_up(Rank me) {
  auto const peer     = awaited(me);
  auto const is_apart = options_.failures == FailureScope::peer && peer >= 0;
  lose({.fault     = Fault::peer_stalled,
        .rank      = is_apart ? peer : blame(me),
        .operation = operation_of(me),
        .sequence  = member(me).announced.count(),
        .step      = member(me).step,
        .reason    = wait_of(me) + ", after " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count()) + " ms"},
       me, is_apart ? Concerns::witness : Concerns::all);
}

/// Rank that this rank waits for; -1 when it does not wait for a rank.
inline Rank Simulator::awaited(Rank me) {
  auto const& rank = member(me);
  if (rank.status != simulation::Status::waiting) return -1;
  if (is_any(rank.waits_for)) {
    auto first = size();
    for (auto const& [key, way] : rank.channels)
      if (!way.posted.empty()) first = std::min(first, static_cast<Rank>(key >> 32));
    return first < size() ? first : -1;
  }
  return rank.waits_for == simulation::WaitsFor::message ? receives_[rank.handle.index].peer
                                                         : messages_[rank.handle.index].to;
}

/// Rank at the end of the chain of waits from `me`: it waits for no rank. In a cycle, the cycle's lowest rank, or the
/// one that `me` waits for if `me` is the lowest.
inline Rank Simulator::blame(Rank me) {
  auto at = me;
  for (int i = 0; i < size(); ++i, at = awaited(at))
    if (awaited(at) < 0) return at;
  auto smallest = at;
  for (auto next = awaited(at); next != at; next = awaited(next)) smallest = std::min(smallest, next);
  return smallest == me && awaited(me) != me ? awaited(me) : smallest;
}

inline std::string Simulator::wait_of(Rank me) {
  auto const& rank = member(me);
  auto const who   = "rank " + std::to_string(me);
  if (is_any(rank.waits_for)) return who + " looks, and nothing comes";
  auto const receives = rank.waits_for == simulation::WaitsFor::message;
  auto const tag      = receives ? receives_[rank.handle.index].tag : messages_[rank.handle.index].tag;
  auto const bytes    = receives ? receives_[rank.handle.index].in.size() : messages_[rank.handle.index].size;
  return who + " waits for rank " + std::to_string(awaited(me)) + " in " + (receives ? "recv" : "send") + ", tag " +
         std::to_string(static_cast<std::uint32_t>(tag)) + ", " + std::to_string(bytes) + " bytes";
}

inline std::string Simulator::operation_of(Rank me) {
  auto const last = member(me).announced.last();
  return last ? last->operation.text() : "";
}

/// Ends all waits with a loss: no message is under way, and every rank that has not ended waits.
inline void Simulator::end_by_deadlock() {
  auto text    = std::string{};
  auto waiting = 0;
  auto witness = -1;
  for (Rank rank = 0; rank < size(); ++rank) {
    if (!is_waiting(rank)) continue;
    if (witness < 0) witness = rank;
    if (++waiting <= 8) text.append(waiting > 1 ? "; " : "") += wait_of(rank);
  }
  CHORALE_ENSURES(witness >= 0, "a simulation has ranks that neither run nor wait");
  if (waiting > 8) text += "; and " + std::to_string(waiting - 8) + " more";
  auto const culprit = blame(witness);
  if (member(culprit).status == simulation::Status::over) text += "; rank " + std::to_string(culprit) + " has ended";
  if (result_.deadlock.empty()) result_.deadlock = text;
  lose({.fault     = Fault::peer_stalled,
        .rank      = culprit,
        .operation = operation_of(witness),
        .sequence  = member(witness).announced.count(),
        .step      = member(witness).step,
        .reason    = "all wait: " + text},
       witness, Concerns::all);
}

}  // namespace chorale
