// SPDX-License-Identifier: Apache-2.0
//
// Layers of rows on a GPU; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/matmul.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// y = x W + b, and max(y, 0) at once where a ReLU follows in place.
///
/// x, y      (B, In), (B, Units); kernel (In, Units), bias (Units) or none, all plain
/// cost      three products; bias, ReLU and the bias' gradient are in them, where cuBLASLt can. Where activations are
///           halves, forward rounds kernel and bias to halves once
/// source    tf.keras.layers.Dense; cublasLtMatmul with CUBLASLT_EPILOGUE_RELU_BIAS and BGRADA
class Kernels<Cuda>::Dense {
 public:
  Dense(runtime& rt, layout const& in, int rows, int inputs, int units)
      : rt_{&rt}, in_{in}, rows_{rows}, inputs_{inputs}, units_{units} {}

  layout out() const { return {rows_, 1, 1, units_, in_.of}; }
  std::size_t workspace() const {
    auto cut = cuda::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    using Product     = cuda::Product;
    auto cut          = cuda::Cutter{p.workspace};
    at_               = place(cut);
    p_                = p;
    auto const of     = in_.of;
    auto const x      = Product::Factor{{p.x, of}, inputs_, rows_};  // each as cuBLAS sees it: transposed
    auto const w      = Product::Factor{rounds() ? half(at_.kernel) : Values{p.kernel}, units_, inputs_};
    auto const dy     = Product::Factor{{p.dy, of}, units_, rows_};
    auto const turned = [](Product::Factor f) { return Product::Factor{f.data, f.rows, f.columns, CUBLAS_OP_T}; };
    auto const d_w    = Values{p.d_kernel};

    forward_ = {*rt_, w, x, {p.y, of}, units_, rows_, end()};  // (Units, In) x (In, B) -> (Units, B)
    if (biased()) weights_ = {*rt_, dy, turned(x), d_w, units_, inputs_, {CUBLASLT_EPILOGUE_BGRADA, p.d_bias}};
    sums_apart_ = biased() && !weights_;
    if (!weights_) weights_ = {*rt_, dy, turned(x), d_w, units_, inputs_, {}};
    if (p.dx != nullptr) data_ = {*rt_, turned(w), dy, {p.dx, of}, inputs_, rows_, {}};  // (In, Units) x (Units, B)
    CHORALE_ENSURES(forward_ && weights_ && (p.dx == nullptr || data_), "cuBLASLt has no kernel for this Dense");
  }

  void read_from(float const* x) {
    forward_.point_b(x);
    weights_.point_b(x);
  }
  void forward(Pass const&) const {
    if (rounds()) {
      round(static_cast<std::size_t>(inputs_) * static_cast<std::size_t>(units_), p_.kernel, at_.kernel);
      if (biased()) round(static_cast<std::size_t>(units_), p_.bias, at_.bias);
    }
    forward_();
  }
  void backward(Pass const&) const {
    weights_();
    if (sums_apart_)
      cuda::expect(cuda::launch::column_sums(static_cast<std::size_t>(rows_), static_cast<std::size_t>(units_),
                                             {p_.dy, in_.of}, at_.sums, p_.d_bias, cuda::queue()),
                   "column_sums");
    if (data_) data_();
  }

 private:
  using Values = cuda::launch::Values;

  struct Places {
    float* sums;               // for a separate gradient of the bias
    std::byte *kernel, *bias;  // as halves
  };
  Places place(cuda::Cutter& cut) const {
    auto const units = static_cast<std::size_t>(units_);
    auto* const sums = cut.take_floats(cuda::launch::partials_of(units) * units);
    if (!rounds()) return {sums, nullptr, nullptr};
    return {sums, cut.take_values(static_cast<std::size_t>(inputs_) * units, in_.of), cut.take_values(units, in_.of)};
  }

  /// The epilogue of forward, in the same kernel.
  cuda::Product::After end() const {
    auto const relu = rt_->take_relu(p_.y) != 0;
    if (!biased()) return {relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT};
    return {relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS,
            rounds() ? static_cast<void const*>(at_.bias) : p_.bias};
  }
  bool biased() const { return p_.bias != nullptr; }
  bool rounds() const { return in_.of != Elements::f32; }
  Values half(std::byte* memory) const { return {memory, in_.of}; }
  void round(std::size_t n, float* from, std::byte* to) const {
    cuda::expect(cuda::launch::convert(n, {from}, half(to), cuda::queue()), "convert");
  }

  runtime* rt_;
  layout in_;
  int rows_, inputs_, units_;
  Places at_{};
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

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const {
    if (rt_->is_taken(p_.y)) return;  // the kernel that wrote y has applied it
    cuda::expect(cuda::launch::activate(f_, alpha_, in_.size(), in_.at(p_.x), in_.at(p_.y), cuda::queue()), "activate");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr || (p_.dx == p_.dy && rt_->is_taken(p_.y, runtime::Takes::both))) return;
    auto* const of = differentiates_from_y(f_) ? p_.y : p_.x;
    cuda::expect(
        cuda::launch::activate_back(f_, alpha_, in_.size(), in_.at(of), in_.at(p_.dy), in_.at(p_.dx), cuda::queue()),
        "activate_back");
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
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::softmax(in_.pixels(), width(), in_.at(p_.x), in_.at(p_.y), cuda::queue()), "softmax");
  }
  void backward(Pass const&) const {
    if (p_.dx == nullptr) return;
    cuda::expect(
        cuda::launch::softmax_back(in_.pixels(), width(), in_.at(p_.y), in_.at(p_.dy), in_.at(p_.dx), cuda::queue()),
        "softmax_back");
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
  /// True if the gradient by other is the one by x: always here, since all layouts are plain.
  bool one_gradient() const { return true; }

  void bind(Ports const& p) {
    p_    = p;
    relu_ = rt_->take_relu(p.y);
  }

  /// in        0: x; 1: other
  void read_from(std::size_t in, float const* from) { (in == 0 ? p_.x : p_.other) = const_cast<float*>(from); }
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::add(in_.size(), in_.at(p_.x), in_.at(p_.other), in_.at(p_.y), relu_, cuda::queue()),
                 "add");
  }
  void backward(Pass const&) const {}  // dx is dy, and so is d_other

 private:
  runtime* rt_;
  layout in_;
  int relu_ = 0;
  Ports p_{};
};

/// y = x as rows: (B, H, W, C) becomes (B, H · W · C), which are the same bytes.
///
/// cost      none; as the first layer of a network, one copy
class Kernels<Cuda>::ToRows {
 public:
  static constexpr bool renames = true;  // y may be x, and dx dy

  ToRows(runtime&, layout const& in, layout const&, int rows, int columns)
      : in_{in}, out_{rows, 1, 1, columns, in.of} {}

  layout out() const { return out_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) { p_ = p; }
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const {
    if (p_.y != p_.x) copy(in_, p_.x, p_.y);
  }
  void backward(Pass const&) const {
    if (p_.dx != nullptr && p_.dx != p_.dy) copy(in_, p_.dy, p_.dx);
  }

 private:
  layout in_, out_;
  Ports p_{};
};

/// y = x as rows of float, the input of a loss.
class Kernels<Cuda>::ToPlain {
 public:
  ToPlain(runtime&, layout const& in, layout const&, int rows, int columns) : in_{in}, out_{matrix(rows, columns)} {}

  layout out() const { return out_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) { p_ = p; }
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const { convert(in_.at(p_.x), out_.at(p_.y)); }
  void backward(Pass const&) const {
    if (p_.dx != nullptr) convert(out_.at(p_.dy), in_.at(p_.dx));
  }

 private:
  void convert(cuda::launch::Values from, cuda::launch::Values to) const {
    cuda::expect(cuda::launch::convert(in_.size(), from, to, cuda::queue()), "convert");
  }

  layout in_, out_;
  Ports p_{};
};

/// y = x in the type of the runtime's activations. Without a backward: the gradient by a batch is not needed.
class Kernels<Cuda>::ToActivations {
 public:
  ToActivations(runtime& rt, layout const& in) : in_{in}, out_{in} { out_.of = rt.activations; }

  layout out() const { return out_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) { p_ = p; }
  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read
  void forward(Pass const&) const {
    cuda::expect(cuda::launch::convert(in_.size(), in_.at(p_.x), out_.at(p_.y), cuda::queue()), "convert");
  }
  void backward(Pass const&) const {}

 private:
  layout in_, out_;
  Ports p_{};
};

}  // namespace chorale

#endif
