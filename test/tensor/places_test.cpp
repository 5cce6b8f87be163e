// SPDX-License-Identifier: Apache-2.0
// Where oneDNN's layouts have the numbers of rows.
#include <chorale/tensor/cpu/onednn_api.hpp>

#include <catch2/catch.hpp>

#include <cstddef>

namespace places_test {

using namespace chorale;
using tag = onednn::tag;

constexpr auto height = std::size_t{3}, width = std::size_t{4}, pixels = height * width;

onednn::Places places(int channels, tag order) {
  return onednn::Places{onednn::desc{{2, channels, height, width}, dnnl::memory::data_type::f32, order}};
}

TEST_CASE("numbers of rows lie where a layout has them, also of one channel in a block", "[tensor][cpu]") {
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      CHECK(places(1, tag::nchw)(row, pixel) == row * pixels + pixel);
      CHECK(places(1, tag::nhwc)(row, pixel) == row * pixels + pixel);
      CHECK(places(1, tag::nChw8c)(row, pixel) == (row * pixels + pixel) * 8);
      for (std::size_t c = 0; c < 3; ++c) {
        auto const i = pixel * 3 + c;  // as (H, W, C)
        CHECK(places(3, tag::nhwc)(row, i) == row * pixels * 3 + i);
        CHECK(places(3, tag::nchw)(row, i) == (row * 3 + c) * pixels + pixel);
        CHECK(places(3, tag::nChw8c)(row, i) == (row * pixels + pixel) * 8 + c);
      }
    }
}

}  // namespace places_test
