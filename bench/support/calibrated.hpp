// SPDX-License-Identifier: Apache-2.0
//
// What a message costs on this machine, in the terms of chorale::NetworkModel.
#pragma once

#include "our_reduce.hpp"

#include <chorale/reduce/combine.hpp>
#include <chorale/transport/network_model.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// Microseconds of one call of f, of that many without a pause between them.
template <class F> double microseconds_of(int calls, F f) {
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f(static_cast<std::size_t>(i));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 1e6 / calls;
}

/// What becomes of what an exchange brings: it is kept, or added to what is there. Of an all-reduce's, half and half.
enum class Brought { kept, added };

/// Every active rank sends a message to the next while it receives from the one before: 2o + alpha + n beta, and
/// n gamma when it is added. They do it at once, as in an all-reduce: where they are more than the cores, that is in.
/// A message is what came the turn before, so the turns go through all memory.
template <class E> class Exchange {
 public:
  /// memory   zeros, at least two messages
  /// active   ranks that exchange; the others wait until it is over
  Exchange(E& at, chorale::Span<float> memory, std::size_t message_bytes, int active)
      : at_{&at}, memory_{memory}, n_{message_bytes / sizeof(float)}, active_{active}, scratch_(n_) {}

  double microseconds(int turns, Brought what) {
    auto const sitting = at_->rank() >= active_;
    auto const result  = sitting ? 0.0 : microseconds_of(turns, [&](std::size_t i) { turn(i, what); });
    auto none          = std::array<std::byte, 4>{};
    if (sitting) at_->recv(0, chorale::Tag{4}, none).wait();
    else if (at_->rank() == 0)
      for (auto rank = active_; rank < at_->size(); ++rank) at_->send(rank, chorale::Tag{4}, none).wait();
    return result;
  }

 private:
  void turn(std::size_t i, Brought what) {
    auto const P = active_, next = (at_->rank() + 1) % P, before = (at_->rank() + P - 1) % P;
    auto const out = message(i), in = message(i + 1);
    auto const to = what == Brought::added ? chorale::Span<float>{scratch_} : in;
    auto received = at_->recv(before, chorale::Tag{3}, std::as_writable_bytes(to));
    auto sent     = at_->send(next, chorale::Tag{3}, std::as_bytes(out));
    received.wait();
    if (what == Brought::added) chorale::combine_after<float>(chorale::Op::sum, to, in);
    sent.wait();
  }

  chorale::Span<float> message(std::size_t i) const { return memory_.subspan(i % (memory_.size() / n_) * n_, n_); }

  E* at_;
  chorale::Span<float> memory_;
  std::size_t n_;
  int active_;
  std::vector<float> scratch_;
};

/// Microseconds per small message of a stream from rank 0 to rank 1, which the slower processor bounds: o.
template <class E> double per_message(E& at) {
  constexpr int many = 512, at_once = 16;
  auto x       = std::vector<std::byte>(4 * at_once);
  auto const i = [&](int k) { return std::span{x}.subspan(static_cast<std::size_t>(4 * k), 4); };
  return microseconds_of(1,
                         [&](std::size_t) {
                           if (at.rank() > 1) return;
                           auto flying = std::vector<typename E::pending>(at_once);
                           for (int k = 0; k < many; ++k) {
                             auto& slot = flying[static_cast<std::size_t>(k % at_once)];
                             slot.wait();
                             if (at.rank() == 0) slot = at.send(1, chorale::Tag{2}, i(k % at_once));
                             else slot = at.recv(0, chorale::Tag{2}, i(k % at_once));
                           }
                           for (auto& one : flying) one.wait();
                         }) /
         many;
}

/// The cost model of one transport of this machine and messages of one size, by what ranks do at once, in microseconds.
///
/// Between ranks of a machine there is no wire: its processors copy. So bytes are charged to who receives them, and the
/// lines carry any number at once.
struct Calibrated {
  std::size_t bytes = 0;                               // of a message
  double small = 0, message = 0, kept = 0, added = 0;  // exchange of 4 B; o; exchange of a message

  /// memory    zeros, at least two messages
  template <class E> static Calibrated measure(E& at, chorale::Span<float> memory, std::size_t bytes, int active) {
    auto const turns = static_cast<int>(std::clamp<std::size_t>((std::size_t{4} << 20) / bytes, 8, 200));
    auto tiny        = Exchange<E>{at, memory, sizeof(float), active};
    auto of_bytes    = Exchange<E>{at, memory, bytes, active};
    auto result      = Calibrated{.bytes = bytes};
    result.small     = tiny.microseconds(200, Brought::kept);
    result.message   = per_message(at);
    result.kept      = of_bytes.microseconds(turns, Brought::kept);
    result.added     = of_bytes.microseconds(turns, Brought::added);
    return result;
  }

  chorale::NetworkModel model() const {
    auto result        = chorale::NetworkModel{};
    auto const o       = std::min(message, small / 2.5) * 1e-6;
    auto const longer  = std::max((kept + added) / 2 - small, small / 100);  // a busy machine may have it the wrong way
    result.overhead    = chorale::virtual_seconds(o);
    result.far.latency = chorale::virtual_seconds(std::max(0.0, small * 1e-6 - 2 * o));
    result.far.bytes_per_second  = 1e15;
    result.fold_bytes_per_second = static_cast<double>(bytes) / (longer * 1e-6);
    return result;
  }
};

/// body(endpoint, x) on every rank of "threads", "shared_memory" or "tcp"; what rank 0's returned, a number for each
/// round.
///
/// x    of that many bytes, zeros
template <class T, class Body>
std::vector<T> of_rank_0(std::string const& transport, int ranks, std::size_t bytes, std::size_t rounds, Body body) {
  auto const shared = SharedBytes{rounds * sizeof(T)};
  auto const keep   = [&](auto& at, chorale::Span<float> x) {
    auto const all = body(at, x);
    if (at.rank() == 0) std::copy(all.begin(), all.end(), shared.as<T>());
    return Times(static_cast<std::size_t>(Repeats{bytes}.blocks), 1.0);  // what with_..() want back
  };
  if (transport == "threads") with_threads(ranks, bytes, keep);
  else if (transport == "shared_memory") with_shared_memory(ranks, bytes, keep);
  else with_tcp(ranks, bytes, keep);
  return {shared.as<T>(), shared.as<T>() + rounds};
}

/// The median of each.
inline Calibrated median(std::vector<Calibrated> const& all) {
  auto const of = [&](double Calibrated::* member) {
    auto values = std::vector<double>{};
    for (auto const& one : all) values.push_back(one.*member);
    return median(values);
  };
  return {all.at(0).bytes, of(&Calibrated::small), of(&Calibrated::message), of(&Calibrated::kept),
          of(&Calibrated::added)};
}

/// transport   "threads", "shared_memory" or "tcp"
inline Calibrated calibrate(std::string const& transport, int ranks, std::size_t message_bytes) {
  constexpr std::size_t rounds = 18, warm = 3;
  auto all = of_rank_0<Calibrated>(transport, ranks, 2 * message_bytes, rounds, [&](auto& at, auto memory) {
    auto result = std::vector<Calibrated>{};
    for (std::size_t i = 0; i < rounds; ++i) result.push_back(Calibrated::measure(at, memory, message_bytes, ranks));
    return result;
  });
  all.erase(all.begin(), all.begin() + warm);
  return median(all);
}

}  // namespace bench
