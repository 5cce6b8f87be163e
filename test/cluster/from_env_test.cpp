// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/from_env.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

using Texts = std::vector<std::string>;

/// As torchrun 1.13 sets it, two processes on one host.
Environment torchrun(int rank) {
  auto const r = std::to_string(rank);
  return {{"RANK", r},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", r},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", r},
          {"ROLE_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"}};
}

/// As Open MPI 4.1 sets it.
Environment open_mpi(int rank, int size = 2, int local_size = 2) {
  auto const r = std::to_string(rank);
  return {{"OMPI_COMM_WORLD_RANK", r},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank % local_size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"OMPI_COMM_WORLD_NODE_RANK", r},
          {"OMPI_UNIVERSE_SIZE", "2"},
          {"PMIX_RANK", r},
          {"PMIX_NAMESPACE", "353435649"}};
}

/// As MPICH 4.0 sets it.
Environment mpich(int rank) {
  auto const r = std::to_string(rank);
  return {{"PMI_RANK", r}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", r}, {"MPI_LOCALNRANKS", "2"}};
}

/// As srun of Slurm 22.05 sets it: 7 tasks on 4 nodes.
Environment slurm(int rank) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NTASKS", "7"},
          {"SLURM_NPROCS", "7"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_LOCALID", std::to_string(rank % 2)},
          {"SLURM_NODEID", std::to_string(rank / 2)},
          {"SLURM_STEP_NODELIST", "gpu[07-10]"},
          {"SLURM_JOB_NODELIST", "gpu[07-10]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_JOB_ID", "123451"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_NODES", "4"}};
}

Environment with(Environment env, std::vector<std::pair<std::string, std::string>> const& more) {
  for (auto const& [name, value] : more) env.set(name, value);
  return env;
}

std::string wrong(Environment const& env) {
  return said([&] { Cluster::from_env(env).addresses(); });
}

constexpr auto two = R"({"worker": ["h1:1", "h2:1"]})";
constexpr auto tf  = R"({"cluster": {"worker": ["h1:1", "h2:1"]}, "task": {"type": "worker", "index": 1}})";

}  // namespace

TEST_CASE("without a launcher there is one process", "[cluster][from_env]") {
  for (auto const& env : {Environment{}, Environment{{"TF_CONFIG", "{}"}}, Environment{{"MASTER_ADDR", "h1"}},
                          Environment{{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}},  // a shell of salloc
                          Environment{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},
                          Environment{{"CHORALE_CLUSTER", ""}, {"CHORALE_TASK", ""}}}) {
    auto const cluster = Cluster::from_env(env);
    CHECK(cluster.is_local());
    CHECK(cluster.text() == "cluster: local, 1 worker in this process");
    CHECK(cluster.group().size() == 1);
  }
  auto const named = Cluster::from_env({{"CHORALE_JOB", "lenet 17"}, {"CHORALE_INCARNATION", "2"}});
  CHECK(named.job() == "lenet 17");
  CHECK(named.incarnation() == 2);
}

TEST_CASE("variables of a launcher that are no numbers, or not whole, are refused", "[cluster][from_env]") {
  CHECK(wrong({{"WORLD_SIZE", "-5"}}) == "WORLD_SIZE is \"-5\", and must be a number from 1 to 65536.");
  CHECK(wrong({{"OMPI_COMM_WORLD_SIZE", "abc"}}) ==
        "OMPI_COMM_WORLD_SIZE is \"abc\", and must be a number from 1 to 65536.");
  CHECK(wrong({{"PMI_RANK", "1e9"}}) == "PMI_RANK is \"1e9\", and must be a number from 0 to 65536.");
  CHECK(wrong({{"RANK", "0"}}) == "torchrun: RANK=0 is set without WORLD_SIZE and MASTER_ADDR.");
  CHECK(wrong({{"RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "torchrun: RANK=0 and WORLD_SIZE=2 are set without MASTER_ADDR.");
  CHECK(wrong({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h1"}}) ==
        "torchrun: WORLD_SIZE=2 and MASTER_ADDR=h1 are set without RANK.");
  CHECK(wrong({{"OMPI_COMM_WORLD_RANK", "1"}}) ==
        "Open MPI: OMPI_COMM_WORLD_RANK=1 is set without OMPI_COMM_WORLD_SIZE.");
  CHECK(wrong({{"PMI_SIZE", "2"}}) == "MPICH: PMI_SIZE=2 is set without PMI_RANK.");

  auto const part = Cluster::from_env(with(open_mpi(1), {{"RANK", "1"}}));  // another launcher says the whole
  CHECK(part.text() == Cluster::from_env(open_mpi(1)).text());
  CHECK(Cluster::from_env({{"RANK", "1"}, {"TF_CONFIG", tf}}).rank() == 1);
}

TEST_CASE("torchrun's ranks listen behind its own port", "[cluster][from_env]") {
  auto const cluster = Cluster::from_env(torchrun(1));
  CHECK(cluster.text() == "cluster: torchrun, rank 1 of 2 on 127.0.0.1 (local 1 of 2), master 127.0.0.1:29501");
  CHECK(cluster.addresses() == Texts{"127.0.0.1:29501", "127.0.0.1:29502"});
  CHECK(cluster.job() == "torchrun none at 127.0.0.1:29500");
  CHECK(cluster.lines() == Cluster::from_env(torchrun(0)).lines());
  CHECK(Cluster::from_env(torchrun(0)).is_chief());
  CHECK_FALSE(cluster.is_chief());

  auto const own =
      Cluster::from_env(with(torchrun(0), {{"CHORALE_PORT", "4400"}, {"TORCHELASTIC_RESTART_COUNT", "3"}}));
  CHECK(own.addresses() == Texts{"127.0.0.1:4400", "127.0.0.1:4401"});
  CHECK(own.incarnation() == 3);
  CHECK(Cluster::from_env(with(torchrun(0), {{"MASTER_ADDR", "::1"}})).addresses().back() == "[::1]:29502");

  CHECK(wrong(with(torchrun(0), {{"MASTER_PORT", "65534"}})) ==
        "torchrun: 2 ranks from port 65535 on, which is MASTER_PORT and 1, need port 65536, above 65535.");
  CHECK(wrong(with(torchrun(0), {{"MASTER_PORT", ""}})) == "torchrun: neither MASTER_PORT nor CHORALE_PORT is set.");
  CHECK(wrong(with(torchrun(0), {{"MASTER_PORT", "x"}})) ==
        "MASTER_PORT is \"x\", and must be a number from 1 to 65535.");
  CHECK(wrong(with(torchrun(0), {{"MASTER_ADDR", "a b"}})) ==
        "torchrun: MASTER_ADDR, with a port: \"a b:1\" has no name or number of a host before the port.");
  CHECK(wrong(with(torchrun(0), {{"RANK", "2"}})) == "torchrun: rank 2 of 2: the first is 0, and the last 1.");
  CHECK(wrong(with(torchrun(0), {{"RANK", "-1"}})) == "RANK is \"-1\", and must be a number from 0 to 65536.");
  CHECK(wrong(with(torchrun(0), {{"WORLD_SIZE", "0"}})) ==
        "WORLD_SIZE is \"0\", and must be a number from 1 to 65536.");
  CHECK(wrong(with(torchrun(0), {{"LOCAL_RANK", "5"}})) ==
        "torchrun: local rank 5 of 2: the first is 0, and the last 1.");
  CHECK(wrong(with(torchrun(0), {{"LOCAL_WORLD_SIZE", "3"}})) == "torchrun: 3 ranks on this host, of 2 in all.");
}

TEST_CASE("ranks on several hosts have no addresses until somebody writes them down", "[cluster][from_env]") {
  auto const sentence = std::string{
      "4 ranks, 2 on this host, and no address of the others: for several hosts it takes the host of rank 0 in "
      "CHORALE_MASTER, where ranks meet over TcpTransport, or all addresses in CHORALE_CLUSTER."};
  auto const torch = with(torchrun(1), {{"WORLD_SIZE", "4"}, {"GROUP_WORLD_SIZE", "2"}});
  CHECK(wrong(torch) == "torchrun: " + sentence);
  CHECK(wrong(open_mpi(1, 4)) == "Open MPI: " + sentence);
  CHECK(wrong(with(mpich(1), {{"PMI_SIZE", "4"}})) == "MPICH: " + sentence);
  CHECK(wrong(with(torchrun(1), {{"LOCAL_WORLD_SIZE", ""}})) ==
        "torchrun: 2 ranks, it does not say how many on this host, and no address of the others: for several hosts it "
        "takes the host of rank 0 in CHORALE_MASTER, where ranks meet over TcpTransport, or all addresses in "
        "CHORALE_CLUSTER.");

  auto const known = Cluster::from_env(torch);  // enough for MPI's own transport
  CHECK_FALSE(known.has_addresses());
  CHECK(known.rank() == 1);
  CHECK(known.workers() == 4);
  CHECK(known.text() == "cluster: torchrun, rank 1 of 4 (local 1 of 2), ranks meet at 127.0.0.1:29501");
  CHECK(known.group().meeting().meets_at == "127.0.0.1:29501");
  CHECK(known.group().meeting().addresses.empty());
  CHECK(known.group().meeting().no_addresses == "torchrun: " + sentence);
  CHECK(Cluster::from_env(open_mpi(1, 4)).meets_at().empty());
  CHECK(Cluster::from_env(with(open_mpi(1, 4), {{"CHORALE_MASTER", "node7"}, {"CHORALE_PORT", "9000"}})).meets_at() ==
        "node7:9000");
  CHECK(Cluster::from_env(with(mpich(1), {{"PMI_SIZE", "4"}, {"CHORALE_MASTER", "fd00::7"}, {"CHORALE_PORT", "9000"}}))
            .meets_at() == "[fd00::7]:9000");
  CHECK(Cluster::from_env(with(open_mpi(1), {{"CHORALE_MASTER", "10.0.0.7"}, {"CHORALE_PORT", "9000"}})).addresses() ==
        Texts{"10.0.0.7:9000", "10.0.0.7:9001"});  // one host: they need not meet
  CHECK(wrong(with(torch, {{"CHORALE_PORT", "65532"}})) ==
        "torchrun: 4 ranks from port 65532 on, which is CHORALE_PORT, need port 65536, above 65535.");

  auto const written =
      Cluster::from_env(with(torch, {{"CHORALE_CLUSTER", R"({"worker": ["a:1", "a:2", "b:1", "b:2"]})"}}));
  CHECK(written.addresses() == Texts{"a:1", "a:2", "b:1", "b:2"});  // and the rank as torchrun says
  CHECK(written.text() == "cluster: CHORALE_CLUSTER, rank 1 of 4 on a (local 1 of 2), master a:1");
}

TEST_CASE("MPI's ranks on one host have ports that are made of the job", "[cluster][from_env]") {
  auto const cluster = Cluster::from_env(open_mpi(1));
  auto const base    = 20'000 + resolve::hash_of("Open MPI 353435649") % 20'000;
  CHECK(cluster.addresses() == Texts{"127.0.0.1:" + std::to_string(base), "127.0.0.1:" + std::to_string(base + 1)});
  CHECK(cluster.job() == "Open MPI 353435649");
  CHECK(cluster.text() ==
        "cluster: Open MPI, rank 1 of 2 on 127.0.0.1 (local 1 of 2), master 127.0.0.1:" + std::to_string(base));
  CHECK(Cluster::from_env(with(open_mpi(0), {{"PMIX_NAMESPACE", "353435650"}})).addresses() != cluster.addresses());
  CHECK(Cluster::from_env(with(open_mpi(0), {{"CHORALE_PORT", "9000"}})).addresses().front() == "127.0.0.1:9000");
  CHECK(resolve::hash_of("") == 2'166'136'261U);  // FNV-1a's own test vectors
  CHECK(resolve::hash_of("foobar") == 0xBF9CF968U);

  auto const other = Cluster::from_env(mpich(1));
  CHECK(other.found_in() == "MPICH");
  CHECK(other.rank() == 1);
  CHECK(other.local_size() == 2);
  CHECK(other.addresses() == Cluster::from_env(mpich(0)).addresses());
  CHECK(Cluster::from_env(with(mpich(0), {{"CHORALE_JOB", "b"}})).addresses() != other.addresses());
  CHECK(wrong(with(mpich(0), {{"PMI_RANK", "9"}})) == "MPICH: rank 9 of 2: the first is 0, and the last 1.");
  CHECK(wrong(with(open_mpi(0), {{"CHORALE_PORT", "70000"}})) ==
        "CHORALE_PORT is \"70000\", and must be a number from 1 to 65535.");
  CHECK(wrong(with(open_mpi(0), {{"CHORALE_PORT", "65535"}})) ==
        "Open MPI: 2 ranks from port 65535 on, which is CHORALE_PORT, need port 65536, above 65535.");
}

TEST_CASE("Slurm's tasks lie on the nodes of its list", "[cluster][from_env]") {
  auto const cluster = Cluster::from_env(slurm(3));
  CHECK(cluster.text() == "cluster: Slurm, rank 3 of 7 on gpu08 (local 1 of 2), master gpu07:23451");
  CHECK(cluster.addresses() ==
        Texts{"gpu07:23451", "gpu07:23452", "gpu08:23451", "gpu08:23452", "gpu09:23451", "gpu09:23452", "gpu10:23451"});
  CHECK(cluster.job() == "Slurm 123451.0");
  CHECK(Cluster::from_env(slurm(6)).local_size() == 1);
  CHECK(Cluster::from_env(with(slurm(6), {{"SLURM_RESTART_COUNT", "2"}})).incarnation() == 2);
  CHECK(Cluster::from_env(with(slurm(0), {{"CHORALE_PORT", "99"}})).addresses().back() == "gpu10:99");
  CHECK(Cluster::from_env(with(slurm(0), {{"CHORALE_PORT", "65534"}})).addresses()[1] == "gpu07:65535");
  auto const old = with(slurm(0), {{"SLURM_STEP_NODELIST", ""},
                                   {"SLURM_JOB_NODELIST", ""},
                                   {"SLURM_NODELIST", "n[1-4]"},
                                   {"SLURM_STEP_TASKS_PER_NODE", ""},
                                   {"SLURM_STEP_NUM_TASKS", ""}});
  CHECK(Cluster::from_env(old).addresses()[6] == "n4:23451");

  auto const refused = [](std::string const& name, std::string const& value) {
    return wrong(with(slurm(3), {{name, value}}));
  };
  CHECK(refused("SLURM_STEP_NODELIST", "gpu[07") ==
        "SLURM_STEP_NODELIST: \"gpu[07\", character 7: a ] is needed here.");
  CHECK(refused("SLURM_STEP_NODELIST", "gpu[07-09]") ==
        "Slurm: SLURM_STEP_TASKS_PER_NODE is for 4 nodes, and the list of nodes has 3.");
  CHECK(refused("SLURM_STEP_TASKS_PER_NODE", "2(x4)") ==
        "Slurm: 7 tasks, but the tasks on all nodes are 8 in SLURM_STEP_TASKS_PER_NODE.");
  CHECK(refused("SLURM_STEP_TASKS_PER_NODE", "2(y4)") ==
        "SLURM_STEP_TASKS_PER_NODE: \"2(y4)\", character 3: an x is needed here.");
  CHECK(refused("SLURM_NODEID", "3") ==
        "Slurm: task 3 has SLURM_NODEID=3, but would have 1 if tasks lay on nodes in blocks.");
  CHECK(refused("SLURM_LOCALID", "0") ==
        "Slurm: task 3 has SLURM_LOCALID=0, but would have 1 if tasks lay on nodes in blocks.");
  CHECK(refused("SLURM_PROCID", "7") == "Slurm: rank 7 of 7: the first is 0, and the last 6.");
  CHECK(refused("CHORALE_PORT", "65535") == "Slurm: 2 tasks on gpu07 from port 65535 on need port 65536, above 65535.");
  CHECK(wrong(with(slurm(3), {{"SLURM_STEP_NODELIST", ""}, {"SLURM_JOB_NODELIST", ""}}))
            .starts_with("Slurm: SLURM_STEP_NODELIST is not set"));
  CHECK(wrong(with(slurm(3), {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_TASKS_PER_NODE", ""}}))
            .starts_with("Slurm: SLURM_STEP_TASKS_PER_NODE is not set"));
}

TEST_CASE("our own variables come before TF_CONFIG, and both before a launcher", "[cluster][from_env]") {
  auto const own = Environment{{"CHORALE_CLUSTER", two}, {"CHORALE_TASK", "worker:1"}};
  CHECK(Cluster::from_env(with(own, {{"TF_CONFIG", tf}})).found_in() == "CHORALE_CLUSTER");
  CHECK(Cluster::from_env(with(torchrun(1), {{"TF_CONFIG", tf}})).text() ==
        "cluster: TF_CONFIG, rank 1 of 2 on h2 (local 0 of 1), master h1:1");
  CHECK(Cluster::from_env(with(open_mpi(1), {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})).found_in() == "Open MPI");
  CHECK(Cluster::from_env(with(slurm(3), {{"PMI_RANK", "3"}, {"PMI_SIZE", "7"}})).addresses()[3] == "gpu08:23452");
  CHECK(Cluster::from_env(with(own, {{"CHORALE_JOB", "j"}, {"CHORALE_INCARNATION", "7"}})).job() == "j");
  CHECK(said([&] { Cluster::from_env(with(own, {{"CHORALE_INCARNATION", "-7"}})); }) ==
        "CHORALE_INCARNATION is \"-7\", and must be a number from 0 to 2147483647.");
}

TEST_CASE("two that disagree about ranks are an error, and no guess", "[cluster][from_env]") {
  auto const own = Environment{{"CHORALE_CLUSTER", two}, {"CHORALE_TASK", "worker:0"}};
  CHECK(wrong(with(own, {{"TF_CONFIG", tf}})) ==
        "CHORALE_CLUSTER and TF_CONFIG disagree: worker 0 of 2 tasks, and worker 1 of 2.");
  CHECK(wrong(with(torchrun(0), {{"TF_CONFIG", tf}})) ==
        "TF_CONFIG and torchrun disagree: worker 1 of 2 tasks, and rank 0 of 2.");
  CHECK(wrong(with(slurm(1), {{"TF_CONFIG", tf}})) ==
        "TF_CONFIG and Slurm disagree: worker 1 of 2 tasks, and rank 1 of 7.");
  CHECK(wrong(with(torchrun(0), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})) ==
        "torchrun and Open MPI disagree: rank 0 of 2, and rank 1 of 2.");
  CHECK(wrong(with(slurm(1), {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})) ==
        "MPICH and Slurm disagree: rank 1 of 2, and rank 1 of 7.");
}

TEST_CASE("a launcher that only started another launcher does not disagree with it", "[cluster][from_env]") {
  auto const nested = with(slurm(1), {{"RANK", "9"},
                                      {"WORLD_SIZE", "28"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"GROUP_WORLD_SIZE", "7"},
                                      {"MASTER_ADDR", "gpu07"},
                                      {"MASTER_PORT", "29500"}});
  CHECK(Cluster::from_env(nested).workers() == 28);  // one agent of torchrun in each task
  auto const alone = with(nested, {{"GROUP_WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "4"}});
  CHECK(wrong(alone) == "torchrun and Slurm disagree: rank 0 of 4, and rank 1 of 7.");  // seven jobs by accident
  auto const daemons =
      with(slurm(2), {{"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
  CHECK(Cluster::from_env(daemons).rank() == 5);  // mpirun has one daemon on each node
  auto const shell = Environment{{"CHORALE_CLUSTER", two},
                                 {"CHORALE_TASK", "worker:0"},
                                 {"OMPI_COMM_WORLD_RANK", "0"},
                                 {"OMPI_COMM_WORLD_SIZE", "1"}};
  CHECK(Cluster::from_env(shell).workers() == 2);  // mpirun -n 1 of a script that starts two
}

TEST_CASE("with servers a launcher may have another order, but not another number", "[cluster][from_env]") {
  auto const config = [](int world) {
    return Environment{{"TF_CONFIG", R"({"cluster": {"worker": ["h:1"], "ps": ["p:1"], "evaluator": ["e:1"]},
                                         "task": {"type": "worker", "index": 0}})"},
                       {"PMI_RANK", "1"},
                       {"PMI_SIZE", std::to_string(world)}};
  };
  CHECK(Cluster::from_env(config(2)).rank() == 0);
  CHECK(Cluster::from_env(config(3)).rank() == 0);
  CHECK(wrong(config(4)) == "TF_CONFIG and MPICH disagree: worker 0 of 3 tasks, and rank 1 of 4.");
}

TEST_CASE("the environment of this process is one", "[cluster][from_env]") {
  ::setenv("CHORALE_CLUSTER_TEST", "a=b", 1);
  auto const env = Environment::of_process();
  CHECK(env.get("CHORALE_CLUSTER_TEST") == "a=b");
  ::unsetenv("CHORALE_CLUSTER_TEST");
  CHECK(env.has("CHORALE_CLUSTER_TEST"));  // it is a copy
  CHECK_FALSE(Environment::of_process().has("CHORALE_CLUSTER_TEST"));
  CHECK(env.get("CHORALE_NO_SUCH_VARIABLE").empty());
}
