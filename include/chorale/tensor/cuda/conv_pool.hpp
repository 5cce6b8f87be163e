// SPDX-License-Identifier: Apache-2.0
//
// Windows over images on a GPU: pools, and a convolution with the pool after it. Empty where the compiler does not find
// cuBLAS and cuDNN.
#pragma once

#include <chorale/tensor/cuda/convolution.hpp>
#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>
#include <optional>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// y = the largest, or the mean, of each window of x, and max(y, 0) at once where a ReLU follows in place. Padding
/// never counts. Not cuDNN's: here pads may differ on the two sides, and gradients have the same bits every time.
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
    relu_ = rt_->take_relu(p.y, kind_ == Pool::max ? runtime::Takes::both : runtime::Takes::y);
  }

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const {
    cuda::expect(
        cuda::launch::pool(kind_, window_, images(), in_.at(p_.x), in_.at(p_.y), winners(), relu_, cuda::queue()),
        "pool");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr) return;
    cuda::expect(
        cuda::launch::pool_back(kind_, window_, images(), in_.at(p_.dy), winners(), in_.at(p_.dx), cuda::queue()),
        "pool_back");
  }

 private:
  std::size_t images() const { return static_cast<std::size_t>(rows_); }
  int* winners() const { return reinterpret_cast<int*>(p_.workspace); }  // the pixel of each window that y depends on

  runtime* rt_;
  layout in_;
  int rows_;
  Window window_;
  Pool kind_;
  int relu_ = 0;
  Ports p_{};
};

/// y = pool(convolution of x + bias).
///
/// x, y      (B, H, W, C), (B, H'', W'', Filters)
/// kernel    (K, K, C, Filters); bias (Filters), or none
/// cost      one pass over x and y each way, where launch::ConvPool fits and dx is not needed; it accumulates in float,
///           with float variables. Else Conv2D, then Pool2D, with the values between them in memory of the device
class Kernels<Cuda>::ConvPool {
 public:
  ConvPool(runtime& rt, layout const& in, int rows, Window const& conv, int filters, Window const& pool, Pool kind,
           bool wants_dx = true, bool /*biased*/ = true)
      : rt_{&rt}, in_{in}, out_{rows, pool.out_height(), pool.out_width(), filters, in.of}, both_{conv, pool, filters} {
    if (wants_dx || !both_.fits(kind)) apart_.emplace(rt, in, rows, conv, filters, pool, kind);
  }

  layout out() const { return out_; }
  std::size_t workspace() const {
    auto cut = cuda::Cutter{};
    if (apart_) apart_->place(cut);
    else place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut = cuda::Cutter{p.workspace};
    if (apart_) return apart_->bind(p, cut);
    at_   = place(cut);
    p_    = p;
    relu_ = rt_->take_relu(p.y, runtime::Takes::both);
  }

  void read_from(float const* x) {
    p_.x = const_cast<float*>(x);  // only read
    if (apart_) apart_->conv.read_from(x);
  }
  void forward(Pass const& pass) const {
    if (apart_) return apart_->forward(pass);
    cuda::expect(cuda::launch::conv_pool(both_, images(), in_.at(p_.x), p_.kernel, p_.bias, out_.at(p_.y), at_.winners,
                                         relu_, cuda::queue()),
                 "conv_pool");
  }
  void backward(Pass const& pass) const {
    if (apart_) return apart_->backward(pass);
    cuda::expect(cuda::launch::conv_pool_back(both_, images(), in_.at(p_.x), out_.at(p_.dy), at_.winners, at_.scratch,
                                              p_.d_kernel, p_.d_bias, cuda::queue()),
                 "conv_pool_back");
  }

 private:
  struct Apart {
    struct Places {
      std::byte *between, *d_between, *of_conv, *of_pool;
    };

    Apart(runtime& rt, layout const& in, int rows, Window const& of_conv, int filters, Window const& of_pool, Pool kind)
        : conv{rt, in, rows, of_conv, filters}, pool{rt, conv.out(), rows, of_pool, kind} {}

    Places place(cuda::Cutter& cut) const {
      return {cut.take(conv.out().bytes()), cut.take(conv.out().bytes()), cut.take(conv.workspace()),
              cut.take(pool.workspace())};
    }
    void bind(Ports const& p, cuda::Cutter& cut) {
      auto const at     = place(cut);
      auto of_conv      = p;
      of_conv.y         = reinterpret_cast<float*>(at.between);
      of_conv.dy        = reinterpret_cast<float*>(at.d_between);
      of_conv.workspace = at.of_conv;
      pool.bind({.x = of_conv.y, .y = p.y, .dx = of_conv.dy, .dy = p.dy, .workspace = at.of_pool});
      conv.bind(of_conv);
    }
    void forward(Pass const& pass) const { conv.forward(pass), pool.forward(pass); }
    void backward(Pass const& pass) const { pool.backward(pass), conv.backward(pass); }

    Conv2D conv;
    Pool2D pool;
  };
  struct Places {
    unsigned char* winners;  // (B, H'', W'', Filters)
    float* scratch;
  };
  Places place(cuda::Cutter& cut) const {
    return {cut.take_some<unsigned char>(out_.size()), cut.take_floats(both_.scratch(images()))};
  }
  std::size_t images() const { return static_cast<std::size_t>(out_.rows); }

  runtime* rt_;
  layout in_, out_;
  cuda::launch::ConvPool both_;
  std::optional<Apart> apart_;
  Places at_{};
  int relu_ = 0;
  Ports p_{};
};

}  // namespace chorale

#endif
