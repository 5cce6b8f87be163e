// SPDX-License-Identifier: Apache-2.0
//
// gpt_weights save FILE      writes a small GPT-2 of the examples under the names of the package transformers
// gpt_weights outputs FILE   reads one, and prints the logits for ids that a formula gives: a position a line
#include "examples/support/gpt2.hpp"

#include <chorale/chorale.hpp>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

using namespace chorale;

constexpr auto size_of_all = example::Gpt2Size{.words = 29, .context = 6, .width = 16, .heads = 4, .blocks = 2};
constexpr int num_words = size_of_all.words, num_steps = size_of_all.context, num_rows = 3;

struct Ids : Field<int, num_steps> {};
struct Next : Field<int, num_steps> {};
struct Gpt2 : example::Gpt2<size_of_all, Ids, Next> {};

int main(int argc, char** argv) {
  try {
    auto const what = argc == 3 ? std::string{argv[1]} : std::string{};
    auto trainer    = Trainer{nn::compile<Gpt2>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
    if (what == "save") {
      for (std::size_t i = 0; auto& number : trainer.variables().values) number += 0.01F * static_cast<float>(i++ % 7);
      trainer.save(argv[2], example::names_of_gpt2());
    } else if (what == "outputs") {
      auto ids = std::vector<std::vector<int>>(num_rows, std::vector<int>(num_steps)), next = ids;
      for (int i = 0; i < num_rows * num_steps; ++i)
        ids[static_cast<std::size_t>(i / num_steps)][static_cast<std::size_t>(i % num_steps)] =
            i * 37 % 101 % num_words;
      trainer.load(argv[2], example::names_of_gpt2_in(argv[2]));
      auto const all = trainer.predict(data::from_fields<Ids, Next>(ids, next).batch(num_rows));
      for (std::size_t row = 0; row < all.rows(); ++row)
        for (std::size_t i = 0; i < all[row].size(); ++i)
          std::printf("%.9g%c", static_cast<double>(all[row][i]), (i + 1) % num_words == 0 ? '\n' : ' ');
    } else {
      throw BadArgument{"gpt_weights does not know what to do.", "gpt_weights save FILE, or gpt_weights outputs FILE"};
    }
    return 0;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error);
  }
}
