// SPDX-License-Identifier: Apache-2.0
//
// Keras' functional model and a GAN against the numbers of Keras and PyTorch. README.md beside this file has the
// tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace functional_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 6;
constexpr int words = 20, departments = 3;

struct Title : Field<int, 5> {};
struct Body : Field<int, 7> {};
struct Tags : Field<float, 4> {};
struct Priority : Field<float, 1> {};
struct Department : Field<int, 1> {};

struct Tickets : nn::Graph<Title, Body, Tags> {
  nn::Embedding<words, 3> title_words{"title_words"}, body_words{"body_words"};
  nn::LSTM<4> title_reader{"title_reader"};
  nn::LSTM<2> body_reader{"body_reader"};
  nn::Dense<1> priority{"priority"};
  nn::Dense<departments> department{"department"};

  constexpr auto operator()(auto title, auto body, auto tags) const {
    auto const features = nn::concatenate(title_reader(title_words(title)), body_reader(body_words(body)), tags);
    return nn::outputs<Priority, Department>(priority(features), department(features));
  }
};

struct Noise : Field<float, 2> {};
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};

struct Generator : nn::Graph<Noise> {
  nn::Block<nn::Dense<5>, nn::Tanh, nn::Dense<2>> layers;
  constexpr auto operator()(auto noise) const { return nn::outputs<Point>(layers(noise)); }
};
struct Discriminator : nn::Graph<nn::Differentiable<Point>> {
  nn::Block<nn::Dense<5>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layers(point)); }
};

struct Formula {
  std::string_view name;
  std::uint32_t salt;
  float scale;
};

std::vector<float> around_zero(std::size_t n, std::uint32_t salt, float scale) {
  return golden::initial({"", n, salt, scale});
}
std::vector<int> below(std::size_t n, std::uint32_t salt, int end) {
  auto all = std::vector<int>(n);
  for (std::size_t i = 0; i < n; ++i)
    all[i] = static_cast<int>(golden::value(static_cast<std::uint32_t>(i), salt) * static_cast<float>(end));
  return all;
}

void set(Variables const& variables, Span<Formula const> formulas) {
  REQUIRE(variables.size() == formulas.size());
  for (std::size_t v = 0; v < variables.size(); ++v) {
    auto const found = std::ranges::find(formulas, variables[v].name, &Formula::name);
    REQUIRE(found != formulas.end());
    std::ranges::copy(around_zero(variables[v].value.size(), found->salt, found->scale), variables[v].value.begin());
  }
}

/// Largest difference of the mean gradient of a variable from the expected one.
double gradient_error(Gradients const& g, std::size_t v, std::vector<float> const& want) {
  auto got = std::vector<float>(want.size());
  for (auto const& table : g.tables)
    for (std::size_t i = 0; table.variable() == v && i < table.size(); ++i)
      std::ranges::copy(table[i], got.begin() + static_cast<std::ptrdiff_t>(table.rows()[i] * table.width()));
  std::ranges::copy(g[v], got.begin());
  auto apart = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] / g.rows() - want[i])));
  return apart;
}

}  // namespace

TEST_CASE("a step of the functional ticket model is Keras'", "[golden][nn][graph]") {
  auto const expected = SafetensorsFile::read("test/golden/functional.safetensors");
  auto const model    = nn::compile<Tickets>(
      nn::of<Priority>(loss::BinaryCrossEntropy{}) + 0.2F * nn::of<Department>(loss::SparseCrossEntropy{}),
      optim::SGD{.learning_rate = 0.5F});
  auto copy    = model.instantiate(Cpu::logical(1)[0], 1);
  auto const v = copy.net.variables();
  set(v, std::array{Formula{"title_words/embeddings", 0x101, 1}, Formula{"body_words/embeddings", 0x202, 1},
                    Formula{"title_reader/kernel", 0x303, 2}, Formula{"title_reader/recurrent_kernel", 0x404, 2},
                    Formula{"title_reader/bias", 0x505, 1}, Formula{"body_reader/kernel", 0x606, 2},
                    Formula{"body_reader/recurrent_kernel", 0x707, 2}, Formula{"body_reader/bias", 0x808, 1},
                    Formula{"priority/kernel", 0x909, 1}, Formula{"priority/bias", 0xA0A, 1},
                    Formula{"department/kernel", 0xB0B, 1}, Formula{"department/bias", 0xC0C, 1}});
  auto const titles = below(rows * 5, 0xD0D, words), bodies = below(rows * 7, 0xE0E, words),
             labels = below(rows, 0x222, departments);
  auto const tags   = around_zero(rows * 4, 0xF0F, 2);
  auto priorities   = std::vector<float>(rows);
  for (std::size_t r = 0; r < rows; ++r)
    priorities[r] = std::round(golden::value(static_cast<std::uint32_t>(r), 0x111));
  auto const batch  = Rows<Title, Body, Tags, Priority, Department>{titles, bodies, tags, priorities, labels};
  auto const losses = expected.floats("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    auto const loss = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(std::abs(loss.value / rows - losses[step]) < 5e-7F);
    for (std::size_t i = 0; step == 0 && i < v.size(); ++i) {
      INFO(v[i].name);
      CHECK(gradient_error(copy.gradients(), i, expected.floats("gradient/" + std::string{v[i].name})) < 2.5e-7);
    }
    copy.optimizer.apply(v, copy.gradients());
  }
  auto const outputs = expected.floats("outputs");
  auto const got     = copy.predict(batch);
  REQUIRE(got.size() == outputs.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - outputs[i]) < 1e-6F);
}

TEST_CASE("three steps of a GAN are PyTorch's", "[golden][nn][graph]") {
  auto const expected     = SafetensorsFile::read("test/golden/gan.safetensors");
  auto const rule         = optim::Adam{.learning_rate = 0.02F, .beta_1 = 0.5F, .epsilon = 1e-7F};
  auto const device       = Cpu::logical(1)[0];
  auto generator          = nn::compile<Generator>(loss::Given{}, rule).instantiate(device, 1);
  auto discriminator      = nn::compile<Discriminator>(loss::BinaryCrossEntropy{}, rule).instantiate(device, 1);
  auto const variables_of = [](std::uint32_t first) {
    return std::array{Formula{"dense/kernel", first, 2}, Formula{"dense/bias", first + 0x11, 1},
                      Formula{"dense_1/kernel", first + 0x22, 2}, Formula{"dense_1/bias", first + 0x33, 1}};
  };
  set(generator.net.variables(), variables_of(0x11));
  set(discriminator.net.variables(), variables_of(0x55));
  auto const losses = expected.floats("losses");
  auto const check  = [&](std::string const& which, auto& model) {
    for (std::size_t i = 0; i < 4; ++i) {
      auto const name = which + "/" + std::string{model.net.variables()[i].name};
      INFO(name);
      CHECK(gradient_error(model.gradients(), i, expected.floats(name)) < 1e-6);
    }
  };
  auto const ones = std::vector<float>(rows, 1.0F);
  auto is_real    = ones;
  is_real.resize(2 * rows, 0.0F);
  auto noise = std::vector<float>{};
  for (std::uint32_t step = 0; step < 3; ++step) {
    noise            = around_zero(rows * 2, 0x1000 + step, 4);
    auto points      = around_zero(rows * 2, 0x2000 + step, 2);
    auto const made  = generator.predict(Rows<Noise>{noise});
    auto const fakes = std::vector<float>(made.begin(), made.end());
    points.insert(points.end(), fakes.begin(), fakes.end());
    auto const of_both = discriminator.value_and_gradient(Rows<Point, IsReal>{points, is_real}, 0, LooksAtEnd{});
    CHECK(std::abs(of_both.value / (2 * rows) - losses[2 * step]) < 2e-6F);
    if (step == 0) check("discriminator", discriminator);
    discriminator.optimizer.apply(discriminator.net.variables(), discriminator.gradients());
    auto const fooled = discriminator.value_and_gradient(Rows<Point, IsReal>{fakes, ones}, 0, LooksAtEnd{});
    CHECK(std::abs(fooled.value / rows - losses[2 * step + 1]) < 2e-6F);
    generator.value_and_gradient(Rows<Noise, Point>{noise, discriminator.gradient_by(Point{})}, 0, LooksAtEnd{});
    if (step == 0) check("generator", generator);
    generator.optimizer.apply(generator.net.variables(), generator.gradients());
  }
  auto const want = expected.floats("made");
  auto const got  = generator.predict(Rows<Noise>{noise});
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 5e-6F);
}

}  // namespace functional_test
