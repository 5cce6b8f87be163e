// SPDX-License-Identifier: Apache-2.0
//
// What an example about small colour pictures needs beside its network: flags, and drawn shapes where no folder is
// given.
#pragma once

#include <chorale/data/formats/cifar.hpp>
#include <chorale/data/shapes.hpp>

#include <cstddef>
#include <string>

namespace example {

struct PictureOptions {
  std::string data;                           // a folder with CIFAR-10's binary files; empty: shapes are drawn
  int epochs = 5;
  int rows   = 2'000;                         // shapes to draw for training; a quarter more for the test
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
PictureOptions parse_picture_options(int argc, char** argv);

/// Calls f(train, test, rows of train): pictures (32, 32, 3) of bytes, labels 0 to 9.
///
/// throws  BadFile with what CIFAR's files lack
template <class F>
auto with_pictures(PictureOptions const& o, F&& f) {
  namespace data = chorale::data;
  if (!o.data.empty()) {
    auto const train = data::cifar10(o.data, data::train);
    return f(train, data::cifar10(o.data, data::test), *train.size());
  }
  auto const rows = static_cast<std::size_t>(o.rows);
  return f(data::shapes(rows, 1).cache(), data::shapes(rows / 4, 1, rows).cache(), rows);
}

}  // namespace example
