// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/reduce/step_time.hpp>
#include <chorale/transport/network_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// Ways to divide the training of one model among ranks.
///
/// mirrored        each rank has everything, and a share of the rows
/// zero_one        and the optimizer's state is in shards
/// zero_two        and gradients are
/// zero_three      and variables are: a block is gathered before it computes
/// tensor_split    each block is split over all ranks, as Megatron has it
/// pipeline        each rank has some of the blocks, and micro-batches pass through all: one forward, one backward
///
/// source  Rajbhandari et al., SC 2020; Shoeybi et al., 2019; Narayanan et al., SC 2021
enum class TrainingForm : std::uint8_t {
  one_device,
  mirrored,
  zero_one,
  zero_two,
  zero_three,
  tensor_split,
  pipeline,
  parameter_servers
};

constexpr std::string_view name(TrainingForm form) {
  return std::array<std::string_view, 8>{
      "one device",  "mirrored",     "Zero::one", "Zero::two",
      "Zero::three", "tensor split", "pipeline",  "parameter servers"}[static_cast<std::size_t>(form)];
}

/// What one stage of a pipeline has of a model.
///
/// variables   bytes
/// products    its part of the multiplications of all stages, whose sum is 1
/// passes      bytes of values to later stages, of one rank's rows
/// returns     bytes of gradients to earlier ones
struct StageSizes {
  std::size_t variables = 0;
  double products       = 0;
  std::size_t passes = 0, returns = 0;
};

/// The sizes of a model on which its memory and its step time depend, whatever it computes.
///
/// variables       bytes of all of them; gradients have as many
/// slots           of the optimizer: times the bytes of variables
/// activations     bytes of one rank's rows
/// blocks          parts of nearly equal size, one after another
/// boundary        bytes between two blocks, of one rank's rows; 0: not known, and no form that splits blocks is considered
/// compute         time of a step of one rank's rows on one device: a third of it forward
/// micro_batches   of a pipeline
/// stages          of a pipeline of as many ranks, as the network is cut in; empty: equal ones, with a boundary between two
struct ModelSizes {
  std::size_t variables   = 0;
  int slots               = 2;
  std::size_t activations = 0;
  int blocks              = 1;
  std::size_t boundary    = 0;
  VirtualTime compute{};
  int micro_batches = 8;
  Span<StageSizes const> stages{};
};

/// What a form costs each rank.
///
/// memory   bytes; sent: bytes in a step; step: time for a batch that has the rows of all ranks, whatever the form
struct FormCost {
  TrainingForm form{};
  std::size_t memory = 0, sent = 0;
  VirtualTime step{};
};

/// Times of what a form sends: predicted, simulated or measured.
///
/// all_reduce, reduce_scatter, all_gather   among all ranks, of so many bytes
/// send                                     from one stage to the next, until it is there
/// receive                                  of the receiver's processor, then
template <class T>
concept CollectiveTimes = requires(T const& times, std::size_t bytes) {
  { times.all_reduce(bytes) } -> std::same_as<VirtualTime>;
  { times.reduce_scatter(bytes) } -> std::same_as<VirtualTime>;
  { times.all_gather(bytes) } -> std::same_as<VirtualTime>;
  { times.send(bytes) } -> std::same_as<VirtualTime>;
  { times.receive(bytes) } -> std::same_as<VirtualTime>;
};

/// Times that the network's model gives for rings. See NetworkModel.
struct PredictedTimes {
  int ranks = 1;
  NetworkModel network{};

  VirtualTime all_reduce(std::size_t bytes) const { return predicted_time(ReduceKind::ring, ranks, bytes, network); }
  VirtualTime reduce_scatter(std::size_t bytes) const {
    return predicted_ring_time<RingReduceScatter>(ranks, bytes, network);
  }
  VirtualTime all_gather(std::size_t bytes) const { return predicted_ring_time<RingAllGather>(ranks, bytes, network); }
  VirtualTime send(std::size_t bytes) const {
    auto lines = NetworkLines{network, std::max(2, ranks)};
    return lines.depart(0, 1, bytes, network.overhead, {}).arrives;
  }
  VirtualTime receive(std::size_t bytes) const {
    return network.overhead + NetworkModel::time_of(bytes, network.fold_bytes_per_second);
  }
};

/// Bytes that each rank keeps: of floats, (2 + slots) times the variables, in whole or in parts, and activations.
constexpr std::size_t memory_of_form(TrainingForm form, ModelSizes const& sizes, int ranks) {
  auto const N = static_cast<std::size_t>(ranks), k = static_cast<std::size_t>(sizes.slots);
  auto const part  = [&](std::size_t bytes) { return (bytes + N - 1) / N; };
  auto const block = sizes.variables / static_cast<std::size_t>(sizes.blocks);
  auto const V = sizes.variables, A = sizes.activations;
  switch (form) {
    case TrainingForm::one_device:
    case TrainingForm::mirrored:
    case TrainingForm::parameter_servers: return (2 + k) * V + A;
    case TrainingForm::zero_one: return 2 * V + part(k * V) + A;
    case TrainingForm::zero_two: return V + part((1 + k) * V) + block + A;    // one block before it is reduced
    case TrainingForm::zero_three: return part((2 + k) * V) + 2 * block + A;  // the block at work, and the next
    case TrainingForm::tensor_split: return part((2 + k) * V) + A;            // N times the rows, 1/N of each
    case TrainingForm::pipeline: {
      auto const m = static_cast<std::size_t>(sizes.micro_batches);
      auto most    = sizes.stages.empty() ? part((2 + k) * V) + N * A / m : 0;
      for (std::size_t i = 0; i < sizes.stages.size(); ++i) {  // keeps what backward has not come back for
        auto const kept = static_cast<double>(N * A * std::min(m, N - i) / m) * sizes.stages[i].products;
        most            = std::max(most, (2 + k) * sizes.stages[i].variables + static_cast<std::size_t>(kept));
      }
      return most;
    }
  }
  return 0;
}

/// Bytes that a rank sends in a step of the rows of all ranks; in a pipeline, the one that sends most, without the
/// gradients of variables that several stages use.
constexpr std::size_t sent_by_form(TrainingForm form, ModelSizes const& sizes, int ranks) {
  if (ranks == 1) return 0;
  auto const N      = static_cast<std::size_t>(ranks);
  auto const others = [&](std::size_t bytes) { return bytes / N * (N - 1); };  // (N - 1) / N of them
  switch (form) {
    case TrainingForm::one_device: return 0;
    case TrainingForm::mirrored:
    case TrainingForm::zero_one:
    case TrainingForm::zero_two: return 2 * others(sizes.variables);
    case TrainingForm::zero_three: return 3 * others(sizes.variables);
    case TrainingForm::tensor_split: return 8 * static_cast<std::size_t>(sizes.blocks) * others(N * sizes.boundary);
    case TrainingForm::pipeline: {
      auto most = sizes.stages.empty() ? 2 * N * sizes.boundary : 0;
      for (auto const& stage : sizes.stages) most = std::max(most, N * (stage.passes + stage.returns));
      return most;
    }
    case TrainingForm::parameter_servers: return sizes.variables;
  }
  return 0;
}

namespace detail {

/// Time of a step whose blocks are gathered before forward and before backward, and whose gradients are scattered after
/// it: one line, and room for the block at work and the next one.
inline VirtualTime gathered_step(VirtualTime compute, int blocks, VirtualTime gather, VirtualTime scatter) {
  auto const passes = 2 * blocks;
  auto line = gather, work = VirtualTime{};  // when each is free
  auto gathered = gather;                    // of the block that computes next
  for (int i = 0; i < passes; ++i) {
    auto const begin = std::max(work, gathered);
    if (i + 1 < passes) gathered = line = std::max(line, begin) + gather;
    work = begin + compute / 3 / blocks * (i < blocks ? 1 : 2);
    if (i >= blocks) line = std::max(line, work) + scatter;
  }
  return std::max(work, line);
}

/// Time of a pipeline of one forward, one backward: stages compute micro-batches in that order. Forward waits for the
/// previous stage, backward for the next.
///
/// forward, backward   called with a stage: the time of one micro-batch in it
/// send, receive       of a boundary: until it is there, and of the stage that takes it
template <class Forward, class Backward>
VirtualTime pipelined_step(int stages, int micro_batches, Forward&& forward, Backward&& backward, VirtualTime send,
                           VirtualTime receive) {
  auto const S = static_cast<std::size_t>(stages), m = static_cast<std::size_t>(micro_batches);
  auto ends   = std::array{std::vector<VirtualTime>(S * m, VirtualTime::min()),
                         std::vector<VirtualTime>(S * m, VirtualTime::min())};
  auto clocks = std::vector<VirtualTime>(S);
  auto done   = std::vector<std::array<std::size_t, 2>>(S);  // forwards, backwards
  for (auto left = 2 * S * m; left > 0;) {
    for (std::size_t s = 0; s < S; ++s) {
      auto& [f, b]     = done[s];
      auto const ahead = std::min(m, S - s);  // forwards before the first backward
      if (b == m) continue;
      auto const back   = f == m || f - b >= ahead;
      auto const i      = back ? b : f;
      auto const first  = back ? s + 1 == S : s == 0;
      auto const before = first ? VirtualTime{} : ends[back][(back ? s + 1 : s - 1) * m + i];
      if (before == VirtualTime::min()) continue;
      auto const begin = first ? clocks[s] : std::max(clocks[s], before + send) + receive;
      clocks[s] = ends[back][s * m + i] = begin + (back ? backward(static_cast<int>(s)) : forward(static_cast<int>(s)));
      ++(back ? b : f);
      --left;
    }
  }
  return *std::max_element(clocks.begin(), clocks.end());
}

}  // namespace detail

/// Time of a step of the rows of all ranks, from the times of what it sends.
///
///   mirrored, zero_one, zero_two    blocks are reduced while backward computes the next; then variables are gathered
///   zero_three                      the next block is gathered while one computes, forward and backward
///   tensor_split                    four all-reduces of a boundary for each block, which nothing hides
///   pipeline                        (stages - 1) / micro_batches more than computing, and what sending adds
template <CollectiveTimes T>
VirtualTime step_of_form(TrainingForm form, ModelSizes const& sizes, int ranks, T const& times) {
  if (ranks == 1) return sizes.compute;
  auto const N     = static_cast<std::size_t>(ranks);
  auto const block = sizes.variables / static_cast<std::size_t>(sizes.blocks);
  switch (form) {
    case TrainingForm::one_device: return sizes.compute * ranks;
    case TrainingForm::mirrored: return step_time(sizes.compute, times.all_reduce(block), sizes.blocks);
    case TrainingForm::zero_one:
    case TrainingForm::zero_two:
      return step_time(sizes.compute, times.reduce_scatter(block), sizes.blocks) + times.all_gather(sizes.variables);
    case TrainingForm::zero_three:
      return detail::gathered_step(sizes.compute, sizes.blocks, times.all_gather(block), times.reduce_scatter(block));
    case TrainingForm::tensor_split: return sizes.compute + 4 * sizes.blocks * times.all_reduce(N * sizes.boundary);
    case TrainingForm::pipeline: {
      auto const m  = sizes.micro_batches;
      auto boundary = sizes.stages.empty() ? sizes.boundary : 0;
      for (auto const& stage : sizes.stages) boundary = std::max({boundary, stage.passes, stage.returns});
      auto const passed  = N * boundary / static_cast<std::size_t>(m);
      auto const compute = [&](int stage) {  // of all micro-batches
        if (sizes.stages.empty()) return sizes.compute;
        return virtual_seconds(seconds(sizes.compute) * ranks * sizes.stages[static_cast<std::size_t>(stage)].products);
      };
      return detail::pipelined_step(
          ranks, m, [&](int stage) { return compute(stage) / 3 / m; },
          [&](int stage) { return compute(stage) * 2 / 3 / m; }, times.send(passed), times.receive(passed));
    }
    case TrainingForm::parameter_servers: break;
  }
  CHORALE_EXPECTS(form != TrainingForm::parameter_servers, "predicted_servers_time() is for servers");
  return {};
}

}  // namespace chorale
