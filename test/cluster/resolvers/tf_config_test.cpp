// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/resolvers/tf_config.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace tf_config_test {

using namespace chorale;
using namespace chorale::test;

namespace {

/// One line: "worker 1 of: chief 0 h0:1, worker 0 h1:1". "local" when TF_CONFIG says that there is one process.
std::string read(std::string const& text) {
  auto const parts = resolve::tf_config(text);
  if (!parts) return "local";
  auto const cluster = Cluster{*parts};
  auto line          = cluster.task().text() + " of:";
  for (auto const& task : cluster.tasks()) line += " " + task.id.text() + " " + task.address + ",";
  line.pop_back();
  return line;
}

struct Row {
  std::string text, expected;
};

}  // namespace

TEST_CASE("TF_CONFIG is read as TensorFlow reads it", "[cluster][tf_config]") {
  auto const rows = std::vector<Row>{
      {"", "local"},
      {" \n\t", "local"},
      {"{}", "local"},
      {R"({"cluster": {}})", "local"},
      {R"({"cluster": {"worker": []}})", "local"},
      {R"({"environment": "cloud"})", "local"},
      {R"({"task": {"type": "worker", "index": 0}})", "local"},
      {R"({"cluster": {}, "task": {"type": "chief", "index": 0}})", "local"},
      {R"({"cluster": {"worker": ["h1:1"]}, "task": {"type": "worker", "index": 0}})", "worker 0 of: worker 0 h1:1"},
      {R"({"task": {"index": "1", "type": "worker"}, "cluster": {"worker": ["h1:1", "h2:1"]}})",
       "worker 1 of: worker 0 h1:1, worker 1 h2:1"},
      {R"({"cluster":{"chief":["h0:2222"],"worker":["h1:2222","h2:2222"],"ps":["h3:2222"],"evaluator":["h4:2222"]},
           "task":{"type":"worker","index":0}, "rpc_layer":"grpc", "environment":"cloud"})",
       "worker 0 of: chief 0 h0:2222, worker 0 h1:2222, worker 1 h2:2222, ps 0 h3:2222, evaluator 0 h4:2222"},
      {R"({"cluster": {"ps": ["p:1"], "worker": ["w:1"], "chief": ["c:1"]}, "task": {"type": "ps", "index": 0}})",
       "ps 0 of: chief 0 c:1, worker 0 w:1, ps 0 p:1"},
      {R"({"cluster": {"master": ["m:1"], "worker": ["w:1"]}, "task": {"type": "master", "index": 0}})",
       "chief 0 of: chief 0 m:1, worker 0 w:1"},
      {R"({"cluster": {"chief": ["c:1"]}, "task": {"type": "evaluator", "index": 0}})", "evaluator 0 of: chief 0 c:1"},
      {R"({"cluster": {"chief": ["c:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 0}})",
       "evaluator 0 of: chief 0 c:1, evaluator 0 e:1"},
      {R"({"cluster": {"worker": {"1": "h:1"}, "ps": ["p:1"]}, "task": {"type": "worker", "index": 1}})",
       "worker 1 of: worker 1 h:1, ps 0 p:1"},
      {R"({"cluster": {"worker": {"10": "b:1", "9": "a:1"}}, "task": {"type": "worker", "index": 10}})",
       "worker 10 of: worker 9 a:1, worker 10 b:1"},
      {R"({"cluster": {"worker": ["[::1]:1"]}, "task": {"type": "worker", "index": 0}})",
       "worker 0 of: worker 0 [::1]:1"},
      {R"({"cluster": {"worker": ["j-worker-0.ns.svc:2222"]}, "task": {"type": "worker", "index": 0, "cloud": "x"}})",
       "worker 0 of: worker 0 j-worker-0.ns.svc:2222"},
      {R"({"cluster": {"worker": ["w:1"], "ps": []}, "task": {"type": "worker", "index": 0}, "job": {"a": [1]}})",
       "worker 0 of: worker 0 w:1"},
  };
  for (auto const& [text, expected] : rows) {
    CAPTURE(text);
    CHECK(read(text) == expected);
  }
}

TEST_CASE("an error about TF_CONFIG names the place in it", "[cluster][tf_config]") {
  auto const deep    = std::string(17, '[') + std::string(17, ']');
  auto const cluster = [](std::string const& c) {
    return R"({"cluster": )" + c + R"(, "task": {"type": "worker", "index": 0}})";
  };
  auto const task = [](std::string const& t) { return R"({"cluster": {"worker": ["h:1"]}, "task": )" + t + "}"; };
  auto const rows = std::vector<Row>{
      {"{", "TF_CONFIG: it is not JSON from byte 2 on."},
      {"worker", "TF_CONFIG: it is not JSON from byte 1 on."},
      {"{} {}", "TF_CONFIG: it is not JSON from byte 4 on."},
      {"{\"cluster\": \"\xff\"}", "TF_CONFIG: it is not JSON from byte 14 on."},
      {deep, "TF_CONFIG: it is deeper than 16 levels."},
      {R"({"task": {}, "task": {}})", "TF_CONFIG: the key \"task\" is there twice."},
      {R"({"cluster": {"worker": ["a:1"], "worker": ["b:1"]}})", "TF_CONFIG: the key \"worker\" is there twice."},
      {"[]", "TF_CONFIG: it is an array, and must be an object."},
      {"3", "TF_CONFIG: it is 3, and must be an object."},
      {"null", "TF_CONFIG: it is null, and must be an object."},
      {R"({"cluster": {"worker": ["h:1"]}})", "TF_CONFIG: it has a cluster and no task."},
      {cluster("[]"), "TF_CONFIG: cluster is an array, and must be an object."},
      {cluster(R"({"Worker": ["h:1"]})"), "TF_CONFIG: cluster.\"Worker\" is no role."},
      {cluster(R"({"worker": "h:1"})"), "TF_CONFIG: cluster.worker is \"h:1\", and must be an array of addresses."},
      {cluster(R"({"worker": null})"), "TF_CONFIG: cluster.worker is null, and must be an array of addresses."},
      {cluster(R"({"worker": ["h0:1", "h1:1", "h2"]})"), "TF_CONFIG: cluster.worker[2]: \"h2\" has no port."},
      {cluster(R"({"worker": ["h:1"], "ps": [7]})"), "TF_CONFIG: cluster.ps[0] is 7, and must be a text."},
      {cluster(R"({"worker": [["h:1"]]})"), "TF_CONFIG: cluster.worker[0] is an array, and must be a text."},
      {cluster(R"({"worker": {"a": "h:1"}})"),
       "TF_CONFIG: cluster.worker[\"a\"] has a key that is no index of a task."},
      {cluster(R"({"worker": {"-1": "h:1"}})"),
       "TF_CONFIG: cluster.worker[\"-1\"] has a key that is no index of a task."},
      {cluster(R"({"worker": {"0": "h"}})"), "TF_CONFIG: cluster.worker[\"0\"]: \"h\" has no port."},
      {cluster(R"({"worker": {"0": "h:1", "00": "g:1"}})"), "TF_CONFIG: worker 0 is there twice."},
      {cluster(R"({"worker": ["h:1"], "master": ["m:1"], "chief": ["c:1"]})"),
       "TF_CONFIG: cluster.master is an old word for chief, which is there, too."},
      {cluster(R"({"worker": ["h:1"], "chief": ["c:1", "d:1"]})"),
       "TF_CONFIG: a job has one chief, chief 0, and this one has 2 chiefs."},
      {cluster(R"({"worker": ["h:1", "i:1"], "ps": ["i:1"]})"),
       "TF_CONFIG: worker 1 and ps 0 have the same address, i:1."},
      {cluster(R"({"ps": ["h:1"]})"), "TF_CONFIG: task: worker 0, but the cluster has no worker."},
      {R"({"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 0}})",
       "TF_CONFIG: there is no worker and no chief among 1 task."},
      {task("[]"), "TF_CONFIG: task is an array, and must be an object."},
      {task(R"({"index": 0})"), "TF_CONFIG: task has no type."},
      {task(R"({"type": "worker"})"), "TF_CONFIG: task has no index."},
      {task(R"({"type": "boss", "index": 0})"), "TF_CONFIG: task.type is \"boss\", which is no role."},
      {task(R"({"type": 1, "index": 0})"), "TF_CONFIG: task.type is 1, and must be a text."},
      {task(R"({"type": "worker", "index": 3})"),
       "TF_CONFIG: task: worker 3, but the cluster has 1 of role worker, from 0 to 0."},
      {task(R"({"type": "worker", "index": -1})"),
       "TF_CONFIG: task.index is -1, and must be a whole number from 0 on."},
      {task(R"({"type": "worker", "index": 0.5})"),
       "TF_CONFIG: task.index is 0.5, and must be a whole number from 0 on."},
      {task(R"({"type": "worker", "index": "x"})"),
       "TF_CONFIG: task.index is \"x\", and must be a whole number from 0 on."},
      {task(R"({"type": "worker", "index": 18446744073709551615})"),
       "TF_CONFIG: task.index is 18446744073709551615, and must be a whole number from 0 on."},
      {task(R"({"type": "chief", "index": 0})"), "TF_CONFIG: task: chief 0, but the cluster has no chief."},
      {R"({"task": {"type": "worker", "index": 1}})", "TF_CONFIG: task: worker 1, but the cluster has no worker."},
      {R"({"task": {"type": "evaluator", "index": 0}})", "TF_CONFIG: there is no worker and no chief among 0 tasks."},
  };
  for (auto const& [text, expected] : rows) {
    CAPTURE(text);
    CHECK(said([&text = text] { read(text); }) == expected);
  }
  CHECK(said([] { read(std::string(9U << 20, ' ') + "{}"); }) ==
        "TF_CONFIG: 9437186 bytes, above the limit of 8388608.");
}

TEST_CASE("a cluster of many tasks is read in one go, and one of too many is refused", "[cluster][tf_config]") {
  auto const config = [](int workers) {
    auto text = std::string{R"({"task": {"type": "worker", "index": 9}, "cluster": {"worker": [)"};
    for (int i = 0; i < workers; ++i) text += (i == 0 ? "\"h" : ", \"h") + std::to_string(i) + ":2222\"";
    return text + "]}}";
  };
  auto const most = Cluster{*resolve::tf_config(config(Cluster::most))};
  CHECK(most.workers() == 65'536);
  CHECK(most.addresses().back() == "h65535:2222");
  CHECK(said([&] { resolve::tf_config(config(Cluster::most + 1)); }) ==
        "TF_CONFIG: cluster.worker has 65537 tasks, above 65536.");
}

TEST_CASE("CHORALE_CLUSTER and CHORALE_TASK are a cluster", "[cluster][tf_config]") {
  auto const env = [](std::string cluster, std::string task) {
    return Environment{{"CHORALE_CLUSTER", std::move(cluster)}, {"CHORALE_TASK", std::move(task)}};
  };
  auto const two  = std::string{R"({"ps": ["p:1"], "worker": ["h:1"]})"};
  auto const both = Cluster{*resolve::own_variables(env(two, "ps:0"))};
  CHECK(both.rank() == 1);
  CHECK(both.found_in() == "CHORALE_CLUSTER");
  CHECK_FALSE(resolve::own_variables(Environment{}));
  CHECK(resolve::own_variables(env(two, ""), 1)->me == TaskId{Role::ps, 0});

  auto const wrong = [&](std::string cluster, std::string task, int rank = -1) {
    return said([&] { resolve::own_variables(env(cluster, task), rank); });
  };
  CHECK(wrong("", "worker:0") == "CHORALE_TASK is \"worker:0\", but CHORALE_CLUSTER is not set.");
  CHECK(wrong(two, "") == "CHORALE_CLUSTER is set, but CHORALE_TASK is not.");
  CHECK(wrong(two, "", 2) == "CHORALE_CLUSTER: rank 2, but there are 2 tasks.");
  CHECK(wrong(two, "worker:2") == "CHORALE_TASK: worker 2, but the cluster has 1 of role worker, from 0 to 0.");
  CHECK(wrong(R"({"worker": ["h"]})", "worker:0") == "CHORALE_CLUSTER: worker[0]: \"h\" has no port.");
  CHECK(wrong(R"({"tpu": ["h:1"]})", "worker:0") == "CHORALE_CLUSTER: \"tpu\" is no role.");
  CHECK(wrong("h:1", "worker:0") == "CHORALE_CLUSTER: it is not JSON from byte 1 on.");
  for (std::string const task : {"worker", "worker:", ":0", "worker:-1", "boss:0", "worker:0:0", "worker 0"}) {
    CAPTURE(task);
    CHECK(wrong(two, task) == "CHORALE_TASK is \"" + task + "\", and must be a role and an index.");
  }
}

}  // namespace tf_config_test
