// SPDX-License-Identifier: Apache-2.0
// Event loop of a Simulator. It is included at the end of simulator.hpp.
#pragma once

#include <chorale/transport/simulated/simulator.hpp>

#include <gsl/util>

namespace chorale {

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
  if (end.error != nullptr && rank.verdict < 0) {
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
  rank.status = simulation::Status::over;
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
      member(me).verdict = static_cast<int>(told_.size()) - 1;
      member(me).killed  = false;
      return start(me);
  }
}

/// Delivers the oldest message of one channel, which SimulatedTransport::choose picks.
inline void Simulator::next_choice() {
  auto firsts = std::vector<std::size_t>{};                                // indices into on_their_way_
  for (std::size_t i = 0; i < on_their_way_.size(); ++i) {
    auto const same = [&](std::size_t k) {
      return messages_[on_their_way_[k]].channel == messages_[on_their_way_[i]].channel;
    };
    if (std::none_of(firsts.begin(), firsts.end(), same)) firsts.push_back(i);
  }
  auto const chosen = firsts.size() == 1 ? 0 : options_.choose(firsts.size());
  CHORALE_EXPECTS(chosen < firsts.size(), "choice " + std::to_string(chosen) + " of " + std::to_string(firsts.size()) +
                                              " messages");
  auto const index = on_their_way_[firsts[chosen]];
  on_their_way_.erase(on_their_way_.begin() + static_cast<std::ptrdiff_t>(firsts[chosen]));
  arrive(index);
}

}  // namespace chorale
