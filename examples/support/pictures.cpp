// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include <chorale/core/error.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>

namespace example {

PictureOptions parse_picture_options(int argc, char** argv) {
  auto o     = PictureOptions{};
  auto flags = CLI::App{"Trains ResNet-20; what is special about it stands at the top of its file."};
  flags.add_option("--data", o.data, "folder of CIFAR-10's .bin files, plain or gzipped; without it shapes are drawn");
  flags.add_option("--epochs", o.epochs, "passes over the data")->check(CLI::Range(1, 100'000))->capture_default_str();
  flags.add_option("--rows", o.rows, "shapes to draw for training")->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  try {
    flags.parse(argc, argv);
  } catch (CLI::Success const& asked) {                                    // --help
    std::exit(flags.exit(asked));
  } catch (CLI::ParseError const& error) {
    throw chorale::BadArgument{error.what(), "--help"};
  }
  return o;
}

}  // namespace example
