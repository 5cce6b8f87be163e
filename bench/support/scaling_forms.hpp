// SPDX-License-Identifier: Apache-2.0
//
// The rows of `scaling` about forms of training: predicted beside simulated, and predicted beside measured.
#pragma once

#include "bench/support/ranks.hpp"
#include "bench/support/report.hpp"
#include "bench/support/simulated_forms.hpp"

#include <chorale/advice.hpp>
#include <chorale/chorale.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

namespace bench {

/// GPT-2 of 124 million numbers: 8 rows of 1024 positions on each rank, whose device multiplies 50e12 times a second. A
/// row takes 3 (12 (12 768^2 + 2 768 1024) + 768 50257) 1024 multiplications.
inline chorale::ModelSizes gpt2_sizes() {
  constexpr auto rows = 8.0, positions = 1024.0, width = 768.0;
  constexpr auto products = 3 * rows * positions * (12 * (12 * width * width + 2 * width * positions) + width * 50'257);
  return {.variables     = 4 * 124'439'808ULL,
          .slots         = 2,
          .blocks        = 12,
          .boundary      = static_cast<std::size_t>(rows * positions * width) * 4,
          .compute       = chorale::virtual_seconds(products / 50e12),
          .micro_batches = 16};
}

/// Each form on so many ranks: memory without activations, bytes sent, and the step as it is predicted and, up to
/// `simulate_up_to` ranks, as the simulated times of what it sends make it.
inline void print_forms(std::string const& network, chorale::NetworkModel const& cost, std::vector<int> const& ranks,
                        int simulate_up_to, bool json) {
  using namespace chorale;
  using enum TrainingForm;
  auto const sizes = gpt2_sizes();
  for (int const P : ranks)
    for (auto const form : {mirrored, zero_one, zero_two, zero_three, tensor_split, pipeline}) {
      if ((form == pipeline || form == tensor_split) && P > sizes.blocks) continue;
      auto const predicted = step_of_form(form, sizes, P, PredictedTimes{P, cost});
      auto row             = Row{"form/" + std::string{name(form)}};
      row.add("network", network)
          .add("ranks", P, "%.0f")
          .add("memory_mb", static_cast<double>(memory_of_form(form, sizes, P)) / 1e6, "%.0f")
          .add("sent_mb", static_cast<double>(sent_by_form(form, sizes, P)) / 1e6, "%.0f")
          .add("predicted_ms", seconds(predicted) * 1e3);
      if (P <= simulate_up_to) {
        auto const simulated = step_of_form(form, sizes, P, SimulatedTimes{P, cost});
        row.add("simulated_ms", seconds(simulated) * 1e3).add("ratio", seconds(predicted) / seconds(simulated));
      }
      row.add("efficiency", seconds(sizes.compute) / seconds(predicted)).print(json);
    }
}

/// Steps on meshes, message by message, and how long this machine simulates.
inline void print_meshes(std::string const& network, chorale::NetworkModel const& cost,
                         std::vector<FormMesh> const& meshes, bool json) {
  using namespace chorale;
  for (auto const& mesh : meshes) {
    auto sizes           = gpt2_sizes();
    sizes.micro_batches  = 8;  // of one row each
    auto const start     = std::chrono::steady_clock::now();
    auto const begin     = std::clock();
    auto const run       = simulated_mesh_step(mesh, sizes, cost);
    auto const wall      = seconds_since(start);
    auto const processor = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    auto const predicted = predicted_mesh_step(mesh, sizes, cost);
    auto messages        = 0.0;
    for (auto const& rank : run.ranks) messages += static_cast<double>(rank.messages);
    Row{"mesh/" + std::to_string(mesh.data) + "x" + std::to_string(mesh.stages) + "x" + std::to_string(mesh.parts)}
        .add("network", network)
        .add("ranks", mesh.ranks(), "%.0f")
        .add("predicted_ms", seconds(predicted) * 1e3)
        .add("simulated_ms", seconds(run.check().time) * 1e3)
        .add("ratio", seconds(predicted) / seconds(run.time))
        .add("messages", messages, "%.0f")
        .add("simulated_in_s", wall)
        .add("of_processor_s", processor)
        .print(json);
  }
}

/// Seconds since a run began.
struct Interval {
  double begin = 0, end = 0;
};

/// A network whose gradients take as long as its computing, on few rows.
struct Measured : chorale::nn::Sequential<chorale::nn::Input<784>, chorale::nn::Dense<512>, chorale::nn::ReLU,
                                          chorale::nn::Dense<512>, chorale::nn::ReLU, chorale::nn::Dense<10>> {};

/// Steps of 1 to 4 replicas as threads of this machine: whole, and each part by itself, by turns. A replica that has no
/// thread for its buckets sends them between its layers, so that the prediction is the sum of the parts: of means, which
/// add up also where other programs take their turns.
///
/// A part lasts from when the first replica begins it to when the last one ends: where replicas share a core, some begin
/// only when others have computed, and each by its own clock would be as fast as if it had the core for itself.
template <class S> void print_measured(std::string const& form, int most, int rounds, bool json) {
  using namespace chorale;
  constexpr std::size_t each = 64;
  for (int P = 1; P <= most; ++P) {
    auto const rows  = each * static_cast<std::size_t>(P);
    auto const x     = std::vector<float>(rows * 784, 0.25F);
    auto const y     = std::vector<int>(rows, 3);
    auto const model = nn::compile<Measured>(loss::SparseCrossEntropy{}, optim::Adam{});
    auto live        = Live{S{Cpu::logical(P)}, RingAllReduce{}, LocalTransport{}};
    auto copies      = live.create(model, 7);
    auto times       = PerReplica<std::vector<Interval>>(copies.size());  // compute, reduce, update, step, each round
    auto const begin = std::chrono::steady_clock::now();
    live.run(
        [&](auto& replica, auto& copy, std::vector<Interval>& to) {
          auto const mine = share(rows, replica.id(), P);
          auto const batch =
              BasicBatch<float, int>{.x           = Span<float const>{x}.subspan(mine.begin * 784, mine.size() * 784),
                                     .y           = Span<int const>{y}.subspan(mine.begin, mine.size()),
                                     .rows        = mine.size(),
                                     .first_row   = mine.begin,
                                     .global_rows = rows};
          auto const timed = [&](auto&& part) {
            replica.barrier();
            auto const start = seconds_since(begin);
            part();
            to.push_back({start, seconds_since(begin)});
          };
          auto gradients = copy.gradients();
          for (int round = 0; round < rounds + 2; ++round) {
            timed([&] { replica.value_and_gradient(copy, batch); });
            if constexpr (shards_optimizer<S>) {
              timed([&] {
                replica.reduce_scatter(gradients);
                replica.gather_variables(copy.net.variables());
              });
              timed([&] {
                copy.optimizer.apply_shard(copy.net.variables().body(), gradients,
                                           [&](Span<double> sum) { replica.add_up(sum); });
              });
            } else {
              timed([&] { replica.all_reduce(gradients); });
              timed([&] { copy.optimizer.apply(copy.net.variables(), gradients); });
            }
            timed([&] {
              auto result = replica.value_and_gradient_ahead(copy, batch);
              live.update(replica, copy, result.gradients);
            });
          }
        },
        copies, times);
    auto parts = std::vector<std::vector<double>>(4);
    for (std::size_t i = 8; i < times[0].size(); ++i) {  // two rounds warm up
      auto all = times[0][i];                            // of the first to begin, the last to end
      for (auto const& one : times) all = {std::min(all.begin, one[i].begin), std::max(all.end, one[i].end)};
      parts[i % 4].push_back(all.end - all.begin);
    }
    auto const of = [&](std::size_t part) {
      return std::accumulate(parts[part].begin(), parts[part].end(), 0.0) / static_cast<double>(parts[part].size()) *
             1e3;
    };
    auto const predicted = of(0) + of(1) + of(2);
    Row{"measured/" + form}
        .add("ranks", P, "%.0f")
        .add("cores", cores(), "%.0f")
        .add("compute_ms", of(0))
        .add("reduce_ms", of(1))
        .add("update_ms", of(2))
        .add("predicted_ms", predicted)
        .add("measured_ms", of(3))
        .add("ratio", predicted / of(3))
        .print(json);
  }
}

}  // namespace bench
