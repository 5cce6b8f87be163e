// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/host_port.hpp>
#include <chorale/cluster/resolvers/slurm.hpp>
#include <chorale/cluster/resolvers/tf_config.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Clusters that are written as a list of hosts, all of whose tasks are workers: CHORALE_HOSTS and CHORALE_HOSTS_FILE.
namespace chorale::resolve {

inline constexpr int default_port = 2222;  // as in the examples of TensorFlow

/// Returns the text of a file that a variable names.
///
/// throws  BadArgument when it cannot be read, is not a regular file, or is larger than 8 MiB
inline std::string file_named(std::string const& path, std::string const& variable) {
  auto text = std::string{};
  try {
    auto const file = InputFile{path};
    text.resize(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), max_json_bytes + 1)));
    text.resize(file.read_at(0, std::as_writable_bytes(Span<char>{text})));
  } catch (BadFile const& error) {
    auto const said = std::string_view{error.what()};  // "chorale: path: why.", and what to try
    throw BadArgument{variable + ": " + printable(said.substr(9, said.find('\n') - 9)),
                      "a file that every task can read."};
  }
  if (text.size() > max_json_bytes)
    throw BadArgument{variable + ": " + in_quotes(path) + " has more than " + std::to_string(max_json_bytes) +
                          " bytes, which is the limit.",
                      "a smaller one."};
  return text;
}

/// Collects workers. A worker without a port gets the next port after the previous such worker on the same host.
class HostList {
 public:
  explicit HostList(int first_port) : first_port_{first_port} {}

  /// where   beginning of an error: "hosts: line 3"
  /// throws  BadArgument when there are too many workers, or no port is left, or the addresses are too long together
  void add(std::string const& host, std::string const& where) {
    auto const port = first_port_ + on_host_[host]++;
    if (port > 65'535)
      throw BadArgument{where + ": " + std::to_string(on_host_[host]) + " workers on " + host + " from port " +
                            std::to_string(first_port_) + " on need port " + std::to_string(port) + ", above 65535.",
                        "CHORALE_PORT=20000"};
    add(HostPort{host, port}, where);
  }
  void add(HostPort const& at, std::string const& where) {
    if (tasks_.size() == static_cast<std::size_t>(Cluster::most))
      throw BadArgument{where + ": there are more than " + std::to_string(Cluster::most) + " workers.",
                        "a smaller job."};
    auto address = at.text();
    characters_ += address.size();
    if (characters_ > hostlist::max_characters)
      throw BadArgument{where + ": the addresses of " + std::to_string(tasks_.size() + 1) + " workers have more than " +
                            std::to_string(hostlist::max_characters) + " characters together.",
                        "shorter names."};
    tasks_.push_back({{Role::worker, static_cast<int>(tasks_.size())}, std::move(address)});
  }

  std::vector<Task> tasks() && { return std::move(tasks_); }

 private:
  int first_port_;
  std::map<std::string, int, std::less<>> on_host_;  // workers without a port of their own
  std::vector<Task> tasks_;
  std::size_t characters_ = 0;  // of all addresses
};

/// Returns the workers of a hosts file: one host in a line, as mpirun reads it.
///
///   # comment
///   node7 slots=2                  two workers, on the first port and the next one
///   10.0.0.8:4400                  one worker on this port
///
/// path    of the file, for errors
/// throws  BadArgument
inline std::vector<Task> hosts_of_lines(std::string const& text, std::string const& path, int first_port) {
  auto list  = HostList{first_port};
  auto lines = std::istringstream{text};
  auto line  = std::string{};
  for (int number = 1; std::getline(lines, line); ++number) {
    auto const where = "CHORALE_HOSTS_FILE: " + printable(path) + ", line " + std::to_string(number);
    auto words       = std::istringstream{line.substr(0, line.find('#'))};
    auto host = std::string{}, slots = std::string{}, rest = std::string{};
    if (!(words >> host)) continue;
    words >> slots >> rest;
    auto const has_port = host.find(':') != host.npos;
    auto const at       = HostPort::parse(has_port ? host : host + ":1", where);
    constexpr auto word = std::string_view{"slots="};
    auto const times    = slots.empty()             ? 1  // 0: not a number
                          : slots.starts_with(word) ? whole_number(slots.substr(word.size()), Cluster::most).value_or(0)
                                                    : 0;
    if (!rest.empty() || times == 0)
      throw BadArgument{where + ": after the host there may be slots= and a number from 1 on, and not " +
                            in_quotes(slots + (rest.empty() ? "" : " " + rest)) + ".",
                        "node7 slots=2"};
    if (has_port && times != 1)
      throw BadArgument{
          where + ": " + std::to_string(times) + " workers cannot have the same address, " + at.text() + ".",
          "a line for each, or no port."};
    for (int i = 0; i < times; ++i) has_port ? list.add(at, where) : list.add(at.host, where);
  }
  return std::move(list).tasks();
}

/// Returns the name of this host.
inline std::string this_host() {
  auto name = std::array<char, HostPort::max_host + 1>{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string{name.data()} : std::string{};
}

/// Returns the one task on this host.
///
/// here    name of this host, with or without its domain
/// throws  BadArgument when no task is on it, or more than one is
inline TaskId task_on(std::string const& here, std::vector<Task> const& tasks, std::string const& variable) {
  auto const short_of = [](std::string_view host) { return std::string{host.substr(0, host.find('.'))}; };
  auto const lower    = HostPort::parse(here + ":1", variable + ": the name of this host, with a port").host;
  auto const is_here  = [&](Task const& task) {
    auto const host = HostPort::parse(task.address).host;
    return host == lower || host == short_of(lower) || short_of(host) == lower;
  };
  auto const found = std::ranges::find_if(tasks, is_here);
  auto const n     = std::ranges::count_if(tasks, is_here);
  if (n != 1)
    throw BadArgument{variable + ": this host is " + in_quotes(here) + ", on which " +
                          (n == 0 ? "none" : std::to_string(n)) + " of the " + std::to_string(tasks.size()) +
                          " workers are, and CHORALE_TASK does not say which of them this is.",
                      "CHORALE_TASK=worker:0, or mpirun or srun, which number the processes."};
  return found->id;
}

/// Returns the cluster of CHORALE_HOSTS, a list in the form of Slurm's, or of CHORALE_HOSTS_FILE; nothing when neither
/// is set. All tasks are workers, in the order of the list, on CHORALE_PORT or 2222.
///
/// rank    of this process, when a launcher gives it; else -1. CHORALE_TASK comes first; without both it is
///         JOB_COMPLETION_INDEX of an Indexed Job of Kubernetes, or the rank of the only worker on this host
/// here    name of this host
/// throws  BadArgument
inline std::optional<ClusterParts> listed_hosts(Environment const& env, Rank rank = -1,
                                                std::string const& here = this_host()) {
  auto const in_file = env.has("CHORALE_HOSTS_FILE");
  if (!in_file && !env.has("CHORALE_HOSTS")) return std::nullopt;
  if (in_file && env.has("CHORALE_HOSTS"))
    throw BadArgument{"CHORALE_HOSTS and CHORALE_HOSTS_FILE are both set.", "one of the two."};
  auto const variable = std::string{in_file ? "CHORALE_HOSTS_FILE" : "CHORALE_HOSTS"};
  auto const value    = std::string{env.get(variable)};
  auto const port     = env.number("CHORALE_PORT", 1, 65'535).value_or(default_port);
  auto parts          = ClusterParts{.found_in = variable};
  if (in_file) {
    parts.tasks = hosts_of_lines(file_named(value, variable), value, port);
  } else {
    auto list = HostList{port};
    for (auto const& host : hostlist::hosts(value, variable))
      list.add(HostPort::parse(host + ":1", variable).host, variable);
    parts.tasks = std::move(list).tasks();
  }
  if (parts.tasks.empty())
    throw BadArgument{variable + ": " + in_quotes(value) + " has no host.", "one host in a line."};
  if (env.has("CHORALE_TASK")) {
    parts.me = task_named(env.get("CHORALE_TASK"));
    expect_there(parts.tasks, parts.me, "CHORALE_TASK");
    return parts;
  }
  auto from = std::string{"the launcher's rank"};
  if (rank < 0 && env.has("JOB_COMPLETION_INDEX")) {
    rank = *env.number("JOB_COMPLETION_INDEX", 0, Cluster::most);
    from = "JOB_COMPLETION_INDEX";
  }
  if (rank >= static_cast<int>(parts.tasks.size()))
    throw BadArgument{variable + ": " + from + " is " + std::to_string(rank) + ", but there are " +
                          std::to_string(parts.tasks.size()) + " workers.",
                      "as many hosts as tasks."};
  parts.me = rank >= 0 ? TaskId{Role::worker, rank} : task_on(here, parts.tasks, variable);
  return parts;
}

/// Refuses the index of a Kubernetes Job without the hosts of the others: each pod would train alone. Kubeflow's Trainer
/// makes such a Job for one node, too, and then sets PET_NNODES to 1.
///
/// throws  BadArgument
inline void expect_hosts(Environment const& env) {
  if (!env.has("JOB_COMPLETION_INDEX") || env.get("PET_NNODES") == "1") return;
  throw BadArgument{"Kubernetes: JOB_COMPLETION_INDEX=" + printable(env.get("JOB_COMPLETION_INDEX")) +
                        " is set without CHORALE_HOSTS, so that nobody knows where the other pods are.",
                    "CHORALE_HOSTS='train-[0-3].train', the job, its indices and its service; or env -u "
                    "JOB_COMPLETION_INDEX, for pods that train alone."};
}

}  // namespace chorale::resolve
