// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/cluster/resolvers/hosts.hpp>

#include <cstddef>
#include <string>

namespace chorale::test {

/// Any bytes as a file of hosts. What is one is the same when its addresses are written out and read again.
inline void fuzz_hosts_lines(ConstBytes in) {
  try {
    auto const text  = std::string{reinterpret_cast<char const*>(in.data()), in.size()};
    auto const tasks = resolve::hosts_of_lines(text, "f", 2222);
    must(tasks.size() <= static_cast<std::size_t>(Cluster::most), "too many tasks");
    auto written = std::string{};
    for (auto const& task : tasks) {
      static_cast<void>(HostPort::parse(task.address));
      if (tasks.size() <= 1000) written += task.address + "\n";
    }
    must(written.empty() || resolve::hosts_of_lines(written, "f", 1) == tasks, "what was written are other hosts");
  } catch (BadArgument const&) {}
}

}  // namespace chorale::test
