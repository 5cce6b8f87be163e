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

/// Seconds that f takes, the least of some: what others do on this machine is not the transport's cost.
template <class F>
double seconds_of(int times, F f) {
  auto all = std::vector<double>{};
  for (int i = 0; i < times; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    f();
    all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return *std::min_element(all.begin(), all.end());
}

/// One way of a ping-pong of two ranks, in seconds: 2o + alpha + n beta.
template <class E>
double one_way(E& at, std::size_t bytes, int turns) {
  auto const peer = 1 - at.rank();
  auto const tag  = chorale::Tag{1};
  auto x          = std::vector<std::byte>(bytes);
  return seconds_of(15, [&] {
           for (int i = 0; i < turns; ++i) {
             if (at.rank() == 0) at.send(peer, tag, x).wait();
             at.recv(peer, tag, x).wait();
             if (at.rank() == 1) at.send(peer, tag, x).wait();
           }
         }) /
         turns / 2;
}

/// Both ways at once, as most algorithms have it, in seconds: each core copies what it sends and what it receives.
template <class E>
double both_ways(E& at, std::size_t bytes, int turns) {
  auto const peer = 1 - at.rank();
  auto out        = std::vector<std::byte>(bytes), in = out;
  return seconds_of(15, [&] {
           for (int i = 0; i < turns; ++i) {
             auto sent = at.send(peer, chorale::Tag{3}, out);
             at.recv(peer, chorale::Tag{3}, in).wait();
             sent.wait();
             std::swap(out, in);
           }
         }) /
         turns;
}

/// Seconds per small message of a stream in one direction, which the slower processor bounds: o.
template <class E>
double per_message(E& at) {
  constexpr int many = 4'096, at_once = 16;
  auto x       = std::vector<std::byte>(4 * at_once);
  auto const i = [&](int k) { return std::span{x}.subspan(static_cast<std::size_t>(4 * k), 4); };
  return seconds_of(15, [&] {
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

/// Bytes of float that a core adds to others in a second, in the cache.
inline double fold_speed() {
  auto a = std::vector<float>(65'536, 1.0F), b = a;
  auto const took = seconds_of(21, [&] {
    for (int i = 0; i < 50; ++i) chorale::combine_after<float>(chorale::Op::sum, a, b);
  });
  return 50 * 65'536 * sizeof(float) / took;
}

/// The cost model of one transport: rank 0's times, in microseconds, in the order of measure().
struct Calibrated {
  double small = 0, message = 0, medium = 0, large = 0;                    // one way of 4 B; o; both of 64 and 256 KiB

  template <class E>
  static Times measure(E& at) {
    one_way(at, 4, 200);                                                   // warm
    return {one_way(at, 4, 400) * 1e6, per_message(at) * 1e6, both_ways(at, 64 << 10, 50) * 1e6,
            both_ways(at, 256 << 10, 20) * 1e6};                             // no message of an all-reduce is larger
  }

  chorale::CostModel model() const {
    auto result     = chorale::CostModel{};
    auto const o    = std::min(message, small / 2.5) * 1e-6;
    result.overhead = chorale::virtual_seconds(o);
    result.fold_bytes_per_second = fold_speed();
    result.far.latency           = chorale::virtual_seconds(std::max(0.0, small * 1e-6 - 2 * o));
    auto const more              = std::max(large - medium, large / 4);     // a busy machine may have it the wrong way
    result.far.bytes_per_second  = (192 << 10) / (more * 1e-6);
    return result;
  }
};

/// transport   "threads", "shared_memory" or "tcp"
inline Calibrated calibrate(std::string const& transport) {
  using namespace chorale;
  auto const shared = SharedBytes{4 * sizeof(double)};
  auto const keep   = [&](int rank, Times const& times) {
    if (rank == 0) std::copy(times.begin(), times.end(), shared.as<double>());
    return Times(Repeats{1}.blocks, 1.0);                                  // what on_processes() wants back
  };
  if (transport == "threads") {
    auto endpoints = LocalTransport{}.connect(Group::all_local(2));
    on_threads(2, [&](int rank) { return keep(rank, Calibrated::measure(endpoints[static_cast<std::size_t>(rank)])); });
  } else if (transport == "shared_memory") {
    auto const over = SharedMemoryTransport{.name = "bench-calibrate-" + std::to_string(getpid())};
    on_processes(2, 1, Cores::one_each, [&](int rank) {
      auto at = std::move(over.connect(Group{2, {rank}})[0]);
      return keep(rank, Calibrated::measure(at));
    });
  } else {
    auto const over = TcpTransport{.addresses = free_loopback_addresses(2)};
    on_processes(2, 1, Cores::one_each, [&](int rank) {
      auto at = std::move(over.connect(Group{2, {rank}})[0]);
      return keep(rank, Calibrated::measure(at));
    });
  }
  auto const* t = shared.as<double>();
  return {t[0], t[1], t[2], t[3]};
}

}  // namespace bench
