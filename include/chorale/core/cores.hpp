// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace chorale {

/// Where the limits of a process's control group are read from. Other paths are for tests.
struct CgroupFiles {
  std::string process = "/proc/self/cgroup";  // names the control group of this process
  std::string root    = "/sys/fs/cgroup";     // where control groups are mounted
};

namespace detail {

/// The integer that a text contains, apart from spaces around it; nothing if the text is not an integer.
inline std::optional<long long> whole_number(std::string_view text) {
  auto const spaces = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!text.empty() && spaces(text.front())) text.remove_prefix(1);
  while (!text.empty() && spaces(text.back())) text.remove_suffix(1);
  auto value              = 0LL;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

inline std::optional<std::string> text_of(std::string const& path) {
  auto file = std::ifstream{path};
  if (!file) return {};
  return std::string{std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace detail

/// CPU quota, in cores, of a control group of version 2.
///
/// cpu_max   text of cpu.max: "150000 100000", microseconds in each period, or "max 100000"
/// returns   nothing without a quota, or if the text is invalid
inline std::optional<double> quota_of(std::string_view cpu_max) {
  auto const gap    = cpu_max.find(' ');
  auto const quota  = detail::whole_number(cpu_max.substr(0, gap));
  auto const period = gap == cpu_max.npos ? std::optional{100'000LL} : detail::whole_number(cpu_max.substr(gap));
  if (!quota || !period || *quota <= 0 || *period <= 0) return {};
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// CPU quota, in cores, of a control group of version 1.
///
/// quota, period   texts of cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 means that there is none
inline std::optional<double> quota_of(std::string_view quota, std::string_view period) {
  auto const q = detail::whole_number(quota), p = detail::whole_number(period);
  if (!q || !p || *q <= 0 || *p <= 0) return {};
  return static_cast<double>(*q) / static_cast<double>(*p);
}

/// Path of a process's control group for CPUs, "/" for the root.
///
/// groups    text of /proc/self/cgroup: "0::/user.slice" in version 2, "4:cpu,cpuacct:/docker/1f" in version 1
/// version   2 or 1
/// returns   nothing if the process has none of that version
inline std::optional<std::string> cgroup_path(std::string_view groups, int version) {
  while (!groups.empty()) {
    auto const line   = groups.substr(0, groups.find('\n'));
    groups            = groups.substr(std::min(line.size() + 1, groups.size()));
    auto const first  = line.find(':');
    auto const second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    auto const controllers = std::string{","}.append(line.substr(first + 1, second - first - 1)) + ",";
    auto const matches     = version == 2 ? line.starts_with("0::") : controllers.find(",cpu,") != std::string::npos;
    if (matches) return std::string{line.substr(second + 1)};
  }
  return {};
}

/// Smallest CPU quota, in cores, of the control groups that this process is in: its own and all above it.
///
/// returns   nothing if none has a quota, or without control groups
inline std::optional<double> cgroup_quota(CgroupFiles const& files = {}) {
  auto const groups = detail::text_of(files.process);
  auto least        = std::optional<double>{};
  if (!groups) return least;
  auto const take = [&](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  auto const upward = [](std::string path, auto&& look) {  // a container may see its own group as the root
    for (;;) {
      while (path.ends_with('/')) path.pop_back();
      look(path);
      if (path.empty()) return;
      path.resize(std::min(path.size(), path.rfind('/') == std::string::npos ? 0 : path.rfind('/')));
    }
  };
  if (auto const path = cgroup_path(*groups, 2))
    upward(*path, [&](std::string const& at) {
      if (auto const text = detail::text_of(files.root + at + "/cpu.max")) take(quota_of(*text));
    });
  if (auto const path = cgroup_path(*groups, 1))
    upward(*path, [&](std::string const& at) {
      for (auto const* mount : {"/cpu", "/cpu,cpuacct"}) {
        auto const quota  = detail::text_of(files.root + mount + at + "/cpu.cfs_quota_us");
        auto const period = detail::text_of(files.root + mount + at + "/cpu.cfs_period_us");
        if (quota && period) take(quota_of(*quota, *period));
      }
    });
  return least;
}

/// The cores that the calling thread may run on, by its affinity; at least one.
inline std::vector<int> allowed_cores() {
  auto set   = cpu_set_t{};
  auto cores = std::vector<int>{};
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (std::size_t i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) cores.push_back(static_cast<int>(i));
  return cores.empty() ? std::vector<int>{0} : cores;
}

/// CPU quota, in cores, of this process, which is read once; nothing if there is none. See cgroup_quota.
inline std::optional<double> cpu_quota() {
  static auto const quota = cgroup_quota();
  return quota;
}

/// Number of cores that this process can keep busy: the cores that the calling thread may run on, but at most its
/// quota, rounded up.
inline int usable_cores() {
  auto const quota = cpu_quota();
  auto const cores = static_cast<int>(allowed_cores().size());
  return quota && *quota < cores ? static_cast<int>(std::ceil(*quota)) : cores;
}

/// Number of cores that all processes of this host may use together: each process may be bound to other cores. At most
/// the quota, which they share.
inline int host_cores() {
  auto const quota = cpu_quota();
  auto const cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return quota && *quota < cores ? static_cast<int>(std::ceil(*quota)) : cores;
}

}  // namespace chorale
