// SPDX-License-Identifier: Apache-2.0
//
// What a message costs between two ranks of this machine: the numbers of a NetworkModel, for simulations of it.
//
//   tools/run bench/calibrate --json
//
// All ranks at once, each sending to the next one while it receives; a core each, where there are as many. The median
// of 15 rounds, for messages of 4, 64 and 256 KiB.
//
//   overhead    o: seconds per message of a stream of 4-byte messages in one direction, at most 2/5 of an exchange
//   latency     alpha: an exchange of 4 bytes, less 2 o
//   speed       1/(beta + gamma/2): the message / (an exchange of it - one of 4 bytes), where what comes is kept by
//               half of the exchanges and added by the other half, as in an all-reduce. Processors do both
#include "support/calibrated.hpp"

#include <chorale/core/error.hpp>

#include <CLI/CLI.hpp>

#include <iostream>

int main(int argc, char** argv) try {
  auto flags = CLI::App{"What a message costs between two ranks of this machine."};
  bool json  = false;
  auto only  = std::string{};
  flags.add_flag("--json", json, "one JSON object a line");
  int ranks = 2;
  flags.add_option("--ranks", ranks, "that exchange at once")->check(CLI::Range(2, 64));
  flags.add_option("--only", only, "one transport")->check(CLI::IsMember({"threads", "shared_memory", "tcp"}));
  CLI11_PARSE(flags, argc, argv);
  if (!json) std::printf("%s\n", bench::machine().c_str());
  for (std::string const transport : {"threads", "shared_memory", "tcp"}) {
    if (!only.empty() && only != transport) continue;
    for (std::size_t const bytes : {4'096U, 65'536U, 262'144U}) {
      auto const measured = bench::calibrate(transport, ranks, bytes);
      auto const model    = measured.model();
      bench::Row{"calibrate/" + transport}
          .add("ranks", ranks, "%.0f")
          .add("message_bytes", static_cast<double>(bytes), "%.0f")
          .add("overhead_ns", chorale::seconds(model.overhead) * 1e9, "%.1f")
          .add("latency_ns", chorale::seconds(model.far.latency) * 1e9, "%.1f")
          .add("bytes_per_second", model.fold_bytes_per_second)
          .add("exchange_4_bytes_us", measured.small)
          .add("exchange_kept_us", measured.kept)
          .add("exchange_added_us", measured.added)
          .print(json);
    }
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
