// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/reduce/step_time.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// The quantities of a training job that its step time depends on.
struct Workload {
  std::size_t bytes = 0;  // of all gradients, at least 1
  VirtualTime compute{};  // of one step on one device; 0: not known
};

/// The workload of a model; Model::plan gives the bytes that a step combines.
template <class Model> constexpr Workload workload(VirtualTime compute) {
  return {Model::plan.bytes_per_step(), compute};
}

/// The strategies that advise() chooses from: OneDeviceStrategy, MirroredStrategy, MultiWorkerMirroredStrategy, and
/// ParameterServerStrategy with Synchronous, or with Asynchronous.
enum class AdvisedStrategy : std::uint8_t {
  one_device,
  mirrored,
  multi_worker_mirrored,
  parameter_server,
  asynchronous_servers
};

constexpr std::string_view name(AdvisedStrategy s) {
  return std::array<std::string_view, 5>{"one device", "mirrored", "multi-worker mirrored", "parameter servers",
                                         "asynchronous parameter servers"}[static_cast<std::size_t>(s)];
}

/// The strategy and the algorithm to use for a model on a network, and the times to expect.
struct Advice {
  AdvisedStrategy strategy{};
  ReduceKind algorithm{};        // the fastest all-reduce
  std::size_t bucket_bytes = 0;  // gradients are sent in buckets of this size
  VirtualTime all_reduce{};      // of one bucket
  VirtualTime step{};            // computing, and sending that is not hidden
  double speedup = 1;            // over one device; 0: not known
  std::string reason;
};

namespace detail {

/// The algorithm and the bucket size with the shortest step.
inline Advice advise_reduce(Workload const& work, int ranks, NetworkModel const& model) {
  auto best  = Advice{};
  auto found = false;
  for (int buckets = 1; buckets <= 64; buckets *= 2) {
    auto const part = (work.bytes + static_cast<std::size_t>(buckets) - 1) / static_cast<std::size_t>(buckets);
    if (buckets > 1 && part < (std::size_t{16} << 10)) break;
    for (auto const algorithm : all_advised) {
      auto const L = model.ranks_per_host;
      if (algorithm == ReduceKind::hierarchical && (L == 1 || ranks <= L || ranks % L != 0)) continue;
      auto const one  = predicted_time(algorithm, ranks, part, model);
      auto const step = step_time(work.compute, one, buckets);
      if (found && step >= best.step - best.step / (best.bucket_bytes == part ? 1'000'000 : 100)) continue;
      best  = {.algorithm = algorithm, .bucket_bytes = part, .all_reduce = one, .step = step, .reason = {}};
      found = true;
    }
    if (best.step <= work.compute + work.compute / 100) break;
  }
  return best;
}

inline std::string in_percent(VirtualTime a, VirtualTime b) {
  return std::to_string(b.count() == 0 ? 0 : static_cast<int>(100 * seconds(a) / seconds(b) + 0.5)) + " %";
}

}  // namespace detail

/// Returns the strategy, the algorithm and the bucket size with the shortest step, if a thread sends one bucket after
/// another while the device computes.
///
/// work      one third of its computing is forward, two thirds backward; gradients become final at an even pace
/// ranks     the ranks that compute
/// model     the network, measured by bench/calibrate or from its data sheet
/// servers   further ranks that may be parameter servers; 0 for none
/// cost      a few calls of predicted_time() for each algorithm: milliseconds up to 64 ranks
/// keeps     within 1 %, fewer and larger buckets are preferred, and no servers. One device when more would be slower
inline Advice advise(Workload const& work, int ranks, NetworkModel const& model, int servers = 0) {
  CHORALE_EXPECTS(work.bytes > 0 && ranks >= 1 && work.compute.count() >= 0 && servers >= 0,
                  "advice is for 1 byte and 1 rank or more, not for " + std::to_string(work.bytes) + " bytes on " +
                      std::to_string(ranks) + " ranks and " + std::to_string(servers) + " servers");
  model.check();
  using enum AdvisedStrategy;
  auto best     = detail::advise_reduce(work, ranks, model);
  best.strategy = ranks == 1 ? one_device : ranks <= model.ranks_per_host ? mirrored : multi_worker_mirrored;
  auto const by = [&](VirtualTime shows) { return detail::in_percent(shows, best.step) + " of the step"; };
  best.reason   = std::string{name(best.algorithm)} + " takes " + formatted("%.1f", seconds(best.all_reduce) * 1e6) +
                " us for each bucket of " + std::to_string(best.bucket_bytes) + " bytes, and " +
                by(best.step - work.compute) + " is sending that computing does not hide" +
                (best.step > 2 * work.compute ? "; fewer ranks, or steps with more rows, use devices better." : ".");
  if (servers > 0 && ranks > 1) {
    auto const waits = predicted_servers_time(ranks, servers, work.bytes, model);
    if (work.compute + waits < best.step - best.step / 100) {
      best.strategy = parameter_server;
      best.step     = work.compute + waits;
      best.reason   = std::to_string(servers) + " servers take " + formatted("%.1f", seconds(waits) * 1e6) +
                    " us from push to pull, " + by(waits) + ", and no all-reduce is as short.";
    }
  }
  best.speedup = best.step.count() == 0 ? ranks : ranks * seconds(work.compute) / seconds(best.step);
  if (ranks > 1 && work.compute.count() > 0 && best.speedup <= 1) {
    best.reason = std::to_string(ranks) + " ranks are slower than one: a step that takes " +
                  formatted("%.1f", seconds(work.compute) * 1e6) + " us alone takes " +
                  formatted("%.1f", seconds(best.step) * 1e6) + " us; use steps with more rows.";
    best.strategy = one_device;
    best.step     = work.compute;
    best.speedup  = 1;
  }
  return best;
}

/// The machines of a job, where they are unequal or fail.
///
/// speeds              of each rank, over the device of Workload::compute; empty: all are like it
/// failures_per_hour   of one machine
/// restart             from a failure until the job, or a lost worker, computes again
/// checkpoint_every    half of it is computed again after a failure that all share
struct Machines {
  std::vector<double> speeds{};
  double failures_per_hour = 0;
  VirtualTime restart{}, checkpoint_every{};
};

/// Advice for machines that are unequal or fail: the strategy with the most rows per second, on the average.
///
///   all-reduce     rows are dealt out by speed (Deal::by_speed), and each failure of any machine stops all
///   asynchronous   a worker waits for the servers alone, and its failure stops no other; a server's stops all
///
/// keeps   speedup counts failures, and step is the time of a step without one. What staleness costs, more steps for the
///         same loss, is in neither: bench/staleness measures that. Within 1 %, all-reduce is preferred. Servers that
///         wait for all workers are not considered: they fail as all-reduce does
inline Advice advise(Workload const& work, int ranks, NetworkModel const& model, Machines const& machines,
                     int servers = 0) {
  auto speeds = machines.speeds;
  if (speeds.empty()) speeds.assign(static_cast<std::size_t>(std::max(ranks, 0)), 1.0);
  CHORALE_EXPECTS(work.bytes > 0 && work.compute.count() > 0 && ranks >= 1 && servers >= 0 &&
                      speeds.size() == static_cast<std::size_t>(ranks) && *std::ranges::min_element(speeds) > 0 &&
                      machines.failures_per_hour >= 0,
                  "advice for machines needs a speed above 0 of each rank, bytes and a time to compute: got " +
                      std::to_string(speeds.size()) + " speeds for " + std::to_string(ranks) + " ranks");
  model.check();
  using enum AdvisedStrategy;
  auto const alone = seconds(work.compute), failures = machines.failures_per_hour / 3600;
  auto const restart = seconds(machines.restart), again = seconds(machines.checkpoint_every) / 2;
  auto const up   = [&](int many) { return 1 / (1 + many * failures * (restart + again)); };
  auto const sum  = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  auto const text = [](double x) {
    auto const tenths = static_cast<long long>(10 * x + 0.5);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
  };

  auto best      = detail::advise_reduce({work.bytes, virtual_seconds(alone * ranks / sum)}, ranks, model);
  auto const all = ranks / seconds(best.step) * up(ranks) * alone;  // speed-ups, failures counted
  auto const one = *std::ranges::max_element(speeds) * up(1);
  best.strategy  = ranks == 1 ? one_device : ranks <= model.ranks_per_host ? mirrored : multi_worker_mirrored;
  best.speedup   = ranks == 1 ? one : all;
  best.reason    = std::string{name(best.algorithm)} + ", rows dealt out by speed: " + text(best.speedup) +
                " times one device, of which even shares would reach " +
                text(best.speedup * *std::ranges::min_element(speeds) * ranks / sum) + "; all compute " +
                text(100 * up(ranks)) + " % of the time.";
  if (servers > 0 && ranks > 1) {
    auto const wait = seconds(predicted_servers_time(ranks, servers, work.bytes, model));
    auto rate       = 0.0;  // a speed-up, while nothing fails
    for (auto const speed : speeds) rate += alone / (alone / speed + wait);
    auto const counted = rate * up(servers) / (1 + failures * restart);
    if (counted > best.speedup * 1.01) {
      best.strategy = asynchronous_servers;
      best.step     = virtual_seconds(alone * ranks / rate);
      best.reason   = "workers that wait for " + std::to_string(servers) + " servers alone make the rows of " +
                    text(counted) + " devices, and all-reduce those of " + text(best.speedup) +
                    ": a failure stops one of them, not all. What staleness costs is not in it.";
      best.speedup = counted;
    }
  }
  if (ranks > 1 && best.speedup <= one) {
    best.strategy = one_device;
    best.step     = virtual_seconds(alone / *std::ranges::max_element(speeds));
    best.reason   = std::to_string(ranks) + " ranks make the rows of " + text(best.speedup) +
                  " devices, and the fastest alone those of " + text(one) + ".";
    best.speedup = one;
  }
  return best;
}

}  // namespace chorale
