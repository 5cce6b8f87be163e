// SPDX-License-Identifier: Apache-2.0
#include <chorale/data/shapes.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace shapes_test {

using namespace chorale;

namespace {

struct Drawn {
  std::array<std::uint8_t, data::shape_pixels> pixels{};
  std::uint8_t label = 0;

  Drawn(Seed seed, std::uint64_t index) { label = data::draw_shape(seed, index, pixels); }
  friend bool operator==(Drawn const&, Drawn const&) = default;
};

/// Mean colour and its deviation in each channel: what could be known of a picture without seeing its shape.
std::array<float, 6> colours(Span<std::uint8_t const> pixels) {
  auto of = std::array<float, 6>{};
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    auto const p = static_cast<float>(pixels[i]) / 255;
    of[i % 3] += p, of[3 + i % 3] += p * p;
  }
  for (std::size_t k = 0; k < 3; ++k) of[k] /= 1024, of[3 + k] = of[3 + k] / 1024 - of[k] * of[k];
  return of;
}

}  // namespace

TEST_CASE("a shape is a function of seed and index, wherever a dataset begins", "[data]") {
  CHECK(Drawn{1, 7} == Drawn{1, 7});
  CHECK(Drawn{1, 7}.pixels != Drawn{1, 8}.pixels);
  CHECK(Drawn{1, 7}.pixels != Drawn{2, 7}.pixels);
  auto stream = data::shapes(7, 5, 13).stream(3);
  auto index  = std::uint64_t{13};
  for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row); ++index) {
    auto const one = Drawn{5, index};
    CHECK(row.y[0] == one.label);
    CHECK(std::equal(row.x.begin(), row.x.end(), one.pixels.begin(), one.pixels.end()));
  }
  CHECK(index == 20);
  CHECK(data::shapes(20, 1).size() == 20);
  auto lines = std::vector<std::string>{};
  data::shapes(20, 3, 4).describe(lines);
  CHECK(lines == std::vector<std::string>{"shapes 20 seed 3 from 4"});
}

TEST_CASE("all ten shapes are drawn about equally often, and colours do not tell them apart", "[data]") {
  constexpr std::size_t n = 1'000;
  auto count              = std::array<int, 10>{};
  auto of                 = std::vector<std::array<float, 6>>{};
  auto label              = std::vector<std::size_t>{};
  auto stream             = data::shapes(n, 1).stream(0);
  for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row);) {
    REQUIRE(row.x.size() == data::shape_pixels);
    ++count.at(row.y[0]);
    of.push_back(colours(row.x));
    label.push_back(row.y[0]);
  }
  CHECK(*std::min_element(count.begin(), count.end()) > 65);  // 100 expected, standard deviation 9.5
  CHECK(*std::max_element(count.begin(), count.end()) < 135);
  auto right = 0;
  for (std::size_t i = 0; i < n; ++i) {  // the label of the nearest other picture
    auto nearest = std::size_t{0};
    auto least   = 1e9F;
    for (std::size_t j = 0; j < n; ++j) {
      auto apart = j == i ? 1e9F : 0.0F;
      for (std::size_t k = 0; k < 6; ++k) apart += (of[i][k] - of[j][k]) * (of[i][k] - of[j][k]);
      if (apart < least) least = apart, nearest = j;
    }
    right += label[nearest] == label[i];
  }
  std::printf("by colours alone, %.3f of the drawn shapes are right\n", right / 1e3);
  CHECK(right < 200);  // 100 by chance
}

}  // namespace shapes_test
