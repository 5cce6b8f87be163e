// SPDX-License-Identifier: Apache-2.0
//
// weights save FILE      writes the variables of a small network
// weights outputs FILE   reads them, and prints the outputs for five images that a formula draws: (5, 10), one row a line
#include <chorale/chorale.hpp>

#include <cstdio>
#include <iostream>
#include <string>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<12, 12, 2>,           // (B, 12, 12, 2)
                            nn::Conv2D<8, 3>, nn::ReLU,     // (B, 10, 10, 8)
                            nn::MaxPool2D<2>, nn::Flatten,  // (B, 200)
                            nn::Dense<16>, nn::ReLU,        // (B, 16)
                            nn::Dense<10>> {};              // (B, 10)

int main(int argc, char** argv) {
  try {
    auto const what = argc == 3 ? std::string{argv[1]} : std::string{};
    auto trainer    = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
    if (what == "save") {
      for (std::size_t i = 0; auto& bias : trainer.variables().body()) bias += 0.001F * static_cast<float>(i++ % 7);
      trainer.save(argv[2]);
    } else if (what == "outputs") {
      auto images = std::vector<float>(5 * 12 * 12 * 2);
      for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i * 37 % 101) / 101.0F;
      trainer.load(argv[2]);
      auto const all = trainer.predict(data::from_tensors(images, std::vector<int>(5), Net::input::size).batch(5));
      for (std::size_t row = 0; row < all.rows(); ++row) {
        for (auto const y : all[row]) std::printf("%.9g ", static_cast<double>(y));
        std::printf("\n");
      }
    } else {
      throw BadArgument{"weights does not know what to do.", "weights save FILE, or weights outputs FILE"};
    }
    return 0;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error);
  }
}
