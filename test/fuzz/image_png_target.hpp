// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/data/formats/image_file.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorale::test {

/// A decoder that is given the same bytes twice gives the same pixels, as many as it says.
inline void fuzz_image(ConstBytes in, data::ImageOptions options) {
  try {
    auto const image = data::decode_image(in, options);
    must(image.pixels.size() == image.shape.size() && image.shape.channels == options.channels, "another shape");
    must(image.shape.height * image.shape.width <= options.max_pixels, "an image is larger than the cap");
    must(data::decode_image(in, options).pixels == image.pixels, "the same image has other pixels");
  } catch (BadFile const&) {
  } catch (BadArgument const&) {  // channels that the kind has not; a box that is not inside
  }
}

/// Makes the checksums of the chunks of a PNG file right: as by someone who can compute them.
inline std::vector<std::byte> with_right_png_checksums(ConstBytes in) {
  auto bytes = std::vector<std::byte>(in.begin(), in.end());
  for (std::size_t at = 8; at < bytes.size() && bytes.size() - at >= 12;) {
    auto length = std::size_t{0};
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | std::to_integer<std::size_t>(bytes[at + i]);
    if (length > bytes.size() - at - 12) break;
    auto const crc = ::crc32_z(0, reinterpret_cast<Bytef const*>(bytes.data() + at + 4), length + 4);
    at += 8 + length;
    for (std::size_t i = 0; i < 4; ++i) bytes[at++] = static_cast<std::byte>(crc >> 8 * (3 - i) & 0xFF);
  }
  return bytes;
}

/// A PNG file of any kind, whose rows are in the input as they are before they are packed.
inline std::vector<std::byte> made_png(ConstBytes in) {
  auto const number = [&](std::size_t i) { return i < in.size() ? std::to_integer<unsigned>(in[i]) : 0U; };
  auto file         = std::vector<std::byte>{};
  auto const put    = [&](std::string const& kind, std::vector<std::byte> const& content) {
    for (std::size_t i = 0; i < 4; ++i) file.push_back(static_cast<std::byte>(content.size() >> 8 * (3 - i) & 0xFF));
    for (auto const c : kind) file.push_back(static_cast<std::byte>(c));
    file.insert(file.end(), content.begin(), content.end());
    file.resize(file.size() + 4);
  };
  for (auto const c : {0x89, 'P' + 0, 'N' + 0, 'G' + 0, 13, 10, 26, 10}) file.push_back(static_cast<std::byte>(c));
  static constexpr auto kinds = std::array{0, 2, 3, 4, 6};
  auto const byte             = [](unsigned n) { return static_cast<std::byte>(n); };
  auto const none             = std::byte{0};
  put("IHDR",
      {none, none, none, byte(1 + number(0) % 40), none, none, none, byte(1 + number(1) % 40),
       byte(1U << number(2) % 5), byte(static_cast<unsigned>(kinds[number(3) % 5])), none, none, byte(number(4) % 2)});
  auto const rest  = in.subspan(std::min<std::size_t>(in.size(), 7));
  auto const first = [&](std::size_t n) {
    auto const some = rest.first(std::min(n, rest.size()));
    return std::vector<std::byte>(some.begin(), some.end());
  };
  if (number(5) > 0) put("PLTE", first(3 * number(5)));
  if (number(6) > 0) put("tRNS", first(number(6)));
  auto packed = std::vector<std::byte>(::compressBound(rest.size()));
  auto size   = uLongf{packed.size()};
  must(::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<Bytef const*>(rest.data()),
                   rest.size(), 1) == Z_OK,
       "zlib does not pack");
  packed.resize(size);
  put("IDAT", packed);
  put("IEND", {});
  return with_right_png_checksums(file);
}

/// The first byte says how many channels, and whether the rest is a PNG file or what is packed in one.
inline void fuzz_image_png(ConstBytes in) {
  if (in.empty()) return;
  auto const mode  = std::to_integer<unsigned>(in[0]);
  auto const bytes = mode % 2 == 0 ? with_right_png_checksums(in.subspan(1)) : made_png(in.subspan(1));
  fuzz_image(bytes, {.channels = std::size_t{std::array{1U, 3U, 4U}[mode / 2 % 3]}, .max_pixels = 1 << 16});
}

}  // namespace chorale::test
