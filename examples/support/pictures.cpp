// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include <chorale/core/error.hpp>
#include <chorale/data/formats/cifar.hpp>
#include <chorale/data/formats/image_folder.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

namespace example {

PictureOptions parse_picture_options(int argc, char** argv) {
  auto o     = PictureOptions{};
  auto flags = CLI::App{"Trains ResNet-20; what is special about it stands at the top of its file."};
  flags.add_option("--data", o.data,
                   "folder of CIFAR-10's .bin files, or of train and test with a folder of pictures for "
                   "each class; without it shapes are drawn");
  flags.add_option("--epochs", o.epochs, "passes over the data")->check(CLI::Range(1, 100'000))->capture_default_str();
  flags.add_option("--rows", o.rows, "shapes to draw for training")
      ->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  try {
    flags.parse(argc, argv);
  } catch (CLI::Success const& asked) {  // --help
    std::exit(flags.exit(asked));
  } catch (CLI::ParseError const& error) { throw chorale::BadArgument{error.what(), "--help"}; }
  return o;
}

Pictures read_pictures(std::string const& folder) {
  namespace data  = chorale::data;
  auto const root = std::filesystem::path{folder};
  if (!std::filesystem::is_directory(root / "train"))
    return {data::cifar10(root, data::train), data::cifar10(root, data::test)};
  auto const train = data::image_folder(root / "train"), test = data::image_folder(root / "test");
  if (train.classes() != test.classes() || train.classes().size() > 10)
    throw chorale::BadFile{folder + ": train has " + std::to_string(train.classes().size()) + " classes and test " +
                               std::to_string(test.classes().size()) + ", but both need the same, at most 10.",
                           "a folder of the same name in train and in test for each class."};
  auto const in_memory = [](data::ImageFolder const& pictures) {
    auto x = std::vector<std::uint8_t>{}, y = x;
    auto row    = data::ImageFolder::element{};
    auto stream = pictures.stream(0);
    while (stream.next(row)) {
      x.insert(x.end(), row.x.begin(), row.x.end());
      y.push_back(static_cast<std::uint8_t>(row.y[0]));
    }
    return data::from_tensors(std::move(x), std::move(y), 32 * 32 * 3);
  };
  return {in_memory(train), in_memory(test)};
}

}  // namespace example
