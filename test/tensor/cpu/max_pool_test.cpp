// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/random.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace chorale;

namespace {

using K = Kernels<Cpu>;

struct Pooled {
  std::vector<float> y, dx;
};

struct Images {
  int rows;
  Window window;
  std::vector<float> x, dy;

  Images(int many, Window const& w)
      : rows{many}, window{w}, x(elements(w.height, w.width)), dy(elements(w.out_height(), w.out_width())) {
    auto const random = Random{3, 1};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.below(i, 7));  // with equals
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(random.below(i, 50)) - 25;
  }

  std::size_t elements(int height, int width) const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(height * width * window.channels);
  }

  /// (B, H, W, C), a pixel at a time: the first of the largest gets the gradient.
  Pooled one_by_one() const {
    auto const& w = window;
    auto result   = Pooled{std::vector<float>(dy.size()), std::vector<float>(x.size())};
    for (int image = 0; image < rows; ++image)
      for (int h = 0; h < w.out_height(); ++h)
        for (int v = 0; v < w.out_width(); ++v)
          for (int c = 0; c < w.channels; ++c) {
            auto best = x.size();
            for (int i = h * w.stride - w.pad_before; i < h * w.stride - w.pad_before + w.kernel; ++i)
              for (int j = v * w.stride - w.pad_left; j < v * w.stride - w.pad_left + w.kernel; ++j) {
                if (i < 0 || j < 0 || i >= w.height || j >= w.width) continue;
                auto const at = static_cast<std::size_t>(((image * w.height + i) * w.width + j) * w.channels + c);
                if (best == x.size() || x[at] > x[best]) best = at;
              }
            auto const row = (image * w.out_height() + h) * w.out_width() + v;
            auto const to  = static_cast<std::size_t>(row * w.channels + c);
            result.y[to]   = x[best];
            result.dx[best] += dy[to];
          }
    return result;
  }

  /// By the loops, with images in that order.
  Pooled by_loops(onednn::tag tag) const {
    auto rt              = K::runtime{};
    auto const plain     = K::image(rows, window.height, window.width, window.channels);
    auto const plain_out = K::image(rows, window.out_height(), window.out_width(), window.channels);
    auto const in        = onednn::desc{onednn::dims_of(plain), onednn::f32, tag};
    auto const out       = onednn::desc{onednn::dims_of(plain_out), onednn::f32, tag};
    auto const loops     = cpu::MaxPool::of(in, out, window).value();
    auto memory          = Cpu{}.allocate(2 * (K::bytes(in) + K::bytes(out)) + 256 + loops.winners());
    auto cut             = onednn::Cutter{memory.data()};
    auto *const x_in = cut.take(in), *const dx = cut.take(in), *const y = cut.take(out), *const dy_in = cut.take(out);
    auto result     = Pooled{std::vector<float>(dy.size()), std::vector<float>(x.size())};
    auto const move = [&](onednn::desc const& from, void const* source, onednn::desc const& to, void* target) {
      onednn::reorder(rt, from, const_cast<void*>(source), to, target)();
    };
    move(plain, x.data(), in, x_in);
    move(plain_out, dy.data(), out, dy_in);
    std::fill_n(dx, K::bytes(in) / sizeof(float), -1.0F);  // nothing of before is left
    auto* const winners = reinterpret_cast<std::uint8_t*>(cut.take_bytes(loops.winners()));
    loops.forward(x_in, y, winners);
    loops.backward(dy_in, winners, dx);
    move(out, y, plain_out, result.y.data());
    move(in, dx, plain, result.dx.data());
    return result;
  }
};

}  // namespace

TEST_CASE("max pools have the values and gradients of one pixel at a time", "[max_pool]") {
  auto const windows = {Window{6, 8, 16, 2, 2},
                        Window{7, 9, 8, 2, 2},
                        Window{9, 9, 32, 3, 2},
                        Window{8, 8, 16, 3, 1, 1, 1, 1, 1},
                        Window{7, 5, 8, 3, 2, 1, 1, 0, 1},
                        Window{6, 6, 8, 3, 3, 1, 1, 1, 1},
                        Window{9, 7, 24, 2, 3}};
  for (auto const& window : windows)
    for (auto const tag : {onednn::tag::nhwc, onednn::tag::nChw8c, onednn::tag::nChw16c}) {
      auto const images = Images{3, window};
      INFO(window.channels << " channels, windows of " << window.kernel << " every " << window.stride);
      auto const expected = images.one_by_one(), got = images.by_loops(tag);
      CHECK(got.y == expected.y);
      CHECK(got.dx == expected.dx);
    }
}

TEST_CASE("a layout for another number of rows is the one that oneDNN makes for them", "[onednn]") {
  using onednn::tag;
  auto const image = [](int rows, int channels, tag t) { return onednn::desc{{rows, channels, 6, 5}, onednn::f32, t}; };
  for (auto const t : {tag::nchw, tag::nhwc, tag::nChw8c, tag::nChw16c})
    for (int const channels : {1, 8, 20})
      for (int const rows : {1, 3, 12})
        CHECK(onednn::with_rows(image(4, channels, t), rows) == image(rows, channels, t));
  CHECK(onednn::with_rows(onednn::matrix(4, 7), 9) == onednn::matrix(9, 7));
}

TEST_CASE("max pools whose channels are not side by side in eights are left to oneDNN", "[max_pool]") {
  auto const loops = [](int channels, onednn::tag tag) {
    auto const image = [&](int size) { return onednn::desc{{3, channels, size, size}, onednn::f32, tag}; };
    return cpu::MaxPool::of(image(6), image(3), {6, 6, channels, 2, 2});
  };
  CHECK(loops(8, onednn::tag::nhwc));
  CHECK_FALSE(loops(5, onednn::tag::nhwc));
  CHECK_FALSE(loops(8, onednn::tag::nchw));
}
