// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/cluster/resolvers/slurm.hpp>
#include <chorale/core/types.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::test {

/// Any bytes, as a host list and as tasks per node. What is one is the same when it is written out and read again.
inline void fuzz_hostlist(ConstBytes in) {
  auto const text = std::string_view{reinterpret_cast<char const*>(in.data()), in.size()};
  try {
    auto const hosts = hostlist::hosts(text);
    must(!hosts.empty() && hosts.size() <= hostlist::most, "a list has no hosts, or too many");
    auto written = std::string{};
    for (auto const& host : hosts) {
      must(!host.empty() && host.size() <= HostPort::max_host, "a host has no name, or too long a one");
      if (hosts.size() <= 1000) written += (written.empty() ? "" : ",") + host;
    }
    must(written.empty() || hostlist::hosts(written) == hosts, "what was written is another list");
  } catch (BadArgument const&) {}
  try {
    auto const counts = hostlist::counts(text);
    must(!counts.empty() && counts.size() <= hostlist::most, "there are no nodes, or too many");
    auto written = std::string{};
    for (int const n : counts) {
      must(n > 0, "a node without tasks");
      if (counts.size() <= 1000) written += (written.empty() ? "" : ",") + std::to_string(n);
    }
    must(written.empty() || hostlist::counts(written) == counts, "what was written are other counts");
  } catch (BadArgument const&) {}
}

}  // namespace chorale::test
