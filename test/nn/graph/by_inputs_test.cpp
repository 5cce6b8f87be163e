// SPDX-License-Identifier: Apache-2.0
//
// Gradients by inputs alone, and steps in two parts: outputs first, then the gradients by them.
#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

namespace by_inputs_test {

using namespace chorale;

namespace {

struct Noise : Field<float, 8> {};
struct Image : Field<float, 6, 6, 2> {};
struct Weight : Field<float, 3> {};
struct IsReal : Field<float, 1> {};

/// A network with an input whose gradient is asked for, and one whose gradient is not.
template <class When> struct Critic : nn::Graph<nn::Differentiable<Image, When>, Weight> {
  nn::Conv2D<4, 3> conv;
  nn::Flatten flat;
  nn::Dense<5> of_image, of_weight;
  nn::LeakyReLU<20> leaky;
  nn::Dense<1> judged;

  constexpr auto operator()(auto image, auto weight) const {
    auto const a = of_image(flat(leaky(conv(leaky(image)))));
    auto const b = of_weight(leaky(weight));
    return nn::outputs<IsReal>(judged(a * b + nn::slice<0, 5>(flat(image))));
  }
};
struct Maker : nn::Graph<Noise> {
  nn::Dense<36> wide;
  nn::BatchNorm<> norm;
  nn::Dropout<20> dropout;
  nn::Dense<72> pixels;
  constexpr auto operator()(auto noise) const {
    return nn::outputs<Image>(nn::reshape<6, 6, 2>(pixels(dropout(nn::ReLU{}(norm(wide(noise)))))));
  }
};

constexpr std::size_t rows = 12;

std::vector<float> numbers(std::size_t n, std::uint64_t stream) {
  auto all = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = Random{Seed{4}, stream}.normal(i);
  return all;
}
std::vector<float> kept(Span<float const> some) { return {some.begin(), some.end()}; }

}  // namespace

TEST_CASE("a gradient by an input on request has the bits of that of a step", "[nn][graph]") {
  auto const threads = GENERATE(1, 2);
  auto const x = numbers(rows * Image::size, 0), w = numbers(rows * Weight::size, 1), t = numbers(rows, 2);
  auto const batch = Rows<Image, Weight, IsReal>{x, w, t};
  auto in_step     = nn::compile<Critic<nn::InEachStep>>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F})
                     .instantiate(Cpu::with_threads(threads), 3);
  auto requested = nn::compile<Critic<nn::OnRequest>>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F})
                       .instantiate(Cpu::with_threads(threads), 3);
  for (int step = 0; step < 3; ++step) {
    auto const of_step = in_step.value_and_gradient(batch, 0, LooksAtEnd{});
    auto const wanted  = kept(in_step.gradient_by(Image{}));
    REQUIRE(wanted.size() == x.size());
    CHECK(wanted != std::vector<float>(wanted.size()));

    CHECK(kept(requested.gradient_by(Image{}, batch)) == wanted);
    CHECK(kept(in_step.gradient_by(Image{}, batch)) == wanted);  // also where steps compute it
    CHECK(requested.value_and_gradient(batch, 0, LooksAtEnd{}).value == of_step.value);
    in_step.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(kept(requested.gradients().values) == kept(in_step.gradients().values));
    in_step.optimizer.apply(in_step.net.variables(), in_step.gradients());
    requested.optimizer.apply(requested.net.variables(), requested.gradients());
    CHECK(requested.hash() == in_step.hash());
  }
}

TEST_CASE("a step in two parts has the bits of a step", "[nn][graph]") {
  auto const threads = GENERATE(1, 2);
  auto const noise = numbers(rows * Noise::size, 5), gradient = numbers(rows * Image::size, 6);
  auto const model = nn::compile<Maker>(loss::Given{}, optim::Adam{});
  auto whole       = model.instantiate(Cpu::with_threads(threads), 3),
       parts       = model.instantiate(Cpu::with_threads(threads), 3);
  whole.value_and_gradient(Rows<Noise, Image>{noise, gradient}, 7, LooksAtEnd{});
  auto inputs      = Rows<Noise>{noise};
  inputs.first_row = 7;  // of these rows depends what dropout drops
  auto const made  = kept(parts.outputs(inputs));
  CHECK(made.size() == gradient.size());
  parts.value_and_gradient(Rows<Image>{gradient}, 0, LooksAtEnd{});
  CHECK(kept(parts.gradients().values) == kept(whole.gradients().values));  // those of moving statistics, too

  auto const predicted = kept(parts.predict(Rows<Noise>{noise}));
  CHECK(predicted != made);  // without dropout, by moving statistics
}

TEST_CASE("a step that nobody began is one sentence", "[nn][graph]") {
  auto const noise = numbers(rows * Noise::size, 5), gradient = numbers(rows * Image::size, 6);
  auto copy         = nn::compile<Maker>(loss::Given{}, optim::Adam{}).instantiate(Cpu{}, 3);
  auto const finish = [&] { copy.value_and_gradient(Rows<Image>{gradient}, 0, LooksAtEnd{}); };
  CHECK_THROWS_WITH(finish(), Catch::Contains("outputs() was called with 0"));
  copy.outputs(Rows<Noise>{noise}.part(0, 2));
  CHECK_THROWS_WITH(finish(), Catch::Contains("a batch of 12 rows without the inputs of the network"));
  copy.outputs(Rows<Noise>{noise});
  copy.predict(Rows<Noise>{noise});  // in between: what was kept is gone
  CHECK_THROWS_WITH(finish(), Catch::Contains("outputs() was called with 0"));
  copy.outputs(Rows<Noise>{noise});
  CHECK_NOTHROW(finish());
  CHECK_THROWS_AS(finish(), BadArgument);  // once
}

}  // namespace by_inputs_test
