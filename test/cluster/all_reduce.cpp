// SPDX-License-Identifier: Apache-2.0
//
// all_reduce: finds its cluster in the environment, connects with the others by TCP, and adds up rank + 1 over all.
#include <chorale/cluster/exit_report.hpp>
#include <chorale/cluster/from_env.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/tcp.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <iostream>

using namespace chorale;

int main() {
  try {
    auto const cluster = Cluster::from_env();
    std::cout << cluster.text() << std::endl;
    if (!cluster.is_member()) return 0;
    auto transport          = TcpTransport{};
    transport.timeouts.join = std::chrono::seconds{20};
    auto at                 = transport.connect(cluster.group());
    auto x                  = std::array{static_cast<float>(cluster.rank() + 1), 0.5F};
    RingAllReduce{}.all_reduce(at.front(), Span<float>{x}, Op::sum);
    std::cout << "sum " << x[0] << " and " << x[1] << std::endl;
    return 0;
  } catch (std::exception const& error) { return report_exit(error); }
}
