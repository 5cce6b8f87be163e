// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/host_port.hpp>
#include <chorale/cluster/launch_info.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The lists in which Slurm writes nodes, and the tasks on each.
namespace chorale::hostlist {

inline constexpr std::size_t most           = 65'536;     // hosts in a list, and tasks on a host
inline constexpr std::size_t max_characters = 64 * most;  // of all names together

/// Parser of a list, from left to right.
///
///   list  := item (',' item)*            gpu[08-10],login      gpu08 gpu09 gpu10 login
///   item  := (text | '[' range (',' range)* ']')+              r[1-2]n[1-2]: r1n1 r1n2 r2n1 r2n2
///   range := n | n '-' m                 as many digits as n has, at least
class Reader {
 public:
  Reader(std::string_view text, std::string where) : text_{text}, where_{std::move(where)} {}

  std::vector<std::string> hosts() {
    auto hosts = std::vector<std::string>{};
    do {
      auto all = item(most - hosts.size());
      characters_ += all.size() * all.back().size();  // the longest
      std::ranges::move(all, std::back_inserter(hosts));
    } while (take(','));
    if (at_ != text_.size()) fail("what follows is no part of a host", "a list such as gpu[08-10],login1.");
    return hosts;
  }

  /// "2(x3),1": 2 2 2 1
  std::vector<int> counts() {
    auto counts = std::vector<int>{};
    do {
      auto const n = number(most);
      auto times   = std::size_t{1};
      if (take('(')) {
        if (!take('x')) fail("an x is needed here", "2(x3) for 2,2,2.");
        times = number(most);
        if (!take(')')) fail("a ) is needed here", "2(x3) for 2,2,2.");
      }
      if (n == 0 || times == 0) fail("there is a 0 before this", "nodes that have tasks.");
      if (times > most - counts.size()) fail_too_many();
      counts.insert(counts.end(), times, static_cast<int>(n));
    } while (take(','));
    if (at_ != text_.size()) fail("what follows is no number", "a list such as 2(x3),1.");
    return counts;
  }

 private:
  static bool is_text(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!is_at(c)) return false;
    ++at_;
    return true;
  }

  /// Reads the digits at this place.
  std::string_view digits() {
    auto const begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) fail("a number is needed here", "a list such as gpu[08-10],login1.");
    return text_.substr(begin, at_ - begin);
  }
  std::size_t number(std::size_t limit) { return value(digits(), limit); }
  std::size_t value(std::string_view all, std::size_t limit) const {
    auto const n = whole_number(all, std::numeric_limits<int>::max());
    if (!n || static_cast<std::size_t>(*n) > limit)
      fail("the number before this is above " + std::to_string(limit), "a smaller number.");
    return static_cast<std::size_t>(*n);
  }

  /// Reads one item and expands it; `room` hosts at most.
  std::vector<std::string> item(std::size_t room) {
    auto hosts       = std::vector<std::string>{{}};
    auto const begin = at_;
    if (room == 0) fail_too_many();
    while (at_ < text_.size() && (is_text(text_[at_]) || is_at('['))) {
      auto const from = at_;
      while (at_ < text_.size() && is_text(text_[at_])) ++at_;
      expect_short(hosts.size(), hosts.back().size() + at_ - from);
      for (auto& host : hosts) host += text_.substr(from, at_ - from);
      if (take('[')) hosts = times(hosts, ranges(room / hosts.size()));
      if (hosts.front().size() > HostPort::max_host)  // before it is copied once more
        fail("a host has more than " + std::to_string(HostPort::max_host) + " characters", "a shorter name.");
    }
    if (at_ == begin) fail("a host is needed here", "a list such as gpu[08-10],login1.");
    return hosts;
  }

  /// Refuses names that have too many characters together, before they are written.
  void expect_short(std::size_t hosts, std::size_t length) const {
    if (hosts * length > max_characters - std::min(max_characters, characters_))
      fail("the names have more than " + std::to_string(max_characters) + " characters together", "shorter names.");
  }

  std::vector<std::string> times(std::vector<std::string> const& heads, std::vector<std::string> const& tails) const {
    expect_short(heads.size() * tails.size(), heads.back().size() + tails.back().size());
    auto all = std::vector<std::string>{};
    for (auto const& head : heads)
      for (auto const& tail : tails) all.push_back(head + tail);
    return all;
  }

  /// Reads the ranges in brackets and expands them; `room` texts at most.
  std::vector<std::string> ranges(std::size_t room) {
    auto all = std::vector<std::string>{};
    do {
      auto const first_text = digits();
      auto const first      = value(first_text, max_number);
      auto const last       = take('-') ? number(max_number) : first;
      if (last < first) fail("the range before this goes backwards", "[8-10].");
      if (first_text.size() > max_digits) fail("the number before this has too many digits", "a shorter number.");
      if (last - first >= room - std::min(room, all.size())) fail_too_many();
      for (auto n = first; n <= last; ++n) {
        auto const text = std::to_string(n);
        all.push_back(std::string(first_text.size() - std::min(first_text.size(), text.size()), '0') + text);
      }
    } while (take(','));
    if (!take(']')) fail("a ] is needed here", "a list such as gpu[08-10],login1.");
    return all;
  }

  [[noreturn]] void fail_too_many() const {
    fail("there are more than " + std::to_string(most) + " hosts", "a smaller job.");
  }
  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    throw BadArgument{where_ + ": " + in_quotes(text_) + ", character " + std::to_string(at_ + 1) + ": " + what + ".",
                      what_to_try};
  }

  static constexpr std::size_t max_number = 999'999'999, max_digits = 18;

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0, characters_ = 0;  // of the hosts before this item
};

/// "gpu[08-10],login": gpu08 gpu09 gpu10 login; at most 65,536.
///
/// where   beginning of an error, such as the name of a variable
/// throws  BadArgument
inline std::vector<std::string> hosts(std::string_view text, std::string const& where = "host list") {
  return Reader{text, where}.hosts();
}

/// "2(x3),1": 2 2 2 1, the tasks on each node.
///
/// throws  BadArgument
inline std::vector<int> counts(std::string_view text, std::string const& where = "tasks per node") {
  return Reader{text, where}.counts();
}

}  // namespace chorale::hostlist

namespace chorale::resolve {

/// Resolver for a step of a Slurm job: srun. A shell in an allocation does not count, nor does a step of one task.
///
/// order   ranks are on nodes in blocks, the first ones on the first node
struct Slurm {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    auto const world = env.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}, 1, Cluster::most);
    if (!env.has("SLURM_STEP_ID") || !env.has("SLURM_PROCID") || !world || *world == 1) return std::nullopt;
    auto launch        = LaunchInfo{.by = "Slurm"};
    launch.world       = *world;
    launch.rank        = *env.number("SLURM_PROCID", 0, Cluster::most);
    launch.job         = "Slurm " + std::string{env.get("SLURM_JOB_ID")} + "." + std::string{env.get("SLURM_STEP_ID")};
    launch.host        = env.get("SLURMD_NODENAME");
    auto const again   = env.number("SLURM_RESTART_COUNT", 0, 1'000'000'000).value_or(0);
    launch.incarnation = static_cast<std::uint32_t>(again);
    return checked(launch);
  }

  /// throws  BadArgument when the lists of nodes and tasks do not match each other, or the variables of this task
  static void place(Environment const& env, LaunchInfo& launch) {
    auto const nodes = hosts_of(env);
    auto const tasks = tasks_of(env, nodes.size());
    auto const sum   = std::accumulate(tasks.begin(), tasks.end(), std::size_t{0},
                                       [](auto n, int more) { return n + static_cast<std::size_t>(more); });
    if (sum != static_cast<std::size_t>(launch.world))
      throw BadArgument{"Slurm: " + std::to_string(launch.world) + " tasks, but the tasks on all nodes are " +
                            std::to_string(sum) + " in " + std::string{tasks_name(env)} + ".",
                        "srun without variables of another step."};
    auto const port = base_port(env);
    auto places     = std::vector<std::size_t>{};  // [rank]: node
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      if (port + tasks[node] - 1 > 65'535)
        throw BadArgument{"Slurm: " + std::to_string(tasks[node]) + " tasks on " + nodes[node] + " from port " +
                              std::to_string(port) + " on need port " + std::to_string(port + tasks[node] - 1) +
                              ", above 65535.",
                          "CHORALE_PORT=20000"};
      for (int local = 0; local < tasks[node]; ++local) {
        if (static_cast<int>(places.size()) == launch.rank) expect_here(env, launch, node, local, tasks[node]);
        launch.addresses.push_back(HostPort{nodes[node], port + local}.text());
        places.push_back(node);
      }
    }
    if (launch.host.empty()) launch.host = nodes[places[static_cast<std::size_t>(launch.rank)]];
  }

 private:
  static std::vector<std::string> hosts_of(Environment const& env) {
    auto const name = env.first_name({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (name.empty())
      throw BadArgument{"Slurm: SLURM_STEP_NODELIST is not set, so that nobody knows where the other tasks are.",
                        "srun, or CHORALE_CLUSTER with the addresses."};
    return hostlist::hosts(env.get(name), std::string{name});
  }

  static std::string_view tasks_name(Environment const& env) {
    return env.first_name({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  }

  static std::vector<int> tasks_of(Environment const& env, std::size_t nodes) {
    auto const name = tasks_name(env);
    if (name.empty())
      throw BadArgument{"Slurm: SLURM_STEP_TASKS_PER_NODE is not set, so that nobody knows which task is where.",
                        "srun, or CHORALE_CLUSTER with the addresses."};
    auto tasks = hostlist::counts(env.get(name), std::string{name});
    if (tasks.size() != nodes)
      throw BadArgument{"Slurm: " + std::string{name} + " is for " + std::to_string(tasks.size()) +
                            " nodes, and the list of nodes has " + std::to_string(nodes) + ".",
                        "srun without variables of another step."};
    return tasks;
  }

  static int base_port(Environment const& env) {
    if (auto const own = env.number("CHORALE_PORT", 1, 65'535)) return *own;
    return 20'000 + env.number({"SLURM_JOB_ID", "SLURM_JOBID"}, 0, 2'147'483'647).value_or(0) % 20'000;
  }

  /// Checks that this task is where a distribution in blocks puts it: number `local` of `size` on `node`.
  static void expect_here(Environment const& env, LaunchInfo& launch, std::size_t node, int local, int size) {
    auto const expect = [&](std::string const& name, int in_blocks) {
      auto const said = env.number(name, 0, Cluster::most).value_or(in_blocks);
      if (said != in_blocks)
        throw BadArgument{"Slurm: task " + std::to_string(launch.rank) + " has " + name + "=" + std::to_string(said) +
                              ", but would have " + std::to_string(in_blocks) + " if tasks lay on nodes in blocks.",
                          "srun --distribution=block"};
    };
    expect("SLURM_NODEID", static_cast<int>(node));
    expect("SLURM_LOCALID", local);
    launch.local_rank = local;
    launch.local_size = size;
  }
};

static_assert(Resolver<Slurm>);

}  // namespace chorale::resolve
