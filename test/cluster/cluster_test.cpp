// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/cluster.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

using Texts = std::vector<std::string>;

ClusterOptions all_roles(TaskId me) {
  return {.chief = "h0:1", .workers = {"h1:1", "h1:2"}, .servers = {"h1:3", "h2:1"}, .evaluators = {"h4:1"}, .me = me};
}

}  // namespace

TEST_CASE("ranks of a cluster are the chief, the workers, the servers; an evaluator has none", "[cluster]") {
  auto const cluster = Cluster::at(all_roles({Role::worker, 1}));
  CHECK(cluster.workers() == 3);
  CHECK(cluster.servers() == 2);
  CHECK(cluster.addresses() == Texts{"h0:1", "h1:1", "h1:2", "h1:3", "h2:1"});
  CHECK(cluster.tasks().size() == 6);
  CHECK(cluster.rank() == 2);
  CHECK(cluster.worker_rank() == 2);
  CHECK(cluster.rank_of({Role::chief, 0}) == 0);
  CHECK(cluster.rank_of({Role::ps, 1}) == 4);
  CHECK_FALSE(cluster.is_chief());
  CHECK(cluster.group().size() == 5);
  CHECK(cluster.group().local() == std::vector<Rank>{2});
  for (auto const role : {Role::chief, Role::worker, Role::ps, Role::evaluator}) CHECK(cluster.has(role));

  auto const server = Cluster::at(all_roles({Role::ps, 0}));
  CHECK(server.rank() == 3);
  CHECK_FALSE(server.is_worker());
  CHECK(said([&] { server.worker_rank(); }) == "ps 0 has no rank among the 3 workers (needs is_worker()).");

  auto const evaluator = Cluster::at(all_roles({Role::evaluator, 0}));
  CHECK_FALSE(evaluator.is_member());
  CHECK(evaluator.addresses() == cluster.addresses());
  CHECK(said([&] { evaluator.group(); }).starts_with("evaluator 0 is no member of the group of 3 workers"));
  CHECK(said([&] { evaluator.rank_of({Role::worker, 7}); }).starts_with("worker 7 is no member"));
}

TEST_CASE("worker 0 is the chief of a cluster that names none, and only then", "[cluster]") {
  auto const two = Texts{"a:1", "b:1"};
  CHECK(Cluster::at({.workers = two}).is_chief());
  CHECK_FALSE(Cluster::at({.workers = two, .me = {Role::worker, 1}}).is_chief());
  CHECK_FALSE(Cluster::at({.workers = two, .servers = {"c:1"}, .me = {Role::ps, 0}}).is_chief());
  CHECK_FALSE(Cluster::at({.chief = "c:1", .workers = two}).is_chief());
  CHECK(Cluster::at({.chief = "c:1", .workers = two, .me = {Role::chief, 0}}).is_chief());
}

TEST_CASE("local ranks count the workers of a host, and its servers apart from them", "[cluster]") {
  auto const worker = Cluster::at(all_roles({Role::worker, 1}));
  CHECK(worker.local_rank() == 1);
  CHECK(worker.local_size() == 2);
  auto const server = Cluster::at(all_roles({Role::ps, 0}));
  CHECK(server.local_rank() == 0);
  CHECK(server.local_size() == 1);
  auto const same = Cluster::at({.workers = {"H1:1", "[::1]:2", "h1:3"}, .me = {Role::worker, 2}});
  CHECK(same.local_rank() == 1);  // a name of a host has no case
  CHECK(same.addresses() == Texts{"h1:1", "[::1]:2", "h1:3"});
}

TEST_CASE("a local cluster is one process with all ranks, and has no addresses", "[cluster]") {
  auto const cluster = Cluster::local(4, 2);
  CHECK(cluster.is_local());
  CHECK(cluster.is_chief());
  CHECK(cluster.workers() == 4);
  CHECK(cluster.servers() == 2);
  CHECK(cluster.addresses().empty());
  CHECK(cluster.group().is_all_local());
  CHECK(cluster.group().size() == 6);
  CHECK(cluster.text() == "cluster: local, 4 workers and 2 ps in this process");
  CHECK(Cluster::local().text() == "cluster: local, 1 worker in this process");
  CHECK(said([] { Cluster::local(0); }).starts_with("a cluster has at least one worker"));
  CHECK(said([] { Cluster::local(1, -1); }).starts_with("a cluster has at least one worker"));
  CHECK(said([] { Cluster::local(65'536, 1); }).starts_with("a cluster has at least one worker and at most 65536"));
}

TEST_CASE("a cluster says in one line where this process stands", "[cluster]") {
  CHECK(Cluster::at({.workers = {"h1:1", "h2:1"}, .me = {Role::worker, 1}}).text() ==
        "cluster: code, rank 1 of 2 on h2 (local 0 of 1), master h1:1");
  CHECK(Cluster::at(all_roles({Role::ps, 1})).text() ==
        "cluster: code, ps 1, rank 4 of 5 on h2 (local 0 of 1), master h0:1");
  CHECK(Cluster::at(all_roles({Role::evaluator, 0})).text() ==
        "cluster: code, evaluator 0 on h4, beside 3 workers and 2 ps");
}

TEST_CASE("ranks compare the lines of a cluster, which do not depend on which task reads it", "[cluster]") {
  auto const lines = Cluster::at(all_roles({Role::worker, 1})).lines();
  CHECK(lines == Texts{"cluster: chief 0 at h0:1", "cluster: worker 0 at h1:1", "cluster: worker 1 at h1:2",
                       "cluster: ps 0 at h1:3", "cluster: ps 1 at h2:1"});
  CHECK(Cluster::at(all_roles({Role::ps, 0})).lines() == lines);
  CHECK(Cluster::at({.workers = {"h0:1"}}).lines() != Cluster::at({.workers = {"h0:2"}}).lines());
  CHECK(Cluster::local(2).lines() == Texts{"cluster: worker 0", "cluster: worker 1"});
}

TEST_CASE("a cluster that cannot be is refused in one sentence", "[cluster]") {
  auto const at = [](ClusterOptions options) { return said([&] { Cluster::at(options); }); };
  CHECK(at({}) == "code: there is no worker and no chief among 0 tasks.");
  CHECK(at({.servers = {"h:1"}, .me = {Role::ps, 0}}) == "code: there is no worker and no chief among 1 task.");
  CHECK(at({.workers = {"h:1"}, .me = {Role::worker, 1}}) ==
        "code: this process is worker 1, which is not one of 1 task.");
  CHECK(at({.workers = {"h:1", "H:1"}}) == "code: worker 0 and worker 1 have the same address, h:1.");
  CHECK(at({.workers = {"h:1"}, .servers = {"h:1"}}) == "code: worker 0 and ps 0 have the same address, h:1.");
  CHECK(at({.workers = {"h:1", ""}}) == "code: worker 1: \"\" has no port.");

  auto const made = [](ClusterParts parts) { return said([&] { Cluster{parts}; }); };
  CHECK(made({.tasks = {{{Role::worker, 0}, "a:1"}, {{Role::worker, 0}, "b:1"}}}) == "code: worker 0 is there twice.");
  CHECK(made({.tasks = {{{Role::worker, 0}, "a:1"}, {{Role::worker, 1}}}}) == "code: worker 1 has no address.");
  CHECK(made({.tasks = {{{Role::worker, 0}}, {{Role::worker, 1}, "a:1"}}}) == "code: worker 1 alone has an address.");
  CHECK(made({.tasks = {{{Role::chief, 0}}, {{Role::chief, 1}}}}) ==
        "code: a job has one chief, chief 0, and this one has 2 chiefs.");
  CHECK(made({.tasks = std::vector<Task>(65'537)}) == "code: 65537 tasks are more than 65536.");
  CHECK(made({.tasks = {{}}, .no_addresses = "x"}).empty());
  CHECK(said([] { Cluster{{.tasks = {{}}, .no_addresses = "nobody knows them."}}.addresses(); }) ==
        "code: nobody knows them.");
}

TEST_CASE("an address has a host and a port, and nothing that a terminal would obey", "[cluster][host_port]") {
  auto const host = HostPort::parse("Node-3.a_b:2222");
  CHECK(host.host == "node-3.a_b");
  CHECK(host.port == 2222);
  CHECK(HostPort::parse("[fe80::1%eth0]:65535").text() == "[fe80::1%eth0]:65535");
  CHECK(HostPort::parse("10.0.0.7:1").text() == "10.0.0.7:1");

  struct Row {
    std::string text, said;
  };
  auto const rows = std::vector<Row>{
      {"h2", "has no port"},
      {"", "has no port"},
      {"[::1]", "has no port"},
      {"h:", "has the port \"\", and a port is a number from 1 to 65535"},
      {"h:0", "has the port \"0\", and a port is a number from 1 to 65535"},
      {"h:65536", "has the port \"65536\", and a port is a number from 1 to 65535"},
      {"h:-1", "has the port \"-1\", and a port is a number from 1 to 65535"},
      {"h:+1", "has the port \"+1\", and a port is a number from 1 to 65535"},
      {"h:1 ", "has the port \"1 \", and a port is a number from 1 to 65535"},
      {"h:99999999999999999999", "has the port \"99999999999999999999\", and a port is a number from 1 to 65535"},
      {":1", "has no name or number of a host before the port"},
      {"a b:1", "has no name or number of a host before the port"},
      {"a/b:1", "has no name or number of a host before the port"},
      {"[]:1", "has no name or number of a host before the port"},
      {"[h]:1", "has no name or number of a host before the port"},
      {"[::1]x:1", "has no name or number of a host before the port"},
      {std::string(254, 'h') + ":1", "has no name or number of a host before the port"},
      {"::1:1", "has more than one colon, and no brackets"},
      {"grpc://h:1", "has more than one colon, and no brackets"},
      {"[::1:1", "has a [ without a ]"},
  };
  for (auto const& row : rows) {
    CAPTURE(row.text);
    auto const quoted = row.text.size() > 80 ? row.text.substr(0, 80) + "..." : row.text;
    CHECK(said([&] { HostPort::parse(row.text, "x"); }) == "x: \"" + quoted + "\" " + row.said + ".");
  }
  CHECK(said([] { HostPort::parse("a\n\033[2J:1"); }).find("\"a??[2J:1\"") != std::string::npos);
}
