// SPDX-License-Identifier: Apache-2.0
//
// Layers of rows on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/tensor/kernels_cuda.hpp>
#include <chorale/tensor/launch_cuda.hpp>
#include <chorale/tensor/ops.hpp>
#include <chorale/tensor/product_cuda.hpp>
#include <chorale/tensor/runtime_cuda.hpp>

#include <cstddef>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// y = x W + b, and max(y, 0) at once where a ReLU follows in place.
///
/// x, y      (B, In), (B, Units); kernel (In, Units), bias (Units), all plain
/// cost      three products; bias, ReLU and the bias' gradient are in them, where cuBLASLt can
/// source    tf.keras.layers.Dense; cublasLtMatmul with CUBLASLT_EPILOGUE_RELU_BIAS and BGRADA
class Kernels<Cuda>::Dense {
 public:
  Dense(runtime& rt, layout const&, int rows, int inputs, int units)
      : rt_{&rt}, rows_{rows}, inputs_{inputs}, units_{units} {}

  layout out() const { return matrix(rows_, units_); }
  std::size_t workspace() const {                                          // for the bias' gradient by itself
    return cuda::launch::partials * static_cast<std::size_t>(units_) * sizeof(float);
  }

  void bind(Ports const& p) {
    using Product     = cuda::Product;
    p_                = p;
    auto const x      = Product::Factor{p.x, inputs_, rows_};              // each as cuBLAS sees it: turned
    auto const w      = Product::Factor{p.kernel, units_, inputs_};
    auto const dy     = Product::Factor{p.dy, units_, rows_};
    auto const turned = [](Product::Factor f) { return Product::Factor{f.data, f.rows, f.columns, CUBLAS_OP_T}; };
    auto const end    = rt_->take_relu(p.y) != 0 ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;

    forward_ = {*rt_, w, x, p.y, units_, rows_, {end, p.bias}};            // (Units, In) x (In, B) -> (Units, B)
    weights_ = {*rt_, dy, turned(x), p.d_kernel, units_, inputs_, {CUBLASLT_EPILOGUE_BGRADA, p.d_bias}};
    sums_apart_ = !weights_;
    if (sums_apart_) weights_ = {*rt_, dy, turned(x), p.d_kernel, units_, inputs_, {}};
    if (p.dx != nullptr) data_ = {*rt_, turned(w), dy, p.dx, inputs_, rows_, {}};   // (In, Units) x (Units, B)
    CHORALE_ENSURES(forward_ && weights_ && (p.dx == nullptr || data_), "cuBLASLt has no kernel for this Dense");
  }

  void read_from(float const* x) {
    forward_.point_b(x);
    weights_.point_b(x);
  }
  void forward(Pass const&) const { forward_(); }
  void backward(Pass const&) const {
    weights_();
    if (sums_apart_)
      cuda::expect(cuda::launch::column_sums(static_cast<std::size_t>(rows_), static_cast<std::size_t>(units_), p_.dy,
                                             reinterpret_cast<float*>(p_.workspace), p_.d_bias, cuda::queue()),
                   "column_sums");
    if (data_) data_();
  }

 private:
  runtime* rt_;
  int rows_, inputs_, units_;
  Ports p_{};
  cuda::Product forward_, weights_, data_;
  bool sums_apart_ = false;
};

/// y = f(x), element by element; x and y may be one buffer where f' follows from y.
///
/// source    tf.keras.activations
class Kernels<Cuda>::Activate {
 public:
  Activate(runtime& rt, layout const& in, Activation f, float alpha) : rt_{&rt}, in_{in}, f_{f}, alpha_{alpha} {}

  layout out() const { return in_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) {
    p_ = p;
    if (f_ == Activation::relu && p.x == p.y) rt_->ask_relu(p.y);
  }

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }         // only read
  void forward(Pass const&) const {
    if (rt_->is_taken(p_.y)) return;                                       // whoever wrote y has done it
    cuda::expect(cuda::launch::activate(f_, alpha_, in_.size(), p_.x, p_.y, cuda::queue()), "activate");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr) return;
    auto* const of = differentiates_from_y(f_) ? p_.y : p_.x;
    cuda::expect(cuda::launch::activate_back(f_, alpha_, in_.size(), of, p_.dy, p_.dx, cuda::queue()), "activate_back");
  }

 private:
  runtime* rt_;
  layout in_;
  Activation f_;
  float alpha_;
  Ports p_{};
};

/// y = exp(x) / sum of exp(x), over each row.
///
/// x, y      (B, N)
/// source    tf.keras.activations.softmax
class Kernels<Cuda>::Softmax {
 public:
  Softmax(runtime&, layout const& in) : in_{in} {}

  layout out() const { return in_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) { p_ = p; }
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }         // only read
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::softmax(in_.pixels(), width(), p_.x, p_.y, cuda::queue()), "softmax");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr) return;
    cuda::expect(cuda::launch::softmax_back(in_.pixels(), width(), p_.y, p_.dy, p_.dx, cuda::queue()), "softmax_back");
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(in_.channels); }

  layout in_;
  Ports p_{};
};

/// y = x + other, and max(y, 0) at once where a ReLU follows in place; x and y may be one buffer.
///
/// x, other  of one shape
class Kernels<Cuda>::Sum {
 public:
  Sum(runtime& rt, layout const& in, layout const& /*other*/) : rt_{&rt}, in_{in} {}

  layout out() const { return in_; }
  std::size_t workspace() const { return 0; }
  /// Is the gradient by other the one by x? It always is here: all layouts are plain.
  bool one_gradient() const { return true; }

  void bind(Ports const& p) {
    p_    = p;
    relu_ = rt_->take_relu(p.y);
  }

  void read_from(float const*) {}                                          // never the first layer
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::add(in_.size(), p_.x, p_.other, p_.y, relu_, cuda::queue()), "add");
  }
  void backward(Pass const&) const {}                                      // dx is dy, and so is d_other

 private:
  runtime* rt_;
  layout in_;
  int relu_ = 0;
  Ports p_{};
};

/// y = x as rows: (B, H, W, C) becomes (B, H · W · C), which are the same bytes.
///
/// cost      one copy each way
class Kernels<Cuda>::ToRows {
 public:
  ToRows(runtime&, layout const& in, layout const&, int rows, int columns) : in_{in}, out_{matrix(rows, columns)} {}

  layout out() const { return out_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) { p_ = p; }
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }         // only read
  void forward(Pass const&) const { copy(p_.x, p_.y); }
  void backward(Pass const&) const {
    if (p_.dx != nullptr) copy(p_.dy, p_.dx);
  }

 private:
  void copy(float const* from, float* to) const {
    cuda::copy(to, from, in_.bytes());
  }

  layout in_, out_;
  Ports p_{};
};

}  // namespace chorale

#endif
