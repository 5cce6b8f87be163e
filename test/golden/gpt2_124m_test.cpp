// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 of 124 million numbers, a step and ten losses, against transformers. README.md beside this file has the
// tolerances and where they come from. 2.5 GB of memory.
#include "examples/support/gpt2.hpp"
#include "test/golden/formula.hpp"
#include "test/support/slow.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2_124m_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 4, steps = 64, words = 50257;

struct Text : Field<int, steps> {};
struct Next : Field<int, steps> {};

using Part = example::Gpt2Block<example::gpt2_124m>;
template <class P> struct Gpt2 : example::Gpt2<example::gpt2_124m, Text, Next, P> {};

constexpr auto parts = std::array{"ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
                                  "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
                                  "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

/// Their name of our variable i: the plans are in one order.
std::string name_of(std::size_t i) {
  if (i < 2) return i == 0 ? "transformer.wte.weight" : "transformer.wpe.weight";
  if (i >= 146) return i == 146 ? "transformer.ln_f.weight" : "transformer.ln_f.bias";
  return "transformer.h." + std::to_string((i - 2) / 12) + "." + parts[(i - 2) % 12];
}

/// Numbers of a tensor, evenly apart, as make_gpt2_124m.py takes them.
std::vector<float> sampled(Span<float const> all) {
  auto const apart = std::max(std::size_t{1}, all.size() / 32);
  auto some        = std::vector<float>{};
  for (std::size_t i = 0; i < all.size() && some.size() < 32; i += apart) some.push_back(all[i]);
  return some;
}

/// The largest difference, and the largest number of `want`.
std::array<double, 2> apart(Span<float const> got, Span<float const> want) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    most    = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return {most, largest};
}

}  // namespace

TEMPLATE_TEST_CASE("GPT-2 of 124 million numbers learns what transformers' learns", "[golden][nn][graph]", Gpt2<Part>,
                   Gpt2<nn::Recompute<Part>>) {
  STATIC_REQUIRE(nn::plan_of<TestType>.parameters == 124'439'808);
  if (!test::slow_or_skip("GPT-2 of 124 million numbers learns what transformers' learns")) return;
  auto const expected = SafetensorsFile::read("test/golden/gpt2_124m.safetensors");
  auto copy           = nn::compile<TestType>(loss::SparseCrossEntropy{},
                                              optim::AdamW{.learning_rate = 1e-4F, .weight_decay = 0.01F, .epsilon = 1e-8F})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const v = copy.net.variables();
  REQUIRE(v.size() == 148);
  for (std::size_t i = 0; i < 148; ++i) {
    auto const salt = static_cast<std::uint32_t>(0x101 * (i + 1));
    auto const name = name_of(i);
    auto const one  = name.find(".ln_") != std::string::npos && name.ends_with("weight") ? 1.0F : 0.0F;
    auto const w    = v[i].value;
    for (std::uint32_t k = 0; k < w.size(); ++k) w[k] = (golden::mixed(k, salt) - 0.5F) * 0x1p-4F + one;
  }
  auto text = std::vector<int>{}, next = text;
  for (std::uint32_t i = 0; i < rows * (steps + 1); ++i) {
    auto const id = static_cast<int>(static_cast<double>(golden::mixed(i, 0x9999)) * words);
    if (i % (steps + 1) < steps) text.push_back(id);
    if (i % (steps + 1) > 0) next.push_back(id);
  }
  auto const batch  = Rows<Text, Next>{text, next};
  auto const logits = copy.predict(batch);
  auto some = std::vector<float>{}, log_sums = some;
  for (std::size_t t = 0; t < rows * steps; ++t) {
    auto const of = logits.subspan(t * words, words);
    auto sum      = 0.0;
    for (auto const x : of) sum += std::exp(static_cast<double>(x));
    log_sums.push_back(static_cast<float>(std::log(sum)));
    for (std::size_t c = 0; c < words; c += 3142) some.push_back(of[c]);
  }
  auto const of_logits = apart(some, expected.floats("logits")), of_sums = apart(log_sums, expected.floats("log_sums"));

  auto const losses = expected.floats("losses");
  auto of_losses = 0.0, of_gradients = 0.0, of_norms = 0.0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    auto const sum  = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    auto const loss = static_cast<double>(sum.value) / rows;
    of_losses       = std::max(of_losses, std::abs(loss - static_cast<double>(losses[step])));
    for (std::size_t i = 0; i < 148 && step == 0; ++i) {
      INFO(name_of(i));
      auto const sums = copy.gradients()[i];
      auto gradient   = std::vector<float>(sums.begin(), sums.end());
      auto norm       = 0.0;
      for (auto& g : gradient) g /= rows, norm += static_cast<double>(g) * static_cast<double>(g);
      auto const [most, largest] = apart(sampled(gradient), expected.floats("gradient/" + name_of(i)));
      auto const wanted          = static_cast<double>(expected.floats("norm/" + name_of(i))[0]);
      of_gradients               = std::max(of_gradients, most / largest);
      of_norms                   = std::max(of_norms, std::abs(std::sqrt(norm) - wanted) / wanted);
    }
    copy.optimizer.apply(v, copy.gradients());
  }
  std::printf("GPT-2: off by: logits %.1e, their sums %.1e; gradients %.1e, their norms %.1e; losses %.1e\n",
              of_logits[0], of_sums[0], of_gradients, of_norms, of_losses);
  CHECK(of_logits[0] < 2e-5);
  CHECK(of_sums[0] < 1e-5);
  CHECK(of_gradients < 1e-4);
  CHECK(of_norms < 1e-5);
  CHECK(of_losses < 5e-5);
}

}  // namespace gpt2_124m_test
