// SPDX-License-Identifier: Apache-2.0
//
// What processes with a loop of their own compare before it, in two processes with two replicas each.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"

#include <chorale/data/dataset.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/same_data.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using chorale::test::Processes;
using chorale::test::Voice;
using data::AutoShardPolicy;

namespace {

using Files = std::vector<std::filesystem::path>;

/// The error of two processes, which both end with its exit code; "" if they end in order.
template <class Body> std::string error_of_two(Body body) {
  auto const addresses = free_loopback_addresses(2);
  auto processes       = Processes{
      2, [&](int me, Voice) {
        auto const cluster =
            Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
        auto live = Live{MultiWorkerMirroredStrategy{cluster, Cpu::logical(2)}, RingAllReduce{}, TcpTransport{}};
        body(live, me);
      }};
  auto const text = processes.line(0);
  CHECK(processes.line(1) == text);
  CHECK(processes.exit(0) == (text.empty() ? 0 : 3));
  CHECK(processes.exit(1) == (text.empty() ? 0 : 3));
  return text;
}

/// Two files in each of two folders, of which that of process 1 has a byte more in its second file.
struct TwoHosts {
  TwoHosts() {
    for (int host = 0; host < 2; ++host)
      for (int i = 0; i < 2; ++i) {
        auto const path = folders[host].path / ("part-" + std::to_string(i));
        std::ofstream{path} << "a row\n" << (host == 1 && i == 1 ? "x" : "");
        files[host].push_back(path);
      }
  }
  test::Folder folders[2];
  Files files[2];
};

}  // namespace

TEST_CASE("processes that read shares of equal files, each its own, go on", "[strategy][data]") {
  auto const hosts = TwoHosts{};
  for (auto const policy : {AutoShardPolicy::automatic, AutoShardPolicy::file, AutoShardPolicy::data})
    CHECK(error_of_two([&](auto& live, int me) { expect_same_shards(live, hosts.files[0], {me, 2, policy}); }) == "");
  CHECK(error_of_two([&](auto& live, int) {  // without shares: whatever the number is
          expect_same_shards(live, hosts.files[0], {0, 2, AutoShardPolicy::off});
        }) == "");
}

TEST_CASE("shares of other files, policies and workers are told to all processes", "[strategy][data]") {
  auto const hosts = TwoHosts{};
  using Catch::Matchers::Contains;
  CHECK_THAT(error_of_two([&](auto& live, int me) { expect_same_shards(live, hosts.files[me], {me, 2}); }),
             Contains("rank 2: 1: file part-1 of 7 bytes vs 6 bytes of rank 0"));
  CHECK_THAT(error_of_two([&](auto& live, int me) {
               auto files = hosts.files[0];
               if (me == 1) std::swap(files[0], files[1]);
               expect_same_shards(live, files, {me, 2});
             }),
             Contains("rank 2: 0: file part-1 of 6 bytes vs part-0 of 6 bytes of rank 0"));
  CHECK_THAT(error_of_two([&](auto& live, int me) {
               expect_same_shards(live, hosts.files[0],
                                  {me, 2, me == 0 ? AutoShardPolicy::file : AutoShardPolicy::data});
             }),
             Contains("rank 2: policy data vs file of rank 0"));
  CHECK_THAT(error_of_two([&](auto& live, int me) { expect_same_shards(live, hosts.files[0], {me, 2 + me}); }),
             Contains("rank 2: workers 3 vs 2 of rank 0"));
  CHECK_THAT(error_of_two([&](auto& live, int) { expect_same_shards(live, hosts.files[0], {1, 2}); }),
             Contains("no rank reads share 0 of 2, so that its rows are missing"));
  CHECK_THAT(error_of_two([&](auto& live, int) { expect_same_shards(live, hosts.files[0], {0, 1}); }),
             Contains("rank 0 and rank 2, of two processes, both read share 0 of 1, so that its rows come twice"));
}

TEST_CASE("a process that has all replicas reads all shares, or is told which it leaves out", "[strategy][data]") {
  auto live = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  expect_same_shards(live, {}, {0, 1});
  CHECK_THROWS_WITH(expect_same_shards(live, {}, {0, 2}), Catch::Matchers::Contains("no rank reads share 1 of 2"));
}

TEST_CASE("a loop of one's own compares a dataset as fit does", "[strategy][data]") {
  auto const rows = [](std::uint64_t seed) {
    return data::from_tensors(std::vector<float>(8), std::vector<int>(4), 2).shuffle(4, seed).batch(2);
  };
  CHECK(error_of_two([&](auto& live, int) { expect_same_data(live, rows(1)); }) == "");
  CHECK_THAT(error_of_two([&](auto& live, int me) { expect_same_data(live, rows(me == 0 ? 1 : 2)); }),
             Catch::Matchers::Contains("rank 2: data shuffle 4 seed 2 vs 1 of rank 0"));
}
