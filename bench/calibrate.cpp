// SPDX-License-Identifier: Apache-2.0
//
// What a message costs between two ranks of this machine: the numbers of a CostModel, for simulations of it.
//
//   tools/run bench/calibrate --json
//
// Two ranks on a core each, where there are two. The fastest of 15 blocks.
//
//   overhead    o: seconds per message of a stream of 4-byte messages in one direction, at most 2/5 of one way
//   latency     alpha: one way of a ping-pong of 4 bytes, less 2 o
//   speed       1/beta: 192 KiB / (256 KiB both ways at once - 64 KiB both ways at once), copies included
//   fold_speed  1/gamma: bytes of float that one core adds to 256 KiB in its cache
#include "support/calibrated.hpp"

#include <chorale/core/error.hpp>

#include <CLI/CLI.hpp>

#include <iostream>

int main(int argc, char** argv) try {
  auto flags = CLI::App{"What a message costs between two ranks of this machine."};
  bool json  = false;
  auto only  = std::string{};
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--only", only, "one transport")->check(CLI::IsMember({"threads", "shared_memory", "tcp"}));
  CLI11_PARSE(flags, argc, argv);
  if (!json) std::printf("%s\n", bench::machine().c_str());
  for (std::string const transport : {"threads", "shared_memory", "tcp"}) {
    if (!only.empty() && only != transport) continue;
    auto const measured = bench::calibrate(transport);
    auto const model    = measured.model();
    bench::Row{"calibrate/" + transport}
        .add("overhead_ns", chorale::seconds(model.overhead) * 1e9, "%.1f")
        .add("latency_ns", chorale::seconds(model.far.latency) * 1e9, "%.1f")
        .add("bytes_per_second", model.far.bytes_per_second)
        .add("fold_bytes_per_second", model.fold_bytes_per_second)
        .add("one_way_4_bytes_us", measured.small)
        .add("both_ways_64_kib_us", measured.medium)
        .add("both_ways_256_kib_us", measured.large)
        .print(json);
  }
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
