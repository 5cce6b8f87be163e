// SPDX-License-Identifier: Apache-2.0
#include "bench/support/simulated_time.hpp"

#include <chorale/advice/advise.hpp>
#include <chorale/transport/simulated.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <utility>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;
using bench::simulated_time;

namespace {

NetworkModel const flat{};
NetworkModel const slow_flat{
    .overhead = 3us, .fold_bytes_per_second = 5e9, .far = {.latency = 50us, .bytes_per_second = 1.25e9}};
NetworkModel const hosts_of_4{.near = {.latency = 2us, .bytes_per_second = 100e9}, .ranks_per_host = 4};
NetworkModel const hosts_of_8{.near             = {.latency = 1us, .bytes_per_second = 200e9},
                              .far              = {.latency = 5us, .bytes_per_second = 25e9},
                              .ranks_per_host   = 8,
                              .hosts_per_rack   = 2,
                              .oversubscription = 4};

}  // namespace

TEST_CASE("a prediction is what the simulation measures, within a fifth", "[reduce][advise]") {
  for (int const ranks : {2, 4, 7, 8, 16})
    for (std::size_t const bytes : {64U, 65'536U, 1'048'576U})
      for (auto const algorithm : all_advised) {
        if (algorithm == ReduceKind::hierarchical) continue;
        auto const predicted = seconds(predicted_time(algorithm, ranks, bytes, flat));
        INFO(name(algorithm) << ", " << ranks << " ranks, " << bytes << " bytes");
        // an operation has four messages to one rank under way at most, which the prediction leaves out
        CHECK(predicted == Approx(seconds(simulated_time(algorithm, ranks, bytes, flat))).epsilon(0.2));
      }
}

TEST_CASE("a ring of many ranks is predicted from one of fewer", "[reduce][advise]") {
  auto const predicted = seconds(predicted_time(ReduceKind::ring, 512, 4'096, flat));
  CHECK(predicted == Approx(seconds(simulated_time(ReduceKind::ring, 512, 4'096, flat))).epsilon(0.05));
}

TEST_CASE("the advised algorithm is the fastest one, or nearly, in 19 cases of 20", "[reduce][advise]") {
  auto cases = 0, good = 0;
  for (auto const& model : {flat, slow_flat, hosts_of_4, hosts_of_8})
    for (int const ranks : {2, 8, 16, 24, 64})
      for (std::size_t const bytes : {1'024U, 65'536U, 1'048'576U, 4'194'304U}) {
        auto const advised = advise({.bytes = bytes}, ranks, model);
        auto best = VirtualTime::max(), chosen = best;
        for (auto const algorithm : all_advised) {
          auto const L = model.ranks_per_host;
          if (algorithm == ReduceKind::hierarchical && (L == 1 || ranks <= L || ranks % L != 0)) continue;
          auto const time = simulated_time(algorithm, ranks, bytes, model);
          best            = std::min(best, time);
          if (algorithm == advised.algorithm) chosen = time;
        }
        ++cases;
        if (seconds(chosen) <= 1.1 * seconds(best)) ++good;
        else
          WARN(ranks << " ranks, " << bytes << " bytes: " << name(advised.algorithm) << " takes " << seconds(chosen)
                     << " s, the best " << seconds(best) << " s");
      }
  INFO(good << " of " << cases);
  CHECK(good * 100 >= cases * 95);
}

TEST_CASE("buckets hide sending behind computing, as far as there is something to hide it behind", "[reduce][advise]") {
  CHECK(step_time(VirtualTime{9ms}, VirtualTime{1ms}, 1) == VirtualTime{10ms});
  CHECK(step_time(VirtualTime{9ms}, VirtualTime{1ms}, 3) == VirtualTime{10ms});
  CHECK(step_time(VirtualTime{9ms}, VirtualTime{4ms}, 3) == VirtualTime{17ms});  // 5 + 3 · 4
  auto const alone = advise({100'000'000, 50ms}, 1, flat);
  CHECK(alone.step == VirtualTime{50ms});
  auto const large = advise({100'000'000, 50ms}, 16, flat);
  CHECK(large.bucket_bytes < 50'000'000);
  CHECK(large.step < VirtualTime{50ms} + predicted_time(large.algorithm, 16, 100'000'000, flat) / 2);
  CHECK_THAT(large.reason, Catch::Contains(std::string{name(large.algorithm)}) && Catch::Contains("of the step"));
  auto const swamped = advise({1'000'000'000, 500ms}, 16, slow_flat);
  CHECK_THAT(swamped.reason, Catch::Contains("fewer ranks"));
  CHECK(advise({1'000, 50ms}, 16, flat).bucket_bytes == 1'000);
  CHECK_THROWS_AS(advise({}, 4, flat), BadArgument);
  CHECK_THROWS_AS(predicted_time(ReduceKind::hierarchical, 6, 100, hosts_of_4), BadArgument);
}

TEST_CASE("servers are predicted as a simulation measures them, within a fifth", "[reduce][advise]") {
  for (int const workers : {1, 2, 8, 24})
    for (int const servers : {1, 2, 8})
      for (std::size_t const bytes : {64U, 65'536U, 4'194'304U}) {
        auto const part      = bytes / static_cast<std::size_t>(servers);
        auto const simulated = simulate(workers + servers,
                                        [&](SimulatedEndpoint& at) {
                                          auto const nowhere   = UnmappedMemory{part};
                                          auto const memory    = std::as_writable_bytes(nowhere.span()).first(part);
                                          auto const is_worker = at.rank() < workers;
                                          auto const others =
                                              is_worker ? std::pair{workers, servers} : std::pair{0, workers};
                                          auto const all = [&](auto start) {
                                            auto under_way = std::vector<SimulatedEndpoint::pending>{};
                                            for (int i = 0; i < others.second; ++i)
                                              under_way.push_back(start(others.first + i));
                                            for (auto& one : under_way) one.wait();
                                          };
                                          auto const send    = [&](Rank peer) { return at.send(peer, Tag{1}, memory); };
                                          auto const receive = [&](Rank peer) { return at.recv(peer, Tag{1}, memory); };
                                          if (is_worker) all(send);
                                          all(receive);
                                          if (!is_worker) all(send);
                                        },
                                        {.model = slow_flat, .payload = SimulatedPayload::sizes})
                                   .check()
                                   .time;
        INFO(workers << " workers, " << servers << " servers, " << bytes << " bytes");
        CHECK(seconds(predicted_servers_time(workers, servers, bytes, slow_flat)) ==
              Approx(seconds(simulated)).epsilon(0.2));
      }
}

TEST_CASE("advice names a strategy, and says when more ranks are slower", "[reduce][advise]") {
  CHECK(advise({1'000'000, 50ms}, 1, flat).strategy == AdvisedStrategy::one_device);
  CHECK(advise({1'000'000, 50ms}, 4, hosts_of_4).strategy == AdvisedStrategy::mirrored);
  auto const wide = advise({1'000'000, 50ms}, 16, flat);
  CHECK(wide.strategy == AdvisedStrategy::multi_worker_mirrored);
  CHECK(wide.speedup == Approx(16 * 50e-3 / seconds(wide.step)));
  CHECK(wide.speedup > 15);
  auto const drowned = advise({1'000'000'000, 1ms}, 16, slow_flat);
  CHECK(drowned.strategy == AdvisedStrategy::one_device);
  CHECK(drowned.speedup == 1);
  CHECK_THAT(drowned.reason, Catch::Contains("16 ranks are slower than one"));
}

TEST_CASE("advice takes servers where they are the shorter way", "[reduce][advise]") {
  auto const latency = NetworkModel{.far = {.latency = 1ms, .bytes_per_second = 25e9}};
  auto const served  = advise({40'000'000, 100ms}, 64, latency, 64);
  auto const reduced = advise({40'000'000, 100ms}, 64, latency);
  CHECK(reduced.strategy == AdvisedStrategy::multi_worker_mirrored);
  CHECK(served.step <= reduced.step);
  auto const one = advise({40'000'000, 100ms}, 64, latency, 1);  // a server's line carries 64 times as much
  CHECK(one.strategy == AdvisedStrategy::multi_worker_mirrored);
  CHECK(one.step == reduced.step);
  auto const urgent = advise({1'000, 2ms}, 64, latency, 2);  // 2 ms there and back, or 12 by doubling
  CHECK(urgent.strategy == AdvisedStrategy::parameter_server);
  CHECK_THAT(urgent.reason, Catch::Contains("2 servers take"));
}
