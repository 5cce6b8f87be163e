// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/observe/json.hpp>

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/environment.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Clusters that are written as JSON: TF_CONFIG, and CHORALE_CLUSTER with CHORALE_TASK.
namespace chorale::resolve {

inline constexpr std::size_t max_json_bytes = 8U << 20;
inline constexpr std::size_t max_json_depth = 16;

/// A part of a JSON text and its path, "TF_CONFIG: cluster.worker[2]", with which every error begins.
class JsonPart {
 public:
  JsonPart(nlohmann::json const& value, std::string where) : value_{&value}, where_{std::move(where)} {}

  nlohmann::json const& value() const { return *value_; }
  std::string const& where() const { return where_; }

  bool has(char const* key) const { return value_->contains(key); }
  JsonPart operator[](std::string const& key) const {
    return {value_->at(key), where_ + (where_.ends_with(':') ? " " : ".") + key};
  }
  JsonPart operator[](std::size_t i) const { return {value_->at(i), where_ + "[" + std::to_string(i) + "]"}; }

  std::string const& text() const {
    if (!value_->is_string()) fail("is " + kind() + ", and must be a text", "quotes around it.");
    return value_->get_ref<std::string const&>();
  }

  /// A number, or a text of digits, as some tools write it.
  int index() const {
    if (value_->is_number_unsigned()) {
      auto const n = value_->get<std::uint64_t>();
      if (n <= max_index) return static_cast<int>(n);
    } else if (value_->is_string()) {
      if (auto const n = whole_number(text(), max_index)) return *n;
    }
    fail("is " + kind() + ", and must be a whole number from 0 on", "0");
  }

  void expect_object() const {
    if (!value_->is_object()) fail("is " + kind() + ", and must be an object", "{...}");
  }

  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    throw BadArgument{where_ + (where_.ends_with(':') ? " it " : " ") + what + ".", what_to_try};
  }

  std::string kind() const {
    if (value_->is_string()) return in_quotes(value_->get_ref<std::string const&>());
    if (value_->is_number() || value_->is_boolean() || value_->is_null()) return value_->dump();
    return value_->is_object() ? "an object" : "an array";
  }

  static constexpr int max_index = 1'000'000'000;

 private:
  nlohmann::json const* value_;
  std::string where_;
};

inline constexpr auto tf_example =
    R"({"cluster": {"worker": ["10.0.0.7:2222"]}, "task": {"type": "worker", "index": 0}})";

/// throws  BadArgument when the text is not JSON, too large or too deep, or has a key twice
inline nlohmann::json json_of(std::string_view text, std::string const& name, std::string const& example = tf_example) {
  auto const fault = [&](std::string const& what, std::string const& what_to_try) {
    throw BadArgument{name + ": " + what + ".", what_to_try.empty() ? example : what_to_try};
  };
  return parse_json(text, {max_json_bytes, max_json_depth}, fault);
}

/// Returns the role of a word of TensorFlow, which once called the chief "master", or of Vertex AI.
inline std::optional<Role> role_of_word(std::string_view word) {
  if (word == "master") return Role::chief;
  for (std::size_t i = 0; i < role_names.size(); ++i)  // workerpool0 is the primary replica
    if (word == "workerpool" + std::to_string(i)) return static_cast<Role>(i);
  return role_named(word);
}

/// The tasks of {"worker": ["h1:2222", "h2:2222"], "ps": {"1": "h3:2222"}}.
///
/// throws  BadArgument
inline std::vector<Task> tasks_of(JsonPart const& cluster) {
  cluster.expect_object();
  auto tasks      = std::vector<Task>{};
  auto const take = [&](Role role, int index, JsonPart const& at) {
    tasks.push_back({{role, index}, HostPort::parse(at.text(), at.where()).text()});
  };
  for (auto const& [key, value] : cluster.value().items()) {
    auto const role = role_of_word(key);
    auto const all =
        JsonPart{value, cluster.where() + (cluster.where().ends_with(':') ? " " : ".") + (role ? key : in_quotes(key))};
    if (!role) all.fail("is no role", "chief, worker, ps or evaluator.");
    if (key == "master" && cluster.has("chief")) all.fail("is an old word for chief, which is there, too", "chief.");
    if (value.size() > static_cast<std::size_t>(Cluster::most))
      all.fail("has " + std::to_string(value.size()) + " tasks, above " + std::to_string(Cluster::most), "fewer.");
    if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) take(*role, static_cast<int>(i), all[i]);
    } else if (value.is_object()) {
      for (auto const& [index, address] : value.items()) {
        auto const at = JsonPart{address, all.where() + "[" + in_quotes(index) + "]"};
        auto const n  = whole_number(index, JsonPart::max_index);
        if (!n) at.fail("has a key that is no index of a task", "\"0\"");
        take(*role, *n, at);
      }
    } else {
      all.fail("is " + all.kind() + ", and must be an array of addresses", "[\"10.0.0.7:2222\"]");
    }
  }
  return tasks;
}

/// throws  BadArgument when the cluster has no such task; an evaluator need not be in it
inline void expect_there(std::vector<Task> const& tasks, TaskId me, std::string const& where) {
  if (me.role == Role::evaluator || std::ranges::find(tasks, me, &Task::id) != tasks.end()) return;
  auto indices = std::vector<int>{};
  for (auto const& task : tasks)
    if (task.id.role == me.role) indices.push_back(task.id.index);
  std::ranges::sort(indices);
  auto const role = std::string{name(me.role)};
  auto const n    = std::to_string(indices.size());
  throw BadArgument{where + ": " + me.text() + ", but the cluster has " +
                        (indices.empty() ? "no " + role
                                         : n + " of role " + role + ", from " + std::to_string(indices.front()) +
                                               " to " + std::to_string(indices.back())) +
                        ".",
                    indices.empty() ? "a role that is in the cluster." : "an index that is in the cluster."};
}

/// Returns the cluster of a TF_CONFIG; nothing if that describes one process: no cluster, and no task but the first.
///
/// variable  TF_CONFIG, or CLUSTER_SPEC, which Vertex AI sets in every container of a job: it has the same form, and
///           its roles are called workerpool0 (the chief), workerpool1 (workers), workerpool2 (servers) and
///           workerpool3 (evaluators)
/// throws    BadArgument with the path of the error: TF_CONFIG: cluster.worker[2]: "h2" has no port.
/// source    tf.distribute.cluster_resolver.TFConfigClusterResolver
inline std::optional<ClusterParts> tf_config(std::string_view text, std::string const& variable = "TF_CONFIG") {
  if (text.find_first_not_of(" \t\r\n") == text.npos) return std::nullopt;
  auto const json = json_of(text, variable);
  auto const all  = JsonPart{json, variable + ":"};
  all.expect_object();
  auto parts = ClusterParts{.found_in = variable};
  if (all.has("cluster")) parts.tasks = tasks_of(all["cluster"]);
  if (!all.has("task")) {
    if (parts.tasks.empty()) return std::nullopt;
    all.fail("has a cluster and no task", "\"task\": {\"type\": \"worker\", \"index\": 0}");
  }
  auto const task = all["task"];
  task.expect_object();
  for (auto const* const key : {"type", "index"})
    if (!task.has(key)) task.fail("has no " + std::string{key}, R"({"type": "worker", "index": 0})");
  auto const type = task["type"].text();
  auto const role = role_of_word(type);
  if (!role) task["type"].fail("is " + in_quotes(type) + ", which is no role", "chief, worker, ps or evaluator.");
  parts.me = {*role, task["index"].index()};
  if (parts.tasks.empty() && (parts.me == TaskId{} || parts.me == TaskId{Role::chief, 0})) return std::nullopt;
  expect_there(parts.tasks, parts.me, variable + ": task");
  return parts;
}

/// Returns the task of a text such as "worker:0", as CHORALE_TASK has it.
///
/// throws  BadArgument
inline TaskId task_named(std::string_view text) {
  auto const colon = text.find(':');
  auto const role  = role_named(text.substr(0, colon));
  auto const rest  = colon == text.npos ? std::string_view{} : text.substr(colon + 1);
  auto const index = whole_number(rest, JsonPart::max_index);
  if (!role || !index)
    throw BadArgument{"CHORALE_TASK is " + in_quotes(text) + ", and must be a role and an index.",
                      "CHORALE_TASK=worker:0"};
  return {*role, *index};
}

/// Returns the cluster of CHORALE_CLUSTER, which is the "cluster" of a TF_CONFIG alone, and CHORALE_TASK, "worker:0";
/// nothing when neither is set.
///
/// rank    of this process among all sorted tasks, when a launcher gives it: then CHORALE_TASK may be absent;
///         else -1
/// throws  BadArgument
inline std::optional<ClusterParts> own_variables(Environment const& env, Rank rank = -1) {
  auto const text = env.get("CHORALE_CLUSTER"), task = env.get("CHORALE_TASK");
  auto const has_hosts = env.has("CHORALE_HOSTS") || env.has("CHORALE_HOSTS_FILE");  // see listed_hosts()
  if (text.empty() && (task.empty() || has_hosts)) return std::nullopt;
  if (text.empty())
    throw BadArgument{"CHORALE_TASK is " + in_quotes(task) + ", but CHORALE_CLUSTER is not set.",
                      "CHORALE_CLUSTER='{\"worker\": [\"10.0.0.7:2222\", \"10.0.0.8:2222\"]}'"};
  auto const json = json_of(text, "CHORALE_CLUSTER");
  auto parts      = ClusterParts{.found_in = "CHORALE_CLUSTER"};
  parts.tasks     = tasks_of(JsonPart{json, "CHORALE_CLUSTER:"});
  if (task.empty()) {
    if (rank < 0) throw BadArgument{"CHORALE_CLUSTER is set, but CHORALE_TASK is not.", "CHORALE_TASK=worker:0"};
    std::ranges::sort(parts.tasks, {}, &Task::id);
    if (static_cast<std::size_t>(rank) >= parts.tasks.size())
      throw BadArgument{"CHORALE_CLUSTER: rank " + std::to_string(rank) + ", but there are " +
                            std::to_string(parts.tasks.size()) + " tasks.",
                        "as many tasks as ranks."};
    parts.me = parts.tasks[static_cast<std::size_t>(rank)].id;
    return parts;
  }
  parts.me = task_named(task);
  expect_there(parts.tasks, parts.me, "CHORALE_TASK");
  return parts;
}

}  // namespace chorale::resolve
