// SPDX-License-Identifier: Apache-2.0
//
// The all-reduces of the library, timed over threads, shared memory and loopback TCP.
#pragma once

#include "ranks.hpp"

#include <chorale/reduce/auto.hpp>
#include <chorale/reduce/copied.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

/// One rank. An operation that can be under way is made once and restarted for each call, as BucketedReducer does it.
template <class R, class E> Times our_times(E& at, chorale::Span<float> x) {
  auto tag        = std::uint32_t{0};
  auto const rows = [&](auto&& all_reduce) { return times_of(at.rank(), at.size(), x, all_reduce); };
  if constexpr (chorale::ResumableReduce<R, E>) {
    auto operation = idle_operation(R{}, at);
    return rows([&] {
      operation.restart(at, x, chorale::Op::sum, chorale::Tag{tag++}, chorale::CallSite::here());
      operation.finish();
    });
  } else {
    return rows([&] { R{}.all_reduce(at, x, chorale::Op::sum, chorale::Tag{tag++}); });
  }
}

/// body(endpoint, x) on every rank, connected over threads, shared memory or loopback TCP.
///
/// x    of that many bytes, zeros
template <class Body> double with_threads(int ranks, std::size_t bytes, Body body) {
  auto endpoints = chorale::LocalTransport{}.connect(chorale::Group::all_local(ranks));
  auto buffers   = std::vector<std::vector<float>>(endpoints.size(), std::vector<float>(bytes / sizeof(float)));
  return on_threads(ranks, [&](int rank) {
    auto const i = static_cast<std::size_t>(rank);
    return body(endpoints[i], chorale::Span<float>{buffers[i]});
  });
}

/// In place: x is a rank's part of the arena, as a planned program has its gradients.
template <class Body> double with_shared_memory(int ranks, std::size_t bytes, Body body) {
  auto const transport =
      chorale::SharedMemoryTransport{.name = "bench-reduce-" + std::to_string(getpid()), .arena = bytes};
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    auto at      = std::move(transport.connect(chorale::Group{ranks, {rank}})[0]);
    auto const x = at.memory().first(bytes);
    return body(at, chorale::Span<float>{reinterpret_cast<float*>(x.data()), bytes / sizeof(float)});
  });
}

/// x is memory of the program's own: what it sends is copied into shared memory and out of it.
template <class Body> double with_own_buffers(int ranks, std::size_t bytes, Body body) {
  auto const transport = chorale::SharedMemoryTransport{.name = "bench-reduce-own-" + std::to_string(getpid())};
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    auto at = std::move(transport.connect(chorale::Group{ranks, {rank}})[0]);
    auto x  = std::vector<float>(bytes / sizeof(float));
    return body(at, chorale::Span<float>{x});
  });
}

template <class Body> double with_tcp(int ranks, std::size_t bytes, Body body) {
  auto const transport = chorale::TcpTransport{.addresses = chorale::free_loopback_addresses(ranks)};
  return on_processes(ranks, bytes, Cores::one_each, [&](int rank) {
    auto at = std::move(transport.connect(chorale::Group{ranks, {rank}})[0]);
    auto x  = std::vector<float>(bytes / sizeof(float));
    return body(at, chorale::Span<float>{x});
  });
}

inline constexpr auto reduces = []<class R>(R) {
  return [](auto& at, chorale::Span<float> x) { return our_times<R>(at, x); };
};

template <class R> double over_threads(int ranks, std::size_t bytes) {
  return with_threads(ranks, bytes, reduces(R{}));
}
template <class R> double over_shared_memory(int ranks, std::size_t bytes) {
  return with_shared_memory(ranks, bytes, reduces(R{}));
}
template <class R> double over_own_buffers(int ranks, std::size_t bytes) {
  return with_own_buffers(ranks, bytes, reduces(R{}));
}
template <class R> double over_tcp(int ranks, std::size_t bytes) { return with_tcp(ranks, bytes, reduces(R{})); }

}  // namespace bench
