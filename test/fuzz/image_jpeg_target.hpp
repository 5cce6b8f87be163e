// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/image_png_target.hpp"

namespace chorale::test {

/// The first byte says how many channels, and which part; the rest is a JPEG file.
inline void fuzz_image_jpeg(ConstBytes in) {
  if (in.empty()) return;
  auto const mode = std::to_integer<unsigned>(in[0]);
  auto options    = data::ImageOptions{.channels = mode % 2 == 0 ? std::size_t{1} : 3, .max_pixels = 1 << 16};
  if (mode & 2) options.box = {mode / 4 % 4, mode / 16 % 4, 1 + mode / 4 % 8, 1 + mode / 32};
  fuzz_image(in.subspan(1), options);
}

}  // namespace chorale::test
