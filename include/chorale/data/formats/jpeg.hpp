// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<jpeglib.h>)
#error \
    "chorale: <jpeglib.h> is not on the include path. Try: apt-get install libjpeg62-turbo-dev (Debian), dnf \
install libjpeg-turbo-devel (Fedora), brew install jpeg-turbo (Homebrew) or vcpkg install libjpeg-turbo"
#endif

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_IMAGES)
#error \
    "chorale: this header is of the component images. Try: add chorale::images to target_link_libraries(), or \
chorale-images to pkg-config"
#endif

#include <chorale/core/types.hpp>
#include <chorale/data/formats/image.hpp>

#include <cstdio>  // jpeglib.h needs it

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/// Reading and writing by libjpeg-turbo, for image_file.hpp.
namespace chorale::data::detail {

/// An error handler by which libjpeg returns from an error. Objects with destructors are outside of the functions that
/// call setjmp: longjmp runs no destructor.
struct JpegFailure {
  jpeg_error_mgr base{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> text{};

  JpegFailure() {
    jpeg_std_error(&base);
    base.error_exit   = [](j_common_ptr codec) { give_up(codec, nullptr); };
    base.emit_message = [](j_common_ptr codec, int level) {  // warnings: only lost data is an error
      auto const code = codec->err->msg_code;
      if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) give_up(codec, nullptr);
    };
  }
  /// Jumps back to the call of setjmp. If `why` is null, the reason is libjpeg's message.
  [[noreturn]] static void give_up(j_common_ptr codec, char const* why) {
    auto* const self = reinterpret_cast<JpegFailure*>(codec->err);  // its first member
    if (why == nullptr) (*codec->err->format_message)(codec, self->text.data());
    else *std::copy_n(why, std::min(std::strlen(why), self->text.size() - 1), self->text.begin()) = '\0';
    std::longjmp(self->jump, 1);
  }
  JpegFailure(JpegFailure const&)            = delete;
  JpegFailure& operator=(JpegFailure const&) = delete;
};

class JpegReader {
 public:
  JpegReader() {
    codec_.err                 = &failure_.base;
    patience_.progress_monitor = [](j_common_ptr codec) {  // a small file can have very many scans
      if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number > 100)
        JpegFailure::give_up(codec, "More than 100 scans");
    };
  }
  ~JpegReader() { jpeg_destroy_decompress(&codec_); }
  JpegReader(JpegReader const&)            = delete;
  JpegReader& operator=(JpegReader const&) = delete;

  bool begin(ConstBytes bytes, std::size_t channels) {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_create_decompress(&codec_);
    codec_.progress = &patience_;
    jpeg_mem_src(&codec_, reinterpret_cast<unsigned char const*>(bytes.data()), bytes.size());
    jpeg_read_header(&codec_, TRUE);
    channels_              = channels;
    is_cmyk_               = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
    codec_.out_color_space = is_cmyk_ ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    codec_.dct_method      = JDCT_ISLOW;  // the same bits on every processor
    return true;
  }
  std::size_t height() const { return codec_.image_height; }
  std::size_t width() const { return codec_.image_width; }

  bool read(std::uint8_t* to) {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_start_decompress(&codec_);
    auto const stride = width() * channels_;
    if (is_cmyk_) line_.resize(4 * width());
    while (codec_.output_scanline < codec_.output_height) {
      auto* const out = to + codec_.output_scanline * stride;
      JSAMPROW row    = is_cmyk_ ? line_.data() : out;
      jpeg_read_scanlines(&codec_, &row, 1);
      if (is_cmyk_) convert(row, out, width());
    }
    jpeg_finish_decompress(&codec_);
    return true;
  }

  /// Reads the pixels of a box; pixels beside it are decoded only as far as the box's colours depend on them.
  bool read(Box const& box, std::uint8_t* to) {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_start_decompress(&codec_);
    auto const block  = static_cast<std::size_t>(codec_.max_h_samp_factor) * DCTSIZE;
    auto const before = box.left / block * block, from = before - std::min(before, block);
    auto first   = static_cast<JDIMENSION>(from);
    auto columns = static_cast<JDIMENSION>(std::min(width() - from, box.left - from + box.width + 2 * block));
    jpeg_crop_scanline(&codec_, &first, &columns);  // rounds both to whole blocks
    auto const components = static_cast<std::size_t>(codec_.output_components);
    line_.resize(codec_.output_width * components);
    if (box.top > 0) jpeg_skip_scanlines(&codec_, static_cast<JDIMENSION>(box.top));
    for (std::size_t row = 0; row < box.height; ++row) {
      JSAMPROW line = line_.data();
      jpeg_read_scanlines(&codec_, &line, 1);
      auto* const pixels = line + (box.left - first) * components;
      auto* const out    = to + row * box.width * channels_;
      if (is_cmyk_) convert(pixels, out, box.width);
      else std::memcpy(out, pixels, box.width * channels_);
    }
    jpeg_abort_decompress(&codec_);  // rows below the box are not read
    return true;
  }
  std::string why() const { return failure_.text.data(); }

 private:
  /// Cyan, magenta, yellow and black as the channels that are asked for.
  void convert(std::uint8_t const* cmyk, std::uint8_t* to, std::size_t n) {
    if (channels_ == 3) return to_rgb(cmyk, to, n);
    colours_.resize(3 * n);
    to_rgb(cmyk, colours_.data(), n);
    to_grey(colours_.data(), to, n);
  }

  JpegFailure failure_;
  jpeg_progress_mgr patience_{};
  jpeg_decompress_struct codec_{};
  std::size_t channels_ = 0;
  bool is_cmyk_         = false;
  std::vector<std::uint8_t> line_, colours_;  // as wide as the blocks that hold a box; of CMYK
};

class JpegWriter {
 public:
  JpegWriter() { codec_.err = &failure_.base; }
  ~JpegWriter() {
    jpeg_destroy_compress(&codec_);
    std::free(bytes_);
  }
  JpegWriter(JpegWriter const&)            = delete;
  JpegWriter& operator=(JpegWriter const&) = delete;

  bool write(ImageView<std::uint8_t> const& image, int quality) {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_create_compress(&codec_);
    jpeg_mem_dest(&codec_, &bytes_, &size_);
    codec_.image_height     = static_cast<JDIMENSION>(image.shape.height);
    codec_.image_width      = static_cast<JDIMENSION>(image.shape.width);
    codec_.input_components = static_cast<int>(image.shape.channels);
    codec_.in_color_space   = image.shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec_);
    jpeg_set_quality(&codec_, quality, TRUE);
    jpeg_start_compress(&codec_, TRUE);
    while (codec_.next_scanline < codec_.image_height) {
      auto* row = const_cast<JSAMPROW>(image.pixels.data()) +  // only read
                  codec_.next_scanline * image.shape.width * image.shape.channels;
      jpeg_write_scanlines(&codec_, &row, 1);
    }
    jpeg_finish_compress(&codec_);
    return true;
  }
  ConstBytes bytes() const { return std::as_bytes(Span<unsigned char const>{bytes_, size_}); }
  std::string why() const { return failure_.text.data(); }

 private:
  JpegFailure failure_;
  jpeg_compress_struct codec_{};
  unsigned char* bytes_ = nullptr;  // allocated by libjpeg with malloc
  unsigned long size_   = 0;
};

}  // namespace chorale::data::detail
