// SPDX-License-Identifier: Apache-2.0
//
// gpt_weights save FILE      writes a small GPT-2 under the names of the package transformers
// gpt_weights outputs FILE   reads one, and prints the logits for ids that a formula gives: a position a line
#include <chorale/chorale.hpp>

#include <array>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

using namespace chorale;

constexpr int num_words = 29, num_steps = 6, width_of_all = 16, num_heads = 4, num_blocks = 2, num_rows = 3;

struct Ids : Field<int, num_steps> {};
struct Next : Field<int, num_steps> {};

struct Block {
  nn::LayerNorm ln_1, ln_2;
  nn::Dense<3 * width_of_all> c_attn;
  nn::Dense<width_of_all> c_proj;
  nn::Dense<4 * width_of_all> c_fc;
  nn::Dense<width_of_all> out;

  constexpr auto operator()(auto x) const {
    auto const y = x + c_proj(nn::CausalHeads<num_heads>{}(c_attn(ln_1(x))));
    return y + out(nn::gelu(c_fc(ln_2(y))));
  }
};

struct Gpt2 : nn::Graph<Ids> {
  nn::Embedding<num_words, width_of_all> wte{"wte"};
  nn::Positions<num_steps, width_of_all> wpe{"wpe"};
  std::array<Block, num_blocks> h;
  nn::LayerNorm ln_f{"ln_f"};

  constexpr auto operator()(auto ids) const {
    auto x = wpe(wte(ids));
    for (auto const& block : h) x = block(x);
    return nn::outputs<Next>(wte.logits(ln_f(x)));
  }
};

/// Its kernels are (in, out), as ours.
WeightMap of_transformers() {
  return {{"transformer.wte.weight", "wte/embeddings"},
          {"transformer.wpe.weight", "wpe/places"},
          {"transformer.h.{i}.ln_1.weight", "layer_normalization{_2i}/gamma"},
          {"transformer.h.{i}.ln_1.bias", "layer_normalization{_2i}/beta"},
          {"transformer.h.{i}.attn.c_attn.weight", "dense{_4i}/kernel"},
          {"transformer.h.{i}.attn.c_attn.bias", "dense{_4i}/bias"},
          {"transformer.h.{i}.attn.c_proj.weight", "dense{_4i+1}/kernel"},
          {"transformer.h.{i}.attn.c_proj.bias", "dense{_4i+1}/bias"},
          {"transformer.h.{i}.ln_2.weight", "layer_normalization{_2i+1}/gamma"},
          {"transformer.h.{i}.ln_2.bias", "layer_normalization{_2i+1}/beta"},
          {"transformer.h.{i}.mlp.c_fc.weight", "dense{_4i+2}/kernel"},
          {"transformer.h.{i}.mlp.c_fc.bias", "dense{_4i+2}/bias"},
          {"transformer.h.{i}.mlp.c_proj.weight", "dense{_4i+3}/kernel"},
          {"transformer.h.{i}.mlp.c_proj.bias", "dense{_4i+3}/bias"},
          {"transformer.ln_f.weight", "ln_f/gamma"},
          {"transformer.ln_f.bias", "ln_f/beta"}};
}

int main(int argc, char** argv) {
  try {
    auto const what = argc == 3 ? std::string{argv[1]} : std::string{};
    auto trainer    = Trainer{nn::compile<Gpt2>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{}};
    if (what == "save") {
      for (std::size_t i = 0; auto& number : trainer.variables().values) number += 0.01F * static_cast<float>(i++ % 7);
      trainer.save(argv[2], of_transformers());
    } else if (what == "outputs") {
      auto ids = std::vector<std::vector<int>>(num_rows, std::vector<int>(num_steps)), next = ids;
      for (int i = 0; i < num_rows * num_steps; ++i)
        ids[static_cast<std::size_t>(i / num_steps)][static_cast<std::size_t>(i % num_steps)] = i * 37 % 101 % num_words;
      trainer.load(argv[2], of_transformers());
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
