// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <chorale/cluster/exit_report.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

namespace example {

int failed(std::exception const& error) { return chorale::report_exit(error); }

Options parse(int argc, char** argv, Options o) {
  auto flags = CLI::App{"Trains the MNIST network; what is special about this program stands at the top of its file."};
  flags.add_option("--data", o.data, "folder of MNIST's IDX files, plain or gzipped; without it digits are drawn");
  flags.add_option("--epochs", o.epochs, "passes over the data")->capture_default_str();
  flags.add_option("--batch", o.batch, "rows of all replicas together")->capture_default_str();
  flags.add_option("--seed", o.seed, "of variables, drawn digits and shuffling")->capture_default_str();
  flags.add_option("--rows", o.rows, "digits to draw for training")->capture_default_str();

  auto const of_some = std::array{
      flags
          .add_option("--replicas", o.replicas,
                      "replicas, 1 to the number of cores; default: the threads of the first line")
          ->capture_default_str(),
      flags.add_option("--lr", o.lr, "learning rate, or decay: 1e-3, from epoch 4 on 1e-4, from 8 on 1e-5")
          ->capture_default_str(),
      flags.add_option("--checkpoints", o.checkpoints,
                       "folder: goes on from the newest one there, saves after each epoch"),
      flags.add_option("--run", o.run, "folder for curves, traces and files of variables")->capture_default_str(),
      flags.add_option("--shift", o.shift, "pixels by which digits are moved at most, otherwise in each epoch")
          ->check(CLI::Range(0, 27))
          ->capture_default_str()};
  auto const name    = [](CLI::Option const* flag) { return "--" + flag->get_lnames().front(); };
  auto const is_used = [&](CLI::Option const* flag) { return std::ranges::count(o.flags, name(flag)) != 0; };
  for (auto* const flag : of_some)
    if (!is_used(flag)) flag->group("");  // not in --help
  try {
    flags.parse(argc, argv);
  } catch (CLI::Success const& asked) {  // --help
    std::exit(flags.exit(asked));
  } catch (CLI::ParseError const& error) { throw chorale::BadArgument{error.what(), "--help"}; }
  for (auto const* const flag : of_some)
    if (flag->count() != 0 && !is_used(flag))
      throw chorale::BadArgument{name(flag) + " would change nothing: this program does not use it.",
                                 "--help, which lists its flags."};
  auto const at_least_one = [](char const* flag, int value) {
    if (value < 1)
      throw chorale::BadArgument{std::string{flag} + " " + std::to_string(value) + " is below 1.", "at least 1."};
  };
  at_least_one("--epochs", o.epochs);
  at_least_one("--rows", o.rows);
  at_least_one("--replicas", o.replicas);
  at_least_one("--batch", o.batch);
  return o;
}

}  // namespace example
