// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "pictures.hpp"
#include "test/data/folder.hpp"

#include <chorale/core/random.hpp>
#include <chorale/data/formats/image_file.hpp>

#include <catch2/catch.hpp>

#include <malloc.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Matchers::Contains;
using data::Image;
using sources::Content;
using Bytes8 = std::vector<std::uint8_t>;

namespace {

/// Smooth shades, which JPEG keeps well.
Image smooth(std::size_t height, std::size_t width, std::size_t channels) {
  auto image = Image{.shape = {height, width, channels}};
  for (std::size_t row = 0; row < height; ++row)
    for (std::size_t column = 0; column < width; ++column)
      for (std::size_t c = 0; c < channels; ++c)
        image.pixels.push_back(
            static_cast<std::uint8_t>(40 + (row * 100 / height + column * 80 / width) * (c + 1) / 3));
  return image;
}

int furthest(Bytes8 const& a, Bytes8 const& b) {
  auto worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(int{a[i]} - int{b.at(i)}));
  return worst;
}

Image png(char const* hex, std::size_t channels) {
  auto const content = sources::hex(hex);
  return data::decode_png(sources::bytes_of(content), {.channels = channels});
}

std::string complaint(ConstBytes bytes, data::ImageOptions options = {}) {
  try {
    data::decode_image(bytes, options, "cat.jpg");
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}

}  // namespace

TEST_CASE("PNG files of every kind become rows of bytes", "[data][image][golden]") {
  auto const rgb = png(golden::png_rgb, 3);
  CHECK(rgb.shape == data::ImageShape{2, 2, 3});
  CHECK(rgb.pixels == Bytes8{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30});
  CHECK(png(golden::png_palette, 3).pixels == Bytes8{7, 8, 9, 1, 2, 3, 4, 5, 6});
  CHECK(png(golden::png_grey16, 1).pixels == Bytes8{0x80, 0xff});
  CHECK(png(golden::png_grey16, 3).pixels == Bytes8{0x80, 0x80, 0x80, 0xff, 0xff, 0xff});
  CHECK(png(golden::png_alpha, 4).pixels == Bytes8{200, 100, 50, 255, 200, 100, 50, 0});
  CHECK(png(golden::png_alpha, 3).pixels == Bytes8{200, 100, 50, 200, 100, 50});
  CHECK(png(golden::png_rgb, 4).pixels.at(3) == 255);
}

TEST_CASE("pictures of every kind are read as PIL reads them", "[data][image][golden]") {
  for (auto const& picture : pictures::all) {
    CAPTURE(picture.name);
    auto const file = sources::hex(picture.file);
    auto const read = [&](std::size_t channels) {
      return data::decode_image(sources::bytes_of(file), {.channels = channels}).pixels;
    };
    CHECK(read(1) == sources::hex(picture.grey));
    CHECK(read(3) == sources::hex(picture.rgb));
    if (*picture.rgba != 0) CHECK(read(4) == sources::hex(picture.rgba));
    auto const box   = data::Box{1, 2, 3, 4};
    auto const part  = data::decode_image(sources::bytes_of(file), {.channels = 1, .box = box}).pixels;
    auto const width = *picture.rgba != 0 ? 7U : 16U;
    for (std::size_t i = 0; i < 12; ++i) CHECK(part[i] == read(1)[(1 + i / 4) * width + 2 + i % 4]);
  }
  auto const green = Bytes8{0, 225, 90};
  CHECK(data::decode_png(data::encode_png({green, {1, 1, 3}}), {.channels = 1}).pixels == Bytes8{142});
}

TEST_CASE("PNG images come back as they were", "[data][image]") {
  for (std::size_t const channels : {1U, 3U, 4U}) {
    auto image = smooth(13, 17, channels);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(Random{1, channels}.below(i, 256));
    auto const bytes = data::encode_png(image.view());
    auto const back  = data::decode_image(bytes, {.channels = channels});
    CHECK(back.shape == image.shape);
    CHECK(back.pixels == image.pixels);
  }
}

TEST_CASE("JPEG images come back nearly as they were, in colour and in grey", "[data][image]") {
  for (std::size_t const channels : {1U, 3U}) {
    auto const image = smooth(37, 53, channels);
    auto const bytes = data::encode_jpeg(image.view(), 98);
    auto const back  = data::decode_image(bytes, {.channels = channels});
    CHECK(back.shape == image.shape);
    CHECK(furthest(back.pixels, image.pixels) <= 6);
    CHECK(data::decode_jpeg(bytes, {.channels = 4 - channels}).shape.channels == 4 - channels);
  }
  auto const grey = data::decode_jpeg(data::encode_jpeg(smooth(16, 16, 1).view()), {.channels = 3}).pixels;
  CHECK((grey[0] == grey[1] && grey[1] == grey[2]));
  auto const large = smooth(64, 64, 3);
  CHECK(data::encode_jpeg(large.view(), 10).size() < data::encode_jpeg(large.view(), 95).size());
}

TEST_CASE("a cut or damaged image is an error, wherever, and never the end of the program", "[data][image]") {
  auto const image = smooth(20, 20, 3);
  for (auto const& whole : {data::encode_jpeg(image.view()), data::encode_png(image.view())}) {
    for (std::size_t n = 0; n + 2 < whole.size(); ++n) {  // a JPEG without its last marker is whole
      CAPTURE(n, whole.size());
      CHECK(complaint(ConstBytes{whole}.first(n)) != "no complaint");
    }
    for (std::size_t n = 0; n < whole.size(); ++n) {
      auto changed = whole;
      changed[n] ^= std::byte{0x41};
      CHECK_NOTHROW(complaint(changed));  // an image, or a BadFile
    }
  }
  auto png = data::encode_png(image.view());
  png[png.size() / 2] ^= std::byte{1};
  CHECK_THAT(complaint(png), Contains("cat.jpg: ") && Contains("Try: "));
}

TEST_CASE("what is no image says what it is not", "[data][image]") {
  CHECK_THAT(complaint(sources::bytes_of(Content{'G', 'I', 'F', '8'})), Contains("cat.jpg: neither JPEG, which"));
  CHECK_THAT(complaint({}), Contains("neither JPEG"));
  CHECK_THROWS_WITH(data::decode_jpeg({}), Contains("a JPEG image: no bytes"));
  CHECK_THROWS_AS(data::decode_png({}), BadFile);
  CHECK_THROWS_AS(data::decode_jpeg({}, {.channels = 4}), BadArgument);
  CHECK_THROWS_AS(data::encode_jpeg(smooth(2, 2, 3).view(), 0), BadArgument);
  CHECK_THROWS_AS(data::encode_jpeg(Image{}.view()), BadArgument);
  CHECK_THROWS_AS(data::encode_png(Image{.shape = {0, 0, 3}}.view()), BadArgument);
  CHECK_THROWS_WITH(data::encode_jpeg(Image{.shape = {1, 70'000, 3}, .pixels = Bytes8(210'000)}.view()),
                    Contains("encode_jpeg: Maximum supported image dimension is 65500 pixels"));
}

TEST_CASE("an image that claims to be huge is refused before memory is taken", "[data][image]") {
  auto jpeg        = data::encode_jpeg(smooth(8, 8, 3).view());
  auto const frame = std::array{std::byte{0xff}, std::byte{0xc0}};
  auto const sof   = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  REQUIRE(sof != jpeg.end());
  sof[5] = sof[6] = sof[7] = sof[8] = std::byte{0xf0};
  CHECK_THAT(complaint(jpeg), Contains("61680 x 61680 pixels, but at most 67108864 are read"));
  CHECK_THAT(complaint(data::encode_png(smooth(20, 30, 3).view()), {.max_pixels = 599}),
             Contains("20 x 30 pixels, but at most 599"));
  sof[5] = sof[7] = std::byte{0x1f};  // 8176 x 8176, fewer than max_pixels
  CHECK_THAT(complaint(jpeg), Contains("its header claims more pixels than ") && Contains(" bytes can hold"));
  auto png = sources::hex(golden::png_rgb);  // 2 x 2; its header has a checksum
  png[18] = png[22] = 0x10;
  auto const crc    = ::crc32(0, png.data() + 12, 17);
  for (std::size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
  CHECK_THAT(complaint(sources::bytes_of(png)), Contains("its header claims more pixels than 7"));
}

TEST_CASE("a text of a PNG file takes no memory, whatever length it claims", "[data][image]") {
  auto file       = data::encode_png(smooth(4, 4, 3).view());
  auto const held = [] {
    auto const now = ::mallinfo2();  // libpng allocates with malloc
    return now.uordblks + now.hblkhd;
  };
  file.resize(33);                                             // its header
  auto const text = std::string("\x16\0\0\7tEXtTitle\0", 14);  // of 352 MiB
  for (auto const c : text) file.push_back(static_cast<std::byte>(c));
  auto const before = held();
  auto reader       = data::detail::PngReader{};
  CHECK_FALSE(reader.begin(file));
  CHECK(reader.why() == "it ends in the middle");
  CHECK(held() < before + (std::size_t{1} << 20));
}

TEST_CASE("image files are read by what is in them", "[data][image]") {
  auto const in   = sources::Folder{};
  auto const file = in.plain("misnamed.jpg", sources::hex(golden::png_rgb));
  CHECK(data::read_image(file).pixels.size() == 12);
  CHECK_THROWS_WITH(data::read_image(in.plain("none.png", {'x'})), Contains("none.png: neither JPEG"));
  CHECK_THROWS_WITH(data::read_image(in.path() / "absent.png"), Contains("absent.png: cannot be opened"));
}

TEST_CASE("a part of an image is the same whether only that is decoded, or all and then cropped", "[data][image]") {
  auto const random = Random{Seed{1}, 0};
  for (std::size_t const channels : {1U, 3U})
    for (auto const [height, width] : {std::array<std::size_t, 2>{67, 93}, {16, 16}, {1, 40}, {64, 128}}) {
      auto noisy = smooth(height, width, channels);
      for (std::size_t i = 0; i < noisy.pixels.size(); ++i)
        noisy.pixels[i] ^= static_cast<std::uint8_t>(random.below(i, 32));
      for (auto const& bytes : {data::encode_jpeg(noisy.view(), 80), data::encode_png(noisy.view())}) {
        auto const whole = data::decode_image(bytes, {.channels = channels});
        for (std::uint64_t i = 0; i < 60; ++i) {
          auto const rows = 1 + random.below(100 + 4 * i, height), columns = 1 + random.below(101 + 4 * i, width);
          auto const box = data::Box{random.below(102 + 4 * i, height - rows + 1),
                                     random.below(103 + 4 * i, width - columns + 1), rows, columns};
          CAPTURE(channels, height, width, box.top, box.left, rows, columns);
          auto expected = Bytes8{};
          data::crop(whole.view(), box, expected);
          auto const part = data::decode_image(bytes, {.channels = channels, .box = box});
          CHECK(part.shape == data::ImageShape{rows, columns, channels});
          CHECK(part.pixels == expected);
        }
        CHECK_THROWS_AS(data::decode_image(bytes, {.channels = channels, .box = {0, 1, height, width}}), BadArgument);
        CHECK_THROWS_AS(data::decode_image(bytes, {.channels = channels, .box = {height, 0, 1, width}}), BadArgument);
      }
    }
}

TEST_CASE("a JPEG image may come into memory that an earlier one has used", "[data][image]") {
  auto const small = data::encode_jpeg(smooth(8, 8, 3).view()), large = data::encode_jpeg(smooth(40, 30, 3).view());
  auto image = Image{};
  data::decode_jpeg(large, image);
  auto const* const memory = image.pixels.data();
  data::decode_jpeg(small, image);
  CHECK(image.pixels.data() == memory);
  CHECK(image.pixels == data::decode_jpeg(small).pixels);
  auto const half = ConstBytes{small}.first(small.size() / 2);
  CHECK_THROWS_WITH(data::decode_jpeg(half, image, {.box = {4, 4, 4, 4}}, "cat.jpg"), Contains("cat.jpg"));
}
