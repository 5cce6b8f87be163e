// SPDX-License-Identifier: Apache-2.0
//
// Windows over images on a GPU: pools, and a convolution with the pool after it. Empty where the compiler does not find
// cuBLAS and cuDNN.
#pragma once

#include <chorale/tensor/convolution_cuda.hpp>
#include <chorale/tensor/kernels_cuda.hpp>
#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/ops.hpp>
#include <chorale/tensor/runtime_cuda.hpp>

#include <cstddef>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// y = the largest, or the mean, of each window of x, and max(y, 0) at once where a ReLU follows in place. Padding
/// never counts. Ours, and not cuDNN's: pads may differ on the two sides, and gradients have the same bits every time.
///
/// x, y      (B, H, W, C), (B, H', W', C)
/// source    tf.keras.layers.MaxPool2D, AveragePooling2D
class Kernels<Cuda>::Pool2D {
 public:
  Pool2D(runtime& rt, layout const& in, int rows, Window const& w, Pool kind)
      : rt_{&rt}, in_{in}, rows_{rows}, window_{w}, kind_{kind} {}

  layout out() const { return {rows_, window_.out_height(), window_.out_width(), window_.channels, in_.of}; }
  std::size_t workspace() const { return kind_ == Pool::max ? out().size() * sizeof(int) : 0; }

  void bind(Ports const& p) {
    p_    = p;
    relu_ = rt_->take_relu(p.y);
  }

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }         // only read
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::pool(kind_, window_, images(), in_.at(p_.x), in_.at(p_.y), winners(), relu_,
                                    cuda::queue()), "pool");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr) return;
    cuda::expect(cuda::launch::pool_back(kind_, window_, images(), in_.at(p_.dy), winners(), in_.at(p_.dx),
                                         cuda::queue()), "pool_back");
  }

 private:
  std::size_t images() const { return static_cast<std::size_t>(rows_); }
  int* winners() const { return reinterpret_cast<int*>(p_.workspace); }    // which pixel of each window was the largest

  runtime* rt_;
  layout in_;
  int rows_;
  Window window_;
  Pool kind_;
  int relu_ = 0;
  Ports p_{};
};

/// y = pool(convolution of x + bias). Memory of the device holds what lies between: of 64 images of MNIST, 5.5 MB,
/// which stay in the second cache.
///
/// x, y      (B, H, W, C), (B, H'', W'', Filters)
/// kernel    (K, K, C, Filters); bias (Filters), or none
class Kernels<Cuda>::ConvPool {
 public:
  ConvPool(runtime& rt, layout const& in, int rows, Window const& conv, int filters, Window const& pool, Pool kind,
           bool /*wants_dx*/ = true, bool /*biased*/ = true)
      : conv_{rt, in, rows, conv, filters}, pool_{rt, conv_.out(), rows, pool, kind} {}

  layout out() const { return pool_.out(); }
  std::size_t workspace() const {
    auto cut = cuda::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut          = cuda::Cutter{p.workspace};
    auto const at     = place(cut);
    auto of_conv      = p;
    of_conv.y         = reinterpret_cast<float*>(at.between);
    of_conv.dy        = reinterpret_cast<float*>(at.d_between);
    of_conv.workspace = at.of_conv;
    pool_.bind({.x = of_conv.y, .y = p.y, .dx = of_conv.dy, .dy = p.dy, .workspace = at.of_pool});
    conv_.bind(of_conv);
  }

  void read_from(float const* x) { conv_.read_from(x); }
  void forward(Pass const& pass) const {
    conv_.forward(pass);
    pool_.forward(pass);
  }
  void backward(Pass const& pass) const {
    pool_.backward(pass);
    conv_.backward(pass);
  }

 private:
  struct Places {
    std::byte *between, *d_between, *of_conv, *of_pool;
  };
  Places place(cuda::Cutter& cut) const {
    return {cut.take(conv_.out().bytes()), cut.take(conv_.out().bytes()), cut.take(conv_.workspace()),
            cut.take(pool_.workspace())};
  }

  Conv2D conv_;
  Pool2D pool_;
};

}  // namespace chorale

#endif
