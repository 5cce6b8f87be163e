// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/convolution.hpp>
#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace chorale {

/// y = pool(convolution of x + bias), some rows at a time: backward does not read the values between the two, so they
/// stay in the second-level cache and never reach memory.
///
///   rows      0 .. 7 | 8 .. 15 | ...       slice by slice: convolution, pool; backward: pool, convolution
///
/// x, y      (B, H, W, C), (B, H'', W'', Filters), in any layout with the batch outermost
/// kernel    (K, K, C, Filters); bias (Filters), or none
class Kernels<Cpu>::ConvPool {
 public:
  ConvPool(runtime& rt, layout const& in, int rows, Window const& conv, int filters, Window const& pool, Pool kind,
           bool wants_dx = true, bool biased = true)
      : rt_{&rt}, in_{in}, kernel_(static_cast<std::size_t>(conv.kernel * conv.kernel * conv.channels * filters)),
        bias_(biased ? static_cast<std::size_t>(filters) : 0) {
    bool const rounded = rt.factors() != onednn::f32 &&  // then each slice would keep its own x
                         Conv2D{rt, in, rows, conv, filters, wants_dx, biased}.rounds();
    auto const count = rounded ? 1 : slices(rows, conv, filters);
    auto const n     = rows / count;
    auto const own   = rounded ? in : Conv2D{rt, onednn::with_rows(in, n), n, conv, filters, wants_dx, biased}.in();
    auto of_slice    = Conv2D{rt, own, n, conv, filters, wants_dx, biased};
    auto pooled      = Pool2D{rt, of_slice.out(), n, pool, kind};
    own_             = onednn::with_rows(own, rows);
    slices_.assign(static_cast<std::size_t>(count), Slice{std::move(of_slice), std::move(pooled)});
  }

  layout out() const { return onednn::with_rows(slices_[0].pool.out(), static_cast<int>(onednn::dims_of(own_)[0])); }
  std::size_t workspace() const {
    auto cut = onednn::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut      = onednn::Cutter{p.workspace};
    auto const at = place(cut);
    auto const dx = p.dx == nullptr || own_ == in_ ? p.dx : at.x;  // x is not needed any more
    if (own_ != in_) {
      x_to_own_ = onednn::reorder(*rt_, in_, p.x, own_, at.x);
      if (p.dx != nullptr) own_to_dx_ = onednn::reorder(*rt_, own_, at.x, in_, p.dx);
    }
    gradients_ = {p.d_kernel, p.d_bias, at.d_kernel, at.d_bias};
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      auto& [conv, pool] = slices_[i];
      auto const x = i * of_slice(own_), y = i * of_slice(out());
      conv.bind({.x         = (own_ == in_ ? p.x : at.x) + x,
                 .y         = at.between,
                 .dx        = dx == nullptr ? nullptr : dx + x,
                 .dy        = at.d_between,
                 .kernel    = p.kernel,
                 .bias      = p.bias,
                 .d_kernel  = i == 0 ? p.d_kernel : at.d_kernel,
                 .d_bias    = i == 0 ? p.d_bias : at.d_bias,
                 .workspace = at.of_conv});
      pool.bind({.x         = at.between,
                 .y         = p.y + y,
                 .dx        = at.d_between,
                 .dy        = p.dy + y,
                 .workspace = at.of_pools + i * onednn::round_up(pool.workspace())});
    }
  }

  void read_from(float const* x) {
    if (x_to_own_) return x_to_own_.point(DNNL_ARG_FROM, x);
    for (std::size_t i = 0; i < slices_.size(); ++i) slices_[i].conv.read_from(x + i * of_slice(own_));
  }
  void forward(Pass const& pass) const {
    if (x_to_own_) x_to_own_();
    for (auto const& [conv, pool] : slices_) {
      conv.forward(pass);
      pool.forward(pass);
    }
  }
  void backward(Pass const& pass) const {
    for (auto const& slice : slices_) {
      slice.pool.backward(pass);
      slice.conv.backward(pass);
      if (&slice == slices_.data()) continue;
      for (std::size_t k = 0; k < kernel_; ++k) gradients_.kernel[k] += gradients_.kernel_of_slice[k];
      for (std::size_t k = 0; k < bias_; ++k) gradients_.bias[k] += gradients_.bias_of_slice[k];
    }
    if (own_to_dx_) own_to_dx_();
  }

 private:
  struct Slice {
    Conv2D conv;
    Pool2D pool;
  };
  struct Places {
    float *x, *between, *d_between, *d_kernel, *d_bias;
    std::byte *of_conv, *of_pools;
  };

  /// The least number of equal slices that fit half of each thread's second-level cache. One, when the kernel is so
  /// large that its gradient for each slice would cost more.
  static int slices(int rows, Window const& conv, int filters) {
    constexpr auto cache = std::size_t{512} << 10;
    auto const floats    = [](int a, int b, int c) {
      return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) * sizeof(float);
    };
    auto const kernel = floats(conv.kernel * conv.kernel, conv.channels, filters);
    auto const row    = floats(conv.out_height(), conv.out_width(), filters);
    auto const budget = cache * static_cast<std::size_t>(Cpu::threads_here());
    if (kernel > cache / 16) return 1;
    for (int count = 1; rows / count >= 4; ++count)
      if (rows % count == 0 && row * static_cast<std::size_t>(rows / count) <= budget) return count;
    return 1;
  }

  std::size_t of_slice(layout const& whole) const { return whole.get_size() / sizeof(float) / slices_.size(); }

  Places place(onednn::Cutter& cut) const {
    auto const& [conv, pool] = slices_[0];
    return {own_ == in_ ? nullptr : cut.take(own_),
            cut.take(conv.out()),
            cut.take(conv.out()),
            cut.take_floats(kernel_),
            cut.take_floats(bias_),
            cut.take_bytes(conv.workspace()),
            cut.take_bytes(onednn::round_up(pool.workspace()) * slices_.size())};
  }

  runtime* rt_;
  layout in_, own_;            // of x: as given, and as slices need it
  std::size_t kernel_, bias_;  // elements
  std::vector<Slice> slices_;
  onednn::Call x_to_own_, own_to_dx_;
  struct {
    float *kernel, *bias, *kernel_of_slice, *bias_of_slice;
  } gradients_{};
};

}  // namespace chorale
