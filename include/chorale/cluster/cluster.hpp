// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/host_port.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Role of a task in a job, in the order of ranks.
enum class Role : std::uint8_t {
  chief,      // trains, and writes checkpoints and logs
  worker,     // trains
  ps,         // holds variables: a parameter server
  evaluator,  // evaluates what the chief wrote; no member of the group that trains
};

inline constexpr auto role_names = std::array<std::string_view, 4>{"chief", "worker", "ps", "evaluator"};

constexpr std::string_view name(Role role) { return role_names[static_cast<std::size_t>(role)]; }

constexpr std::optional<Role> role_named(std::string_view text) {
  for (std::size_t i = 0; i < role_names.size(); ++i)
    if (role_names[i] == text) return static_cast<Role>(i);
  return std::nullopt;
}

/// A task of a job: "worker 1". Ordered as ranks are.
struct TaskId {
  Role role = Role::worker;
  int index = 0;

  std::string text() const { return std::string{name(role)} + " " + std::to_string(index); }

  friend constexpr auto operator<=>(TaskId const&, TaskId const&) = default;
};

/// A task, and the address it listens on.
struct Task {
  TaskId id;
  std::string address{};  // "host:port"; empty when it is not known

  friend bool operator==(Task const&, Task const&) = default;
};

class Environment;
namespace resolve {
struct FromEnv;  // in from_env.hpp
}

/// A cluster that a program describes itself.
struct ClusterOptions {
  std::string chief{};                                          // "host:port"; without one worker 0 is chief
  std::vector<std::string> workers{}, servers{}, evaluators{};  // [index]: "host:port"
  TaskId me{};                                                  // which of them this process is
  std::string job           = "chorale";
  std::uint32_t incarnation = 0;  // how often the job was started again
};

/// Parts of a cluster, as a resolver or a program gives them.
struct ClusterParts {
  std::vector<Task> tasks{};  // in any order; all with address, or none
  TaskId me{};
  std::string job           = "chorale";
  std::uint32_t incarnation = 0;
  int local_rank = -1, local_size = -1;  // of this host; -1: as the addresses say
  std::string host{};                    // of this process; empty: from the address
  std::string found_in = "code";         // "TF_CONFIG", "Slurm"
  std::string no_addresses{};            // why there are none: a sentence
  std::string meets_at{};                // then: see RendezvousInfo
  int spare_ports = 0;                   // see RendezvousInfo
};

/// The tasks of a job, and which of them this process is.
///
///   auto const cluster = Cluster::from_env();                             // TF_CONFIG, torchrun, mpirun, srun, ...
///   auto const written = Cluster::at({.workers = {"10.0.0.7:2222", "10.0.0.8:2222"}, .me = {Role::worker, 1}});
///
/// keeps   it is checked once, when it is made: there is a worker, no task and no address occurs twice, and this
///         process is one of the tasks. Copies are equal
/// order   ranks of the group: the chief, workers, servers, each by index; evaluators are not members
class Cluster {
 public:
  static constexpr int most = 65'536;  // tasks

  /// Returns the cluster of an environment; see docs/35-clusters.md. Needs <chorale/cluster/from_env.hpp>, which takes
  /// a second longer to compile than this header: it reads JSON.
  ///
  /// throws  BadArgument when a variable cannot be used, or two contradict each other
  template <class Resolve = resolve::FromEnv> static Cluster from_env(Environment const& environment) {
    if constexpr (has_header<Resolve>()) return Resolve::cluster(environment);
    else return local();
  }
  /// Returns the cluster of the environment of this process.
  template <class Resolve = resolve::FromEnv> static Cluster from_env() {
    if constexpr (has_header<Resolve>()) return Resolve::cluster();
    else return local();
  }

  /// Returns a cluster whose tasks are threads of this process; none listens on a port.
  static Cluster local(int workers = 1, int servers = 0) {
    CHORALE_EXPECTS(workers >= 1 && servers >= 0 && workers <= most - servers,
                    "a cluster has at least one worker and at most " + std::to_string(most) + " tasks, got " +
                        std::to_string(workers) + " workers and " + std::to_string(servers) + " servers");
    auto parts = ClusterParts{.found_in = "local"};
    for (int i = 0; i < workers; ++i) parts.tasks.push_back({{Role::worker, i}});
    for (int i = 0; i < servers; ++i) parts.tasks.push_back({{Role::ps, i}});
    auto cluster   = Cluster{std::move(parts)};
    cluster.local_ = true;
    return cluster;
  }

  /// throws  BadArgument
  static Cluster at(ClusterOptions options) {
    auto parts      = ClusterParts{.me = options.me, .job = options.job, .incarnation = options.incarnation};
    auto const take = [&](Role role, std::vector<std::string>& from) {
      int index = 0;
      for (auto& address : from) parts.tasks.push_back({{role, index++}, std::move(address)});
    };
    if (!options.chief.empty()) parts.tasks.push_back({{Role::chief, 0}, std::move(options.chief)});
    take(Role::worker, options.workers);
    take(Role::ps, options.servers);
    take(Role::evaluator, options.evaluators);
    for (auto const& task : parts.tasks) HostPort::parse(task.address, "code: " + task.id.text());  // empty: refused
    return Cluster{std::move(parts)};
  }

  /// throws  BadArgument
  explicit Cluster(ClusterParts parts) : parts_{std::move(parts)} {
    expect(parts_.tasks.size() <= most,
           std::to_string(parts_.tasks.size()) + " tasks are more than " + std::to_string(most),
           "fewer, larger tasks.");
    std::ranges::sort(parts_.tasks, {}, &Task::id);
    expect_tasks();
    expect_addresses();
    count_local();
  }

  int workers() const { return workers_; }  // with the chief
  int servers() const { return static_cast<int>(members_) - workers_; }
  bool has(Role role) const {
    return std::ranges::find(parts_.tasks, role, [](auto& task) { return task.id.role; }) != parts_.tasks.end();
  }

  /// The task of this process; worker 0 when the process is all of them.
  TaskId task() const { return parts_.me; }
  std::vector<Task> const& tasks() const& { return parts_.tasks; }  // in the order of ranks, evaluators last
  std::vector<Task> tasks() && { return std::move(parts_.tasks); }

  /// True if this process is all of the tasks.
  bool is_local() const { return local_; }

  /// True if this task writes checkpoints and logs: the chief, or worker 0 where there is none.
  bool is_chief() const { return task() == TaskId{has(Role::chief) ? Role::chief : Role::worker, 0}; }
  bool is_member() const { return task().role != Role::evaluator; }
  bool is_worker() const { return task().role == Role::chief || task().role == Role::worker; }

  /// throws  BadArgument on an evaluator
  Rank rank() const { return rank_of(task()); }

  /// Rank among the chief and the workers.
  ///
  /// throws  BadArgument on other tasks
  Rank worker_rank() const {
    CHORALE_EXPECTS(is_worker(), task().text() + " has no rank among the " + std::to_string(workers()) + " workers");
    return rank();
  }

  /// throws  BadArgument when the task is not a member of the group
  Rank rank_of(TaskId id) const {
    auto const found = std::ranges::find(parts_.tasks, id, &Task::id);
    CHORALE_EXPECTS(id.role != Role::evaluator && found != parts_.tasks.end(),
                    id.text() + " is no member of the group of " + std::to_string(workers()) + " workers and " +
                        std::to_string(servers()) + " servers");
    return static_cast<Rank>(found - parts_.tasks.begin());
  }

  /// Rank among the workers of this host, or among its servers: to choose a GPU, for example. 0 on an evaluator.
  int local_rank() const { return parts_.local_rank; }
  int local_size() const { return parts_.local_size; }

  /// [rank]: the address on which the rank listens. Empty when all ranks are threads of this process.
  ///
  /// throws  BadArgument when ranks are processes, and their addresses are not known
  std::vector<std::string> addresses() const {
    auto addresses = std::vector<std::string>{};
    if (local_) return addresses;
    if (!has_addresses())
      throw BadArgument{why_no_addresses(),
                        "CHORALE_CLUSTER='{\"worker\": [\"10.0.0.7:2222\", \"10.0.0.8:2222\"]}', by rank."};
    for (std::size_t i = 0; i < members_; ++i) addresses.push_back(parts_.tasks[i].address);
    return addresses;
  }
  /// Rank 0's address, for ranks without addresses; empty where they have addresses, or it is not known. See
  /// RendezvousInfo.
  std::string const& meets_at() const& { return parts_.meets_at; }
  std::string meets_at() && { return std::move(parts_.meets_at); }
  bool has_addresses() const { return members_ > 0 && !parts_.tasks.front().address.empty(); }

  /// The group that a transport connects; each task is one rank.
  ///
  /// throws  BadArgument on an evaluator
  Group group() const {
    auto const size = static_cast<int>(members_);
    return local_ ? Group::all_local(size) : Group{size, {rank()}, meeting()};
  }

  /// How the tasks find and identify each other.
  RendezvousInfo meeting() const {
    auto const known = has_addresses();
    return {.addresses    = known ? addresses() : std::vector<std::string>{},
            .no_addresses = known ? "" : why_no_addresses(),
            .meets_at     = known ? "" : meets_at(),
            .spare_ports  = parts_.spare_ports,
            .job          = job(),
            .incarnation  = incarnation(),
            .lines        = lines()};
  }

  std::string const& job() const& { return parts_.job; }
  std::string job() && { return std::move(parts_.job); }
  std::uint32_t incarnation() const { return parts_.incarnation; }
  std::string const& found_in() const& { return parts_.found_in; }
  std::string found_in() && { return std::move(parts_.found_in); }

  /// One line for each task of the group. All ranks must agree on them: they join the plan that a transport compares.
  std::vector<std::string> lines() const {
    auto lines = std::vector<std::string>{};
    for (std::size_t i = 0; i < members_; ++i)
      lines.push_back("cluster: " + parts_.tasks[i].id.text() +
                      (parts_.tasks[i].address.empty() ? "" : " at " + parts_.tasks[i].address));
    return lines;
  }

  /// One line for people: "cluster: Slurm, rank 3 of 8 on gpu08 (local 3 of 4), master gpu07:23451".
  std::string text() const {
    auto text = "cluster: " + parts_.found_in + ", ";
    auto const groups =
        counted(workers(), "worker") + (servers() > 0 ? " and " + std::to_string(servers()) + " ps" : "");
    if (local_) return text + groups + " in this process";
    auto const on = parts_.host.empty() ? "" : " on " + parts_.host;
    if (!is_member()) return text + task().text() + on + ", beside " + groups;
    if (workers_ != static_cast<int>(parts_.tasks.size())) text += task().text() + ", ";
    text += "rank " + std::to_string(rank()) + " of " + std::to_string(members_) + on + " (local " +
            std::to_string(local_rank()) + " of " + std::to_string(local_size()) + ")";
    if (has_addresses()) return text + ", master " + parts_.tasks.front().address;
    return text + (meets_at().empty() ? "" : ", ranks meet at " + meets_at());
  }

 private:
  friend struct resolve::FromEnv;

  template <class Resolve> static constexpr bool has_header() {
    constexpr bool has = requires { sizeof(Resolve); };
    static_assert(has,
                  "chorale: Cluster::from_env() is in a header of its own. Write #include "
                  "<chorale/processes.hpp>, which also has TcpTransport, or <chorale/cluster/from_env.hpp>. See "
                  "docs/35-clusters.md");
    return has;
  }

  std::string why_no_addresses() const {
    return parts_.found_in + ": " +
           (parts_.no_addresses.empty() ? "the tasks have no addresses." : parts_.no_addresses);
  }

  static std::string counted(int n, std::string_view what) {
    return std::to_string(n) + " " + std::string{what} + (n == 1 ? "" : "s");
  }

  void expect(bool holds, std::string const& what, std::string const& what_to_try) const {
    if (!holds) throw BadArgument{parts_.found_in + ": " + what + ".", what_to_try};
  }

  void expect_tasks() {
    auto const& tasks = parts_.tasks;
    for (std::size_t i = 0; i + 1 < tasks.size(); ++i)
      expect(tasks[i].id != tasks[i + 1].id, tasks[i].id.text() + " is there twice", "one address for each task.");
    auto const up_to = [&](Role role) {
      return std::ranges::count_if(tasks, [&](auto& task) { return task.id.role <= role; });
    };
    workers_          = static_cast<int>(up_to(Role::worker));
    members_          = static_cast<std::size_t>(up_to(Role::ps));
    auto const chiefs = std::ranges::count(tasks, Role::chief, [](auto& t) { return t.id.role; });
    expect(workers_ > 0, "there is no worker and no chief among " + counted(static_cast<int>(tasks.size()), "task"),
           "at least one worker.");
    expect(chiefs <= 1 && (chiefs == 0 || tasks.front().id.index == 0),
           "a job has one chief, chief 0, and this one has " + counted(static_cast<int>(chiefs), "chief"),
           "workers for the others.");
    auto const here = std::ranges::find(tasks, parts_.me, &Task::id) != tasks.end();
    expect(here || parts_.me.role == Role::evaluator,
           "this process is " + parts_.me.text() + ", which is not one of " +
               counted(static_cast<int>(tasks.size()), "task"),
           "a task that the cluster has.");
  }

  void expect_addresses() {
    auto owner       = std::map<std::string_view, TaskId>{};
    auto const known = has_addresses();
    for (auto& task : parts_.tasks) {
      expect(known != task.address.empty(), task.id.text() + (known ? " has no address" : " alone has an address"),
             "an address for each task, or for none.");
      if (!known) continue;
      task.address               = HostPort::parse(task.address, parts_.found_in + ": " + task.id.text()).text();
      auto const [other, is_new] = owner.emplace(task.address, task.id);
      expect(is_new, other->second.text() + " and " + task.id.text() + " have the same address, " + task.address,
             "another host, or another port on the same host.");
    }
  }

  void count_local() {
    auto const is_counted = parts_.local_rank >= 0;
    if (!is_counted) parts_.local_rank = 0, parts_.local_size = 1;
    auto const mine = std::ranges::find(parts_.tasks, task(), &Task::id);
    if (mine == parts_.tasks.end() || mine->address.empty()) return;
    auto const host = HostPort::parse(mine->address).host;
    if (parts_.host.empty()) parts_.host = host;
    if (is_counted || !is_member()) return;
    auto const is_near = [&](Task const& task) {
      return (task.id.role <= Role::worker) == is_worker() && task.id.role != Role::evaluator &&
             HostPort::parse(task.address).host == host;
    };
    parts_.local_rank = static_cast<int>(std::count_if(parts_.tasks.begin(), mine, is_near));
    parts_.local_size = static_cast<int>(std::ranges::count_if(parts_.tasks, is_near));
  }

  ClusterParts parts_;
  int workers_         = 0;  // with the chief
  std::size_t members_ = 0;  // of the group: the first tasks
  bool local_          = false;
};

}  // namespace chorale
