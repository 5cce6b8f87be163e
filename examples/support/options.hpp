// SPDX-License-Identifier: Apache-2.0
//
// What the examples share: their flags, their data, and what they do with an error.
#pragma once

#include <chorale/chorale.hpp>
#include <chorale/data/formats/image.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace example {

struct Options {
  std::string data{};  // a folder of IDX files; empty: digits are drawn
  int epochs         = 3;
  int batch          = 64;  // rows of all replicas together: the result does not depend on their number
  int replicas       = chorale::Cpu{}.threads();
  std::uint64_t seed = 1;
  std::string lr     = "0.001";      // a number, or "decay"
  int rows           = 20'000;       // drawn for training; a quarter more for the test
  std::string checkpoints{};         // a folder to go on from and to save to; empty: none
  std::string run{};                 // a folder for what the run tells; empty: none
  int shift = 0;                     // pixels
  std::vector<std::string> flags{};  // of --replicas, --lr, --checkpoints, --run and --shift, those that this
                                     // program uses: it refuses the others. All programs have the rest

  chorale::optim::Rate rate() const {
    if (lr == "decay") return chorale::optim::decaying();
    try {
      auto parsed      = std::size_t{0};
      auto const value = std::stof(lr, &parsed);
      if (parsed == lr.size() && value > 0) return value;
    } catch (std::exception const&) {}
    throw chorale::BadArgument{"--lr " + lr + " is not a learning rate.", "a number above 0 such as 0.001, or decay."};
  }
};

/// Calls f(train, test) with the rows of a folder, or with drawn ones: images (28, 28, 1) of bytes, labels 0 to 9.
template <class F> void with_digits(Options const& o, F&& f) {
  using namespace chorale;
  if (!o.data.empty()) return f(data::mnist(o.data, data::train), data::mnist(o.data, data::test));
  auto const rows = static_cast<std::size_t>(o.rows);
  f(data::digits(rows, o.seed), data::digits(rows / 4, o.seed, rows));
}

/// A function of map: moves a digit by up to o.shift pixels each way, otherwise in each epoch; black comes in.
inline auto shifted(Options const& o) {
  return [most = static_cast<std::size_t>(o.shift), seed = o.seed](auto const& row, std::vector<float>& x,
                                                                   std::vector<int>& y, chorale::data::Place at) {
    namespace data = chorale::data;
    data::shift(data::ImageView<float>{row.x, {28, 28, 1}}, data::random_shift(most, at.random(seed)), x);
    y.assign(row.y.begin(), row.y.end());
  };
}

/// The cluster that was found; alone, two workers and a server as threads of this process.
inline chorale::Cluster with_server(chorale::Cluster const& found) {
  return found.is_local() ? chorale::Cluster::local(2, 1) : found;
}

/// test: loss 0.0373 accuracy 0.9890 (10000 images)
inline void print_test(chorale::Scores const& test) {
  std::printf("test: loss %.4f accuracy %.4f (%zu images)\n", test.loss(), test["accuracy"], test.rows());
}

/// Reads the flags over the defaults in `o`; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
Options parse(int argc, char** argv, Options o);

/// Tells standard error, and torchrun, what went wrong; returns the exit code.
int failed(std::exception const& error);

/// Reads the flags, says how many threads there are and why, runs the program, and turns an error into its sentence and exit code.
template <class F> int run(int argc, char** argv, Options const& defaults, F&& program) {
  try {
    auto const options = parse(argc, argv, defaults);
    std::puts(chorale::Cpu::choice().line.c_str());
    program(options);
    return 0;
  } catch (std::exception const& error) { return failed(error); }
}

}  // namespace example
