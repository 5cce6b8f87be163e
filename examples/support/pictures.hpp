// SPDX-License-Identifier: Apache-2.0
//
// What an example about small colour pictures needs beside its network: flags, and drawn shapes where no folder is
// given.
#pragma once

#include <chorale/data/dataset.hpp>
#include <chorale/data/shapes.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace example {

struct PictureOptions {
  std::string data;  // a folder, see read_pictures; empty: shapes are drawn
  int epochs = 5;
  int rows   = 2'000;  // shapes to draw for training; a quarter more for the test
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
PictureOptions parse_picture_options(int argc, char** argv);

/// Rows of (32, 32, 3) bytes, labels 0 to 9.
struct Pictures {
  chorale::data::Tensors<std::uint8_t, std::uint8_t> train, test;
};

/// Pictures of a folder, in memory: CIFAR-10's .bin files, or folders `train` and `test` that have a folder of pictures
/// for each class, up to ten; these are scaled to 32 x 32 pixels.
///
/// throws  BadFile with what the folder lacks
Pictures read_pictures(std::string const& folder);

/// Calls f(train, test, rows of train): pictures (32, 32, 3) of bytes, labels 0 to 9.
///
/// throws  BadFile with what the folder lacks
template <class F> auto with_pictures(PictureOptions const& o, F&& f) {
  namespace data = chorale::data;
  if (!o.data.empty()) {
    auto const [train, test] = read_pictures(o.data);
    return f(train, test, *train.size());
  }
  auto const rows = static_cast<std::size_t>(o.rows);
  return f(data::shapes(rows, 1).cache(), data::shapes(rows / 4, 1, rows).cache(), rows);
}

}  // namespace example
