// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "test/data/folder.hpp"

#include <chorale/data/formats/image.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using Catch::Matchers::Contains;
using data::ImageView;
using Bytes8 = std::vector<std::uint8_t>;

namespace {

/// (height, width, channels): 37 i mod 256.
Bytes8 numbers(std::size_t n) {
  auto all = Bytes8(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<std::uint8_t>(37 * i % 256);
  return all;
}

std::vector<float> floats(std::string const& hex) {
  auto const bytes = sources::hex(hex);
  auto all         = std::vector<float>(bytes.size() / 4);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

}  // namespace

TEST_CASE("crop takes a box, and nothing beyond the image", "[data][image]") {
  auto const pixels = Bytes8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};  // (2, 3, 2)
  auto const image  = ImageView<std::uint8_t>{pixels, {2, 3, 2}};
  auto out          = Bytes8{};
  data::crop(image, {.top = 0, .left = 1, .height = 2, .width = 2}, out);
  CHECK(out == Bytes8{2, 3, 4, 5, 8, 9, 10, 11});
  data::crop(image, {.height = 2, .width = 3}, out);
  CHECK(out == pixels);
  CHECK_THROWS_WITH(data::crop(image, {.top = 1, .left = 0, .height = 2, .width = 1}, out),
                    Contains("2 x 1 from row 1, column 0 is not inside 2 x 3"));
  CHECK_THROWS_AS(data::crop(image, {.left = ~std::size_t{0}, .height = 1, .width = 2}, out), BadArgument);
  CHECK_THROWS_WITH(data::crop(ImageView<std::uint8_t>{pixels, {2, 3, 3}}, {}, out), Contains("has 12 numbers"));
}

TEST_CASE("shift moves an image inside its frame, and black comes in", "[data][image]") {
  auto const pixels = std::vector<int>{1, 2, 3, 4, 5, 6};  // (2, 3, 1)
  auto const moved  = [&](std::ptrdiff_t down, std::ptrdiff_t right) {
    auto out = std::vector<int>{9};
    data::shift(ImageView<int>{pixels, {2, 3, 1}}, {down, right}, out);
    return out;
  };
  CHECK(moved(0, 0) == pixels);
  CHECK(moved(1, 0) == std::vector{0, 0, 0, 1, 2, 3});
  CHECK(moved(-1, 1) == std::vector{0, 4, 5, 0, 0, 0});
  CHECK(moved(0, -2) == std::vector{3, 0, 0, 6, 0, 0});
  for (auto const far : {-3, 3, 1'000'000}) CHECK(moved(0, far) == std::vector<int>(6));
  for (auto const far : {-2, 2, -1'000'000}) CHECK(moved(far, 1) == std::vector<int>(6));
  auto two = std::vector<int>{};
  data::shift(ImageView<int>{std::vector{1, 2, 3, 4}, {1, 2, 2}}, {0, 1}, two);
  CHECK(two == std::vector{0, 0, 1, 2});  // both channels of a pixel
  auto seen = std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, int>{};
  for (std::uint64_t row = 0; row < 900; ++row) {
    auto const by = data::random_shift(1, Random{1, row});
    ++seen[{by.down, by.right}];
  }
  REQUIRE(seen.size() == 9);
  for (auto const& [by, times] : seen) {
    CHECK(std::abs(by.first) <= 1);
    CHECK(std::abs(by.second) <= 1);
    CHECK(times > 50);  // of 100 that are expected
  }
}

TEST_CASE("a central box is in the middle, and a random one anywhere inside, by its numbers", "[data][image]") {
  auto const box = data::central_box({5, 8, 3}, 3, 3);
  CHECK((box.top == 1 && box.left == 2 && box.height == 3 && box.width == 3));
  auto seen = std::set<std::pair<std::size_t, std::size_t>>{};
  for (std::uint64_t i = 0; i < 300; ++i) {
    auto const one = data::random_box({4, 5, 3}, 3, 3, Random{1, i});
    auto const two = data::random_box({4, 5, 3}, 3, 3, Random{1, i});
    CHECK((one.top == two.top && one.left == two.left));
    seen.insert({one.top, one.left});
  }
  CHECK(seen.size() == 6);  // every place was met: 2 rows, 3 columns
  CHECK((seen.begin()->first == 0 && seen.rbegin()->first == 1 && seen.rbegin()->second == 2));
  CHECK_THROWS_AS(data::central_box({5, 8, 3}, 6, 1), BadArgument);
  CHECK_THROWS_AS(data::random_box({5, 8, 3}, 1, 9, Random{1, 1}), BadArgument);
}

TEST_CASE("flips move whole pixels, and twice is nothing", "[data][image]") {
  auto const pixels = Bytes8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};  // (2, 3, 2)
  auto out = Bytes8{}, back = Bytes8{};
  data::flip_left_right(ImageView<std::uint8_t>{pixels, {2, 3, 2}}, out);
  CHECK(out == Bytes8{4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7});
  data::flip_left_right(ImageView<std::uint8_t>{out, {2, 3, 2}}, back);
  CHECK(back == pixels);
  data::flip_up_down(ImageView<std::uint8_t>{pixels, {2, 3, 2}}, out);
  CHECK(out == Bytes8{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5});
}

TEST_CASE("resize gives the numbers of torch's bilinear interpolation", "[data][image][golden]") {
  auto const pixels = numbers(60);
  auto const image  = ImageView<std::uint8_t>{pixels, {5, 4, 3}};
  auto const check  = [&](std::size_t height, std::size_t width, std::string const& golden) {
    auto out            = std::vector<float>{};
    auto const expected = floats(golden);
    data::resize(image, height, width, out);
    REQUIRE(out.size() == expected.size());
    auto worst = 0.0F;
    for (std::size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::abs(out[i] - expected[i]));
    CHECK(worst < 1e-3F);  // a few units in the last place of 255
  };
  check(3, 7, golden::resized_3_7);
  check(8, 2, golden::resized_8_2);
}

TEST_CASE("resize to the same size changes nothing, and a plain image stays plain", "[data][image]") {
  auto const pixels = numbers(60);
  auto out          = Bytes8{};
  data::resize(ImageView<std::uint8_t>{pixels, {5, 4, 3}}, 5, 4, out);
  CHECK(out == pixels);
  auto const plain = Bytes8(7 * 9, 77);
  for (std::size_t const size : {1U, 2U, 5U, 30U}) {
    data::resize(ImageView<std::uint8_t>{plain, {7, 9, 1}}, size, size + 1, out);
    CHECK(out == Bytes8(size * (size + 1), 77));
  }
  CHECK_THROWS_AS(data::resize(ImageView<std::uint8_t>{plain, {7, 9, 1}}, 0, 1, out), BadArgument);
  CHECK_THROWS_AS(data::resize(ImageView<std::uint8_t>{{}, {0, 9, 1}}, 1, 1, out), BadArgument);
}

TEST_CASE("bytes and floats are scaled, and normalised channel by channel", "[data][image]") {
  auto const pixels = Bytes8{0, 100, 255, 200};
  auto out          = std::vector<float>{};
  data::rescale(ImageView<std::uint8_t>{pixels, {1, 4, 1}}, 2.0F / 255, -1, out);
  CHECK((out[0] == -1.0F && out[2] == Approx(1.0F)));
  auto const mean = std::vector<float>{100, 50}, deviation = std::vector<float>{10, 2};
  data::normalise(ImageView<std::uint8_t>{pixels, {2, 1, 2}}, mean, deviation, out);
  CHECK(out == std::vector<float>{-10, 25, 15.5F, 75});
  auto again = std::vector<float>{};
  data::normalise(ImageView<float>{out, {2, 1, 2}}, mean, deviation, again);
  CHECK(again[0] == -11.0F);
  auto const none = std::vector<float>{1, 0};
  CHECK_THROWS_WITH(data::normalise(ImageView<float>{out, {2, 1, 2}}, mean, none, again), Contains("a deviation of 0"));
  CHECK_THROWS_WITH(data::normalise(ImageView<float>{out, {1, 1, 4}}, mean, deviation, again),
                    Contains("2 means and 2 deviations for 4 channels"));
}

TEST_CASE("rescale can mirror an image on its way", "[data][image]") {
  for (std::size_t const channels : {1U, 3U, 4U}) {
    auto pixels = std::vector<std::uint8_t>(5 * 7 * channels);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
    auto const image = ImageView<std::uint8_t>{pixels, {5, 7, channels}};
    auto flipped     = std::vector<std::uint8_t>{};
    auto expected = std::vector<float>{}, out = std::vector<float>{};
    data::flip_left_right(image, flipped);
    data::rescale(ImageView<std::uint8_t>{flipped, image.shape}, 0.5F, -1, expected);
    data::rescale(image, 0.5F, -1, out, data::Mirror::columns);
    CHECK(out == expected);
    data::rescale(image, 0.5F, -1, out, data::Mirror::none);
    CHECK(out != expected);
  }
}
