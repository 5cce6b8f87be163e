// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/from_env.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

/// A job on hosts that a service numbers: how it says which host this is.
Environment on_sagemaker(int host, std::vector<std::pair<std::string, std::string>> const& more = {}) {
  auto env = Environment{{"SM_HOSTS", R"(["algo-1", "algo-2"])"},
                         {"TRAINING_JOB_NAME", "lenet"},
                         {"SM_CURRENT_HOST", "algo-" + std::to_string(host + 1)}};
  for (auto const& [name, value] : more) env.set(name, value);
  return env;
}

std::vector<std::pair<std::string, std::string>> by_mpirun(int rank, int size, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % local_size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"CHORALE_MASTER", "algo-1"},
          {"CHORALE_PORT", "9000"}};
}

std::vector<std::string> lines(std::string const& text, int port = 2222) {
  auto found = std::vector<std::string>{};
  for (auto const& task : resolve::hosts_of_lines(text, "f", port)) found.push_back(task.address);
  return found;
}

}  // namespace

TEST_CASE("a list of hosts is a cluster of workers", "[cluster][hosts]") {
  auto const cluster = Cluster::from_env({{"CHORALE_HOSTS", "train-[0-3].train"}, {"JOB_COMPLETION_INDEX", "2"}});
  CHECK(cluster.text() ==
        "cluster: CHORALE_HOSTS, rank 2 of 4 on train-2.train (local 0 of 1), master "
        "train-0.train:2222");
  CHECK(Cluster::from_env({{"CHORALE_HOSTS", "a,a,b"}, {"CHORALE_TASK", "worker:2"}, {"CHORALE_PORT", "9000"}})
            .addresses() == std::vector<std::string>{"a:9000", "a:9001", "b:9000"});
  CHECK(Cluster::from_env({{"CHORALE_HOSTS", "a,b"}, {"CHORALE_TASK", "worker:1"}, {"JOB_COMPLETION_INDEX", "0"}})
            .rank() == 1);  // what a person wrote comes first
  auto const refused = [](Environment const& env) { return said([&] { Cluster::from_env(env); }); };
  CHECK(refused({{"CHORALE_HOSTS", "a,b"}, {"CHORALE_TASK", "worker:2"}}) ==
        "CHORALE_TASK: worker 2, but the cluster has 2 of role worker, from 0 to 1.");
  CHECK(refused({{"CHORALE_HOSTS", "a,a"}, {"CHORALE_TASK", "worker:0"}, {"CHORALE_PORT", "65535"}}) ==
        "CHORALE_HOSTS: 2 workers on a from port 65535 on need port 65536, above 65535.");
  CHECK(refused({{"CHORALE_HOSTS", "a,b"}, {"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}}) ==
        "CHORALE_HOSTS: the launcher's rank is 2, but there are 2 workers.");
  CHECK(refused({{"CHORALE_HOSTS", "a,b"}, {"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}}) ==
        "CHORALE_HOSTS and torchrun disagree: worker 1 of 2 tasks, and rank 1 of 3.");
  CHECK(refused({{"CHORALE_HOSTS", "a,b"},
                 {"CHORALE_TASK", "worker:1"},
                 {"CHORALE_CLUSTER", R"({"worker": ["a:1", "b:1", "c:1"]})"}}) ==
        "CHORALE_CLUSTER and CHORALE_HOSTS disagree: worker 1 of 3 tasks, and worker 1 of 2.");
}

TEST_CASE("without a task or a rank, the host's name says which worker this is", "[cluster][hosts]") {
  auto const me = [](std::string const& hosts, std::string const& here) {
    return resolve::listed_hosts({{"CHORALE_HOSTS", hosts}}, -1, here)->me.index;
  };
  CHECK(me("gpu[07-10]", "gpu09") == 2);
  CHECK(me("gpu[07-10]", "GPU09.cluster.example") == 2);
  CHECK(me("gpu[07-10].cluster.example", "gpu10") == 3);
  CHECK(said([&] { me("gpu[07-10]", "login1"); }) ==
        "CHORALE_HOSTS: this host is \"login1\", on which none of the 4 workers are, and CHORALE_TASK does not say "
        "which of them this is.");
  CHECK(said([&] { me("gpu07,gpu07,gpu08", "gpu07"); }) ==
        "CHORALE_HOSTS: this host is \"gpu07\", on which 2 of the 3 workers are, and CHORALE_TASK does not say which "
        "of them this is.");
  CHECK_FALSE(resolve::this_host().empty());
}

TEST_CASE("a hosts file has a host in a line, as mpirun reads it", "[cluster][hosts]") {
  CHECK(lines("# all\n\n a slots=2 # fast\r\nb\nc:7\na") ==
        std::vector<std::string>{"a:2222", "a:2223", "b:2222", "c:7", "a:2224"});
  CHECK(lines("[::1]:7 slots=1") == std::vector<std::string>{"[::1]:7"});
  auto const refused = [](std::string const& text) { return said([&] { lines(text); }); };
  CHECK(refused("a\nb slots=0") ==
        "CHORALE_HOSTS_FILE: f, line 2: after the host there may be slots= and a number "
        "from 1 on, and not \"slots=0\".");
  CHECK(refused("a slots=1 max_slots=2") ==
        "CHORALE_HOSTS_FILE: f, line 1: after the host there may be slots= and a "
        "number from 1 on, and not \"slots=1 max_slots=2\".");
  CHECK(refused("a:7 slots=2") == "CHORALE_HOSTS_FILE: f, line 1: 2 workers cannot have the same address, a:7.");
  CHECK(refused("a/b") == "CHORALE_HOSTS_FILE: f, line 1: \"a/b:1\" has no name or number of a host before the port.");
  CHECK(refused("a:70000") ==
        "CHORALE_HOSTS_FILE: f, line 1: \"a:70000\" has the port \"70000\", and a port is a "
        "number from 1 to 65535.");
  CHECK(refused(std::string(100, 'a') + " slots=60000") ==
        "CHORALE_HOSTS_FILE: f, line 1: the addresses of 39643 workers "
        "have more than 4194304 characters together.");
  CHECK(refused("a slots=65536") ==
        "CHORALE_HOSTS_FILE: f, line 1: 63315 workers on a from port 2222 on need port "
        "65536, above 65535.");
  CHECK(said([] { Cluster::from_env({{"CHORALE_HOSTS_FILE", "/"}, {"CHORALE_TASK", "worker:0"}}); }) ==
        "CHORALE_HOSTS_FILE: /: is a folder, and only regular files are read.");

  auto const file = std::filesystem::temp_directory_path() / ("hosts." + std::to_string(::getpid()));
  std::ofstream{file} << "# nobody\n";
  CHECK(said([&] { Cluster::from_env({{"CHORALE_HOSTS_FILE", file}}); }) ==
        "CHORALE_HOSTS_FILE: \"" + file.string() + "\" has no host.");
  std::ofstream{file} << "a\nb\n";
  CHECK(Cluster::from_env({{"CHORALE_HOSTS_FILE", file}, {"CHORALE_TASK", "worker:1"}}).addresses().back() == "b:2222");
  std::filesystem::remove(file);
}

TEST_CASE("SageMaker's hosts are ranks, or each has ranks of mpirun or torchrun", "[cluster][hosts]") {
  auto const cluster = Cluster::from_env(on_sagemaker(1));
  CHECK(cluster.text() == "cluster: SageMaker, rank 1 of 2 on algo-2 (local 0 of 1), master algo-1:2223");
  CHECK(cluster.job() == "SageMaker lenet");
  CHECK(Cluster::from_env(on_sagemaker(0, {{"CHORALE_PORT", "9000"}})).addresses().back() == "algo-2:9000");
  CHECK(Cluster::from_env({{"SM_HOSTS", R"(["algo-1"])"}, {"SM_CURRENT_HOST", "algo-1"}}).is_local());
  CHECK(Cluster::from_env({{"TRAINING_JOB_NAME", "of others"}, {"SAGEMAKER_BASE_DIR", "/no/folder"}}).is_local());

  CHECK(Cluster::from_env(on_sagemaker(1, by_mpirun(5, 8, 4))).text() ==
        "cluster: Open MPI, rank 5 of 8 (local 1 of 4), ranks meet at algo-1:9000");
  CHECK(said([] { Cluster::from_env(on_sagemaker(1, by_mpirun(5, 12, 4))); }) ==
        "Open MPI and SageMaker disagree: rank 5 of 12, and rank 1 of 2.");
  CHECK(Cluster::from_env(on_sagemaker(0, {{"TF_CONFIG", R"({"cluster": {"worker": ["algo-1:1", "algo-2:1"],
             "ps": ["algo-1:2", "algo-2:2"]}, "task": {"type": "ps", "index": 1}})"}}))
            .text() ==
        "cluster: TF_CONFIG, ps 1, rank 3 of 4 on algo-2 (local 0 of 1), master algo-1:1");  // two tasks on each host

  CHECK(said([] { Cluster::from_env({{"SM_HOSTS", "{}"}, {"SM_CURRENT_HOST", "a"}}); }) ==
        "SM_HOSTS is an object, and must be an array of hosts.");
  CHECK(said([] { Cluster::from_env(on_sagemaker(0, {{"SM_HOSTS", R"(["algo-1", 2])"}})); }) ==
        "SM_HOSTS[1] is 2, and must be a text.");
}

TEST_CASE("Kubeflow's Trainer numbers nodes, Vertex AI pools", "[cluster][hosts]") {
  auto const node = Environment{{"PET_NNODES", "2"},
                                {"PET_NODE_RANK", "1"},
                                {"PET_MASTER_ADDR", "train-0.train"},
                                {"PET_MASTER_PORT", "29400"},
                                {"PET_NPROC_PER_NODE", "4"}};
  CHECK(Cluster::from_env(node).text() ==
        "cluster: Kubeflow, rank 1 of 2 (local 0 of 1), ranks meet at "
        "train-0.train:29401");
  auto torchrun = node;
  for (auto const& [name, value] : {std::pair{"RANK", "5"},
                                    {"WORLD_SIZE", "8"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "4"},
                                    {"GROUP_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "train-0.train"},
                                    {"MASTER_PORT", "29400"}})
    torchrun.set(name, value);
  CHECK(Cluster::from_env(torchrun).found_in() == "torchrun");
  auto no_port = node;
  no_port.set("PET_MASTER_PORT", "");
  CHECK(said([&] { Cluster::from_env(no_port).addresses(); }) ==
        "Kubeflow: neither PET_MASTER_PORT nor CHORALE_PORT is set.");
  auto alone = Environment{{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}, {"PET_MASTER_ADDR", "a"}};
  CHECK(Cluster::from_env(alone).is_local());
  alone.set("JOB_COMPLETION_INDEX", "0");  // its nodes are pods of an Indexed Job
  CHECK(Cluster::from_env(alone).is_local());
  CHECK(
      said([] { Cluster::from_env({{"JOB_COMPLETION_INDEX", "0"}}); }) ==
      "Kubernetes: JOB_COMPLETION_INDEX=0 is set without CHORALE_HOSTS, so that nobody knows where the other pods are.");

  auto const vertex = [](std::string const& type) {
    return Environment{{"CLUSTER_SPEC", R"({"cluster": {"workerpool0": ["a:2222"], "workerpool1": ["b:2222", "c:2222"],
                                            "workerpool2": ["d:2222"], "workerpool3": ["e:2222"]},
                                            "task": {"type": ")" +
                                            type + R"(", "index": 0, "trial": ""}})"}};
  };
  CHECK(Cluster::from_env(vertex("workerpool0")).is_chief());
  CHECK(Cluster::from_env(vertex("workerpool1")).rank() == 1);
  CHECK(Cluster::from_env(vertex("workerpool2")).task() == TaskId{Role::ps, 0});
  CHECK_FALSE(Cluster::from_env(vertex("workerpool3")).is_member());
  CHECK(said([&] { Cluster::from_env(vertex("workerpool4")); }) ==
        "CLUSTER_SPEC: task.type is \"workerpool4\", which is no role.");
}
