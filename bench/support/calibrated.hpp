// SPDX-License-Identifier: Apache-2.0
//
// What a message costs on this machine, in the terms of chorale::CostModel.
#pragma once

#include "ranks.hpp"

#include <chorale/reduce/combine.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/simulated_model.hpp>
#include <chorale/transport/tcp.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Seconds that f takes, in the middle of some.
template <class F>
double seconds_of(int times, F f) {
  auto all = std::vector<double>{};
  for (int i = 0; i < times; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    f();
    all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return median(all);
}

/// What becomes of what an exchange brings: it is kept, or added to what was sent. Of an all-reduce's, half and half.
enum class Brought { kept, added };

/// Every rank sends to the next while it receives from the one before, in seconds: 2o + alpha + n beta, and n gamma
/// when it is added. All ranks do it at once, as in an all-reduce: where they are more than the cores, that is in it.
///
/// memory    of 2 n bytes, zeros: what is sent, and where it comes in
template <class E>
double exchange(E& at, chorale::Span<float> memory, int turns, Brought what = Brought::kept) {
  auto const P = at.size(), next = (at.rank() + 1) % P, before = (at.rank() + P - 1) % P;
  auto const n = memory.size() / 2;
  auto out = memory.first(n), in = memory.last(n);
  return seconds_of(15, [&] {
           for (int i = 0; i < turns; ++i) {
             auto sent = at.send(next, chorale::Tag{3}, std::as_bytes(out));
             at.recv(before, chorale::Tag{3}, std::as_writable_bytes(in)).wait();
             sent.wait();
             if (what == Brought::added) chorale::combine_after<float>(chorale::Op::sum, out, in);
             else std::swap(out, in);
           }
         }) /
         turns;
}

/// Seconds per small message of a stream from rank 0 to rank 1, which the slower processor bounds: o.
template <class E>
double per_message(E& at) {
  constexpr int many = 4'096, at_once = 16;
  auto x       = std::vector<std::byte>(4 * at_once);
  auto const i = [&](int k) { return std::span{x}.subspan(static_cast<std::size_t>(4 * k), 4); };
  return seconds_of(15, [&] {
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

/// The cost model of one transport of this machine, by what all ranks do at once: rank 0's times, in microseconds.
///
/// Between ranks of a machine there is no wire: its processors copy. So bytes are charged to who receives them, and the
/// lines carry any number at once.
struct Calibrated {
  static constexpr std::size_t few = std::size_t{64} << 10, many = std::size_t{256} << 10;   // no message is larger

  double small = 0, message = 0, medium = 0, large = 0;                    // exchange of 4 B; o; exchange of few, many
  double medium_added = 0, large_added = 0;                                // the same, where what comes is added

  /// memory    of 2 * many bytes, zeros
  template <class E>
  static Times measure(E& at, chorale::Span<float> memory) {
    auto const of = [&](std::size_t bytes) { return memory.first(2 * bytes / sizeof(float)); };
    exchange(at, of(4), 200);                                              // warm
    auto const a = exchange(at, of(4), 400), o = per_message(at);
    return {a * 1e6, o * 1e6, exchange(at, of(few), 50) * 1e6, exchange(at, of(many), 20) * 1e6,
            exchange(at, of(few), 50, Brought::added) * 1e6, exchange(at, of(many), 20, Brought::added) * 1e6};
  }

  chorale::CostModel model() const {
    auto result     = chorale::CostModel{};
    auto const o    = std::min(message, small / 2.5) * 1e-6;
    auto const less = (medium + medium_added) / 2, more = (large + large_added) / 2;
    result.overhead              = chorale::virtual_seconds(o);
    result.far.latency           = chorale::virtual_seconds(std::max(0.0, small * 1e-6 - 2 * o));
    result.far.bytes_per_second  = 1e15;
    result.fold_bytes_per_second = (many - few) / (std::max(more - less, more / 4) * 1e-6);   // a busy machine may have
    return result;                                                         // it the wrong way
  }
};

/// transport   "threads", "shared_memory" or "tcp"
inline Calibrated calibrate(std::string const& transport, int ranks) {
  using namespace chorale;
  constexpr auto memory = 2 * Calibrated::many;
  auto const shared     = SharedBytes{6 * sizeof(double)};
  auto const keep       = [&](int rank, Times const& times) {
    if (rank == 0) std::copy(times.begin(), times.end(), shared.as<double>());
    return Times(Repeats{1}.blocks, 1.0);                                  // what on_processes() wants back
  };
  if (transport == "threads") {
    auto endpoints = LocalTransport{}.connect(Group::all_local(ranks));
    on_threads(ranks, [&](int rank) {
      auto own = std::vector<float>(memory / sizeof(float));
      return keep(rank, Calibrated::measure(endpoints[static_cast<std::size_t>(rank)], own));
    });
  } else if (transport == "shared_memory") {
    auto const over = SharedMemoryTransport{.name = "bench-calibrate-" + std::to_string(getpid()), .arena = memory};
    on_processes(ranks, 1, Cores::one_each, [&](int rank) {
      auto at = std::move(over.connect(Group{ranks, {rank}})[0]);
      auto* const own = reinterpret_cast<float*>(at.memory().data());
      return keep(rank, Calibrated::measure(at, {own, memory / sizeof(float)}));
    });
  } else {
    auto const over = TcpTransport{.addresses = free_loopback_addresses(ranks)};
    on_processes(ranks, 1, Cores::one_each, [&](int rank) {
      auto at  = std::move(over.connect(Group{ranks, {rank}})[0]);
      auto own = std::vector<float>(memory / sizeof(float));
      return keep(rank, Calibrated::measure(at, own));
    });
  }
  auto const* t = shared.as<double>();
  return {t[0], t[1], t[2], t[3], t[4], t[5]};
}

}  // namespace bench
