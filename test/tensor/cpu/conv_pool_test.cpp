// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/random.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

using namespace chorale;

namespace {

using K = Kernels<Cpu>;

struct Arrays {
  std::vector<float> y, d_kernel, d_bias, dx;
};

std::vector<float> random(std::size_t n, std::uint64_t stream) {
  auto x = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = Random{7, stream}.uniform(i) - 0.5F;
  return x;
}

/// x (rows, 28, 28, channels), convolved with 32 kernels of 3 x 3, then the largest of each 2 x 2. The dy is random.
struct Case {
  int rows, channels;
  Window conv{28, 28, channels, 3};
  Window pool{26, 26, 32, 2, 2};
  std::vector<float> x      = random(static_cast<std::size_t>(rows * 784 * channels), 1);
  std::vector<float> kernel = random(static_cast<std::size_t>(9 * channels * 32), 2), bias = random(32, 3);
  std::vector<float> dy = random(static_cast<std::size_t>(rows * 169 * 32), 4);  // in the layout of the pool

  Arrays outputs() const {
    return {std::vector<float>(dy.size()), std::vector<float>(kernel.size()), std::vector<float>(32),
            std::vector<float>(x.size())};
  }
  Ports ports(Arrays& into) {
    return {.x        = x.data(),
            .y        = into.y.data(),
            .dx       = into.dx.data(),
            .dy       = dy.data(),
            .kernel   = kernel.data(),
            .bias     = bias.data(),
            .d_kernel = into.d_kernel.data(),
            .d_bias   = into.d_bias.data()};
  }

  Arrays together() {
    auto rt     = K::runtime{};
    auto stage  = K::ConvPool{rt, K::image(rows, 28, 28, channels), rows, conv, 32, pool, Pool::max};
    auto work   = Cpu{}.allocate(stage.workspace());
    auto into   = outputs();
    auto p      = ports(into);
    p.workspace = work.data();
    stage.bind(p);
    stage.forward({});
    stage.backward({});
    return into;
  }

  Arrays one_after_the_other() {
    auto rt     = K::runtime{};
    auto first  = K::Conv2D{rt, K::image(rows, 28, 28, channels), rows, conv, 32};
    auto second = K::Pool2D{rt, first.out(), rows, pool, Pool::max};
    auto work = Cpu{}.allocate(first.workspace()), more = Cpu{}.allocate(second.workspace());
    auto between = Cpu{}.allocate(2 * K::bytes(first.out()));
    auto into    = outputs();
    auto p = ports(into), q = p;
    p.y = q.x = reinterpret_cast<float*>(between.data());
    p.dy = q.dx = q.x + K::bytes(first.out()) / sizeof(float);
    p.workspace = work.data();
    q.workspace = more.data();
    first.bind(p);
    second.bind(q);
    first.forward({});
    second.forward({});
    second.backward({});
    first.backward({});
    return into;
  }
};

/// The largest difference, over the largest value.
double difference(std::vector<float> const& a, std::vector<float> const& b) {
  auto largest = 0.0, value = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    value   = std::max(value, std::abs(static_cast<double>(b[i])));
  }
  return largest / value;
}

}  // namespace

// 16 rows are four slices on one thread, 7 have no equal slices, 1 is less than one; three channels get another layout.
TEST_CASE("convolution and pool in slices are the two, one after the other", "[conv_pool]") {
  auto const one_thread = Cpu::Scope{Cpu::logical(1)[0]};
  auto const rows       = GENERATE(64, 16, 7, 1);
  auto const channels   = GENERATE(1, 3);
  auto test             = Case{rows, channels};
  auto const a = test.together(), b = test.one_after_the_other();
  CHECK(difference(a.y, b.y) == 0);
  CHECK(difference(a.d_kernel, b.d_kernel) < 1e-5);
  CHECK(difference(a.d_bias, b.d_bias) < 1e-5);
  CHECK(difference(a.dx, b.dx) < 1e-6);
}

// oneDNN has reference loops for every shape, hundreds of times slower than the rest; a layout that forward likes may
// leave nothing else for backward.
TEST_CASE("no pass of a convolution runs on reference loops", "[conv_pool]") {
  struct Shape {
    int rows, side, channels, filters, kernel;
  };
  auto const [rows, side, channels, filters, kernel] =
      GENERATE(Shape{4, 28, 1, 32, 3}, Shape{64, 28, 1, 32, 3}, Shape{16, 28, 1, 6, 5}, Shape{16, 14, 6, 16, 5},
               Shape{16, 14, 5, 7, 3}, Shape{4, 28, 3, 32, 3}, Shape{4, 13, 32, 64, 3});
  auto const wants_dx = GENERATE(true, false);
  CAPTURE(rows, side, channels, filters, kernel, wants_dx);
  using enum dnnl::cpu_isa;
  auto const named = std::map<std::string, dnnl::cpu_isa>{{"SSE41", sse41}, {"AVX", avx}, {"AVX2", avx2}};
  if (auto const* const isa = std::getenv("ONEDNN_MAX_CPU_ISA"))
    REQUIRE(dnnl::get_effective_cpu_isa() == named.at(isa));
  auto rt = K::runtime{};
  auto conv =
      K::Conv2D{rt, K::image(rows, side, side, channels), rows, {side, side, channels, kernel}, filters, wants_dx};
  CHECK(conv.references(wants_dx) == 0);
}

TEST_CASE("no pass of a transposed convolution runs on reference loops", "[conv_pool]") {
  struct Shape {
    int rows, side, channels, filters, kernel;  // x is (rows, side / 2, side / 2, channels)
  };
  auto const [rows, side, channels, filters, kernel] =
      GENERATE(Shape{32, 28, 16, 1, 4}, Shape{32, 14, 32, 16, 4}, Shape{8, 64, 16, 3, 4});
  CAPTURE(rows, side, channels, filters, kernel);
  auto rt         = K::runtime{};
  auto const by   = (kernel - 2) / 2;
  auto const w    = Window{.height     = side,
                           .width      = side,
                           .channels   = filters,
                           .kernel     = kernel,
                           .stride     = 2,
                           .pad_before = by,
                           .pad_after  = by,
                           .pad_left   = by,
                           .pad_right  = by};
  auto const conv = K::Conv2DTranspose{rt, K::image(rows, side / 2, side / 2, channels), rows, w, channels, true};
  CHECK(conv.references() == 0);
}

// oneDNN reads the variable once, so each set of instructions is another process.
TEST_CASE("nor on CPUs with fewer instructions", "[conv_pool]") {
  auto const isa  = GENERATE("SSE41", "AVX", "AVX2");
  auto const self = std::filesystem::read_symlink("/proc/self/exe").string();
  auto const again =
      std::string{"ONEDNN_MAX_CPU_ISA="} + isa + " '" + self + "' 'no pass*,convolution*' -w NoTests > /dev/null";
  CAPTURE(isa);
  CHECK(std::system(again.c_str()) == 0);
}
