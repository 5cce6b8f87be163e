// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_IMAGES)
#error \
    "chorale: this header is of the component images. Try: add chorale::images to target_link_libraries(), or \
chorale-images to pkg-config"
#endif

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/data/formats/jpeg.hpp>
#include <chorale/data/formats/png.hpp>

#include <png.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace chorale::data {

/// An image of bytes.
struct Image {
  ImageShape shape{};
  std::vector<std::uint8_t> pixels{};  // (height, width, channels)

  ImageView<std::uint8_t> view() const { return {pixels, shape}; }
};

/// How JPEG and PNG are read.
struct ImageOptions {
  std::size_t channels   = 3;                     // 1: grey, 3: red, green, blue; 4: and alpha, PNG only
  std::size_t max_pixels = std::size_t{1} << 26;  // height · width; larger images are refused, unallocated
  Box box{};                                      // the part to read; height 0: all of it
};

namespace detail {

[[noreturn]] inline void bad_image(std::string const& where, std::string const& what) {
  throw BadFile{where + ": " + what + ".", "to open it with another program, or fetch it again."};
}

inline void expect_pixels(std::string const& where, std::size_t height, std::size_t width, std::size_t max) {
  if (height == 0 || width == 0 || height > max / width)
    throw BadFile{where + ": " + std::to_string(height) + " x " + std::to_string(width) + " pixels, but at most " +
                      std::to_string(max) + " are read.",
                  "ImageOptions::max_pixels."};
}

/// libpng's interface to write whole images, whose errors are return values and `message`.
struct Png : png_image {
  Png() : png_image{} { version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(this); }
  Png(Png const&)            = delete;
  Png& operator=(Png const&) = delete;

  static png_uint_32 format_of(std::size_t channels) {
    return channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  }
};

/// Refuses an image that claims more pixels than its bytes can hold, before memory is allocated for them.
///
/// most    pixels, or bytes before they were packed, in one byte
inline void expect_room(std::string const& where, std::size_t claimed, std::size_t most, std::size_t bytes) {
  if (claimed / most > bytes)
    bad_image(where, "its header claims more pixels than " + std::to_string(bytes) + " bytes can hold");
}

}  // namespace detail

/// Reads a JPEG image into `out`, whose memory is reused: grey, colours, or inks (CMYK), which become colours.
///
/// box     options.box gives the same pixels as crop after decoding the whole, and takes less time; damage below it
///         is not noticed
/// where   begins the message of an error: the file or record
/// throws  BadFile when the image is damaged, cut or too large, and BadArgument when the box is not inside; no memory
///         is allocated for pixels before their number is known
inline void decode_jpeg(ConstBytes bytes, Image& out, ImageOptions options = {},
                        std::string const& where = "a JPEG image") {
  CHORALE_EXPECTS(options.channels == 1 || options.channels == 3, "a JPEG image is read into 1 or 3 channels");
  auto reader = detail::JpegReader{};
  if (bytes.empty()) detail::bad_image(where, "no bytes");
  if (!reader.begin(bytes, options.channels)) detail::bad_image(where, reader.why());
  detail::expect_pixels(where, reader.height(), reader.width(), options.max_pixels);
  detail::expect_room(where, reader.height() * reader.width(), 512, bytes.size());  // a block of 64 takes a bit
  auto const whole = ImageShape{reader.height(), reader.width(), options.channels};
  auto const box   = options.box;
  auto const part  = box.height > 0;
  CHORALE_EXPECTS(!part || box.width > 0, where + ": a box of " + std::to_string(box.height) + " x 0 pixels");
  if (part) detail::expect_inside(whole, box, where);
  out.shape = part ? ImageShape{box.height, box.width, options.channels} : whole;
  out.pixels.resize(out.shape.size());
  if (!(part ? reader.read(box, out.pixels.data()) : reader.read(out.pixels.data())))
    detail::bad_image(where, reader.why());
}

/// Reads a JPEG image into a new Image.
inline Image decode_jpeg(ConstBytes bytes, ImageOptions options = {}, std::string const& where = "a JPEG image") {
  auto image = Image{};
  decode_jpeg(bytes, image, options, where);
  return image;
}

/// Reads a PNG image, of any kind: palettes become colours, and colours grey where 1 channel is asked for. Of 16 bits
/// the upper 8 are used. Transparency is left out unless there are 4 channels.
///
/// keeps   the numbers that are stored: gAMA, sRGB, iCCP and cHRM change none
/// throws  BadFile when the image is damaged, cut or too large
/// source  PIL's Image.open(..).convert("L"), "RGB" and "RGBA", tf.io.decode_png
inline Image decode_png(ConstBytes bytes, ImageOptions options = {}, std::string const& where = "a PNG image") {
  CHORALE_EXPECTS(options.channels == 1 || options.channels == 3 || options.channels == 4,
                  "a PNG image is read into 1, 3 or 4 channels");
  auto reader = detail::PngReader{};
  if (!reader.begin(bytes)) detail::bad_image(where, reader.why());
  detail::expect_pixels(where, reader.height(), reader.width(), options.max_pixels);
  detail::expect_room(where, reader.stored(), 1032, bytes.size());  // see ByteSource::most
  auto image = Image{.shape = {reader.height(), reader.width(), options.channels}};
  image.pixels.resize(image.shape.size());
  if (!reader.read(image.pixels.data(), options.channels)) detail::bad_image(where, reader.why());
  if (options.box.height == 0) return image;
  auto part = Image{.shape = {options.box.height, options.box.width, options.channels}};
  crop(image.view(), options.box, part.pixels);
  return part;
}

/// Reads a JPEG or a PNG image; its first bytes decide which.
inline Image decode_image(ConstBytes bytes, ImageOptions options = {}, std::string const& where = "an image") {
  auto const begins = [&](std::byte a, std::byte b) { return bytes.size() > 2 && bytes[0] == a && bytes[1] == b; };
  if (begins(std::byte{0xff}, std::byte{0xd8})) return decode_jpeg(bytes, options, where);
  if (begins(std::byte{0x89}, std::byte{'P'})) return decode_png(bytes, options, where);
  detail::bad_image(where, "neither JPEG, which begins with ff d8, nor PNG, which begins with 89 50");
}

/// Reads a JPEG or PNG file.
inline Image read_image(std::filesystem::path const& file, ImageOptions options = {}) {
  auto source        = ByteSource{file, Compression::none};
  auto bytes         = std::vector<std::byte>{};
  constexpr auto max = std::size_t{1} << 30;
  if (source.append(bytes, max) == max) source.fail("an image file of 1 GiB or more", "a smaller one");
  return decode_image(bytes, options, file.string());
}

/// Writes a JPEG image; quality is from 1 to 100.
inline std::vector<std::byte> encode_jpeg(ImageView<std::uint8_t> image, int quality = 95) {
  detail::expect_image(image, "encode_jpeg");
  CHORALE_EXPECTS(image.shape.channels == 1 || image.shape.channels == 3, "a JPEG image has 1 or 3 channels");
  CHORALE_EXPECTS(quality >= 1 && quality <= 100, "a quality of " + std::to_string(quality) + " is not from 1 to 100");
  auto writer = detail::JpegWriter{};
  if (!writer.write(image, quality)) throw BadArgument{"encode_jpeg: " + writer.why() + "."};
  return {writer.bytes().begin(), writer.bytes().end()};
}

/// Writes a PNG image of 1, 3 or 4 channels.
inline std::vector<std::byte> encode_png(ImageView<std::uint8_t> image) {
  detail::expect_image(image, "encode_png");
  auto const channels = image.shape.channels;
  CHORALE_EXPECTS(channels == 1 || channels == 3 || channels == 4, "a PNG image has 1, 3 or 4 channels");
  auto png         = detail::Png{};
  png.height       = static_cast<png_uint_32>(image.shape.height);
  png.width        = static_cast<png_uint_32>(image.shape.width);
  png.format       = detail::Png::format_of(channels);
  auto size        = png_alloc_size_t{0};
  auto const write = [&](void* to) {
    if (png_image_write_to_memory(&png, to, &size, 0, image.pixels.data(), 0, nullptr) == 0)
      throw BadArgument{std::string{"encode_png: "} + png.message + "."};
  };
  write(nullptr);  // only computes the size
  auto bytes = std::vector<std::byte>(size);
  write(bytes.data());
  return bytes;
}

}  // namespace chorale::data
