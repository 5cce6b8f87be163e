// SPDX-License-Identifier: Apache-2.0
//
// Forms of training over virtual ranks: the schedules and messages of a step, with sizes in place of numbers.
#pragma once

#include "bench/support/weightless.hpp"

#include <chorale/advice/training_form.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/simulated.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {

/// A collective of NoData by schedule S on one rank, which returns when it is complete.
template <chorale::Schedule S, class E>
void collective(E& at, chorale::Span<chorale::NoData> x, chorale::Tag tag = {}) {
  using namespace chorale;
  auto operation = ScheduleExecution<S, E, NoData>{};
  operation.restart(at, {.collective = S::collective, .x = x, .op = Op::sum, .tag = tag, .where = CallSite::here()});
  operation.finish();
}

/// Times of rings and of a message, each by a simulation of its own: see CollectiveTimes.
struct SimulatedTimes {
  int ranks = 1;
  chorale::NetworkModel network{};

  chorale::VirtualTime all_reduce(std::size_t bytes) const { return time_of<chorale::RingAllReduce>(bytes); }
  chorale::VirtualTime reduce_scatter(std::size_t bytes) const { return time_of<chorale::RingReduceScatter>(bytes); }
  chorale::VirtualTime all_gather(std::size_t bytes) const { return time_of<chorale::RingAllGather>(bytes); }
  chorale::VirtualTime send(std::size_t bytes) const {
    using namespace chorale;
    auto const nowhere = UnmappedMemory{bytes / 4};
    return simulate(2,
                    [&](SimulatedEndpoint& at) {
                      if (at.rank() == 0) at.send(1, Tag{1}, std::as_bytes(nowhere.span())).wait();
                      else at.recv(0, Tag{1}, std::as_writable_bytes(nowhere.span())).wait();
                    },
                    {.model = network, .payload = SimulatedPayload::sizes})
               .check()
               .time -
           receive(bytes);
  }
  chorale::VirtualTime receive(std::size_t bytes) const {
    return network.overhead + chorale::NetworkModel::time_of(bytes, network.fold_bytes_per_second);
  }

 private:
  template <chorale::Schedule S> chorale::VirtualTime time_of(std::size_t bytes) const {
    using namespace chorale;
    auto const nowhere = UnmappedMemory{bytes / 4};
    return simulate(ranks, [&](SimulatedEndpoint& at) { collective<S>(at, nowhere.span()); },
                    {.model = network, .payload = SimulatedPayload::sizes})
        .check()
        .time;
  }
};

/// A mesh of data x stages x parts ranks; parts of a block are neighbours, then stages.
///
///   rank = (data * stages + stage) * parts + part
struct FormMesh {
  int data = 1, stages = 1, parts = 1;

  int ranks() const { return data * stages * parts; }
  std::vector<chorale::Rank> along_parts(chorale::Rank rank) const {
    auto all = std::vector<chorale::Rank>{};
    for (int i = 0; i < parts; ++i) all.push_back(rank / parts * parts + i);
    return all;
  }
  std::vector<chorale::Rank> along_data(chorale::Rank rank) const {
    auto all = std::vector<chorale::Rank>{};
    for (int i = 0; i < data; ++i) all.push_back(i * stages * parts + rank % (stages * parts));
    return all;
  }
};

/// A step on a mesh, message by message: each stage computes its blocks, one forward, one backward, with four all-reduces
/// of a boundary for each block and micro-batch among the ranks that share the block; then gradients are reduced along
/// the data axis. `sizes` are those of one data rank: its rows pass through all stages.
///
/// returns   the time of the last rank
inline chorale::SimulatedRun simulated_mesh_step(FormMesh const& mesh, chorale::ModelSizes const& sizes,
                                                 chorale::NetworkModel const& network) {
  using namespace chorale;
  auto const m = sizes.micro_batches, S = mesh.stages, T = mesh.parts;
  auto const boundary = sizes.boundary / static_cast<std::size_t>(m) / 4 * 4;
  auto const own      = sizes.variables / static_cast<std::size_t>(S * T);
  auto const nowhere  = UnmappedMemory{std::max(own, boundary) / 4};
  auto const forward  = sizes.compute / 3 / m / T / sizes.blocks;  // of one block and micro-batch on one rank
  return simulate(mesh.ranks(),
                  [&](SimulatedEndpoint& at) {
                    auto const stage  = at.rank() / T % S;
                    auto const blocks = share(static_cast<std::size_t>(sizes.blocks), stage, S).size();
                    auto parts        = SubEndpoint<SimulatedEndpoint>{at, mesh.along_parts(at.rank())};
                    auto along_data   = SubEndpoint<SimulatedEndpoint>{at, mesh.along_data(at.rank())};
                    auto const x      = nowhere.span().first(boundary / 4);
                    auto sent         = std::vector<SimulatedEndpoint::pending>{};
                    auto const pass   = [&](int micro_batch, bool back) {
                      auto const from = back ? stage + 1 : stage - 1, to = back ? stage - 1 : stage + 1;
                      auto const tag = Tag{static_cast<std::uint32_t>(2 * micro_batch + (back ? 1 : 0)) + 8};
                      if (from >= 0 && from < S)
                        at.recv(at.rank() + (from - stage) * T, tag, std::as_writable_bytes(x)).wait();
                      for (std::size_t b = 0; b < blocks; ++b) {
                        at.work(back ? 2 * forward : forward);
                        for (int twice = 0; twice < 2 && T > 1; ++twice) collective<RingAllReduce>(parts, x, Tag{1});
                      }
                      if (to >= 0 && to < S)
                        sent.push_back(at.send(at.rank() + (to - stage) * T, tag, std::as_bytes(x)));
                    };
                    auto const ahead = std::min(m, S - stage);
                    for (int f = 0, b = 0; b < m;) {
                      if (f < m && f - b < ahead) pass(f++, false);
                      else pass(b++, true);
                    }
                    for (auto& one : sent) one.wait();
                    if (mesh.data > 1) collective<RingAllReduce>(along_data, nowhere.span().first(own / 4), Tag{2});
                  },
                  {.model = network, .timeout = std::chrono::hours{1}, .payload = SimulatedPayload::sizes});
}

/// What the network's model says of that step.
inline chorale::VirtualTime predicted_mesh_step(FormMesh const& mesh, chorale::ModelSizes const& sizes,
                                                chorale::NetworkModel const& network) {
  using namespace chorale;
  auto const m = sizes.micro_batches, S = mesh.stages, T = mesh.parts;
  auto const boundary = sizes.boundary / static_cast<std::size_t>(m) / 4 * 4;
  auto const blocks   = [&](int stage) {
    return static_cast<int>(share(static_cast<std::size_t>(sizes.blocks), stage, S).size());
  };
  auto const groups = [&](int size, std::size_t bytes, auto of_group) {
    if (size == 1) return VirtualTime{};
    auto walk = chorale::detail::ScheduleWalk{network, mesh.ranks()};
    walk.walk<RingAllReduce>(size, bytes, of_group);
    return walk.last();
  };
  auto const parts = groups(T, boundary, [&](Rank rank) { return std::pair{rank / T * T, 1}; });
  auto const send  = [&] {  // all parts of a stage send at once
    auto lines = NetworkLines{network, std::max(2 * T, 2)};
    auto last  = VirtualTime{};
    for (Rank rank = 0; rank < T; ++rank)
      last = std::max(last, lines.depart(rank, rank + T, boundary, network.overhead, {}).arrives);
    return last;
  }();
  auto const forward = sizes.compute / 3 / m / T / sizes.blocks;
  auto const passed  = chorale::detail::pipelined_step(
      S, m, [&](int s) { return blocks(s) * (forward + 2 * parts); },
      [&](int s) { return blocks(s) * (2 * forward + 2 * parts); }, send,
      network.overhead + NetworkModel::time_of(boundary, network.fold_bytes_per_second));
  return passed + groups(mesh.data, sizes.variables / static_cast<std::size_t>(S * T),
                         [&](Rank rank) { return std::pair{rank % (S * T), S * T}; });
}

}  // namespace bench
