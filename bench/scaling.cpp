// SPDX-License-Identifier: Apache-2.0
//
// What training would take on 1 to 4096 ranks, by simulation: nothing here was measured on such machines.
//
//   tools/run bench/scaling --json
//   tools/run bench/scaling --only step --svg scaling.svg
//
//   step/...       step time and speed-up of a model on a network, for each algorithm, with and without overlap. Up to
//                  --simulate ranks by a simulation of the algorithm itself, beyond by predicted_time()
//   servers/...    speed-up with parameter servers, by a model of their messages in this file; up to --simulate workers
//                  also by the strategy's own client and service, with fewer elements and a network slower by as much
//   published/...  what others published, and what their assumptions give here, by predicted_time() and, for servers,
//                  by a simulation; with --knees also the ranks, a power of two, of which twice as many are less than
//                  1.5 times as fast
//   check/...      all-reduces of 2 to 4 ranks of this machine, and what a simulation predicts from exchanges of such
//                  messages, as `calibrate` measures them: medians of 21 rounds of both, by turns
//   form/...       a step of GPT-2 of 124M numbers, mirrored, Zero 1 to 3, split and as a pipeline: memory, bytes, and the
//                  step as predicted_time() gives it beside what simulations of all it sends give
//   mesh/...       data x stages x parts of a block, up to 64 x 8 x 8 = 4096 ranks: a step simulated message by message
//   measured/...   steps of 1 to 4 replicas of this machine, beside the sum of their parts, each measured by itself
//   advice/...     with --grid: how often advise() is within 10 % of the fastest of all algorithms, of 500 cases
//
// A step computes a third of its time forward and two thirds backward. With overlap, eight buckets leave as they become
// final; without, all gradients leave in the end. bf16 halves the bytes. Speed-up: rows per second beside one rank.
#include "support/calibrated.hpp"
#include "support/our_reduce.hpp"
#include "support/scaling_forms.hpp"
#include "support/simulated_time.hpp"
#include "tools/plot/svg_plot.hpp"

#include <chorale/advice/advise.hpp>
#include <chorale/observe/run_file.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/simulated.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>

using namespace chorale;
using namespace std::chrono_literals;
using bench::simulated_time;

namespace {

bool fits(ReduceKind algorithm, int ranks, NetworkModel const& model) {
  auto const L = model.ranks_per_host;
  return algorithm != ReduceKind::hierarchical || (L > 1 && ranks > L && ranks % L == 0);
}

// Steps.

struct Model {
  std::string name;
  std::size_t bytes;    // of gradients
  VirtualTime compute;  // of one step on one device
  std::string brief{};  // for a picture
};

struct Network {
  std::string name;
  NetworkModel model;
};

std::vector<Model> const models{{"dense 25.6M float", 102'400'000, 300ms, "25.6M float"},
                                {"dense 25.6M bf16", 51'200'000, 300ms, "25.6M bf16"},
                                {"dense 210M float", 840'000'000, 300ms, "210M float"},
                                {"sparse, 1 MB of rows", 1'000'000, 40ms, "sparse 1 MB"}};
std::vector<Network> const networks{
    {"A: flat, 10 us, 12.5 GB/s", {}},
    {"B: hosts of 8, 150 GB/s inside",
     {.near             = {.latency = 3us, .bytes_per_second = 150e9},
      .far              = {.latency = 8us, .bytes_per_second = 25e9},
      .ranks_per_host   = 8,
      .hosts_per_rack   = 16,
      .oversubscription = 2}},
    {"C: flat, 50 us, 1.25 GB/s", {.far = {.latency = 50us, .bytes_per_second = 1.25e9}}}};

/// A panel for each model on each network: a curve of the overlapped speed-up for each algorithm that may be the best.
using Panels = std::vector<detail::PlotPanel>;

void add_point(detail::PlotPanel& panel, ReduceKind algorithm, int ranks, double speedup) {
  auto const* const brief = algorithm == ReduceKind::ring               ? "ring"
                            : algorithm == ReduceKind::halving_doubling ? "halving"
                            : algorithm == ReduceKind::double_tree      ? "tree"
                            : algorithm == ReduceKind::hierarchical     ? "hosts"
                                                                        : nullptr;
  if (brief == nullptr) return;
  auto line = std::ranges::find(panel.lines, brief, &detail::PlotLine::name);
  if (line == panel.lines.end()) line = panel.lines.insert(panel.lines.end(), {brief, {}, {}});
  line->x.push_back(std::log2(ranks));
  line->y.push_back(std::log2(speedup));
}

std::string networks_of_picture() {
  auto text = std::string{};
  for (auto const& one : networks) text += (text.empty() ? "" : ";  ") + one.name;
  return text;
}

Panels print_steps(std::vector<int> const& ranks, int simulate_up_to, bool json) {
  auto panels = Panels{};
  for (auto const& [network, cost] : networks)
    for (auto const& model : models) {
      panels.push_back({model.brief + ", " + network.substr(0, 1), {}});
      for (int const P : ranks)
        for (auto const algorithm : all_advised) {
          if (P == 1 || !fits(algorithm, P, cost)) continue;
          auto const simulated = P <= simulate_up_to;
          auto const time      = [&](std::size_t bytes) {
            return simulated ? simulated_time(algorithm, P, bytes, cost) : predicted_time(algorithm, P, bytes, cost);
          };
          auto const after   = step_time(model.compute, time(model.bytes), 1);
          auto const during  = step_time(model.compute, time(model.bytes / 8), 8);
          auto const speedup = [&](VirtualTime step) { return P * seconds(model.compute) / seconds(step); };
          bench::Row{"step/" + std::string{name(algorithm)}}
              .add("network", network)
              .add("model", model.name)
              .add("how", simulated ? "simulated" : "predicted")
              .add("ranks", P, "%.0f")
              .add("step_ms", seconds(after) * 1e3)
              .add("speedup", speedup(after))
              .add("overlapped_step_ms", seconds(during) * 1e3)
              .add("overlapped_speedup", speedup(during))
              .print(json);
          add_point(panels.back(), algorithm, P, speedup(during));
        }
    }
  return panels;
}

// Parameter servers: workers push what they computed to all servers, in equal parts, and pull as much.

struct Servers {
  int workers, servers, steps;
  int ahead;          // steps; 0: all wait for all; -1: no limit
  std::size_t bytes;  // that a worker pushes in a step, and pulls
  VirtualTime compute;
};

void serve(SimulatedEndpoint& at, Servers const& job, Bytes part) {
  struct Worker {
    SimulatedEndpoint::pending push;
    int pushed = 0, answered = 0;
  };
  auto workers = std::vector<Worker>(static_cast<std::size_t>(job.workers));
  auto answers = std::vector<SimulatedEndpoint::pending>{};
  for (Rank w = 0; w < job.workers; ++w) workers[static_cast<std::size_t>(w)].push = at.recv(w, Tag{1}, part);
  for (auto left = job.workers * job.steps; left > 0;) {
    auto slowest = job.steps;
    for (Rank w = 0; w < job.workers; ++w) {
      auto& worker = workers[static_cast<std::size_t>(w)];
      if (worker.pushed == worker.answered && worker.pushed < job.steps && worker.push.done()) ++worker.pushed;
      slowest = std::min(slowest, worker.pushed);
    }
    for (Rank w = 0; w < job.workers; ++w) {
      auto& worker = workers[static_cast<std::size_t>(w)];
      if (worker.pushed == worker.answered || (job.ahead >= 0 && worker.pushed > slowest + job.ahead)) continue;
      answers.push_back(at.send(w, Tag{2}, part));
      ++worker.answered;
      --left;
      if (worker.answered < job.steps) worker.push = at.recv(w, Tag{1}, part);
    }
  }
  for (auto& answer : answers) answer.wait();
}

void compute(SimulatedEndpoint& at, Servers const& job, int step) {
  auto const u = Random{5, static_cast<std::uint64_t>(at.rank())}.uniform(static_cast<std::uint64_t>(step));
  at.work(virtual_seconds(seconds(job.compute) * (0.9 + 0.2 * static_cast<double>(u))));  // 10 % either way
}

void train(SimulatedEndpoint& at, Servers const& job, Bytes part) {
  for (int step = 0; step < job.steps; ++step) {
    compute(at, job, step);
    auto under_way = std::vector<SimulatedEndpoint::pending>{};
    for (int s = 0; s < job.servers; ++s) under_way.push_back(at.send(job.workers + s, Tag{1}, part));
    for (int s = 0; s < job.servers; ++s) under_way.push_back(at.recv(job.workers + s, Tag{2}, part));
    for (auto& one : under_way) one.wait();
  }
}

/// Speed-up of the workers over one that computes alone.
double speedup_of(Servers const& job, NetworkModel const& model) {
  auto const nowhere = UnmappedMemory{job.bytes};
  auto const part    = std::as_writable_bytes(nowhere.span()).first(job.bytes / static_cast<std::size_t>(job.servers));
  auto const run     = simulate(job.workers + job.servers,
                                [&](SimulatedEndpoint& at) {
                              if (at.rank() < job.workers) train(at, job, part);
                              else serve(at, job, part);
                            },
                                {.model = model, .payload = SimulatedPayload::sizes})
                       .check();
  return job.workers * job.steps * seconds(job.compute) / seconds(run.time);
}

/// Speedup of a simulated job with parameter_server::Client and parameter_server::Server. Fewer numbers travel than the
/// model has, but a message takes as long as a server's part of the model. All workers share one memory, never read.
template <Consistency C> double speedup_by(C when, Servers const& job, NetworkModel model) {
  auto const part  = static_cast<double>(job.bytes) / job.servers;
  auto const each  = std::min<std::size_t>(4'096, static_cast<std::size_t>(part / sizeof(float)));
  auto const front = static_cast<double>(sizeof(parameter_server::Request) + sizeof(parameter_server::Reply)) / 2;
  auto const times = part / (static_cast<double>(each * sizeof(float)) + front);
  for (auto* speed : {&model.far.bytes_per_second, &model.near.bytes_per_second, &model.fold_bytes_per_second})
    *speed /= times;
  auto runs = std::vector<std::vector<Range>>{};
  for (std::size_t s = 0; s < static_cast<std::size_t>(job.servers); ++s)
    runs.push_back({{plan::header + s * each, plan::header + (s + 1) * each}});
  auto const shards = parameter_server::ShardLayout{job.workers, std::move(runs)};
  auto gradients = std::vector<float>(shards.extent() + plan::trailer), values = gradients;
  StepHeader{gradients}.rows() = 1;
  auto const run               = simulate(shards.ranks(),
                                          [&](SimulatedEndpoint& at) {
                              if (at.rank() >= job.workers)
                                return parameter_server::Server{at, when, optim::SGD{}, shards, values}.serve();
                              auto client = parameter_server::Client<SimulatedEndpoint>{at, shards};
                              for (int step = 0; step < job.steps; ++step) {
                                compute(at, job, step);
                                client.push_and_pull({gradients, {}, {}}, {values, {}}, 0);
                              }
                              client.leave();
                            },
                                          {.model = model, .failures = FailureScope::peer})
                       .check();
  return job.workers * job.steps * seconds(job.compute) / seconds(run.time);
}

double speedup_by_service(Servers const& job) {
  if (job.ahead < 0) return speedup_by(Asynchronous{}, job, {});
  if (job.ahead == 2) return speedup_by(BoundedStaleness<2>{}, job, {});
  return speedup_by(Synchronous{}, job, {});
}

void print_servers(int largest, int simulate_up_to, bool json) {
  for (auto const& model : models)
    for (int const P : {8, 64, 512}) {
      if (P > largest || model.bytes > 200'000'000) continue;
      for (auto const& [kind, ahead] :
           {std::pair{"synchronous", 0}, std::pair{"two steps ahead", 2}, std::pair{"asynchronous", -1}}) {
        auto const job = Servers{P, std::max(1, P / 8), 5, ahead, model.bytes, model.compute};
        auto row       = bench::Row{std::string{"servers/"} + kind};
        row.add("model", model.name)
            .add("ranks", P, "%.0f")
            .add("servers", job.servers, "%.0f")
            .add("speedup", speedup_of(job, {}));
        if (P <= simulate_up_to) row.add("speedup_of_the_service", speedup_by_service(job));
        row.print(json);
      }
    }
}

// What others published.

/// The fewest ranks, a power of two, of which twice as many are less than 1.5 times as fast; 0: none up to 32768.
///
/// speedup    (ranks)
template <class Speedup> int knee_of(Speedup speedup) {
  auto before = speedup(1);
  for (int P = 1; P <= 32'768; P *= 2) {
    auto const twice = speedup(2 * P);
    if (twice < 1.5 * before) return P;
    before = twice;
  }
  return 0;
}

void print_published(bool knees, bool json) {
  auto const print = [&](std::string const& what, int ranks, double published, auto speedup,
                         std::string const& assumptions) {
    auto const ours = speedup(ranks);
    auto row        = bench::Row{"published/" + what};
    row.add("ranks", ranks, "%.0f").add("published", published).add("predicted", ours).add("ratio", ours / published);
    if (knees) row.add("knee", knee_of(speedup), "%.0f");
    row.add("assumptions", assumptions).print(json);
  };
  auto const by_ring = [](Model const& m, NetworkModel const& model, int buckets) {
    return [=](int P) {
      auto const one = predicted_time(ReduceKind::ring, P, m.bytes / static_cast<std::size_t>(buckets), model);
      return P * seconds(m.compute) / seconds(step_time(m.compute, one, buckets));
    };
  };
  print("images, one host", 8, 7,
        by_ring({"", 51'200'000, 330ms}, {.far = {.latency = 5us, .bytes_per_second = 20e9}}, 8),
        "256 rows in 330 ms; 25.6M bf16; 20 GB/s to each neighbour; overlap; no time for reading and decoding images");
  print("translation, one host", 8, 6,
        by_ring({"", 840'000'000, 500ms}, {.far = {.latency = 10us, .bytes_per_second = 8e9}}, 1),
        "500 ms; 210M float; 8 GB/s to each neighbour; no overlap");
  print("images, 50 hosts", 50, 32,
        by_ring({"", 95'000'000, 330ms}, {.far = {.latency = 50us, .bytes_per_second = 1.25e9}}, 1),
        "330 ms; 23.8M float; 1.25 GB/s per host; no overlap; no stragglers");
  print(
      "ranking, sparse, 500 hosts", 500, 300,
      [](int P) { return speedup_of({P, 100, 5, -1, 1'000'000, 20ms}, {.overhead = 20us, .far = {50us, 1.25e9}}); },
      "20 ms, 10 % either way; 1 MB of rows per step; 100 asynchronous servers; 20 us per message; 1.25 GB/s");
}

// This machine.

/// Bytes of a message of an all-reduce by R, in the mean over all ranks and steps.
template <Schedule R> std::size_t mean_message(int P, std::size_t bytes) {
  auto chunks = 0.0, messages = 0.0;
  for (Rank rank = 0; rank < P; ++rank)
    for (int s = 0; s < R::steps(P); ++s)
      if (auto const step = R::step(rank, P, s); step.to != nobody) chunks += step.send.size(), ++messages;
  auto const widest = static_cast<double>(bytes) / R::chunks(P) * R::widest(P);
  auto const lanes  = std::ceil(widest / static_cast<double>(largest_message));
  return static_cast<std::size_t>(static_cast<double>(bytes) / R::chunks(P) * chunks / messages / lanes) / 4 * 4;
}

struct Round {
  bench::Calibrated calibrated;
  double measured_us = 0;
};

/// Exchanges and all-reduces by turns, in the same processes: on a shared host a machine is not the same for long.
///
/// active    ranks that have something to do at once
template <class R> std::vector<Round> rounds_of(std::string const& transport, int P, int active, std::size_t bytes) {
  constexpr std::size_t rounds = 24, warm = 3;
  auto const message = mean_message<R>(P, bytes);
  auto all           = bench::of_rank_0<Round>(transport, P, 2 * bytes, rounds, [&](auto& at, Span<float> memory) {
    auto operation   = idle_operation(R{}, at);
    auto const calls = std::max(4, bench::Repeats{bytes}.calls);
    auto result      = std::vector<Round>{};
    for (std::size_t i = 0; i < rounds; ++i) {
      auto const x = memory.first(bytes / sizeof(float));
      auto const calibrated =
          bench::Calibrated::measure(at, memory.first(std::max(x.size(), message / 2)), message, active);
      result.push_back({calibrated, bench::microseconds_of(calls, [&](std::size_t tag) {
                          operation.restart(at, x, Op::sum, Tag{static_cast<std::uint32_t>(tag)}, CallSite::here());
                          operation.finish();
                        })});
    }
    return result;
  });
  all.erase(all.begin(), all.begin() + warm);
  return all;
}

void print_checks(bool json) {
  for (std::string const transport : {"threads", "shared_memory", "tcp"}) {
    auto errors = std::vector<double>{};
    for (int const P : {2, 3, 4})
      for (std::size_t const bytes : {1'024U, 16'384U, 65'536U, 262'144U, 1'048'576U, 4'194'304U})
        for (auto const algorithm : {ReduceKind::ring, ReduceKind::halving_doubling}) {
          auto const rounds =
              algorithm == ReduceKind::ring
                  ? rounds_of<RingAllReduce>(transport, P, P, bytes)
                  : rounds_of<HalvingDoublingAllReduce>(transport, P, HalvingDoublingAllReduce::chunks(P), bytes);
          auto measured = std::vector<double>{}, predicted = std::vector<double>{};
          for (auto const& round : rounds) {
            measured.push_back(round.measured_us);
            predicted.push_back(seconds(simulated_time(algorithm, P, bytes, round.calibrated.model())) * 1e6);
          }
          auto const us = bench::median(measured), expected = bench::median(predicted);
          errors.push_back(std::abs(expected / us - 1));
          bench::Row{"check/" + transport}
              .add("algorithm", std::string{name(algorithm)})
              .add("ranks", P, "%.0f")
              .add("cores", bench::cores(), "%.0f")
              .add("bytes", static_cast<double>(bytes), "%.0f")
              .add("measured_us", us)
              .add("predicted_us", expected)
              .add("error", expected / us - 1, "%+.2f")
              .print(json);
        }
    bench::Row{"check/" + transport}.add("median_error", bench::median(errors), "%.2f").print(json);
  }
}

void print_grid(int cases, bool json) {
  auto good  = 0;
  auto worst = 1.0;
  for (int i = 0; i < cases; ++i) {
    auto const random = Random{11, static_cast<std::uint64_t>(i)};
    auto const L      = 1 << random.below(0, 4);
    auto const P      = std::max(2, L * (1 + static_cast<int>(random.below(1, static_cast<std::uint64_t>(64 / L)))));
    auto const bytes  = std::size_t{1} << (8 + random.below(2, 17));
    auto const model  = NetworkModel{
         .overhead = VirtualTime{200ns} * static_cast<int>(1 + random.below(3, 20)),
         .near = {VirtualTime{500ns} * static_cast<int>(1 + random.below(4, 8)), 20e9 * (1 + random.uniform(5, 0, 9))},
         .far  = {VirtualTime{2us} * static_cast<int>(1 + random.below(6, 25)), 1e9 * (1 + random.uniform(7, 0, 24))},
         .ranks_per_host   = L,
         .hosts_per_rack   = static_cast<int>(random.below(8, 3)),
         .oversubscription = 1 + static_cast<double>(random.below(9, 4))};
    auto const advised = advise({.bytes = bytes}, P, model).algorithm;
    auto best = VirtualTime::max(), chosen = best;
    for (auto const algorithm : all_advised) {
      if (!fits(algorithm, P, model)) continue;
      auto const time = simulated_time(algorithm, P, bytes, model);
      best            = std::min(best, time);
      if (algorithm == advised) chosen = time;
    }
    auto const ratio = seconds(chosen) / seconds(best);
    good += ratio <= 1.1 ? 1 : 0;
    worst = std::max(worst, ratio);
  }
  bench::Row{"advice/grid"}
      .add("cases", cases, "%.0f")
      .add("within_10_percent", good, "%.0f")
      .add("share", static_cast<double>(good) / cases, "%.3f")
      .add("worst", worst, "%.2f")
      .print(json);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"What training would take on 1 to 4096 ranks, by simulation."};
  bool json = false, grid = false, quick = false, knees = false;
  int up_to = 16, largest = 4'096, cases = 500;
  auto only = std::string{}, svg = std::string{};
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_flag("--grid", grid, "check advise() as well");
  flags.add_flag("--knees", knees, "where the knee of each published speed-up is: minutes");
  flags.add_flag("--quick", quick, "8 and 64 ranks only");
  flags.add_option("--cases", cases, "of --grid")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--simulate", up_to, "ranks up to which steps, and the parameter service, are simulated")
      ->capture_default_str();
  flags.add_option("--largest", largest, "ranks")->check(CLI::Range(2, 4'096))->capture_default_str();
  flags.add_option("--svg", svg, "file for a picture of the speed-ups of step/");
  flags.add_option("--only", only, "one part")
      ->check(CLI::IsMember({"step", "servers", "published", "check", "grid", "form", "mesh", "measured"}));
  CLI11_PARSE(flags, argc, argv);
  auto ranks = std::vector<int>{};
  for (int const P : {2, 4, 8, 16, 64, 256, 1'024, 4'096})
    if (P <= largest && (!quick || P == 8 || P == 64)) ranks.push_back(P);
  if (!json) std::printf("%s; simulated, not measured, but for check/\n", bench::machine().c_str());
  if (only.empty() || only == "check") print_checks(json);
  if (only.empty() || only == "published") print_published(knees, json);
  if (only.empty() || only == "servers") print_servers(quick ? 64 : largest, up_to, json);
  if (only.empty() || only == "step" || !svg.empty()) {
    auto const panels = print_steps(ranks, up_to, json);
    if (!svg.empty())
      replace_file(svg,
                   detail::Plot::of(panels, networks_of_picture(), "simulated speed-up over ranks, as powers of two"));
  }
  if (only.empty() || only == "form")
    for (auto const& one : {networks[0], networks[1]}) {
      auto some = std::vector<int>{1, 2, 4, 8};
      for (int const P : {64, 512, 4'096})
        if (P <= largest && !quick) some.push_back(P);
      bench::print_forms(one.name, one.model, some, std::min(largest, std::max(up_to, 512)), json);
    }
  if (only.empty() || only == "mesh") {
    auto meshes = std::vector<bench::FormMesh>{{2, 2, 2}};
    if (!quick && largest >= 64) meshes.insert(meshes.end(), {{1, 8, 8}, {8, 4, 2}});
    if (!quick && largest >= 4'096) meshes.push_back({64, 8, 8});
    for (auto const& one : {networks[0], networks[1]}) bench::print_meshes(one.name, one.model, meshes, json);
  }
  if (only.empty() || only == "measured") {
    bench::print_measured<MirroredStrategy<>>("mirrored", 4, quick ? 5 : 41, json);
    bench::print_measured<ShardedStrategy<Zero::one>>("Zero::one", 4, quick ? 5 : 41, json);
  }
  if (grid || only == "grid") print_grid(cases, json);
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
