// SPDX-License-Identifier: Apache-2.0
// Messages of a Simulator. It is included at the end of simulator.hpp.
#pragma once

#include <chorale/transport/simulated/simulator.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace chorale {

inline simulation::Handle Simulator::send(Rank me, Rank peer, Tag tag, ConstBytes out) {
  enter(me);
  charge(me, options_.model.overhead);
  auto message = Message{.from   = me,
                         .to     = peer,
                         .tag    = tag,
                         .about  = member(me).announced.label_of(tag, peer),
                         .data   = out.data(),
                         .size   = out.size(),
                         .number = member(me).sent++};
  member(me).bytes += out.size();
  expect_not_lost(me, peer);
  if (faulty_) suffer(me, peer, message.number, message);
  expect_not_lost(me, peer);  // a freeze may have lost it meanwhile
  auto& way        = channel(peer, me, tag);
  message.channel  = &way;
  message.sequence = way.sent++;
  ++way.on_their_way;
  auto const index   = messages_.take();
  message.generation = messages_[index].generation;
  message.used       = true;
  messages_[index]   = std::move(message);
  auto const handle  = messages_.handle(index);
  if (member(me).clock <= now_) depart(index);
  else push(member(me).clock, What::depart, index);
  return handle;
}

inline simulation::Handle Simulator::receive(Rank me, Rank peer, Tag tag, Bytes in) {
  enter(me);
  auto& way = channel(me, peer, tag);
  while (!way.arrived.empty() && messages_[way.arrived.first].cancelled) is_taken(way.arrived.pop(messages_));
  if (way.arrived.empty()) expect_not_lost(me, peer);  // earlier messages can be received
  auto const index  = receives_.take();
  auto& receive     = receives_[index];
  receive.in        = in;
  receive.channel   = &way;
  receive.peer      = peer;
  receive.tag       = tag;
  receive.about     = member(me).announced.label_of(tag, peer);
  auto const handle = receives_.handle(index);
  if (!way.arrived.empty()) match(way.arrived.pop(messages_), index);
  else way.posted.push(receives_, index);
  if (member(me).loss >= 0) throw_told(me);
  return handle;
}

inline bool Simulator::is_sent(Rank me, simulation::Handle h) {
  auto& rank = enter(me);
  if (messages_.is_over(h)) return true;
  auto& message = messages_[h.index];
  if (message.cancelled) expect_not_lost(me, message.to);
  if (message.left < VirtualTime{} || message.left > rank.clock) return look_in_vain(me);
  if (!message.captured) capture(message);  // now the sender may change it
  return true;
}

inline bool Simulator::is_received(Rank me, Rank peer, simulation::Handle h) {
  auto& rank = enter(me);
  if (receives_.is_over(h)) {  // it was released when the peer was lost
    expect_not_lost(me, peer);
    return true;
  }
  auto const& received = receives_[h.index];
  if (!received.arrived) return look_in_vain(me);
  auto const n = received.in.size();
  receives_.give_back(h.index);
  rank.looks = 0;
  charge(me, options_.model.overhead + NetworkModel::time_of(n, options_.model.fold_bytes_per_second));
  return true;
}

inline void Simulator::wait_sent(Rank me, simulation::Handle h) {
  for (enter(me).looks = 0; !is_sent(me, h);) {  // a wait does not count as a poll
    if (auto const left = messages_[h.index].left; left >= VirtualTime{}) sleep_until(me, left);
    else block(me, simulation::WaitsFor::sent, h);
  }
}

inline void Simulator::wait_received(Rank me, Rank peer, simulation::Handle h) {
  for (enter(me).looks = 0; !is_received(me, peer, h);) block(me, simulation::WaitsFor::message, h);
}

/// Waits, for at most `longest`, until a message of this rank has moved since the last call; true if one has. From the
/// first call on, the end of a send counts when the message leaves.
inline bool Simulator::wait_any(Rank me, VirtualTime longest) {
  auto& rank = enter(me);
  if (!std::exchange(rank.listens, true))
    for (std::uint32_t i = 0; i < messages_.size(); ++i)
      if (auto const& m = messages_[i]; m.used && m.from == me && m.left > now_)
        push(m.left, What::left, static_cast<std::uint32_t>(me));
  if (rank.heard == rank.moves) {
    rank.rests_until = rank.clock + longest;
    if (!std::exchange(rank.has_rest, true)) {
      ++deadlines_;
      push(rank.rests_until, What::rested, static_cast<std::uint32_t>(me));
    }
    block(me, simulation::WaitsFor::rest, {});
  }
  rank.looks = 0;
  return std::exchange(rank.heard, rank.moves) != rank.moves;
}

inline simulation::Channel& Simulator::channel(Rank to, Rank from, Tag tag) {
  auto& rank     = member(to);
  auto const key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(tag);
  if (rank.last_key == key) return *rank.last_channel;
  if (rank.channels.size() >= rank.sweep_at && !faulty_) {  // with faults, sequence numbers must stay
    std::erase_if(rank.channels, [](auto const& entry) { return entry.second.is_idle(); });
    rank.sweep_at = 64 + 2 * rank.channels.size();
  }
  rank.last_key     = key;
  rank.last_channel = &rank.channels[key];
  return *rank.last_channel;
}

/// Copies the message out of the sender's memory, which the sender may then reuse.
inline void Simulator::capture(Message& message) const {
  if (message.captured) return;
  if (options_.payload == SimulatedPayload::bytes && !message.cancelled)
    message.copy.assign(message.data, message.data + message.size);
  message.captured = true;
}

inline void Simulator::corrupt(Message& message) {
  capture(message);
  message.intact = false;
  if (message.copy.empty()) return;
  auto const bit = options_.faults.bit_of(message.from, message.number, message.size * 8);
  message.copy[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
}

/// Puts a message on the first line of its path.
inline void Simulator::depart(std::uint32_t index) {
  auto& message = messages_[index];
  if (message.cancelled) return is_taken(index);
  auto const from = message.from, to = message.to;
  add_to_trace(1, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), message.size);
  if (options_.choose) {
    on_their_way_.push_back(index);
    return;
  }
  auto const& faults = options_.faults;
  auto late          = VirtualTime{};  // by how much
  if (message.has_fault && message.tried == 0) {
    if (message.fault == SimulatedFault::corrupt) corrupt(message);
    late = faults.part_of(faults.longest, from, message.number);
    if (message.fault == SimulatedFault::delay) lines_.block(from, to, now_ + late);
  }
  auto const passage = lines_.depart(from, to, message.size, now_, noise_on(from, lines_.latency(from, to)));
  if (message.left < VirtualTime{}) {
    message.left       = passage.left;
    auto const& sender = member(from);
    if (is_waiting(from) && sender.waits_for == simulation::WaitsFor::sent && sender.handle.index == index)
      push(message.left, What::wake, static_cast<std::uint32_t>(from));
    if (sender.listens) push(message.left, What::left, static_cast<std::uint32_t>(from));
  }
  if (faulty_ && is_lost_on_its_way(index)) return;
  auto arrives = passage.arrives;
  if (message.has_fault && message.fault == SimulatedFault::reorder) arrives += late;
  if (!faulty_) arrives = message.channel->last = std::max(arrives, message.channel->last);
  push(arrives, What::arrive, index);
  if (!message.has_fault || message.fault != SimulatedFault::duplicate || message.tried > 0) return;
  capture(message);
  ++message.channel->on_their_way;
  auto const twin            = messages_.take();
  auto const generation      = messages_[twin].generation;
  messages_[twin]            = messages_[index];  // take() may have moved it
  messages_[twin].generation = generation;
  push(arrives + late, What::arrive, twin);
}

inline bool Simulator::is_lost_on_its_way(std::uint32_t index) {
  auto& message      = messages_[index];
  auto const& faults = options_.faults;
  auto const dropped = message.tried == 0 ? message.has_fault && message.fault == SimulatedFault::drop
                                          : faults.drops_again(message.from, message.number, message.tried);
  if (!dropped && !are_parted(message.from, message.to) && !is_cut(message.from, message.to)) return false;
  capture(message);
  if (++message.tried < faults.tries) {
    push(now_ + faults.resend * (std::int64_t{1} << (message.tried - 1)), What::depart, index);
    return true;
  }
  lose({.fault     = Fault::peer_lost,
        .rank      = message.to,
        .operation = operation_of(message.from),
        .reason    = "message " + std::to_string(message.number) + " of rank " + std::to_string(message.from) +
                  " was sent to it " + std::to_string(message.tried) + " times and never arrived"},
       message.from, Concerns::witness);
  is_taken(index);
  return true;
}

inline void Simulator::arrive(std::uint32_t index) {
  auto const& message = messages_[index];
  add_to_trace(2, static_cast<std::uint64_t>(message.from), static_cast<std::uint64_t>(message.to), message.size);
  auto const& to = member(message.to);
  if (message.cancelled || to.loss >= 0 || to.killed || loss_about(message.to, message.from) >= 0)
    return is_taken(index);
  if (faulty_) judge(index);
  else accept(index);
}

inline void Simulator::judge(std::uint32_t index) {
  auto& message = messages_[index];
  auto& way     = *message.channel;
  switch (options_.judge({message.sequence, way.expected, message.intact})) {
    case Judgement::discard: return is_taken(index);
    case Judgement::hold: return way.held.push_back(index);
    case Judgement::refuse:
      lose({.fault     = Fault::frame_corrupt,
            .rank      = message.from,
            .operation = operation_of(message.to),
            .reason    = "the checksum of its message " + std::to_string(message.number) + ", " +
                      std::to_string(message.size) + " bytes, is wrong"},
           message.to, Concerns::witness);
      return is_taken(index);
    case Judgement::deliver: break;
  }
  way.expected = std::max(way.expected, message.sequence + 1);
  accept(index);
  if (way.held.empty()) return;
  auto held = std::move(way.held);
  way.held.clear();
  for (auto const one : held) {
    if (messages_[one].cancelled || member(messages_[one].to).loss >= 0) is_taken(one);
    else judge(one);
  }
}

inline void Simulator::accept(std::uint32_t index) {
  auto& way = *messages_[index].channel;
  if (way.posted.empty()) return way.arrived.push(messages_, index);
  auto const to      = messages_[index].to;
  auto const receive = way.posted.pop(receives_);
  match(index, receive);
  auto const& rank = member(to);
  stir(to);
  if (is_waiting(to) && rank.waits_for == simulation::WaitsFor::message && rank.handle.index == receive) make_ready(to);
}

inline void Simulator::match(std::uint32_t index, std::uint32_t receive_index) {
  auto& message = messages_[index];
  auto& receive = receives_[receive_index];
  if (message.size != receive.in.size() || !message.about.agrees_with(receive.about)) {
    disagree(message, receive);
  } else {
    if (options_.payload == SimulatedPayload::bytes && message.size > 0)
      std::memcpy(receive.in.data(), message.bytes(), message.size);
    receive.arrived = true;
  }
  is_taken(index);
}

/// Releases the record of a message, and wakes its sender if that waits for the send.
inline void Simulator::is_taken(std::uint32_t index) {
  auto const& message = messages_[index];
  auto const from     = message.from;
  auto const& sender  = member(from);
  auto const is_news  = !sender.listens || message.left < VirtualTime{};  // else counted when the message left
  --message.channel->on_their_way;
  messages_.give_back(index);
  if (is_news) stir(from);
  if (is_waiting(from) && sender.waits_for == simulation::WaitsFor::sent && sender.handle.index == index)
    make_ready(from);
}

inline void Simulator::disagree(Message const& message, simulation::Receive const& receive) {
  auto const from = message.from, to = message.to;
  auto const& ours = member(to).announced;
  auto const raw   = Operation{.count = message.size, .tag = message.tag};
  if (!message.about.agrees_with(receive.about))
    return disagree(to, from, receive.about,
                    text_of(from, message.about, member(from).announced, ours, raw) + ", and " +
                        text_of(to, receive.about, ours, ours, raw));
  disagree(to, from, receive.about,
           "rank " + std::to_string(from) + " sent " + std::to_string(message.size) + " bytes where rank " +
               std::to_string(to) + " expected " + std::to_string(receive.in.size()) + " bytes, tag " +
               std::to_string(static_cast<std::uint32_t>(message.tag)));
}

/// Reports a mismatch that a rank has found with a peer, in the operation of `label`.
inline void Simulator::disagree(Rank me, Rank peer, detail::Label const& label, std::string const& reason) {
  auto const known = label.number == 0 ? std::nullopt : member(me).announced.find(label);
  lose({.fault     = Fault::collective_mismatch,
        .rank      = peer,
        .operation = known ? known->operation.text() : "",
        .sequence  = label.number,
        .step      = member(me).step,
        .reason    = reason},
       me, Concerns::witness);
}

/// part   the ranks of the operation; null: all
inline void Simulator::announce(Rank me, Operation const& operation, SubGroup const* part) {
  auto const& ours = enter(me).announced;
  auto const label = member(me).announced.add(operation, part);
  auto& first      = part == nullptr ? firsts_[label.number % firsts_.size()]
                                     : firsts_of_groups_[label.group][label.number % remembered_of_groups];
  if (first.label.number < label.number) first = {me, label};
  if (first.label.agrees_with(label) || first.label.number > label.number || loss_about(me, first.rank) >= 0) return;
  auto const& theirs = member(first.rank).announced;
  disagree(me, first.rank, label,
           text_of(first.rank, first.label, theirs, ours, {}) + ", and " + text_of(me, label, ours, ours, {}));
  throw_told(me);
}

}  // namespace chorale
