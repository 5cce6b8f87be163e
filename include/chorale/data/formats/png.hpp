// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<png.h>)
#error \
    "chorale: <png.h> is not on the include path. Try: apt-get install libpng-dev (Debian), dnf install \
libpng-devel (Fedora), brew install libpng (Homebrew) or vcpkg install libpng"
#endif

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_IMAGES)
#error \
    "chorale: this header is of the component images. Try: add chorale::images to target_link_libraries(), or \
chorale-images to pkg-config"
#endif

#include <chorale/core/types.hpp>
#include <chorale/data/formats/image.hpp>

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

/// Reading by libpng, for image_file.hpp.
namespace chorale::data::detail {

/// Reads a PNG image as PIL and TensorFlow do: pixels as they are stored, without a correction of colours by gAMA, sRGB,
/// iCCP or cHRM; of 16 bits the upper 8. Objects with destructors are outside of the functions that call setjmp.
class PngReader {
 public:
  PngReader() = default;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(PngReader const&)            = delete;
  PngReader& operator=(PngReader const&) = delete;

  bool begin(ConstBytes bytes) {
    left_ = bytes;
    png_  = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, give_up, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return note("no memory for it"), false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, std::size_t n) {
      auto& left = static_cast<PngReader*>(png_get_io_ptr(png))->left_;
      if (n > left.size()) png_error(png, "it ends in the middle");
      std::memcpy(to, left.data(), n);
      left = left.subspan(n);
    });
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // the caller compares their product
    // Texts, profiles and gamma are passed over: libpng takes memory for what they claim.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return true;
  }
  std::size_t height() const { return png_get_image_height(png_, info_); }
  std::size_t width() const { return png_get_image_width(png_, info_); }
  /// Bytes of the pixels before they were packed, one more in each row.
  std::size_t stored() const { return height() * (png_get_rowbytes(png_, info_) + 1); }

  /// Reads all pixels, in 1, 3 or 4 channels, and the chunks after them.
  bool read(std::uint8_t* to, std::size_t channels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    auto const colour = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
    auto const greys  = channels == 1 && colour;  // of three channels
    png_set_expand(png_);                         // palettes, fewer than 8 bits; a transparent colour to alpha
    png_set_strip_16(png_);
    if (channels == 4) png_set_add_alpha(png_, 255, PNG_FILLER_AFTER);  // where there is none
    else png_set_strip_alpha(png_);
    if (channels > 1) png_set_gray_to_rgb(png_);
    auto const passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    auto const stride = png_get_rowbytes(png_, info_), rows = height();
    if (stride != width() * (greys ? 3 : channels)) png_error(png_, "its rows have another length");
    if (greys) colours_.resize(passes > 1 ? rows * stride : stride);  // passes of an interlaced image add up
    for (int pass = 0; pass < passes; ++pass)
      for (std::size_t row = 0; row < rows; ++row) {
        auto* const line = greys ? colours_.data() + (passes > 1 ? row * stride : 0) : to + row * stride;
        png_read_row(png_, line, nullptr);
        if (greys && pass + 1 == passes) to_grey(line, to + row * width(), width());
      }
    png_read_end(png_, nullptr);
    return true;
  }
  std::string why() const { return text_.data(); }

 private:
  /// Keeps a reason, in memory that is there.
  void note(std::string_view why) { text_.data()[why.copy(text_.data(), text_.size() - 1)] = '\0'; }

  /// Jumps back to the call of setjmp.
  static void give_up(png_structp png, png_const_charp why) {
    static_cast<PngReader*>(png_get_error_ptr(png))->note(why);
    png_longjmp(png, 1);
  }

  png_structp png_ = nullptr;
  png_infop info_  = nullptr;
  ConstBytes left_;  // of the file
  std::array<char, 200> text_{};
  std::vector<std::uint8_t> colours_;  // that become grey
};

}  // namespace chorale::data::detail
