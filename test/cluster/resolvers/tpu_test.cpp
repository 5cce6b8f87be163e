// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/from_env.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

/// The variables of a host of a v5litepod-16: four hosts of four TPUs.
Environment on_tpu(std::vector<std::pair<std::string, std::string>> const& more = {}) {
  auto env = Environment{{"TPU_WORKER_HOSTNAMES", "t-0.tpu,t-1.tpu,t-2.tpu,t-3.tpu"},
                         {"TPU_WORKER_ID", "2"},
                         {"TPU_ACCELERATOR_TYPE", "v5litepod-16"},
                         {"TPU_NAME", "lenet"}};
  for (auto const& [name, value] : more) env.set(name, value);
  return env;
}

std::string refused(Environment const& env) {
  return said([&] { Cluster::from_env(env).addresses(); });
}

}  // namespace

TEST_CASE("the hosts of a slice of TPUs are ranks", "[cluster][tpu]") {
  auto const cluster = Cluster::from_env(on_tpu());
  CHECK(cluster.text() == "cluster: TPU, rank 2 of 4 on t-2.tpu (local 0 of 1), master t-0.tpu:8482");
  CHECK(cluster.addresses().back() == "t-3.tpu:8482");
  CHECK(cluster.job() == "TPU lenet at t-0.tpu");
  CHECK(Cluster::from_env(on_tpu({{"CHORALE_PORT", "9000"}})).addresses().front() == "t-0.tpu:9000");
  CHECK(Cluster::from_env(on_tpu({{"TPU_WORKER_ID", ""}, {"CLOUD_TPU_TASK_ID", "3"}})).rank() == 3);
  CHECK(Cluster::from_env(on_tpu({{"TPU_PROCESS_ADDRESSES", "a:8476,b:8476"}, {"TPU_WORKER_ID", "1"}})).addresses() ==
        std::vector<std::string>{"a:8482", "b:8482"});
  CHECK(Cluster::from_env(on_tpu({{"TPU_WORKER_HOSTNAMES", "x:8470:10.0.0.7,y:8470:10.0.0.8"},
                                  {"TPU_WORKER_ID", "0"},
                                  {"TPU_ACCELERATOR_TYPE", "v4-16"}}))
            .addresses()
            .back() == "10.0.0.8:8482");
  for (auto const& one : {Environment{{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"}},
                          Environment{{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_ACCELERATOR_TYPE", "v5litepod-4"}},
                          Environment{{"TPU_WORKER_ID", "0"}}, Environment{{"TPU_ACCELERATOR_TYPE", "v4-32"}}})
    CHECK(Cluster::from_env(one).is_local());
}

TEST_CASE("several slices of TPUs are one job, whose ranks meet at its coordinator", "[cluster][tpu]") {
  auto const slices = std::vector<std::pair<std::string, std::string>>{
      {"MEGASCALE_NUM_SLICES", "2"}, {"MEGASCALE_SLICE_ID", "1"}, {"MEGASCALE_COORDINATOR_ADDRESS", "s0-0.tpu:8081"}};
  auto const cluster = Cluster::from_env(on_tpu(slices));
  CHECK(cluster.text() == "cluster: TPU, rank 6 of 8 on t-2.tpu (local 0 of 1), ranks meet at s0-0.tpu:8482");
  auto const without = [&](std::string const& name) {
    auto env = on_tpu(slices);
    env.set(name, "");
    return refused(env);
  };
  CHECK(without("MEGASCALE_SLICE_ID") == "TPU: there are 2 slices, and MEGASCALE_SLICE_ID is not set.");
  CHECK(without("MEGASCALE_COORDINATOR_ADDRESS") ==
        "TPU: there are 2 slices, and MEGASCALE_COORDINATOR_ADDRESS is not set.");
  CHECK(without("TPU_WORKER_HOSTNAMES") == "TPU: there are 2 slices, and TPU_WORKER_HOSTNAMES is not set.");
  CHECK(refused(on_tpu({{"MEGASCALE_SLICE_ID", "1"}})) ==
        "TPU: MEGASCALE_SLICE_ID is 1, and MEGASCALE_NUM_SLICES is "
        "not set.");
}

TEST_CASE("variables of TPUs that contradict one another are refused", "[cluster][tpu]") {
  CHECK(refused(on_tpu({{"TPU_WORKER_ID", "4"}})) == "TPU: TPU_WORKER_ID is 4, and TPU_WORKER_HOSTNAMES has 4 hosts.");
  CHECK(refused({{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "1"}}) ==
        "TPU: TPU_WORKER_ID is 1, and TPU_WORKER_HOSTNAMES has 1 host.");
  CHECK(refused(on_tpu({{"TPU_WORKER_ID", ""}})) ==
        "TPU: TPU_WORKER_HOSTNAMES has 4 hosts, and neither TPU_WORKER_ID "
        "nor CLOUD_TPU_TASK_ID says which of them this is.");
  CHECK(refused(on_tpu({{"CLOUD_TPU_TASK_ID", "1"}})) ==
        "TPU: TPU_WORKER_ID=2 and CLOUD_TPU_TASK_ID=1 name two hosts.");
  CHECK(refused(on_tpu({{"TPU_WORKER_ID", "two"}})) ==
        "TPU_WORKER_ID is \"two\", and must be a number from 0 to 65536.");
  CHECK(refused(on_tpu({{"TPU_WORKER_HOSTNAMES", "a,b,a"}})) == "TPU: TPU_WORKER_HOSTNAMES, host 2: a is there twice.");
  CHECK(refused(on_tpu({{"TPU_WORKER_HOSTNAMES", "a,,b"}})) ==
        "TPU: TPU_WORKER_HOSTNAMES, host 1: \":1\" has no name or number of a host before the port.");
  CHECK(refused(on_tpu({{"TPU_ACCELERATOR_TYPE", "v5litepod-64"}})) ==
        "TPU: TPU_ACCELERATOR_TYPE=v5litepod-64 has 64 chips, and TPU_WORKER_HOSTNAMES has 4 hosts: a host has at "
        "most 8, all as many.");
  CHECK_FALSE(refused(on_tpu({{"TPU_ACCELERATOR_TYPE", "v5p-4"}})).empty());  // 2 chips
  CHECK_FALSE(refused(on_tpu({{"TPU_ACCELERATOR_TYPE", "v6e-many"}})).empty());
  CHECK(refused(on_tpu({{"TPU_ACCELERATOR_TYPE", "a newer one"}})).empty());
  CHECK(refused({{"COLAB_TPU_ADDR", "10.1.2.3:8470"}}) ==
        "TPU: COLAB_TPU_ADDR=10.1.2.3:8470 names a TPU behind a server of its own, which PJRT cannot use.");
  CHECK(refused(on_tpu({{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})) ==
        "torchrun and TPU disagree: rank 0 of 3, and rank 2 of 4.");
}
